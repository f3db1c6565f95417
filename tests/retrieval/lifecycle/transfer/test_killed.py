"""kill -9 of a process that imports: the next one goes on from where it was, and nobody sees the
bank before it is whole."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from retrieval.errors import Unavailable
from retrieval.lifecycle.transfer import jobs
from retrieval.lifecycle.transfer.archive import ArchiveContents
from retrieval.lifecycle.transfer.jobs import ImportRequest
from retrieval.store import banks, operation_views
from retrieval.store.database.pool import Pool
from tests.retrieval.lifecycle.transfer import world
from tests.retrieval.store.servers import server as postgres

pytestmark = pytest.mark.integration

KILLS = ((0, 1), (2, 0), (5, 40), (7, 20))
"""(step, rows) that an import has come to, or further, when a process that does it is killed."""


async def come(pool: Pool, target: str, operation: str, to: tuple[int, int] | None) -> None:
    """Waits until an import has come so far; None: to its end."""
    begin = time.monotonic()
    while time.monotonic() - begin < 120:
        at = await pool.fetchval("select building from banks where bank_id = $1", target)
        if to is not None and at is not None and (at["step"], at["rows"]) >= to:
            return
        told = await operation_views.get(pool, "default", target, operation)
        if told["status"] in ("completed", "failed"):
            return
        await asyncio.sleep(0.02)
    pytest.fail("the import does not go on")


@pytest.mark.timeout(300)
async def test_killed_at_several_moments(pool: Pool, tmp_path: Path) -> None:
    source, target = f"s{uuid4().hex}", f"t{uuid4().hex}"
    async with world.context(pool) as context:
        await world.fill(context, source, 60)
        before = await world.contents(pool, source)
        asked = await world.recalls(context, source, world.QUESTIONS[:8])
        archive = tmp_path / "bank.zip"
        await world.exported(context, source, archive)
        with archive.open("rb") as file:
            made: Any = await jobs.submit_import(
                pool,
                "default",
                target,
                file,
                ImportRequest(target=target, include=ArchiveContents(history=True)),
            )
        for moment in (*KILLS, None):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.retrieval.lifecycle.transfer.import_worker",
                postgres().dsn, pool.schema,
            )  # fmt: skip
            try:
                await come(pool, target, made["operation_id"], moment)
                if moment is not None:
                    with pytest.raises(Unavailable, match="still being imported"):
                        await banks.head(pool, "default", target)
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        told = await operation_views.get(pool, "default", target, made["operation_id"])
        assert told["status"] == "completed", told
        found = await world.contents(pool, target)
        for table in before:
            assert found[table] == before[table], table
        assert await world.recalls(context, target, world.QUESTIONS[:8]) == asked
