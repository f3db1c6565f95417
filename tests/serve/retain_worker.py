"""A process of its own that does queued retains with a language model, for tests that kill it:
python -m tests.serve.retain_worker DSN SCHEMA ADDRESS OF THE MODEL."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack

from retrieval.ingest.operations.worker import Worker
from retrieval.settings import RetainSettings
from retrieval.store.database.pool import PoolSettings, open_pool
from serve.opening.llm import open_models
from serve.settings import parse
from tests.retrieval.store.servers import deps

LEASE_S = 1.5
CHUNK = 200


async def work(dsn: str, schema: str, url: str) -> None:
    """Until it is killed."""
    llm = {
        "llm_provider": "vllm", "llm_model": "m", "llm_base_url": url, "llm_max_concurrent": 1,
        "llm_max_retries": 0,
    }  # fmt: skip
    async with AsyncExitStack() as stack:
        pool = await open_pool(PoolSettings(dsn, schema=schema, min_size=1, max_size=4))
        stack.push_async_callback(pool.close)
        models = await open_models(parse({"llm": llm}, {}), pool, stack)
        ingest = deps(
            pool, extractor=models.extractor, settings=RetainSettings(retain_chunk_size=CHUNK)
        )
        worker = Worker(ingest, slots=1, poll_s=0.05, lease_s=LEASE_S)
        await worker.start()
        stack.push_async_callback(worker.stop)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:4]))
