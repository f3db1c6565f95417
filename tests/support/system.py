"""The whole system in this process, without Ray and HTTP: for benchmarks and system tests.

Embedded Postgres, the packaged embedding model, a residency and the write path are real.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from models.catalog import build_embedder
from models.passthrough import Passthrough
from models.settings import Compute, EmbedderSettings
from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.ingest.context import WriteContext
from retrieval.ingest.importing import import_memories
from retrieval.protocols import Embedder, Reranker
from retrieval.recall.engine import RecallEngine, Retriever
from retrieval.recall.retriever import LocalRetriever
from retrieval.settings import RecallSettings, RetainSettings
from retrieval.store import tenants
from retrieval.store.database.embedded import EmbeddedPostgres
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from serve.opening.translation import OpenedReranker

Memory: TypeAlias = Mapping[str, Any]
"""One item of the import route."""

IMPORT_BATCH = 500
"""Memories per import call: one transaction each."""


@dataclass(frozen=True, slots=True)
class System:
    """One running system. `postgres` is the database's process, `dsn` its address."""

    pool: Pool
    residency: Residency
    embedder: Embedder
    ingest: WriteContext
    executor: ThreadPoolExecutor
    postgres: int
    dsn: str
    tenant: str = tenants.DEFAULT_TENANT

    def retriever(self, settings: RecallSettings) -> LocalRetriever:
        return LocalRetriever(
            self.pool,
            self.residency,
            self.embedder,
            settings,
            self.executor,
            lambda head: self.ingest.analyser(self.ingest.settings.with_overrides(head.config)),
        )

    def engine(
        self,
        settings: RecallSettings | None = None,
        reranker: Reranker | str = "fused",
        *,
        retriever: Retriever | None = None,
    ) -> RecallEngine:
        """An engine over this system; a reranker's name makes a passthrough of that name."""
        settings = settings or RecallSettings()
        if isinstance(reranker, str):
            reranker = OpenedReranker(Passthrough(reranker))
        return RecallEngine(self.pool, retriever or self.retriever(settings), reranker, settings)

    async def import_bank(
        self, bank_id: str, memories: Sequence[Any], *, batch: int = IMPORT_BATCH
    ) -> dict[str, str]:
        """Imports memories in order, a batch at a time; key -> id."""
        ids: dict[str, str] = {}
        for begin in range(0, len(memories), batch):
            part = memories[begin : begin + batch]
            answer = await import_memories(self.ingest, self.tenant, bank_id, part)
            ids.update(answer["ids"])
        return ids


@asynccontextmanager
async def system(
    data: Path | None = None,
    *,
    embedder: Embedder | None = None,
    residency: ResidencySettings | None = None,
    retain: RetainSettings | None = None,
    threads: int = 1,
) -> AsyncIterator[System]:
    """A system over the folder `data` (a temporary one by default), stopped on the way out.

    `threads` are those of the embedding model and of array work, for figures per core.
    """
    async with AsyncExitStack() as stack:
        if data is None:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fourfold-")))
            data.chmod(0o755)
        postgres = EmbeddedPostgres(data)
        dsn = await asyncio.to_thread(postgres.start)
        stack.push_async_callback(asyncio.to_thread, postgres.stop)
        pool = await open_pool(PoolSettings(dsn))
        stack.push_async_callback(pool.close)
        await migrate(pool)
        if embedder is None:
            embedder = await _packaged(stack, threads)
        banks = Residency(pool, residency or ResidencySettings())
        stack.push_async_callback(banks.close)
        executor = ThreadPoolExecutor(threads, "search")
        stack.callback(executor.shutdown)
        assert postgres.pid is not None
        yield System(
            pool=pool,
            residency=banks,
            embedder=embedder,
            ingest=WriteContext(
                pool, embedder, banks, retain or RetainSettings(), committed=banks.refresh
            ),
            executor=executor,
            postgres=postgres.pid,
            dsn=dsn,
        )


async def _packaged(stack: AsyncExitStack, threads: int) -> Embedder:
    """The embedding model that comes with the installation, started."""
    settings = EmbedderSettings(model="packaged", compute=Compute(device="cpu", threads=threads))
    embedder = build_embedder(settings)
    await embedder.start()
    stack.push_async_callback(embedder.close)
    return embedder
