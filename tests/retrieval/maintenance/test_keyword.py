"""A deployment that ranks keywords inside Postgres, from its start to the last compaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from models.passthrough import Passthrough
from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.errors import Conflict, Unavailable
from retrieval.ingest.curation import clear, delete_memory, patch_memory
from retrieval.ingest.importing import import_memories
from retrieval.keyword.analyser import Analyser
from retrieval.keyword.analysers import analyser, analyser_for
from retrieval.keyword.backends import Native, VChord
from retrieval.maintenance import keyword
from retrieval.recall.engine import RecallEngine, RecallResult
from retrieval.recall.retriever import LocalRetriever
from retrieval.settings import RecallSettings, RetainSettings
from retrieval.store import banks
from retrieval.store.database.pool import Pool
from retrieval.store.segments import table as segments
from retrieval.types import Filters, MinScores, RecallQuery, TagsMatch, TemporalMode
from serve.opening.translation import OpenedReranker
from tests.retrieval.store.servers import HashEmbedder, database, deps

pytestmark = pytest.mark.integration

NATIVE = Native()
OFF = RecallSettings(enable_graph_retrieval=False, enable_temporal_retrieval=False)
NOW = datetime(2024, 6, 1, tzinfo=UTC)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with database() as opened:
        yield opened


class System:
    """Recalls of one server with the back-end."""

    def __init__(
        self,
        pool: Pool,
        backend: Native | None,
        stack: AsyncExitStack,
        settings: RecallSettings = OFF,
        analyses: Callable[[RetainSettings], Analyser] = analyser_for,
    ) -> None:
        self.pool = pool
        self.residency = Residency(pool, ResidencySettings())
        stack.push_async_callback(self.residency.close)
        threads = ThreadPoolExecutor(1)
        stack.callback(threads.shutdown)
        retriever = LocalRetriever(
            pool, self.residency, HashEmbedder(), settings, threads,
            lambda head: analyses(RetainSettings().with_overrides(head.config)), backend,
        )  # fmt: skip
        self.engine = RecallEngine(pool, retriever, OpenedReranker(Passthrough("fused")), OFF)

    async def recall(self, text: str, **changes: Any) -> RecallResult:
        query = RecallQuery("default", "b", text, NOW, trace=True)
        return await self.engine.recall(replace(query, **changes))

    async def found(self, text: str, **changes: Any) -> list[str]:
        """The texts that the keyword arm gave, best first."""
        body = (await self.recall(text, **changes)).body
        arms = [a for a in body["trace"]["retrieval_results"] if a["method_name"] == "bm25"]
        return [hit["text"] for arm in arms for hit in arm["results"]]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as opened:
        yield opened


TEXTS = ["the kiln is hot", "a kiln, a kiln and clay", "clay only", "nothing of the sort"]


async def fill(pool: Pool, texts: list[str] = TEXTS, **fields: Any) -> dict[str, str]:
    items = [{"text": text, "key": text, **fields} for text in texts]
    answer = await import_memories(deps(pool), "default", "b", items)
    return dict(answer["ids"])


async def test_it_ranks_and_sees_every_write(pool: Pool, stack: AsyncExitStack) -> None:
    await keyword.ready(pool, NATIVE)
    ids = await fill(pool)
    system = System(pool, NATIVE, stack)
    assert await system.found("kiln clay") == [TEXTS[1], TEXTS[0], TEXTS[2]]
    assert (await system.recall("kiln")).degraded == ()
    await delete_memory(deps(pool), "default", "b", ids[TEXTS[1]])
    assert await system.found("kiln clay") == [TEXTS[0], TEXTS[2]]
    await patch_memory(deps(pool), "default", "b", ids[TEXTS[2]], {"text": "more kiln, kiln, kiln"})
    assert await system.found("kiln") == ["more kiln, kiln, kiln", TEXTS[0]]
    await patch_memory(deps(pool), "default", "b", ids[TEXTS[0]], {"state": "invalidated"})
    assert await system.found("kiln") == ["more kiln, kiln, kiln"]
    await patch_memory(deps(pool), "default", "b", ids[TEXTS[0]], {"state": "valid"})
    assert len(await system.found("kiln")) == 2
    assert await segments.compact(pool, "default", "b", force=True) > 0
    assert len(await system.found("kiln")) == 2
    assert await NATIVE.missing(await _of(pool, stack)) == 0
    await clear(deps(pool), "default", "b")
    await fill(pool, ["a kiln anew"])
    assert await system.found("kiln") == ["a kiln anew"]
    await banks.delete(pool, "default", "b")
    assert await pool.fetchval("select count(*) from keyword_native") == 0


async def _of(pool: Pool, stack: AsyncExitStack) -> asyncpg.Connection:
    return await stack.enter_async_context(pool.acquire())


async def test_filters_come_before_the_cut(pool: Pool, stack: AsyncExitStack) -> None:
    await keyword.ready(pool, NATIVE)
    await fill(pool, [f"kiln kiln kiln number{i}" for i in range(30)])
    await fill(pool, ["a kiln in blue, with many other words around it"], tags=["blue"])
    await fill(pool, ["a kiln of May"], mentioned_at="2024-05-03")
    narrow = replace(OFF, recall_budget_fixed_mid=5)
    system = System(pool, NATIVE, stack, narrow)
    blue = Filters(tags=("blue",), tags_match=TagsMatch.ANY_STRICT)
    assert await system.found("kiln", filters=blue) == [
        "a kiln in blue, with many other words around it"
    ]
    assert len(await system.found("kiln")) == 5
    floor = MinScores(keyword=10.0)
    assert await system.found("kiln", min_scores=floor) == []


async def test_when_it_fails_the_resident_postings_serve(pool: Pool, stack: AsyncExitStack) -> None:
    await fill(pool)
    system = System(pool, NATIVE, stack)  # no table
    answer = await system.recall("kiln")
    assert answer.degraded == ("keyword",)
    assert len(await system.found("kiln")) == 2


async def test_a_populated_database_is_refused_and_reindexed(
    pool: Pool, stack: AsyncExitStack
) -> None:
    await fill(pool)
    with pytest.raises(Conflict, match="fourfold reindex --keyword native"):
        await keyword.ready(pool, NATIVE)
    assert not all(finding.ok for finding in await keyword.examine(pool, NATIVE))
    seen = [(bank, step.done, step.total) async for bank, step in keyword.reindex(pool, NATIVE)]
    assert seen == [("b", 4, 4)]
    await keyword.ready(pool, NATIVE)
    assert all(finding.ok for finding in await keyword.examine(pool, NATIVE))
    assert len(await System(pool, NATIVE, stack).found("kiln")) == 2
    simple = Native("simple")  # other settings, other rows
    with pytest.raises(Conflict, match="reindex --keyword native"):
        await keyword.ready(pool, simple)
    assert "other settings" in (await keyword.examine(pool, simple))[-1].what
    async for _ in keyword.reindex(pool, simple):
        pass
    await keyword.ready(pool, simple)
    await pool.execute("delete from keyword_native where ordinal = 1")
    with pytest.raises(Conflict, match="1 memories are not in keyword_native"):
        await keyword.ready(pool, simple)
    await keyword.leave(pool)
    await fill(pool, ["written after it was left"])


async def test_a_server_without_the_extension(pool: Pool) -> None:
    with pytest.raises(Unavailable, match="extension pg_tokenizer is not installed"):
        await keyword.ready(pool, VChord())


async def test_an_analyser_that_the_bank_does_not_have_yet(
    pool: Pool, stack: AsyncExitStack
) -> None:
    """A new release before the reindex: the old postings answer, and the answer says so."""
    await fill(pool)
    system = System(pool, None, stack)
    assert (await system.recall("kiln")).degraded == ()
    german = analyser("german", "bigram")
    newer = System(pool, None, stack, analyses=lambda settings: german)
    assert (await newer.recall("kiln")).degraded == ("keyword",)


async def test_an_event_that_filters(pool: Pool, stack: AsyncExitStack) -> None:
    """The window comes from a memory, so the back-end is asked after the vectors are there."""
    await keyword.ready(pool, NATIVE)
    await fill(
        pool, ["the great storm at the harbour"],
        occurred_start="2024-03-03T00:00:00Z", occurred_end="2024-03-04T00:00:00Z",
    )  # fmt: skip
    await fill(pool, ["a kiln broke"], occurred_start="2024-03-20T00:00:00Z")
    await fill(pool, ["an older kiln broke"], occurred_start="2024-02-20T00:00:00Z")
    system = System(pool, NATIVE, stack)
    text = "which kiln broke after the great storm at the harbour"
    found = await system.found(text, temporal_mode=TemporalMode.FILTER)
    assert "a kiln broke" in found
