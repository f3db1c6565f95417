"""A backup is what comes out of it: restored, counted, hashed, opened, asked."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from retrieval.errors import Conflict
from retrieval.lifecycle.transfer import afterwards, backup, trial
from retrieval.store import banks, operation_views, operations
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Connection, Pool, PoolSettings, open_pool, write
from tests.retrieval.lifecycle.transfer import world
from tests.retrieval.store.servers import database, server

pytestmark = pytest.mark.integration


async def scratch(schema: str) -> tuple[Pool, str, str]:
    """(pool, address, name) of an empty database of the server that tests share."""
    name = f"scratch_{uuid4().hex[:8]}"
    dsn = server().dsn
    admin = await asyncpg.connect(dsn)
    try:
        await admin.execute(f'create database "{name}"')
    finally:
        await admin.close()
    there = dsn.replace("@/fourfold?", f"@/{name}?")
    pool = await open_pool(PoolSettings(there, schema=schema, min_size=1, max_size=4))
    return pool, there, name


async def drop(pool: Pool, name: str) -> None:
    await pool.close()
    admin = await asyncpg.connect(server().dsn)
    try:
        await admin.execute(f'drop database "{name}"')
    finally:
        await admin.close()


async def test_out_and_in_again(tmp_path: Path) -> None:
    schema = f"t{uuid4().hex[:12]}"
    source = await open_pool(PoolSettings(server().dsn, schema=schema, min_size=1, max_size=8))
    target, dsn, name = await scratch(schema)
    try:
        await migrate(source)
        async with world.context(source) as context:
            await world.fill(context, "one", 60)
            await world.fill(context, "two", 60)
            file = tmp_path / "all.backup"
            made = await backup.backup(source, server().dsn, file)
            assert os.stat(file).st_mode & 0o777 == 0o600
            assert [bank["bank_id"] for bank in made.content["banks"]] == ["one", "two"]
            assert made.content["models"] == ["hash:64"]
            assert os.listdir(tmp_path) == ["all.backup"]
            asked = await world.recalls(context, "one", world.QUESTIONS[:5])
            before = await world.contents(source, "one")
        found = await asyncio.to_thread(backup.verify, file)
        assert found.content == backup.opened(file).content

        await backup.restore(file, target, dsn)
        assert await backup.compare(target, found) == []
        await migrate(target)
        done = await afterwards.mend(target)
        assert done.banks == 2
        told = await trial.ask(target)
        assert told["opened"] == 2
        assert told["recalled"] > 0
        async with world.context(target) as context:
            assert await world.contents(target, "one") == before
            assert await world.recalls(context, "one", world.QUESTIONS[:5]) == asked

            # Something else is there now: not without being told so, and then all of it.
            with pytest.raises(Conflict, match="--replace"):
                await backup.restore(file, target, dsn)
            await banks.put(target, "default", "three", {})
            wrong = await backup.compare(target, found)
            assert any("banks" in each for each in wrong)
        await backup.restore(file, target, dsn, replace=True)
        assert await backup.compare(target, found) == []

        # Nothing changes where it fails in the middle.
        data = bytearray(await asyncio.to_thread(file.read_bytes))
        data[len(data) // 2] ^= 0xFF
        broken = tmp_path / "broken.backup"
        await asyncio.to_thread(broken.write_bytes, bytes(data))
        with pytest.raises(backup.BadBackup, match=r"damaged"):
            await backup.restore(broken, target, dsn, replace=True)
        assert await backup.compare(target, found) == []

        async def busy(connection: Connection) -> None:
            bank = (await banks.head_of(connection, "default", "one")).bank
            await operations.create(connection, bank, "retain", {})

        await write(target, busy)
        claimed = await operations.claim(target)
        assert claimed is not None
        with pytest.raises(Conflict, match="a server works on this database"):
            await backup.restore(file, target, dsn, replace=True)
        assert (await afterwards.mend(target)).operations == 1
        state = await operation_views.get(target, "default", "one", str(claimed.operation_id))
        assert state["status"] == "pending"
    finally:
        await source.execute(f'drop schema if exists "{schema}" cascade')
        await source.close()
        await drop(target, name)


@pytest.mark.parametrize("content", [b"", b"PK", b"nothing of the kind" * 100])
def test_what_is_no_backup(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(content)
    with pytest.raises(backup.BadBackup, match="no backup"):
        backup.verify(file)
    with pytest.raises(backup.BadBackup, match="cannot be read"):
        backup.opened(tmp_path / "none")


async def test_a_backup_that_fails_leaves_no_file(tmp_path: Path) -> None:
    async with database() as pool:
        wrong = server().dsn.replace("@/fourfold?", "@/no_such_database?")
        with pytest.raises(Exception, match="pg_dump"):
            await backup.backup(pool, wrong, tmp_path / "x")
    assert not os.listdir(tmp_path)
