"""A database that comes back in an earlier state, and writes that reuse its versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import numpy as np
import pytest

from models.passthrough import Passthrough
from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.bank.shards.shard import LocalShards
from retrieval.errors import StaleSnapshot
from retrieval.ingest.importing import import_memories
from retrieval.keyword.analysers import analyser_for
from retrieval.recall.engine import RecallEngine
from retrieval.recall.retriever import LocalRetriever
from retrieval.settings import RecallSettings, RetainSettings
from retrieval.store import banks, epoch
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from retrieval.types import RecallQuery
from serve.opening.translation import OpenedReranker
from tests.retrieval.store.servers import HashEmbedder, deps, server

pytestmark = pytest.mark.integration

EMBEDDER = HashEmbedder()
KEPT, LOST, NEW = "amber boats sail", "a kiln that nobody remembers", "the crane at the harbour"


class Restorable:
    """A database of its own, and a copy of the state to which it can go back."""

    def __init__(self) -> None:
        self.name = f"restorable_{uuid4().hex[:8]}"
        self._server = server().dsn

    @property
    def dsn(self) -> str:
        return urlsplit(self._server)._replace(path=f"/{self.name}").geturl()

    async def _do(self, *statements: str) -> None:
        connection = await asyncpg.connect(self._server)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    async def create(self) -> None:
        await self._do(f"create database {self.name}")

    async def back_up(self) -> None:
        await self._do(f"create database {self.name}_copy template {self.name}")

    async def restore(self) -> None:
        await self._do(
            f"drop database {self.name} with (force)",
            f"alter database {self.name}_copy rename to {self.name}",
        )

    async def drop(self) -> None:
        await self._do(
            f"drop database if exists {self.name} with (force)",
            f"drop database if exists {self.name}_copy",
        )


async def _write(pool: Pool, text: str) -> None:
    await import_memories(deps(pool, embedder=EMBEDDER), "t", "b", [{"text": text}])


def _opened(dsn: str) -> PoolSettings:
    return PoolSettings(dsn, min_size=1, max_size=4, command_timeout_s=20)


@pytest.fixture
async def restorable() -> AsyncIterator[Restorable]:
    database = Restorable()
    await database.create()
    try:
        pool = await open_pool(_opened(database.dsn))
        await migrate(pool)
        await _write(pool, KEPT)
        await pool.close()
        await database.back_up()
        yield database
    finally:
        await database.drop()


async def _texts(pool: Pool, residency: Residency) -> list[str]:
    with ThreadPoolExecutor(1) as threads:
        retriever = LocalRetriever(
            pool,
            residency,
            EMBEDDER,
            RecallSettings(),
            threads,
            lambda head: analyser_for(RetainSettings().with_overrides(head.config)),
        )
        engine = RecallEngine(pool, retriever, OpenedReranker(Passthrough()), RecallSettings())
        now = datetime.now(UTC)
        query = RecallQuery(tenant="t", bank_id="b", text=f"{LOST} {NEW} {KEPT}", now=now)
        return sorted(one["text"] for one in (await engine.recall(query)).body["results"])


async def test_a_replica_forgets_what_it_holds_of_another_history(restorable: Restorable) -> None:
    pool = await open_pool(_opened(restorable.dsn))
    residency = Residency(pool, ResidencySettings())
    shards = LocalShards(pool, ResidencySettings(), 1000)
    try:
        await _write(pool, LOST)
        before = await banks.head(pool, "t", "b")
        assert await _texts(pool, residency) == sorted([KEPT, LOST])
        whole = np.array([0, 1], np.int32)
        lost = (await shards.rows(before, 0, whole))[1]

        await restorable.restore()
        begun = await epoch.renew(pool)
        await _write(pool, NEW)
        head = await banks.head(pool, "t", "b")
        assert head.epoch == begun != before.epoch
        numbers = [(one.bank, one.version, one.generation) for one in (before, head)]
        assert numbers[0] == numbers[1], "the same numbers, for another write"

        assert await _texts(pool, residency) == sorted([KEPT, NEW])
        assert not np.allclose((await shards.rows(head, 0, whole))[1], lost)
        with pytest.raises(StaleSnapshot, match="was restored"):
            await residency.open(before)
    finally:
        await shards.close()
        await residency.close()
        await pool.close()


async def test_an_epoch_begins_only_when_told(restorable: Restorable) -> None:
    pool = await open_pool(_opened(restorable.dsn))
    try:
        first = await banks.head(pool, "t", "b")
        await _write(pool, NEW)
        assert (await banks.head(pool, "t", "b")).epoch == first.epoch != ""
        async with pool.acquire() as connection:
            assert await epoch.renew(connection) != first.epoch
    finally:
        await pool.close()
