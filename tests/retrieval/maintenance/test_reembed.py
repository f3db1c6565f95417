"""A bank changes its embedding model while it is used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from uuid import uuid4

import numpy as np
import pytest

from models.passthrough import Passthrough
from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.errors import Conflict, Unavailable
from retrieval.ingest import curation
from retrieval.ingest.importing import import_memories
from retrieval.keyword.analysers import analyser_for
from retrieval.maintenance import jobs
from retrieval.maintenance.reembed import reembed
from retrieval.recall.engine import RecallEngine
from retrieval.recall.retriever import LocalRetriever
from retrieval.settings import RecallSettings, RetainSettings
from retrieval.store import banks
from retrieval.store.database.pool import Pool
from retrieval.store.rebuilds import REEMBED
from retrieval.store.segments import table as segments
from retrieval.types import Floats, RecallQuery
from serve.opening.translation import OpenedReranker
from tests.retrieval.store.servers import HashEmbedder, Replica, deps

pytestmark = pytest.mark.integration

OLD, NEW = HashEmbedder(32, "old"), HashEmbedder(48, "new")
TEXTS = [f"the red boat number{i} sails north" for i in range(20)]


@pytest.fixture
def bank() -> str:
    return f"r-{uuid4().hex[:8]}"


@pytest.fixture
async def residency(pool: Pool) -> AsyncIterator[Residency]:
    opened = Residency(pool, ResidencySettings())
    yield opened
    await opened.close()


async def fill(pool: Pool, bank: str, texts: Sequence[str] = TEXTS, **changes: object) -> None:
    ingest = deps(pool, **{"embedder": OLD, **changes})
    for start in range(0, len(texts), 5):
        await import_memories(
            ingest,
            "default",
            bank,
            [
                {"text": text, "key": text, "entities": ["Ann"], "mentioned_at": "2024-05-03"}
                for text in texts[start : start + 5]
            ],
        )


async def run(pool: Pool, bank: str, embedder: HashEmbedder = NEW, batch: int = 6) -> list[int]:
    return [step.done async for step in reembed(pool, embedder, "default", bank, batch=batch)]


async def expected(pool: Pool, replica: Replica) -> Floats:
    """The vectors of the live memories by a plain reading of their rows."""
    rows = await pool.fetch(
        "select text from memory_units where bank = $1 and ordinal is not null order by ordinal",
        replica.head.bank,
    )
    return await NEW.embed_passages([f"{row[0]} (happened in May 2024) [Ann]" for row in rows])


async def check(pool: Pool, bank: str) -> Replica:
    head = await banks.head(pool, "default", bank)
    assert head.vector_set == "new:48"
    replica = await Replica.of(pool, head)
    assert replica.vectors.shape == (head.next_ordinal, 48)
    np.testing.assert_allclose(
        replica.vectors[replica.live], await expected(pool, replica), atol=1e-6
    )
    kinds = await pool.fetch("select distinct kind from segments where bank = $1", head.bank)
    assert [k for (k,) in kinds if k.startswith("vectors:")] == ["vectors:new:48"]
    return replica


async def test_all_vectors_are_made_anew_and_the_rest_stays(pool: Pool, bank: str) -> None:
    await fill(pool, bank)
    head = await banks.head(pool, "default", bank)
    before = await Replica.of(pool, head)
    assert await run(pool, bank) == [6, 12, 18, 20]
    after = await check(pool, bank)
    assert after.head.version == head.version + 1
    assert after.head.generation == head.generation + 1
    assert after.links() == before.links()
    assert after.ids() == before.ids()
    assert await run(pool, bank) == []  # nothing left to do


async def test_an_operation_shows_it(pool: Pool, bank: str) -> None:
    await fill(pool, bank)
    seen = []
    async for _ in reembed(pool, NEW, "default", bank, batch=6):
        head = await banks.head(pool, "default", bank)
        row = await pool.fetchrow("select * from operations where bank = $1", head.bank)
        seen.append((row["type"], row["status"], row["progress"]))
        if row["status"] == "processing":
            with pytest.raises(Conflict, match="runs already"):
                await run(pool, bank)
    assert seen[0] == ("reembed", "processing", {"done": 6, "total": 20})
    assert seen[-1][1] == "completed"


class Dying(HashEmbedder):
    """Breaks after so many calls."""

    def __init__(self, calls: int) -> None:
        super().__init__(48, "new")
        self.left = calls

    async def embed_passages(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        if not self.left:
            raise OSError("the device is gone")
        self.left -= 1
        return await super().embed_passages(texts)


async def test_what_is_there_is_kept(pool: Pool, bank: str) -> None:
    await fill(pool, bank)
    with pytest.raises(Unavailable, match="device is gone"):
        await run(pool, bank, Dying(2))
    head = await banks.head(pool, "default", bank)
    assert head.vector_set == "old:32"
    await segments.compact(pool, "default", bank, force=True)
    await segments.merge(pool, head.bank)
    again = HashEmbedder(48, "new")
    assert await run(pool, bank, again) == [18, 20]
    assert len(again.seen) == 8
    await check(pool, bank)


async def test_another_process_takes_over_a_lease_that_ran_out(pool: Pool, bank: str) -> None:
    await fill(pool, bank)
    lost = await jobs.begin(pool, "default", bank, REEMBED, "new:48", lease_s=0.0)
    assert bank in [head.bank_id for head, _, _ in await jobs.waiting(pool)]
    assert (await run(pool, bank))[-1] == 20
    rows = await pool.fetch(
        "select operation_id, status from operations"
        " where bank = (select bank from banks where bank_id = $1)",
        bank,
    )
    assert [tuple(row) for row in rows] == [(lost.operation_id, "completed")]


async def test_writes_of_both_models_go_on(pool: Pool, bank: str, residency: Residency) -> None:
    theirs = {"neighbours": residency}
    ours = {"embedder": NEW, "neighbours": residency}
    await fill(pool, bank, TEXTS[:12], **theirs)
    with pytest.raises(Conflict, match=f"run `fourfold reembed {bank}`"):
        await fill(pool, bank, ["too early"], **ours)
    steps = reembed(pool, NEW, "default", bank, batch=6)
    assert (await anext(steps)).done == 6
    await fill(pool, bank, ["by the old one", TEXTS[3]], **theirs)  # TEXTS[3] anew: a tombstone too
    await fill(pool, bank, ["the red boat number1 sails north again", "by the new one"], **ours)
    await fill(pool, bank, ["by the old one again"], **theirs)
    await curation.delete_memory(
        deps(pool, **ours), "default", bank, await id_of(pool, bank, TEXTS[8])
    )
    async for _ in steps:
        pass
    replica = await check(pool, bank)
    assert len(replica.ids()) == 12 - 1 + 2 + 2
    again = await id_of(pool, bank, "the red boat number1 sails north again")
    linked = {target for source, target, kind in replica.links() if source == again}
    assert await id_of(pool, bank, TEXTS[1]) in linked
    with pytest.raises(Conflict, match="were made with 'new:48'"):
        await fill(pool, bank, ["too late"], **theirs)
    await fill(pool, bank, ["and on"], **ours)


async def id_of(pool: Pool, bank: str, text: str) -> str:
    number = (await banks.head(pool, "default", bank)).bank
    id = await pool.fetchval(
        "select id from memory_units where bank = $1 and text = $2", number, text
    )
    return str(id)


async def test_there_and_back_while_a_replica_is_idle(
    pool: Pool, bank: str, residency: Residency
) -> None:
    await fill(pool, bank)
    steps = reembed(pool, NEW, "default", bank, batch=6)
    await anext(steps)
    await fill(pool, bank, ["the green barge turns south"], embedder=NEW)
    head = await banks.head(pool, "default", bank)
    before = await residency.open(head)
    assert before.vectors.searchable(None) == head.next_ordinal - 1  # the old set lacks one yet
    async for _ in steps:
        pass
    await run(pool, bank, OLD)
    after = await residency.open(await banks.head(pool, "default", bank))
    assert after.head.vector_set == head.vector_set
    assert after.vectors.searchable(None) == head.next_ordinal


async def test_ordinals_given_anew_meanwhile(pool: Pool, bank: str) -> None:
    await fill(pool, bank)
    await fill(pool, bank, TEXTS[:7])
    seen = 0
    async for _ in reembed(pool, NEW, "default", bank, batch=6):
        seen += 1
        if seen == 2:
            assert await segments.compact(pool, "default", bank, force=True) == 7
    await check(pool, bank)
    held = await Replica.of(pool, await banks.head(pool, "default", bank))
    assert held.live.all()


async def test_recalls_meanwhile(pool: Pool, bank: str, residency: Residency) -> None:
    """The new server answers by the other arms until the switch, the old one until then in full."""
    await fill(pool, bank)
    threads = ThreadPoolExecutor(1)

    def engine(embedder: HashEmbedder) -> RecallEngine:
        retriever = LocalRetriever(
            pool, residency, embedder, RecallSettings(), threads,
            lambda head: analyser_for(RetainSettings().with_overrides(head.config)),
        )  # fmt: skip
        return RecallEngine(pool, retriever, OpenedReranker(Passthrough("fused")), RecallSettings())

    async def recall(embedder: HashEmbedder) -> tuple[list[str], tuple[str, ...]]:
        query = RecallQuery("default", bank, "red boat number7", datetime(2024, 6, 1, tzinfo=UTC))
        answer = await engine(embedder).recall(query)
        return [hit["text"] for hit in answer.body["results"]], answer.degraded

    same = HashEmbedder(32, "another")  # the dimension alone does not tell
    steps = reembed(pool, NEW, "default", bank, batch=6)
    async for _ in steps:
        head = await banks.head(pool, "default", bank)
        texts, degraded = await recall(NEW)
        assert texts[0] == TEXTS[7]
        assert ("semantic" in degraded) == (head.vector_set != "new:48")
        texts, degraded = await recall(OLD)
        assert texts[0] == TEXTS[7]
        assert ("semantic" in degraded) == (head.vector_set != "old:32")
        assert "semantic" in (await recall(same))[1]
    threads.shutdown()
