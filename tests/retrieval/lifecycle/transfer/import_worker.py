"""A process of its own that does queued imports, for tests that kill it:
python -m tests.retrieval.lifecycle.transfer.import_worker DSN SCHEMA."""

from __future__ import annotations

import asyncio
import sys

from retrieval.lifecycle.transfer import restoring
from retrieval.store.database.pool import PoolSettings, open_pool
from tests.retrieval.lifecycle.transfer import world

LEASE_S = 1.5
BATCH_ROWS = 20


async def work(dsn: str, schema: str) -> None:
    """Until it is killed."""
    pool = await open_pool(PoolSettings(dsn, schema=schema, min_size=1, max_size=4))
    async with world.context(pool) as context:
        worker = world.worker(context, slots=1, poll_s=0.05, lease_s=LEASE_S)
        await worker.start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    restoring.BATCH_ROWS = BATCH_ROWS  # type: ignore[misc]
    asyncio.run(work(*sys.argv[1:3]))
