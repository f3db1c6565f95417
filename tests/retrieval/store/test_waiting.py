"""One tenant's background work is bounded, and nobody else's with it."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from retrieval.consolidation import queue
from retrieval.errors import RateLimited
from retrieval.ingest.operations import worker
from retrieval.lifecycle.erasure import running
from retrieval.lifecycle.erasure.selection import Selectors
from retrieval.settings.consolidation import ConsolidationSettings
from retrieval.store import banks, operation_views, operations, waiting
from retrieval.store.database.pool import Connection, Pool, write
from tests.retrieval.store.conftest import pool
from tests.retrieval.store.servers import database, deps

__all__ = ["pool"]

pytestmark = pytest.mark.integration


async def queued(pool: Pool, tenant: str, type: str, count: int) -> None:
    async def work(connection: Connection) -> None:
        bank = (await banks.ensure(connection, tenant, "b")).bank
        await connection.execute(
            "insert into operations (operation_id, bank, type, payload)"
            " select gen_random_uuid(), $1, $2, '{}' from generate_series(1, $3)",
            bank,
            type,
            count,
        )

    await write(pool, work)


def asked(pool: Pool) -> dict[str, Callable[[str], Awaitable[Any]]]:
    """What a tenant can queue, by name."""
    ingest = deps(pool)
    every = ConsolidationSettings()
    words = Selectors(text_contains="x")
    return {
        "retain": lambda tenant: worker.submit(ingest, tenant, "b", [{"content": "x"}]),
        "erase": lambda tenant: running.submit(pool, tenant, "b", words),
        "consolidate": lambda tenant: queue.submit(pool, tenant, "b", every, [["a"]]),
    }


@pytest.mark.parametrize("what", ["retain", "erase", "consolidate"])
async def test_a_full_queue_of_one_tenant(pool: Pool, what: str) -> None:
    loud, quiet = f"loud-{uuid4()}", f"quiet-{uuid4()}"
    await queued(pool, loud, "retain", waiting.MOST)
    await queued(pool, quiet, "retain", 1)
    with pytest.raises(RateLimited, match="10000 operations of this tenant wait already"):
        await asked(pool)[what](loud)
    await asked(pool)[what](quiet)


async def test_erasures_are_few(pool: Pool) -> None:
    tenant = f"t-{uuid4()}"
    await queued(pool, tenant, "purge", running.MOST_WAITING - 1)
    await asked(pool)["erase"](tenant)
    with pytest.raises(RateLimited, match="100 erases and purges of this tenant wait already"):
        await asked(pool)["erase"](tenant)
    await asked(pool)["retain"](tenant)


async def test_a_retry_needs_room_too(pool: Pool) -> None:
    tenant = f"t-{uuid4()}"
    made = (await asked(pool)["retain"](tenant))["operation_id"]
    await operation_views.cancel(pool, tenant, "b", made)
    await queued(pool, tenant, "consolidation", waiting.MOST)
    with pytest.raises(RateLimited):
        await operation_views.retry(pool, tenant, "b", made)


async def test_erasures_of_a_bank_go_one_after_the_other() -> None:
    async with database() as own:  # no other test's erasure is in this queue
        await queued(own, "t", "retain", 0)
        first, second = [(await asked(own)["erase"]("t"))["operation_id"] for _ in range(2)]
        claimed = await operations.claim(own, types=["erase"])
        assert claimed is not None
        assert str(claimed.operation_id) == first
        assert await operations.claim(own, types=["erase"]) is None
        await operations.fail(own, claimed, "", again=False)
        claimed = await operations.claim(own, types=["erase"])
        assert claimed is not None
        assert str(claimed.operation_id) == second
