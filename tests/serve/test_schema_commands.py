"""`fourfold migrate` and `fourfold epoch`, and commands that must not change a schema."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from typer.testing import CliRunner, Result

from retrieval.store.database import migrate
from retrieval.store.database.migrate import SchemaTooOld
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from serve.cli.main import app
from serve.opening import database
from serve.settings import Settings
from tests.serve.conftest import settings_for

pytestmark = pytest.mark.integration


class Schema:
    """A schema of its own on the tests' server, and the command line on it."""

    def __init__(self, dsn: str, data: Path) -> None:
        self.name = f"cli_{uuid4().hex[:8]}"
        self.dsn, self._data = dsn, data

    def run(self, *words: str, **env: str) -> Result:
        own = {"FOURFOLD_DATABASE_URL": self.dsn, "FOURFOLD_DATABASE_SCHEMA": self.name, **env}
        return CliRunner().invoke(app, [*words, "--data", str(self._data)], env=own)

    @property
    def settings(self) -> Settings:
        own = {"database_url": self.dsn, "database_schema": self.name}
        return settings_for(self.dsn, database=own)

    def ask(self, statement: str) -> object:
        async def ask() -> object:
            connection = await asyncpg.connect(self.dsn, server_settings={"search_path": self.name})
            try:
                return await connection.fetchval(statement)
            finally:
                await connection.close()

        return asyncio.run(ask())


@pytest.fixture
def schema(dsn: str, tmp_path: Path) -> Iterator[Schema]:
    found = Schema(dsn, tmp_path)
    yield found
    found.ask(f"drop schema if exists {found.name} cascade")


def test_listing_keys_changes_no_schema(schema: Schema) -> None:
    for words in (["keys", "list"], ["tenants", "list"], ["keys", "create"], ["epoch"]):
        done = schema.run(*words)
        assert done.exit_code == 1
        assert "run `fourfold migrate`" in done.output
    assert schema.ask(f"select to_regnamespace('{schema.name}')") is None


def test_migrate_says_what_it_does_and_does_it_once(schema: Schema) -> None:
    planned = schema.run("migrate", "--plan")
    assert planned.exit_code == 0, planned.output
    assert "0001_initial" in planned.output
    assert "0120_database_epoch  programs from 0092 on keep working" in planned.output
    assert schema.ask(f"select to_regnamespace('{schema.name}')") is None
    assert schema.run("migrate", "--to", "22").output.endswith("the schema is at 0022\n")
    last = migrate.known()[-1][0]
    assert schema.run("migrate").output.endswith(f"the schema is at {last:04d}\n")
    assert schema.run("migrate").output == f"nothing to do\nthe schema is at {last:04d}\n"
    assert schema.run("keys", "list").exit_code == 0


def test_an_epoch_begins(schema: Schema) -> None:
    schema.run("migrate")
    before = schema.ask("select epoch from database_epoch")
    said = schema.run("epoch")
    assert said.exit_code == 0
    now = schema.ask("select epoch from database_epoch")
    assert now != before
    assert str(now) in said.output


async def test_a_stage_waits_for_its_database_and_for_its_schema(
    schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a rollout where PostgreSQL is away at first, and the job that migrates comes late."""
    monkeypatch.setattr("retrieval.store.database.pool.RETRY_WAITS_S", (0.01,))
    monkeypatch.setattr(database, "START_LOOK_S", 0.05)
    made, refused = asyncpg.pool.Pool._async__init__, 3

    async def absent(self: Pool) -> object:
        nonlocal refused
        if refused:
            refused -= 1
            raise ConnectionRefusedError
        return await made(self)

    monkeypatch.setattr(Pool, "_async__init__", absent)
    looked, check = asyncio.Event(), migrate.check

    async def looking(pool: Pool) -> None:
        try:
            await check(pool)
        except SchemaTooOld:
            looked.set()
            raise

    monkeypatch.setattr(migrate, "check", looking)
    async with AsyncExitStack() as stack:
        opening = asyncio.create_task(database.open_database(schema.settings, stack))
        await asyncio.wait_for(looked.wait(), 30)
        assert refused == 0
        assert not opening.done(), "it is there, and not migrated"
        pool = await open_pool(PoolSettings(schema.dsn, schema=schema.name, min_size=1, max_size=1))
        await migrate.migrate(pool)
        await pool.close()
        await asyncio.wait_for(opening, 30)


async def test_a_stage_gives_up_in_the_end(schema: Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "START_WAIT_S", 0.2)
    monkeypatch.setattr(database, "START_LOOK_S", 0.05)
    async with AsyncExitStack() as stack:
        with pytest.raises(SchemaTooOld):
            await database.open_database(schema.settings, stack)
