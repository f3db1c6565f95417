"""Killed in the middle of writing: what was acknowledged is there, nothing is there by half."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from retrieval.errors import FourfoldError
from retrieval.ingest.importing import import_memories
from retrieval.ingest.operations import worker
from retrieval.store import banks, memories, operation_views
from retrieval.store.database.embedded import EmbeddedPostgres
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from retrieval.store.segments import table as segments
from tests.retrieval.store.servers import Replica, deps, fresh

pytestmark = pytest.mark.integration

RECOVERY_S = 15.0
BATCH = 7


@pytest.fixture(scope="module")
def doomed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    # fsync guards against power cuts, which a test cannot make: off, for speed.
    folder = fresh(tmp_path_factory.mktemp("doomed") / "data")
    with EmbeddedPostgres(folder, settings={"fsync": "off", "shared_buffers": "64MB"}) as server:
        yield server


@pytest.fixture
async def pool(doomed: EmbeddedPostgres) -> AsyncIterator[Pool]:
    opened = await open_pool(PoolSettings(doomed.dsn, min_size=1, max_size=8))
    await migrate(opened)
    yield opened
    await opened.close()


async def _kill(server: EmbeddedPostgres) -> None:
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


async def test_killing_the_database_during_imports(pool: Pool, doomed: EmbeddedPostgres) -> None:
    names = [f"bank-{i}-{uuid4().hex[:6]}" for i in range(2)]
    acknowledged: dict[str, set[str]] = {name: set() for name in names}
    tried: dict[str, list[list[str]]] = {name: [] for name in names}
    ingest = deps(pool)
    end = asyncio.Event()
    last_success: list[float] = []

    async def writer(name: str) -> None:
        while not end.is_set():
            keys = [uuid4().hex for _ in range(BATCH)]
            tried[name].append(keys)
            items = [
                {"key": key, "text": f"fact {key[:4]}", "entities": ["Ann", key[:2]]}
                for key in keys
            ]
            try:
                await import_memories(ingest, "default", name, items)
            except FourfoldError:
                continue
            acknowledged[name].update(keys)
            last_success.append(time.monotonic())

    async def reader(name: str) -> None:
        """Reads go on: late at worst, never an error that says anything else."""
        while not end.is_set():
            try:
                head = await banks.head(pool, "default", name)
                await Replica.of(pool, head)
            except FourfoldError:
                continue
            await asyncio.sleep(0.02)

    tasks = [asyncio.create_task(writer(name)) for name in names * 2]
    tasks += [asyncio.create_task(reader(name)) for name in names]
    for _ in range(3):
        wanted, begin = len(last_success) + 5, time.monotonic()  # writing is well under way
        while len(last_success) < wanted:
            assert time.monotonic() - begin < RECOVERY_S
            await asyncio.sleep(0.01)
        await _kill(doomed)
        killed = time.monotonic()
        while not last_success or last_success[-1] < killed:
            assert time.monotonic() - killed < RECOVERY_S
            await asyncio.sleep(0.05)
    end.set()
    await asyncio.gather(*tasks)

    for name in names:
        head = await banks.head(pool, "default", name)
        rows = await pool.fetch("select key, id from memory_units where bank = $1", head.bank)
        stored = {row["key"] for row in rows}
        assert acknowledged[name] <= stored
        assert len(acknowledged[name]) > BATCH
        for keys in tried[name]:
            assert len(stored.intersection(keys)) in (0, BATCH)
        held = await Replica.of(pool, head)
        assert sorted(held.ids()) == sorted(str(row["id"]) for row in rows)
        assert held.head.next_ordinal == len(rows)
    assert doomed.restarts >= 3


async def test_killing_the_database_under_a_worker(pool: Pool, doomed: EmbeddedPostgres) -> None:
    name = f"bank-{uuid4().hex[:6]}"
    ingest = deps(pool)
    ids = [
        (await worker.submit(ingest, "default", name, [{"content": f"content {i}"}]))[
            "operation_id"
        ]
        for i in range(12)
    ]
    background = worker.Worker(ingest, poll_s=0.05, lease_s=2.0)
    await background.start()
    begun = "select count(*) from operations where operation_id = any($1) and status <> 'pending'"
    while not await pool.fetchval(begun, ids):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    await _kill(doomed)
    begin = time.monotonic()
    try:
        while True:
            try:
                listed = await operation_views.list_operations(
                    pool, "default", name, status="completed", limit=100
                )
                if listed["total"] == len(ids):
                    break
            except FourfoldError:
                pass
            assert time.monotonic() - begin < RECOVERY_S
            await asyncio.sleep(0.1)
    finally:
        await background.stop()
    found = await memories.list_memories(pool, "default", name)
    assert sorted(item["text"] for item in found["items"]) == sorted(
        f"content {i}" for i in range(len(ids))
    )
    head = await banks.head(pool, "default", name)
    await segments.merge(pool, head.bank)
    assert len((await Replica.of(pool, head)).ids()) == len(ids)


async def test_a_write_that_is_cancelled_leaves_nothing(pool: Pool) -> None:
    name = f"bank-{uuid4().hex[:6]}"
    ingest = deps(pool)
    await import_memories(ingest, "default", name, [{"text": "first"}])
    before = await banks.head(pool, "default", name)
    for wait in (0.001, 0.003, 0.006, 0.01, 0.02):
        task = asyncio.create_task(
            import_memories(ingest, "default", name, [{"text": f"{wait} {i}"} for i in range(20)])
        )
        await asyncio.sleep(wait)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    head = await banks.head(pool, "default", name)
    rows = await pool.fetchval("select count(*) from memory_units where bank = $1", head.bank)
    assert rows == head.next_ordinal == 1 + 20 * (head.version - before.version)
    await import_memories(ingest, "default", name, [{"text": "last"}])
