"""Loads happen once, eviction breaks nothing, memory stays inside the budget."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import random
import tracemalloc
import weakref
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.bank.resident import ResidentBank
from retrieval.bank.shards.scatter import ScatterGather
from retrieval.bank.shards.shard import Ranges
from retrieval.errors import Unavailable
from retrieval.protocols import Neighbours
from retrieval.store.database.pool import Pool
from retrieval.store.heads import BankHead
from retrieval.store.segments.delta import Delta
from retrieval.store.segments.format import pack
from retrieval.types import FactType, LinkType
from tests.retrieval.bank.model import DIMENSION, Ledger, Memory

pytestmark = pytest.mark.unit


class Database:
    """Ledgers behind the signature of `deltas.load`."""

    def __init__(self, delay: float = 0.0) -> None:
        self.ledgers: dict[int, Ledger] = {}
        self.reads = 0
        self.delay = delay
        self.fail: Exception | None = None

    def bank(self, number: int, memories: int = 3) -> Ledger:
        ledger = self.ledgers[number] = Ledger(number)
        ledger.write([memory(number, i) for i in range(memories)])
        return ledger

    async def load(
        self,
        pool: Pool,
        head: BankHead,
        *,
        have_generation: int,
        have_version: int,
        have_ordinal: int,
        kinds: Sequence[str],
        span: tuple[int, int] | None = None,
    ) -> Delta:
        self.reads += 1
        await asyncio.sleep(self.delay)
        if self.fail is not None:
            raise self.fail
        ledger = self.ledgers[head.bank]
        full = have_generation != ledger.head.generation
        delta = ledger.delta(None if full else have_version, 0 if full else have_ordinal)
        asked = {kind: delta.segments.get(kind, ()) for kind in kinds}
        return dataclasses.replace(delta, segments=asked)


def memory(bank: int, number: int) -> Memory:
    turn = np.eye(DIMENSION)[number % DIMENSION] + 0.1
    return Memory(
        id=bank.to_bytes(8, "big") + number.to_bytes(8, "big"),
        entities=(number % 2,),
        vector=tuple(turn),
    )


async def landed(residency: Residency) -> None:
    """Returns when no load is under way."""
    for _ in range(5000):
        if not residency.metrics().loading:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("a load does not end")


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
async def residency(database: Database) -> AsyncIterator[Residency]:
    made = Residency(cast(Pool, None), ResidencySettings(), load=database.load)
    yield made
    await made.close()


async def test_a_bank_is_read_once_for_all_who_wait(
    database: Database, residency: Residency
) -> None:
    database.delay = 0.01
    head = database.bank(1).head
    opened = await asyncio.gather(*(residency.open(head) for _ in range(20)))
    assert database.reads == 1
    assert all(bank is opened[0] for bank in opened)
    assert await residency.open(head) is opened[0]
    assert residency.metrics().hits == 1


async def test_a_newer_head_brings_what_is_missing(
    database: Database, residency: Residency
) -> None:
    ledger = database.bank(1)
    before = await residency.open(ledger.head)
    ledger.write([memory(1, 3)], dead=[0])
    after = await residency.open(ledger.head)
    assert before.live.tolist() == [True] * 3
    assert after.live.tolist() == [False, True, True, True]
    metrics = residency.metrics()
    assert (metrics.deltas, metrics.delta_versions, metrics.resident_banks) == (1, 1, 1)


async def test_an_older_head_is_answered_by_the_newer_snapshot(
    database: Database, residency: Residency
) -> None:
    ledger = database.bank(1)
    old = ledger.head
    new = await residency.open(ledger.write([memory(1, 3)]))
    assert await residency.open(old) is new


async def test_ordinals_given_anew_replace_the_snapshot(
    database: Database, residency: Residency
) -> None:
    ledger = database.bank(1)
    await residency.open(ledger.head)
    ledger.write(dead=[1])
    database.ledgers[1] = ledger.compacted()
    bank = await residency.open(database.ledgers[1].head)
    assert bank.size == 2
    assert bank.columns.id[:, 15].tolist() == [0, 2]


@pytest.mark.parametrize("held", [False, True], ids=["from nothing", "from the empty bank"])
async def test_a_head_read_before_the_first_write_still_brings_vectors_and_words(
    database: Database, residency: Residency, held: bool
) -> None:
    """The kinds of segments are named in the head; the bank may have got them since."""
    ledger = database.ledgers[1] = Ledger(1)
    ledger.head = before = dataclasses.replace(ledger.head, vector_set="", analyser="")
    if held:
        assert (await residency.open(before)).size == 0
        before = dataclasses.replace(before, version=1)  # a change that gave no kinds yet
    database.bank(1)
    bank = await residency.open(before)
    assert bank.head.vector_set == "mini:8"
    assert bank.vectors.dimension == DIMENSION
    assert bank.postings.documents == 3


async def test_another_vector_set_is_read_anew(database: Database, residency: Residency) -> None:
    ledger = database.bank(1)
    await residency.open(ledger.head)
    rows = ledger.segments["vectors:mini:8"]
    ledger.segments["vectors:other:8"] = rows
    ledger.head = dataclasses.replace(ledger.head, version=2, vector_set="other:8")
    bank = await residency.open(ledger.head)
    assert (bank.head.vector_set, bank.vectors.dimension, bank.size) == ("other:8", DIMENSION, 3)


async def test_another_vector_set_comes_with_links_of_older_memories(database: Database) -> None:
    """Also where the vectors themselves lie elsewhere."""
    split = ScatterGather(cast(Ranges, None), rows=2)
    residency = Residency(cast(Pool, None), ResidencySettings(), load=database.load, split=split)
    try:
        ledger = database.bank(1)
        before = await residency.open(ledger.head)
        assert not before.whole
        links: dict[str, NDArray[Any]] = {
            "source": np.array([2], np.int32),
            "target": np.array([0], np.int32),
            "type": np.array([LinkType.SEMANTIC], np.uint8),
            "weight": np.ones(1, np.float32),
        }
        ledger.segments["links"] = [(2, 1, pack(links))]
        ledger.head = dataclasses.replace(ledger.head, version=2, vector_set="other:8")
        after = await residency.open(ledger.head)
        everyone = np.arange(3, dtype=np.int32)
        for bank, count in ((before, 0), (after, 2)):  # a link leads both ways
            assert len(bank.links.neighbours(everyone, (LinkType.SEMANTIC,)).target) == count
    finally:
        await residency.close()


async def test_a_load_stops_when_the_last_who_waits_is_gone(
    database: Database, residency: Residency
) -> None:
    database.delay = 0.05
    head = database.bank(1).head
    first, second = (asyncio.create_task(residency.open(head)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    bank = await second
    assert bank.size == 3  # one that waits keeps the load alive
    residency.evict(1)
    lonely = asyncio.create_task(residency.open(head))
    await asyncio.sleep(0.01)
    lonely.cancel()
    await asyncio.wait({lonely})
    await asyncio.sleep(0)
    assert residency.metrics().abandoned == 1
    assert residency.metrics().loading == 0
    assert (await residency.open(head)).size == 3


async def test_who_comes_while_a_load_is_given_up_gets_the_bank(
    database: Database, residency: Residency
) -> None:
    database.delay = 0.02
    head = database.bank(1).head
    gone = asyncio.create_task(residency.open(head))
    await asyncio.sleep(0.01)
    gone.cancel()
    await asyncio.sleep(0)  # the load is told, and has not ended
    assert (await residency.open(head)).size == 3


async def test_closing_ends_loads_and_tells_those_who_wait(database: Database) -> None:
    database.delay = 10
    residency = Residency(cast(Pool, None), ResidencySettings(), load=database.load)
    waiting = asyncio.create_task(residency.open(database.bank(1).head))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await residency.close()
    with pytest.raises(Unavailable, match="closing"):
        await waiting


async def test_a_failed_load_fails_those_who_wait_and_nobody_else(
    database: Database, residency: Residency
) -> None:
    head = database.bank(1).head
    database.fail = Unavailable("database")
    opened = await asyncio.gather(
        residency.open(head), residency.open(head), return_exceptions=True
    )
    assert all(isinstance(o, Unavailable) for o in opened)
    database.fail = None
    assert (await residency.open(head)).size == 3


async def test_a_state_older_than_asked_for_is_refused(
    database: Database, residency: Residency
) -> None:
    ledger = database.bank(1)
    with pytest.raises(Unavailable, match="before 99"):
        await residency.open(BankHead(1, "default", "b", 99, 0, 3, "mini:8", "plain"))
    assert (await residency.open(ledger.head)).size == 3


async def test_least_recently_used_banks_leave_and_searches_go_on(database: Database) -> None:
    heads = [database.bank(n, 50).head for n in range(1, 6)]
    probe = Residency(cast(Pool, None), ResidencySettings(), load=database.load)
    one = sum((await probe.open(heads[0])).nbytes.values())
    await probe.close()
    settings = ResidencySettings(budget_bytes=int(3.5 * one))
    residency = Residency(cast(Pool, None), settings, load=database.load)
    first = await residency.open(heads[0])
    for head in heads[1:3]:
        await residency.open(head)
    await residency.open(heads[0])
    await residency.open(heads[3])
    held = [n for n in range(1, 6) if residency.held(n) is not None]
    assert held == [1, 3, 4]  # 2 was the least recently used
    metrics = residency.metrics()
    assert metrics.resident_bytes <= settings.budget_bytes
    assert metrics.evictions == 1
    residency.evict(1)
    query = np.full(DIMENSION, DIMENSION**-0.5, np.float32)
    assert len(first.vectors.scan(query).top(100, None, FactType.WORLD)) == 50
    await residency.close()


async def test_an_evicted_bank_gives_its_memory_back(
    database: Database, residency: Residency
) -> None:
    bank = await residency.open(database.bank(1).head)
    rows = weakref.ref(bank.columns.id.base)
    residency.evict(1)
    del bank
    gc.collect()
    assert rows() is None


async def test_warming_stops_at_the_budget(database: Database) -> None:
    heads = [database.bank(n, 50).head for n in range(1, 9)]
    probe = Residency(cast(Pool, None), ResidencySettings(), load=database.load)
    one = sum((await probe.open(heads[0])).nbytes.values())
    await probe.close()
    settings = ResidencySettings(budget_bytes=int(2.5 * one))
    residency = Residency(cast(Pool, None), settings, load=database.load)
    assert await residency.warm(heads) == 2
    assert [residency.held(h.bank) is not None for h in heads[:3]] == [True, True, False]
    await residency.close()


async def test_a_refresh_brings_a_held_bank_forward_without_anybody_waiting(
    database: Database, residency: Residency
) -> None:
    ledger, other = database.bank(1), database.bank(2)
    await residency.open(ledger.head)
    residency.refresh(ledger.head)
    residency.refresh(other.head)  # not held: left alone
    assert residency.metrics().loading == 0
    newest = ledger.write([memory(1, 3)])
    residency.refresh(newest)
    await landed(residency)
    hits = residency.metrics().hits
    assert (await residency.open(newest)).size == 4
    assert residency.metrics().hits == hits + 1
    assert residency.held(2) is None
    database.fail = Unavailable("database")
    residency.refresh(ledger.write([memory(1, 4)]))
    await landed(residency)
    database.fail = None
    assert (await residency.open(ledger.head)).size == 5


async def test_memory_stays_bounded_over_many_evictions(database: Database) -> None:
    heads = [database.bank(n, 40).head for n in range(1, 31)]
    residency = Residency(
        cast(Pool, None), ResidencySettings(budget_bytes=60_000), load=database.load
    )
    chance = random.Random(3)

    async def rounds(count: int) -> int:
        for _ in range(count):
            head = chance.choice(heads)
            bank = await residency.open(head)
            assert bank.head.bank == head.bank
            bank.entities.find("a question")
        del bank
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        settled = await rounds(50)
        after = await rounds(200)
    finally:
        tracemalloc.stop()
    metrics = residency.metrics()
    assert metrics.evictions > 80
    assert metrics.resident_bytes <= 60_000
    assert after < settled + 300_000  # a tenth of what was evicted
    await residency.close()


async def test_device_memory_has_a_budget_of_its_own(database: Database) -> None:
    pytest.importorskip("torch")
    from retrieval.bank.vectors.gpu import GpuBackend

    heads = [database.bank(n, 100).head for n in range(1, 6)]
    device = GpuBackend("cpu", budget_bytes=2 << 20)
    settings = ResidencySettings(device_budget_bytes=9_000, vectors=device)
    query = np.eye(DIMENSION, dtype=np.float32)[0]
    residency = Residency(cast(Pool, None), settings, load=database.load)
    for head in heads:
        bank = await residency.open(head)
        hits = bank.vectors.scan(query).top(500, None, FactType.WORLD)
        assert len(hits) == 100
    metrics = residency.metrics()
    assert 0 < metrics.device_bytes <= 9_000
    assert metrics.evictions >= 1
    await residency.close()
    del bank, hits
    gc.collect()
    assert device.room.free == device.room.size
    device.close()


async def test_neighbours_answers_from_exactly_the_given_version(
    database: Database, residency: Residency
) -> None:
    assert isinstance(residency, Neighbours)
    ledger = database.bank(1, 8)
    vectors = np.eye(DIMENSION, dtype=np.float32)[:2]
    types = np.array([FactType.WORLD, FactType.EXPERIENCE], np.uint8)
    row, ordinal, similarity = await residency.neighbours(
        ledger.head, vectors, types, k=3, floor=0.5
    )
    assert (row.tolist(), ordinal.tolist()) == ([0], [0])
    assert similarity[0] > 0.9
    old = ledger.head
    await residency.open(ledger.write(dead=[0]))
    with pytest.raises(Unavailable, match="moved"):
        await residency.neighbours(old, vectors, types, k=3, floor=0.5)
    row, _, _ = await residency.neighbours(ledger.head, vectors, types, k=3, floor=0.5)
    assert not len(row)


async def test_isolation_under_writes_deletes_and_evictions() -> None:
    """Identical banks side by side: every search sees its own bank, all that was acknowledged
    before it began, and nothing that was deleted before it began."""
    chance = random.Random(7)
    database = Database(delay=0.0005)
    ledgers = [database.bank(n, 4) for n in range(1, 13)]
    probe = Residency(cast(Pool, None), ResidencySettings(), load=database.load)
    one = sum((await probe.open(ledgers[0].head)).nbytes.values())
    await probe.close()
    residency = Residency(
        cast(Pool, None), ResidencySettings(budget_bytes=6 * one), load=database.load
    )
    query = np.full(DIMENSION, DIMENSION**-0.5, np.float32)
    recalls = 0

    async def recall() -> None:
        nonlocal recalls
        ledger = chance.choice(ledgers)
        head = ledger.head
        alive = {m.id for o, m in enumerate(ledger.memories) if o not in ledger.dead}
        gone = {m.id for m in ledger.memories} - alive
        bank: ResidentBank = await residency.open(head)
        assert bank.head.bank == ledger.bank
        hits = await asyncio.to_thread(
            lambda: bank.vectors.scan(query).top(1000, None, FactType.WORLD)
        )
        ids = {bank.columns.id[o].tobytes() for o in hits.ordinals}
        own = ledger.bank.to_bytes(8, "big")
        assert all(i[:8] == own for i in ids)
        assert not ids & gone
        # Deleted by a write that came after this recall began: may be missing.
        later = {m.id for o, m in enumerate(ledger.memories) if o in ledger.dead}
        assert alive - ids <= later
        recalls += 1

    async def disturb() -> None:
        changes = 0
        while changes < 400 or recalls <= 500:
            changes += 1
            ledger = chance.choice(ledgers)
            live = [o for o in range(len(ledger.memories)) if o not in ledger.dead]
            action = chance.random()
            if action < 0.5:
                ledger.write([memory(ledger.bank, len(ledger.memories))])
            elif action < 0.7 and len(live) > 1:
                ledger.write(dead=[chance.choice(live)])
            elif action < 0.8:
                residency.evict(ledger.bank)
            else:
                doomed = asyncio.create_task(residency.open(ledger.head))
                await asyncio.sleep(0)
                doomed.cancel()
            await asyncio.sleep(0.0005)

    async def recaller() -> None:
        while not disturbing.done():
            await recall()

    disturbing = asyncio.create_task(disturb())
    await asyncio.gather(disturbing, *(recaller() for _ in range(16)))
    assert residency.metrics().evictions > 0
    assert residency.metrics().resident_bytes <= 6 * one * 3
    await residency.close()
