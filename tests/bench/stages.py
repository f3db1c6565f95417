"""CPU time of a recall by stage, in this process: each stage by itself, on the same questions.

CPU time of the whole process, so that a stage's threads and the driver's work count. What the whole
recall costs beyond its stages (tasks, thread hops, gathering) is shown as `rest`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np
import orjson

from retrieval import search, timex
from retrieval.bank.resident import ResidentBank
from retrieval.recall import RecallResult
from retrieval.search import Plan
from retrieval.settings import RecallSettings
from retrieval.shortlist import Shortlist
from retrieval.store import banks, memories
from retrieval.types import Include, RecallQuery
from tests.bench.harness import System

T = TypeVar("T")
R = TypeVar("R")

FUSE = ("rrf_merge", "rerank_prefilter", "score_fusion")
PACK = ("combined_scoring", "token_filtering")


def question(run: System, bank_id: str, text: str) -> RecallQuery:
    return RecallQuery(
        tenant=run.tenant,
        bank_id=bank_id,
        text=text,
        now=datetime.now(UTC),
        include=Include(entities=None),
    )


async def cpu_ms(work: Callable[[T], Awaitable[R]], asked: Sequence[T]) -> tuple[float, list[R]]:
    """Mean CPU-ms of `work` over what is asked, one after the other, and its answers."""
    begin = time.process_time()
    answers = [await work(one) for one in asked]
    return 1000 * (time.process_time() - begin) / len(asked), answers


async def by_stage(run: System, bank_id: str, rounds: Sequence[Sequence[str]]) -> dict[str, float]:
    """CPU-ms per recall: `recall` of the whole, then the stages that it consists of.

    `rounds`: three lists of texts, of one length, no text twice: an embedding is remembered.
    """
    engine, retriever = run.engine(RecallSettings()), run.retriever(RecallSettings())
    whole_texts, found_texts, texts = rounds
    plans: list[tuple[ResidentBank, Plan]] = []
    search_run = search.run

    def noted(bank: ResidentBank, plan: Plan) -> Shortlist:
        plans.append((bank, plan))
        return search_run(bank, plan)

    async def found(text: str) -> Shortlist:
        return await retriever.retrieve(question(run, bank_id, text), texts=False)

    async def embed(text: str) -> object:
        return await run.embedder.embed_queries([text])

    async def head(_: str) -> object:
        return await banks.head(run.pool, run.tenant, bank_id)

    async def read_time(text: str) -> object:
        timex.anchor_event(text)
        return timex.parse(text, datetime.now(UTC))

    async def searched(planned: tuple[ResidentBank, Plan]) -> Shortlist:
        return search_run(*planned)

    async def whole(text: str) -> RecallResult:
        return await engine.recall(question(run, bank_id, text))

    async def rows(kept: tuple[int, Any]) -> object:
        return await memories.rows(run.pool, *kept)

    async def serialise(answer: RecallResult) -> bytes:
        return orjson.dumps(answer.body, option=orjson.OPT_SERIALIZE_NUMPY)

    ms: dict[str, float] = {}
    ms["recall"], answers = await cpu_ms(whole, whole_texts)
    with patch.object(search, "run", noted):
        retrieved, shortlists = await cpu_ms(found, found_texts)
    ms["embed"], _ = await cpu_ms(embed, texts)
    ms["bank version"], _ = await cpu_ms(head, texts)
    ms["time expression"], _ = await cpu_ms(read_time, texts)
    arms_and_fuse, _ = await cpu_ms(searched, plans)
    ms["fuse"] = _steps((s.seconds for s in shortlists), FUSE)
    ms["arms"] = arms_and_fuse - ms["fuse"]
    ms["rank and pack"] = _steps((a.seconds for a in answers), PACK)
    kept = int(np.median([len(a.body["results"]) for a in answers]))
    ms["hydrate"], _ = await cpu_ms(
        rows, [(s.head.bank, s.found.ordinals[:kept]) for s in shortlists]
    )
    ms["serialise"], _ = await cpu_ms(serialise, answers)
    ms["answer"] = ms["recall"] - retrieved - ms["hydrate"] - ms["rank and pack"]
    alone = ("embed", "bank version", "time expression", "arms", "fuse")
    ms["rest"] = retrieved - sum(ms[name] for name in alone)
    return ms


def _steps(seconds: Iterable[Any], names: Sequence[str]) -> float:
    """Median ms of steps that neither wait nor leave their thread: wall time is CPU time there."""
    return 1000 * float(np.median([sum(row.get(n, 0.0) for n in names) for row in seconds]))
