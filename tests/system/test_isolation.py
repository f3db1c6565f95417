"""Many banks with the same texts, read by several replicas while they are written to and evicted,
and while replicas are lost: no recall shows another bank's memory, a deleted one, an old text, or
half a write.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeAlias

import pytest

from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.bank.shards.scatter import ScatterGather
from retrieval.bank.shards.shard import LocalShards
from retrieval.errors import Unavailable
from retrieval.ingest.curation import delete_memory
from retrieval.ingest.importing import import_memories
from retrieval.recall.engine import RecallEngine
from retrieval.store import banks
from retrieval.store.segments import table as segments
from retrieval.types import Budget, Include, RecallQuery
from tests.support.system import System, system
from tests.system.embedding import HashEmbedder
from tests.system.history import History, Read, Write
from tests.system.holders import Holders

Evict: TypeAlias = Callable[[int, random.Random], None]

QUESTION = "what does the harbour log say"


@dataclass(slots=True)
class Bank:
    """A bank, its one writer's view of it, and its history."""

    name: str
    ids: dict[str, str] = field(default_factory=dict)
    """key -> id"""
    state: dict[str, str] = field(default_factory=dict)
    """id -> text"""
    written: int = 0
    history: History = field(default_factory=History)


@asynccontextmanager
async def replicas(count: int, budget_bytes: int = 1 << 30) -> AsyncIterator[list[System]]:
    """Systems over one database, each with banks in memory of its own."""
    settings = ResidencySettings(budget_bytes=budget_bytes)
    async with system(embedder=HashEmbedder(), residency=settings) as first:
        runs = [first, *(another(first, settings) for _ in range(count - 1))]
        try:
            yield runs
        finally:
            for run in runs[1:]:
                await run.residency.close()


def another(run: System, settings: ResidencySettings) -> System:
    """A replica that holds nothing yet."""
    return replace(run, residency=Residency(run.pool, settings, split=run.residency.split))


@asynccontextmanager
async def split_replicas(count: int, rows: int) -> AsyncIterator[tuple[list[System], Evict]]:
    """Replicas that leave vectors and postings of banks above `rows` memories to two others, and
    what evicts a range there."""
    async with replicas(1) as (whole,):
        holders = [LocalShards(whole.pool, ResidencySettings(), rows) for _ in range(2)]
        index = ScatterGather(Holders(holders), rows)
        residencies = [
            Residency(whole.pool, ResidencySettings(), split=index) for _ in range(count)
        ]
        runs = [replace(whole, residency=residency) for residency in residencies]
        deps = replace(whole.ingest, neighbours=runs[0].residency)
        runs = [replace(run, ingest=deps) for run in runs]

        def evict(bank: int, chance: random.Random) -> None:
            chance.choice(holders).evict(bank, chance.randrange(8))

        try:
            yield runs, evict
            assert sum(ranges.metrics().deltas for ranges in holders) > 0
        finally:
            for run in runs:
                await run.residency.close()
            for ranges in holders:
                await ranges.close()


async def write(run: System, bank: Bank, chance: random.Random) -> None:
    """One write: a batch of new memories, a new text for a memory, or a deletion."""
    state, ids = dict(bank.state), dict(bank.ids)
    act = chance.random()
    begin = time.monotonic()
    if act < 0.5 or not state:
        items = []
        for _ in range(chance.randint(1, 5)):
            bank.written += 1
            items.append({"key": f"k{bank.written}", "text": entry(bank.written)})
        answer = await import_memories(run.ingest, run.tenant, bank.name, items)
        ids |= answer["ids"]
        state |= {answer["ids"][item["key"]]: item["text"] for item in items}
    else:
        key = chance.choice(sorted(ids))
        if act < 0.75:
            bank.written += 1
            item = {"key": key, "text": entry(bank.written)}
            answer = await import_memories(run.ingest, run.tenant, bank.name, [item])
            state.pop(ids[key])
            ids[key] = answer["ids"][key]
            state[ids[key]] = item["text"]
        else:
            await delete_memory(run.ingest, run.tenant, bank.name, ids[key])
            state.pop(ids.pop(key))
    end = time.monotonic()
    bank.history.writes.append(Write(begin, end, state))
    bank.state, bank.ids = state, ids


def entry(number: int) -> str:
    return f"The harbour log says that crane {number} was oiled."


async def read(engine: RecallEngine, tenant: str, bank: Bank) -> None:
    query = RecallQuery(
        tenant=tenant,
        bank_id=bank.name,
        text=QUESTION,
        now=datetime.now(UTC),
        budget=Budget.HIGH,
        max_tokens=10**6,
        include=Include(entities=None),
    )
    begin = time.monotonic()
    result = await engine.recall(query)
    end = time.monotonic()
    seen = {row["id"]: row["text"] for row in result.body["results"]}
    assert len(seen) == len(result.body["results"]), "a memory came back twice"
    assert not result.degraded
    bank.history.reads.append(Read(begin, end, seen))


async def storm(
    runs: list[System],
    names: int,
    writes: int,
    recalls: int,
    readers: int,
    seed: int,
    *,
    kill_every_s: float | None = None,
    compact: bool = False,
    evict: Evict = lambda bank, chance: None,
) -> list[Bank]:
    """Writers, readers on every replica, evictions and lost replicas at once; the banks with their
    histories. All replicas but the writers' own may be lost. `compact`: ordinals are given anew now
    and then; `evict`: forgets one thing more of a bank."""
    chance = random.Random(seed)
    filled = [Bank(f"bank-{number}") for number in range(names)]
    first = runs[0]
    for bank in filled:
        await write(first, bank, chance)
    numbers = [(await banks.head(first.pool, first.tenant, bank.name)).bank for bank in filled]
    over = asyncio.Event()

    async def writer(bank: Bank, chance: random.Random) -> None:
        for _ in range(writes):
            await write(first, bank, chance)
            await asyncio.sleep(chance.random() * 0.01)

    async def reader(number: int) -> None:
        own = random.Random(seed + 1000 + number)
        for _ in range(recalls // readers):
            bank = own.choice(filled)
            while True:
                run = runs[number % len(runs)]
                try:
                    await read(run.engine(), run.tenant, bank)
                except Unavailable:  # it was lost meanwhile: ask its successor
                    assert runs[number % len(runs)] is not run
                else:
                    break

    async def evictor() -> None:
        own = random.Random(seed + 1)
        while not over.is_set():
            number = own.choice(numbers)
            own.choice(runs).residency.evict(number)
            evict(number, own)
            await asyncio.sleep(0.005)

    async def compactor() -> None:
        own = random.Random(seed + 3)
        while not over.is_set():
            await segments.compact(first.pool, first.tenant, own.choice(filled).name, force=True)
            await asyncio.sleep(0.03)

    async def killer(every_s: float) -> None:
        own = random.Random(seed + 2)
        while not over.is_set():
            await asyncio.sleep(every_s)
            index = own.randrange(1, len(runs))
            lost, runs[index] = runs[index], another(first, ResidencySettings())
            await lost.residency.close()

    evicting = asyncio.create_task(evictor())
    compacting = asyncio.create_task(compactor()) if compact else None
    killing = None if kill_every_s is None else asyncio.create_task(killer(kill_every_s))
    async with asyncio.TaskGroup() as tasks:
        for number, bank in enumerate(filled):
            tasks.create_task(writer(bank, random.Random(seed + 2000 + number)))
        for number in range(readers):
            tasks.create_task(reader(number))
    over.set()
    await evicting
    for task in (killing, compacting):
        if task is not None:
            await task
    for bank in filled:
        for run in runs:
            await read(run.engine(), run.tenant, bank)
    return filled


def check(filled: list[Bank], recalls: int) -> None:
    assert sum(len(bank.history.reads) for bank in filled) >= recalls
    owner = {
        memory: bank.name
        for bank in filled
        for done in bank.history.writes
        for memory in done.state
    }
    for bank in filled:
        for seen in bank.history.reads:
            foreign = [memory for memory in seen.seen if owner.get(memory) != bank.name]
            assert not foreign, f"{bank.name} showed {foreign}"
        assert bank.history.violations() == []


@pytest.mark.integration
async def test_every_recall_sees_one_state_of_its_own_bank() -> None:
    async with replicas(2) as runs:
        filled = await storm(
            runs, names=8, writes=10, recalls=250, readers=10, seed=5, kill_every_s=0.3
        )
    check(filled, 250)


@pytest.mark.integration
async def test_the_same_where_few_banks_fit_into_memory() -> None:
    async with replicas(2, budget_bytes=1 << 14) as runs:
        filled = await storm(runs, names=6, writes=8, recalls=150, readers=6, seed=6)
        for run in runs:
            assert run.residency.metrics().evictions > 0
    check(filled, 150)


@pytest.mark.integration
async def test_the_same_where_banks_are_split_over_others_and_rearranged() -> None:
    async with split_replicas(2, rows=4) as (runs, evict):
        filled = await storm(
            runs, names=6, writes=10, recalls=200, readers=8, seed=8, compact=True, evict=evict
        )
    check(filled, 200)


@pytest.mark.bench
@pytest.mark.timeout(3600)
async def test_fifty_banks_ten_thousand_recalls() -> None:
    async with replicas(3, budget_bytes=1 << 22) as runs:
        filled = await storm(
            runs, names=50, writes=40, recalls=10_000, readers=40, seed=7, kill_every_s=2.0
        )
    check(filled, 10_000)
    reads = sum(len(bank.history.reads) for bank in filled)
    done = sum(len(bank.history.writes) for bank in filled)
    print(f"{len(filled)} banks, {reads} recalls, {done} writes: nothing foreign, old or deleted")


@pytest.mark.integration
async def test_recalls_during_an_import_see_every_acknowledged_batch_whole() -> None:
    size, batches = 20, 10
    async with replicas(1) as (run,):
        bank, quiet = Bank("growing"), Bank("quiet")
        await write(run, quiet, random.Random(1))
        await import_memories(run.ingest, run.tenant, bank.name, [])
        await banks.ensure(run.pool, run.tenant, bank.name)
        over = asyncio.Event()

        async def importer() -> None:
            for batch in range(batches):
                items = [
                    {"key": f"{batch}-{n}", "text": entry(batch * size + n)} for n in range(size)
                ]
                begin = time.monotonic()
                answer = await import_memories(run.ingest, run.tenant, bank.name, items)
                texts = {answer["ids"][item["key"]]: item["text"] for item in items}
                bank.state = bank.state | texts
                bank.history.writes.append(Write(begin, time.monotonic(), bank.state))
            over.set()

        async def reader() -> None:
            engine = run.engine()
            while not over.is_set():
                await read(engine, run.tenant, bank)
                await read(engine, run.tenant, quiet)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(importer())
            for _ in range(40):
                tasks.create_task(reader())
        await read(run.engine(), run.tenant, bank)
    assert len(bank.state) == size * batches
    check([bank, quiet], 80)
