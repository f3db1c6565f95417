"""Operations that kill, wait, are cancelled, or leave something behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from retrieval.consolidation import queue
from retrieval.errors import Conflict, InvalidInput
from retrieval.ingest import curation
from retrieval.ingest.context import WriteContext
from retrieval.ingest.operations import worker
from retrieval.ingest.operations.isolation import Child, Died
from retrieval.lifecycle.erasure import running
from retrieval.lifecycle.transfer import jobs
from retrieval.settings.transfer import TransferSettings
from retrieval.store import banks, documents, memories, operation_views, operations, payloads
from retrieval.store.database.pool import Pool
from retrieval.store.refreshes import REFRESH
from tests.retrieval.store.servers import HashEmbedder, database, deps, server

pytestmark = pytest.mark.integration


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    """A schema of its own: nothing of other tests is in the queue."""
    async with database() as opened:
        yield opened


@pytest.fixture
def ingest(pool: Pool) -> WriteContext:
    return deps(pool)


@pytest.fixture
def bank() -> str:
    return f"bank-{uuid4().hex[:8]}"


async def told(pool: Pool, bank: str, id: str) -> dict[str, Any]:
    return await operation_views.get(pool, "default", bank, id, include_payload=True)


async def append(ingest: WriteContext, bank: str, content: str, document: str = "d") -> str:
    item = {"content": content, "document_id": document, "update_mode": "append"}
    answer = await worker.submit(ingest, "default", bank, [item])
    return str(answer["operation_id"])


# Deaths

_DOOMED = """
import asyncio, os, signal, sys
from retrieval.ingest import retain
from retrieval.ingest.operations import worker
from retrieval.store.database.pool import PoolSettings, open_pool
from retrieval.lifecycle.transfer import jobs
from tests.retrieval.store.servers import HashEmbedder, deps

class Deadly(HashEmbedder):
    async def embed_passages(self, *_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

async def main(dsn, schema):
    pool = await open_pool(PoolSettings(dsn, schema=schema, min_size=1, max_size=4))
    await worker.Worker(deps(pool, embedder=Deadly()), lease_s=0.3).step()

asyncio.run(main(*sys.argv[1:]))
"""


async def _die(pool: Pool) -> None:
    """Another process takes the next operation, and does not survive it."""
    schema = await pool.fetchval("select current_schema()")
    process = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", _DOOMED, server().dsn, schema], check=False
    )
    assert process.returncode == -signal.SIGKILL
    # As if its lease, and its turn at the document, were over.
    await pool.execute("update operations set leased_until = now() where status = 'processing'")
    await pool.execute("update document_turns set leased_until = now()")


@pytest.mark.parametrize("kind", ["retain", "reprocess"])
async def test_an_operation_that_kills_three_processes_has_failed(
    pool: Pool, ingest: WriteContext, bank: str, kind: str
) -> None:
    id = await append(ingest, bank, "Deadly words.")
    if kind == "reprocess":
        await worker.Worker(ingest).step()
        answer = await worker.submit_reprocess(pool, "default", bank, "d")
        id = answer["operation_id"]
    later = await append(ingest, bank, "Behind it in the lane.")
    for deaths in range(3):
        assert (await told(pool, bank, id))["status"] != "failed", deaths
        await _die(pool)
    assert await worker.Worker(ingest).step()  # buries it, and does what waited for it
    found = await told(pool, bank, id)
    assert found["status"] == "failed"
    assert "died 3 times" in found["error_message"]
    assert (await told(pool, bank, later))["status"] == "completed"
    await operation_views.retry(pool, "default", bank, id)  # on somebody's word it is tried again
    await worker.Worker(ingest).step()
    assert (await told(pool, bank, id))["status"] == "completed"


_KINDS = (
    *worker.HANDLERS,
    queue.TYPE,
    REFRESH,
    *jobs.handlers(TransferSettings()),
    *running.handlers(running.Eraser(None)),
)
"""Whatever a server's workers do."""


@pytest.mark.parametrize("kind", _KINDS)
async def test_no_kind_of_operation_kills_a_fourth_process(
    pool: Pool, ingest: WriteContext, bank: str, kind: str
) -> None:
    await worker.Worker(ingest).step()
    held = (await banks.ensure(pool, "default", bank)).bank
    async with pool.acquire() as connection:
        id, _ = await operations.create(connection, held, kind, {}, lanes=["d"])
    for deaths in range(3):
        claimed = await operations.claim(pool, lease_s=0.0, types=[kind])
        assert claimed is not None
        assert (claimed.operation_id, claimed.deaths) == (id, deaths)
    assert await operations.claim(pool, types=[kind]) is None
    found = await told(pool, bank, str(id))
    assert found["status"] == "failed"
    assert "died 3 times" in found["error_message"]
    later = await append(ingest, bank, "The bank stays.")  # nothing waits in the lane, either
    assert await worker.Worker(ingest).step()
    assert (await told(pool, bank, later))["status"] == "completed"


def _suicide(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _forever(*_: Any) -> None:
    while True:
        pass


def _double(value: int) -> int:
    return value * 2


def _refuse(*_: Any) -> None:
    raise InvalidInput("not so", "items")


async def test_a_process_of_its_own() -> None:
    async with Child(limit_s=30) as child:
        assert await child.run(_double, 21) == 42
        with pytest.raises(InvalidInput, match="not so"):
            await child.run(_refuse)
        assert await child.run(_double, 1) == 2
        with pytest.raises(Died):
            await child.run(_suicide)
    async with Child(limit_s=3) as child:
        with pytest.raises(Died, match="3 s"):
            await child.run(_forever)


async def test_what_killed_once_is_read_in_a_process_of_its_own(
    pool: Pool, ingest: WriteContext, bank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await append(ingest, bank, "Deadly words.")
    lost = await operations.claim(pool, lease_s=0.0)  # whoever had it is gone
    assert lost is not None
    assert lost.deaths == 0

    def deadly(*_: Any) -> None:
        raise AssertionError("read in this process")

    # What would kill this process is never called here: a child has its own.
    monkeypatch.setattr("retrieval.ingest.documents.planning.as_it_stands", deadly)
    assert await worker.Worker(ingest).step()
    assert (await told(pool, bank, id))["status"] == "completed"
    assert (await memories.list_memories(pool, "default", bank))["total"] == 1


async def test_children_that_die_count_as_deaths(
    pool: Pool, ingest: WriteContext, bank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await append(ingest, bank, "Deadly words.")
    await operations.claim(pool, lease_s=0.0)

    async def deadly(self: Child, *_: Any) -> None:
        raise Died("its process ended with -9")

    monkeypatch.setattr(Child, "run", deadly)
    await worker.Worker(ingest).step()
    found = await told(pool, bank, id)
    assert (found["status"], found["retry_count"]) == ("pending", 1)
    await pool.execute("update operations set next_retry_at = now()")
    await worker.Worker(ingest).step()
    found = await told(pool, bank, id)
    assert found["status"] == "failed"
    assert "died 3 times" in found["error_message"]
    assert "ended with -9" in found["error_message"]


# Lanes


async def test_appends_land_once_and_in_order(pool: Pool, bank: str) -> None:
    workers = [worker.Worker(deps(pool), poll_s=0.02) for _ in range(4)]
    parts = [f"Part {i}." for i in range(24)]
    ids = [await append(deps(pool), bank, part, f"d{i % 2}") for i, part in enumerate(parts)]
    for each in workers:
        await each.start()
    try:
        async with asyncio.timeout(60):
            while (  # noqa: ASYNC110
                await pool.fetchval("select count(*) from operations where status = 'completed'")
            ) < len(ids):
                await asyncio.sleep(0.05)
    finally:
        for each in workers:
            await each.stop()
    for n in range(2):
        text = (await documents.get(pool, "default", bank, f"d{n}"))["original_text"]
        assert text.split("\n") == parts[n::2]
    assert await pool.fetchval("select count(*) from operation_lanes") == 0


async def test_a_lane_waits_for_whoever_is_first_in_it(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    first = await append(ingest, bank, "first")
    await append(ingest, bank, "second")
    await append(ingest, bank, "elsewhere", "e")
    claimed = await operations.claim(pool)
    assert claimed is not None
    assert str(claimed.operation_id) == first
    other = await operations.claim(pool)
    assert other is not None
    assert other.document_id == "e"
    assert await operations.claim(pool) is None  # the lane is leased
    await operations.fail(pool, claimed, "later", again=True)
    assert await operations.claim(pool) is None  # its first waits to be tried again
    await operation_views.cancel(pool, "default", bank, first)
    second = await operations.claim(pool)
    assert second is not None
    assert second.payload["items"][0]["content"] == "second"


# Cancelling


async def test_a_running_operation_can_be_cancelled(pool: Pool, bank: str) -> None:
    began = asyncio.Event()

    class Waiting(HashEmbedder):
        async def embed_passages(self, *args: Any, **kwargs: Any) -> Any:
            began.set()
            await asyncio.sleep(30)

    ingest = deps(pool, embedder=Waiting())
    id = await append(ingest, bank, "never")
    step = asyncio.create_task(worker.Worker(ingest, lease_s=0.6).step())
    await began.wait()
    await operation_views.cancel(pool, "default", bank, id)
    assert await asyncio.wait_for(step, 10)
    assert (await told(pool, bank, id))["status"] == "cancelled"
    assert (await memories.list_memories(pool, "default", bank))["total"] == 0
    with pytest.raises(Conflict):
        await operation_views.cancel(pool, "default", bank, id)


async def test_cancelled_just_before_its_commit(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    id = await append(ingest, bank, "never")

    class Cancelling(HashEmbedder):
        async def embed_passages(self, *args: Any, **kwargs: Any) -> Any:
            await operation_views.cancel(pool, "default", bank, id)
            return await super().embed_passages(*args, **kwargs)

    await worker.Worker(deps(pool, embedder=Cancelling())).step()
    assert (await told(pool, bank, id))["status"] == "cancelled"
    assert (await memories.list_memories(pool, "default", bank))["total"] == 0


# What is left behind


async def test_what_is_done_keeps_no_content(pool: Pool, ingest: WriteContext, bank: str) -> None:
    id = await append(ingest, bank, "the password is swordfish")
    assert "swordfish" in str(await told(pool, bank, id))
    await worker.Worker(ingest).step()
    assert "swordfish" not in str(await told(pool, bank, id))
    assert not await pool.fetchval(
        "select count(*) from operations o where o::text like '%swordfish%'"
    )


@pytest.mark.parametrize("way", ["document", "memories", "bank"])
async def test_what_is_deleted_goes_from_operations_too(
    pool: Pool, ingest: WriteContext, bank: str, way: str
) -> None:
    id = await append(ingest, bank, "the password is swordfish")
    await operation_views.cancel(pool, "default", bank, id)
    other = await append(ingest, bank, "something else", "e")
    await operation_views.cancel(pool, "default", bank, other)
    await worker.submit(ingest, "default", bank, [{"content": "kept", "document_id": "d"}])
    await worker.Worker(ingest).step()
    if way == "document":
        await curation.delete_document(ingest, "default", bank, "d")
        assert "something else" in str(await told(pool, bank, other))
    elif way == "memories":
        await curation.clear(ingest, "default", bank)
    else:
        await banks.delete(pool, "default", bank)
    assert not await pool.fetchval(
        "select count(*) from operations o where o::text like '%swordfish%'"
    )
    if way != "bank":
        with pytest.raises(Conflict, match="send it again"):
            await operation_views.retry(pool, "default", bank, id)


async def test_what_failed_can_be_tried_again_for_a_while(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    ids = [await append(ingest, bank, f"words {i}", f"d{i}") for i in range(2)]
    for id in ids:
        await operation_views.cancel(pool, "default", bank, id)
    await pool.execute(
        "update operations set updated_at = now() - interval '8 days' where operation_id = $1",
        ids[0],
    )
    await worker.tidy(pool)
    with pytest.raises(Conflict, match="send it again"):
        await operation_views.retry(pool, "default", bank, ids[0])
    await operation_views.retry(pool, "default", bank, ids[1])
    await worker.Worker(ingest).step()
    assert (await told(pool, bank, ids[1]))["status"] == "completed"
    assert payloads.KEPT_S == 7 * 86400


async def test_lists_do_not_read_payloads(pool: Pool, ingest: WriteContext, bank: str) -> None:
    scopes = [["a" * 300, str(i)] for i in range(100)]
    for i in range(100):
        item = {"content": f"line {i}" + "x" * 200_000, "observation_scopes": scopes}
        await worker.submit(ingest, "default", bank, [item])
    begin = time.monotonic()
    listed = await operation_views.list_operations(pool, "default", bank, limit=100)
    assert time.monotonic() - begin < 0.5
    assert len(listed["operations"]) == listed["total"] == 100
    await banks.delete(pool, "default", bank)


async def test_ids_of_operations_are_a_banks_own(
    pool: Pool, ingest: WriteContext, bank: str
) -> None:
    id = str(uuid4())
    for tenant in ("t1", "t2"):
        await worker.submit(ingest, tenant, bank, [{"content": tenant}], operation_id=id)
    await operation_views.cancel(pool, "t1", bank, id)
    assert (await operation_views.get(pool, "t2", bank, id))["status"] == "pending"
    await worker.Worker(ingest).step()
    assert (await operation_views.get(pool, "t1", bank, id))["status"] == "cancelled"
    assert (await operation_views.get(pool, "t2", bank, id))["status"] == "completed"
    assert (await memories.list_memories(pool, "t2", bank))["total"] == 1
