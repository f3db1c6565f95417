"""One recall, top to bottom.

    clean the question -> retrieve a shortlist (four arms, fused, cut) -> rerank -> combine scores
    -> floors -> prefer observations -> group duplicates -> pack -> fetch texts -> answer

Everything per candidate is an array operation; the database is asked by ordinal, and an ordinal's
content never changes within a generation of the bank, so what is returned is what was ranked.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol

import asyncpg
import numpy as np

from retrieval import zones
from retrieval.errors import InvalidInput
from retrieval.pacing import Pace
from retrieval.protocols import Reranker, RerankRequest
from retrieval.ranking import packing
from retrieval.ranking.document import document, path_prefixed
from retrieval.ranking.shortlist import Shortlist
from retrieval.ranking.weights import (
    Ranked,
    RerankerOutput,
    cut,
    prefers_observations,
    rank,
    without_duplicates,
    without_sources,
)
from retrieval.recall import explain, extras, trace
from retrieval.recall.decision import Decision
from retrieval.settings import RecallSettings
from retrieval.stopwatch import Stopwatch
from retrieval.store import attachments, banks, memories
from retrieval.store.heads import BankHead
from retrieval.store.visibility import Visibility
from retrieval.text import tokens
from retrieval.topk import places
from retrieval.types import (
    Floats,
    Ints,
    MemoryRow,
    RecallQuery,
)

_log = logging.getLogger(__name__)

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")

RERANK_RESERVE_S = 0.15
"""Time kept back from a reranker for packing and fetching, so that its lateness degrades the
answer instead of ending it."""

RETRIEVAL_GRACE_S = 0.1
"""How much longer than it may take the retriever is waited for: its own error says more."""


class Retriever(Protocol):
    """Finds the shortlist of a recall; in process or behind a handle, near the bank's arrays."""

    async def retrieve(self, query: RecallQuery, *, texts: bool) -> Shortlist:
        """Candidates of `query` (its text already cleaned) at the bank's newest version.

        `texts` asks for what a cross-encoder reads. Raises NotFound, DeadlineExceeded,
        Unavailable; a lost arm or embedding is named in `degraded` instead.
        """
        ...

    async def look(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """What a resident bank shows beside recalls.

        `explain` (`query`, `texts` as of `retrieve`; `overrides`: settings of this recall only;
        `ids`, 16 bytes each: memories to be placed; `lists`: most entries of an arm's list) gives
        (Shortlist, look.inspection.Inspection or None for a bank without memories, spans from the
        beginning of the call). The others are
        `look.LOOKS`; with `tenant` and `bank_id`.
        """
        ...


@dataclass(frozen=True, slots=True)
class RecallResult:
    """`body` is the answer, ready for orjson; `degraded` names stages that were left out."""

    body: dict[str, Any]
    degraded: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


class Recaller(Protocol):
    """Whoever answers recalls: an engine in this process, or one behind a handle."""

    async def recall(self, query: RecallQuery) -> RecallResult: ...


class RecallEngine:
    """Answers recalls. Holds no state of its own; safe for any number of concurrent calls."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        retriever: Retriever,
        reranker: Reranker,
        settings: RecallSettings,
        pace: Pace | None = None,
    ) -> None:
        self._pool = pool
        self._retriever = retriever
        self._reranker = reranker
        self._settings = settings
        self._pace = pace or Pace()

    @property
    def reads_text(self) -> bool:
        """Does what orders the candidates read their texts?"""
        return self._reranker.reads_text

    async def recall(self, query: RecallQuery) -> RecallResult:
        """Raises InvalidInput, NotFound, Overloaded, DeadlineExceeded, Unavailable."""
        query = self.checked(query)
        if not query.filters.types:
            return RecallResult({"results": []})
        while True:
            result, head = await self._answered(query)
            if result.body["results"]:
                return result
            # Empty, perhaps because the ordinals were reassigned between ranking and reading.
            newest = await banks.head(self._pool, query.tenant, query.bank_id)
            if (newest.bank, newest.generation) == (head.bank, head.generation):
                return result

    async def _answered(self, query: RecallQuery) -> tuple[RecallResult, BankHead]:
        """The answer, and the state of the bank that it was ranked from."""
        clock = Stopwatch()
        patience = None if query.deadline is None else query.deadline + RETRIEVAL_GRACE_S
        async with clock.stage("parallel_retrieval", patience):
            shortlist = await self._retriever.retrieve(query, texts=self._reranker.reads_text)
        decision = await self.decide(query, shortlist, clock)
        return await self.answer(decision, clock), shortlist.head

    async def decide(
        self,
        query: RecallQuery,
        shortlist: Shortlist,
        clock: Stopwatch,
        overrides: Mapping[str, Any] = MappingProxyType({}),
    ) -> Decision:
        """What of a shortlist is served, in which order. `overrides`: settings of this recall."""
        settings = self._settings.with_overrides(shortlist.head.config).with_overrides(overrides)
        query = zones.settled(query, settings.timezone)
        degraded = list(shortlist.degraded)

        async with clock.stage("reranking", query.deadline):
            scores = await self._rerank(query, shortlist, settings)
        if scores.degraded:
            degraded.append("rerank")
        await self._pace.turn(query.tenant)
        with clock.step("combined_scoring"):
            ranked = rank(query, shortlist, scores, settings)
            order, dropped = ranked.order, dict(ranked.dropped)
            if prefers_observations(query, settings):
                order = without_sources(shortlist, order, dropped)
            if query.dedupe is not None and shortlist.vectors is not None:
                order, merged = without_duplicates(shortlist, order, query.dedupe, dropped)
            else:
                merged = {}
            order = cut(order, 2 * shortlist.budget, "rank", dropped)
            if query.limit is not None:
                order = cut(order, query.limit, "limit", dropped)
        with clock.step("token_filtering"):
            packed = packing.pack(shortlist.facts.tokens[order], query.max_tokens)
            left = np.ones(len(order), np.bool_)
            left[packed.kept] = False
            dropped.update(dict.fromkeys(np.sort(order[left]).tolist(), "tokens"))
        return Decision(
            query, settings, shortlist, ranked, order, packed, dropped, merged, tuple(degraded)
        )

    async def answer(self, decision: Decision, clock: Stopwatch) -> RecallResult:
        """What was decided, as the API shows it."""
        query, shortlist, ranked = decision.query, decision.shortlist, decision.ranked
        order, kept = decision.order, decision.kept
        async with clock.stage("hydrate_results", query.deadline):
            rows = await self._rows(shortlist, kept)
            visibility = Visibility(query.filters)
            shown = await extras.sources(self._pool, shortlist.head, visibility, rows.values())
            heirs = await extras.heirs(self._pool, shortlist.head, visibility, rows.values())
            await self._pace.turn(query.tenant)
            body = await self._answer(query, shortlist, ranked, rows, decision.merged, shown, heirs)
            body |= await extras.fetch(self._pool, query, shortlist, order, rows, visibility, shown)
        body["results_truncated"] = decision.packed.truncated
        if decision.degraded:
            body["degraded"] = list(decision.degraded)
        if query.trace:
            with clock.step("trace_finalize"):
                told = await trace.rows(self._pool, shortlist)
                body["trace"] = await asyncio.to_thread(  # it tells every candidate of every arm
                    trace.build, decision, told, body["results"], dict(clock.seconds)
                )
        seconds = {**shortlist.seconds, **clock.seconds}
        return RecallResult(body, decision.degraded, {}, seconds)

    def checked(self, query: RecallQuery) -> RecallQuery:
        """The query with its text cleaned; InvalidInput where it is empty or too long."""
        text = _CONTROL.sub("", query.text)
        limit = self._settings.recall_max_query_tokens
        if limit > 0 and len(text) > limit and tokens.count(text) > limit:
            raise InvalidInput(
                f"query is longer than {limit} tokens ({tokens.count(text)}): shorten it", "query"
            )
        return dataclasses.replace(query, text=text)

    async def _rerank(
        self, query: RecallQuery, shortlist: Shortlist, settings: RecallSettings
    ) -> RerankerOutput:
        """The cross-encoder's scores, or which passthrough orders the list."""
        if settings.fusion == "interleave":
            return RerankerOutput(None, "unknown", "interleave")
        if not settings.enable_reranking:
            return RerankerOutput(None, "unknown", "rrf")
        if len(shortlist) == 0:
            return RerankerOutput(None, "unknown", "fused")
        documents: list[str] = []
        if shortlist.texts is not None:
            documents = _documents(shortlist, shortlist.texts, settings)
        deadline = None if query.deadline is None else query.deadline - RERANK_RESERVE_S
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            async with asyncio.timeout(left):  # whether or not it keeps to its deadline itself
                answer = await self._reranker.rerank(
                    RerankRequest(query.text, documents, query.tenant, query.bank_id, deadline)
                )
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a lost reranker costs quality, never the answer
            _log.warning("reranker failed (%s: %s)", type(error).__name__, error)
            return RerankerOutput(None, "unknown", "fused", degraded=True)
        if answer.scores is not None and not _usable(answer.scores, len(shortlist)):
            _log.warning("reranker %s gave unusable scores", answer.member)
            return RerankerOutput(None, "unknown", "fused", degraded=True)
        return RerankerOutput(
            None if answer.scores is None else np.asarray(answer.scores, np.float64),
            answer.scale,
            answer.member,
            answer.degraded,
        )

    async def _rows(self, shortlist: Shortlist, kept: Ints) -> dict[int, MemoryRow]:
        """The kept candidates' stored rows by position; deleted ones are missing."""
        if len(kept) == 0:
            return {}
        ordinals = shortlist.found.ordinals[kept]
        head = shortlist.head
        rows = await memories.rows(self._pool, head.bank, ordinals, head.generation)
        place = dict(zip(ordinals.tolist(), kept.tolist(), strict=True))
        return {place[row.ordinal]: row for row in rows}

    async def _answer(
        self,
        query: RecallQuery,
        shortlist: Shortlist,
        ranked: Ranked,
        rows: dict[int, MemoryRow],
        merged: Mapping[int, int],
        shown: Collection[str] | None,
        heirs: Collection[str] | None,
    ) -> dict[str, Any]:
        names, head = None, shortlist.head
        if query.include.entities is not None and rows:
            ordinals = shortlist.found.ordinals[np.fromiter(rows, np.int64, len(rows))]
            names = await memories.entity_names(
                self._pool, head.bank, ordinals, head.generation, shown
            )
        positions = np.fromiter(rows, np.int64, len(rows))
        told = query.include.source_facts is not None
        results = []
        for (position, row), scores in zip(
            rows.items(), explain.scores(shortlist, ranked, positions), strict=True
        ):
            result = extras.result(row, names, query.filters.as_of, heirs)
            if told and (made_of := extras.visible(row.source_ids, shown)):
                result["source_fact_ids"] = made_of
            if position in merged:
                result["merged"] = merged[position]
            result["scores"] = scores
            results.append(result)
        if query.explain or query.trace:
            accounts = await asyncio.to_thread(explain.accounts, shortlist, ranked, positions)
            for result, account in zip(results, accounts, strict=True):
                result["explain"] = account
        if head.attached:
            await attachments.show(self._pool, head.bank, head.bank_id, results)
        body: dict[str, Any] = {"results": results}
        if names:
            body["entities"] = extras.entity_map(rows.values(), names)
        return body


def _documents(
    shortlist: Shortlist,
    texts: Sequence[tuple[str, str | None, datetime | None]],
    settings: RecallSettings,
) -> list[str]:
    """What the cross-encoder reads, in the shortlist's order."""
    documents = [document(*text) for text in texts]
    if not settings.rerank_graph_paths:
        return documents
    paths = shortlist.paths
    source = places(shortlist.found.ordinals, paths.source)
    return path_prefixed([text for text, *_ in texts], documents, source, paths.link)


def _usable(scores: Floats, count: int) -> bool:
    return len(scores) == count and bool(np.isfinite(scores).any())
