"""A recall with everything that led to its answer: what the recall inspector draws.

`Explainer.explain` runs the recall of the engine, by the same stages over the same snapshot, and
tells of all that its filters let be shown, and of nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg

from retrieval.errors import InvalidInput
from retrieval.recall import ladder, report
from retrieval.recall.decision import Decision
from retrieval.recall.engine import (
    RETRIEVAL_GRACE_S,
    RecallEngine,
    RecallResult,
    Retriever,
)
from retrieval.recall.look.inspection import Inspection
from retrieval.recall.look.placing import Placed
from retrieval.settings import RecallSettings, check, per_bank
from retrieval.stopwatch import Stopwatch, TimedStep
from retrieval.store import openings
from retrieval.types import RecallQuery

TEXT_CHARACTERS = 600
CHECKS_MOST = 2
"""Recalls that `check` costs at most."""

TRIED = frozenset(per_bank(RecallSettings)) | {
    "recall_strategy_boosts",
    "recall_max_candidates_per_source",
    "reranker_max_candidates",
    "reranker_max_candidates_low",
    "reranker_max_candidates_mid",
    "reranker_max_candidates_high",
    "recency_decay_function",
    "recency_decay_linear_window_days",
    "recency_decay_halflife_days",
}
"""Settings that one recall may try: what a bank may set, boosts, caps and recency."""


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """What to explain besides the answer.

    settings: of this recall only; why: memories to be placed; check: try what would let them in;
    lists: most entries of an arm's list; text: most characters of a memory."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    why: Sequence[UUID] = ()
    check: bool = False
    lists: int = 300
    text: int = TEXT_CHARACTERS


@dataclass(frozen=True, slots=True)
class _Seen:
    """One recall up to what it decided."""

    decision: Decision
    inspection: Inspection | None
    spans: tuple[TimedStep, ...]


def checked_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a recall may try. InvalidInput names the first that it may not."""
    for name, value in given.items():
        if name not in TRIED:
            raise InvalidInput(f"settings: {name[:80]!r} cannot be tried in a recall", "settings")
        if value is None:
            continue
        if said := check(RecallSettings, name, value):
            raise InvalidInput(f"settings.{name}: {said}", "settings")
    return {name: value for name, value in given.items() if value is not None}


class Explainer:
    """Explains recalls of an engine. Holds no state; safe for any number of concurrent calls."""

    def __init__(self, pool: asyncpg.Pool, retriever: Retriever, engine: RecallEngine) -> None:
        self._pool, self.retriever, self._engine = pool, retriever, engine

    async def explain(
        self, query: RecallQuery, asked: ExplainRequest
    ) -> tuple[RecallResult, dict[str, Any]]:
        """The recall's result as `RecallEngine.recall` gives it, and the explanation without it.

        Raises what a recall does, and InvalidInput for a setting that cannot be tried."""
        overrides = checked_settings(asked.settings)
        query = self._engine.checked(query)
        clock, begin = Stopwatch(), time.perf_counter()
        seen = await self._seen(query, overrides, asked, clock)
        answer = await self._engine.answer(seen.decision, clock)
        spans = report.spans(begin, clock, seen.spans)
        why = await self._why(query, overrides, asked, seen)
        return answer, await self._explanation(seen, asked, spans, why)

    async def look(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """See retrieval.recall.engine.Retriever."""
        return await self.retriever.look(name, arguments)

    async def _seen(
        self,
        query: RecallQuery,
        overrides: Mapping[str, Any],
        asked: ExplainRequest,
        clock: Stopwatch,
    ) -> _Seen:
        patience = None if query.deadline is None else query.deadline + RETRIEVAL_GRACE_S
        async with clock.stage("parallel_retrieval", patience):
            shortlist, inspection, spans = await self.retriever.look(
                "explain",
                {
                    "query": query,
                    "texts": self._engine.reads_text,
                    "overrides": overrides,
                    "ids": [id.bytes for id in asked.why],
                    "lists": asked.lists,
                },
            )
        decision = await self._engine.decide(query, shortlist, clock, overrides)
        return _Seen(decision, inspection, spans)

    # Why not

    async def _why(
        self, query: RecallQuery, overrides: Mapping[str, Any], asked: ExplainRequest, seen: _Seen
    ) -> list[report.Why]:
        """For each memory asked about: where it stands, and what would bring it in."""
        if not asked.why:
            return []
        bank = seen.decision.shortlist.head.bank
        rows = await openings.openings(self._pool, bank, asked.why, 0)
        left = CHECKS_MOST if asked.check else 0
        found = []
        for id in asked.why:
            placed = _placed_of(seen, id)
            row = rows.get(str(id))
            live = row is not None and row.ordinal is not None
            stands = ladder.standing(
                None if seen.inspection is None else seen.decision, placed, row is not None, live
            )
            needs: list[dict[str, Any]] = []
            for change in stands.changes:
                if not left or needs:
                    needs.append({"change": change, "then": None, "checked": False, "rank": None})
                    continue
                need, spent = await self._tried(query, overrides, asked, id, change, left)
                needs.append(need)
                left -= spent
            found.append((placed, stands, needs))
        return found

    async def _tried(
        self,
        query: RecallQuery,
        overrides: Mapping[str, Any],
        asked: ExplainRequest,
        id: UUID,
        change: ladder.Change,
        left: int,
    ) -> tuple[dict[str, Any], int]:
        """What a change does, tried; where another gate stops the memory then, with that lifted
        too. And how many recalls that took."""
        whole: dict[str, Any] = {}
        then: str | None = None
        for spent in range(1, left + 1):
            whole = _joined(whole, change)
            new_query, new_overrides = ladder.changed(query, overrides, whole)
            one = ExplainRequest(why=(id,), lists=0)
            seen = await self._seen(new_query, new_overrides, one, Stopwatch())
            stands = ladder.standing(seen.decision, _placed_of(seen, id), True, True)
            then = stands.stopped_at
            if stands.verdict == "served":
                return {
                    "change": whole,
                    "then": "served",
                    "checked": True,
                    "rank": stands.rank,
                }, spent
            if not stands.changes:
                break
            change = stands.changes[0]
        return {"change": whole, "then": then, "checked": True, "rank": None}, spent

    async def _explanation(
        self,
        seen: _Seen,
        asked: ExplainRequest,
        spans: list[dict[str, Any]],
        why: Sequence[report.Why],
    ) -> dict[str, Any]:
        ids = report.Ids()
        body = report.body(seen.decision, seen.inspection, spans, why, asked.lists, ids)
        bank = seen.decision.shortlist.head.bank
        rows = await openings.openings(self._pool, bank, ids.uuids, asked.text)
        body["memories"] = [report.memory(id, rows.get(id)) for id in ids.uuids]
        return body


def _placed_of(seen: _Seen, id: UUID) -> Placed:
    for placed in seen.inspection.placed if seen.inspection is not None else ():
        if placed.id == id.bytes:
            return placed
    return Placed(id.bytes, -1, False, (), {}, 0)


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    joined = {**one, **other}
    for name in ("settings", "min_scores"):
        if name in one and name in other:
            joined[name] = {**one[name], **other[name]}
    return joined
