"""The commands that back up a database, bring it back, and erase again what was erased since."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import asyncpg
import orjson
import pytest
from typer.testing import CliRunner

from retrieval.ingest.importing import import_memories
from retrieval.lifecycle.erasure.ledger import Ledger
from retrieval.lifecycle.erasure.removal import remove
from retrieval.lifecycle.erasure.selection import Selectors
from retrieval.store import banks
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from serve.cli.main import app
from tests.retrieval.store.servers import deps, server

pytestmark = pytest.mark.integration

T = TypeVar("T")
SCHEMA = "fourfold_backups"


class Databases:
    """Empty databases of the server that tests share."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def new(self) -> str:
        name = f"cli_{uuid4().hex[:8]}"
        self.admin(f'create database "{name}"')
        self.names.append(name)
        return server().dsn.replace("@/fourfold?", f"@/{name}?")

    @staticmethod
    def admin(sql: str) -> None:
        async def run() -> None:
            connection = await asyncpg.connect(server().dsn)
            try:
                await connection.execute(sql)
            finally:
                await connection.close()

        asyncio.run(run())


@pytest.fixture
def databases() -> Iterator[Databases]:
    found = Databases()
    yield found
    for name in found.names:
        found.admin(f'drop database if exists "{name}" with (force)')


def on(dsn: str, work: Callable[[Pool], Awaitable[T]]) -> T:
    async def run() -> T:
        pool = await open_pool(PoolSettings(dsn, schema=SCHEMA, min_size=1, max_size=4))
        try:
            return await work(pool)
        finally:
            await pool.finish()

    return asyncio.run(run())


@pytest.fixture
def source(databases: Databases, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    dsn = databases.new()
    monkeypatch.setenv("FOURFOLD_DATABASE_URL", dsn)
    monkeypatch.setenv("FOURFOLD_DATABASE_SCHEMA", SCHEMA)
    monkeypatch.setenv("FOURFOLD_DB_POOL_MAX_SIZE", "4")
    monkeypatch.setenv("FOURFOLD_ERASURE_LEDGER", str(tmp_path / "ledger"))

    async def fill(pool: Pool) -> None:
        await migrate(pool)
        for bank in ("one", "two"):
            await import_memories(
                deps(pool),
                "default",
                bank,
                [{"key": f"{i}", "text": f"{who} rows.", "document_id": f"d{i}"}
                 for i, who in enumerate(("Ann", "Bo", "Zenobia"))],
            )  # fmt: skip

    on(dsn, fill)
    return dsn


def fourfold(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output


def result(*arguments: str) -> dict[str, object]:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, object] = orjson.loads(done.stdout)
    return found


async def texts(pool: Pool) -> list[str]:
    rows = await pool.fetch(
        "select bank_id || ': ' || text as said from memory_units join banks using (bank)"
        " order by said"
    )
    return [row["said"] for row in rows]


WHOLE = [f"{bank}: {who} rows." for bank in ("one", "two") for who in ("Ann", "Bo", "Zenobia")]


async def forget(pool: Pool, ledger: Path) -> None:
    """A person out of one bank, and the other bank."""
    note = Ledger(ledger)
    context = deps(pool, note=note)

    async def nothing(*_: object) -> None:
        pass

    wanted = Selectors(text_contains="Zenobia")
    await remove(context, "default", "one", wanted, "delete", nothing)
    await banks.delete(pool, "default", "two", note=note)


def test_out_checked_and_in_again(databases: Databases, source: str, tmp_path: Path) -> None:
    file = tmp_path / "all.backup"
    made = result("backup", str(file))
    assert (made["banks"], made["memories"]) == (2, 6)
    assert file.stat().st_mode & 0o777 == 0o600
    assert result("backup", "verify", str(file))["digest"] == made["digest"]
    tried = result("backup", "verify", str(file), "--restore-to", databases.new())
    assert (tried["restored"], tried["digest"]) == ("the same", made["digest"])

    code, said = fourfold("restore", str(file))
    assert (code, "--replace" in said) == (1, True)
    empty = databases.new()
    done = result("restore", str(file), "--into", empty)
    assert (done["digest"], done["banks"], done["erasures"]) == (made["digest"], 2, 0)
    assert on(empty, texts) == WHOLE
    on(source, lambda pool: pool.execute("delete from memory_units where key = '0'"))
    assert on(source, texts) != WHOLE
    assert result("restore", str(file), "--replace")["banks"] == 2
    assert on(source, texts) == WHOLE


def test_what_was_erased_since_does_not_come_back(
    databases: Databases, source: str, tmp_path: Path
) -> None:
    file, left = tmp_path / "all.backup", ["one: Ann rows.", "one: Bo rows."]
    result("backup", str(file))
    on(source, lambda pool: forget(pool, tmp_path / "ledger"))
    assert on(source, texts) == left
    there = databases.new()
    done = result("restore", str(file), "--into", there)
    assert done["erasures"] == 2
    assert on(there, texts) == left
    words = on(there, _everything)
    assert "Zenobia" not in words
    assert "Bo rows" in words
    # Restored by other means: a command of its own replays the ledger, as often as one likes.
    assert result("restore", str(file), "--replace")["erasures"] == 2
    for _ in range(2):
        assert result("after-restore")["erasures"] == 2
        assert on(source, texts) == left


async def _everything(pool: Pool) -> str:
    """All tables as text."""
    tables = await pool.fetch(
        "select relname from pg_class where relkind in ('r', 'p')"
        " and relnamespace = current_schema()::regnamespace"
    )
    found = []
    for (table,) in tables:
        found += [str(row[0]) for row in await pool.fetch(f'select t::text from "{table}" t')]
    return "\n".join(found)


def test_after_restore_mends_what_a_dump_brought_back(source: str) -> None:
    """A point in time, restored by PostgreSQL's own means."""

    async def as_a_dump_leaves_it(pool: Pool) -> None:
        await pool.execute(
            "insert into operations (bank, operation_id, type, status, lease, leased_until)"
            " select bank, gen_random_uuid(), 'retain', 'processing', gen_random_uuid(),"
            " now() + interval '1 hour' from banks where bank_id = 'one'"
        )

    async def state(pool: Pool) -> tuple[int, list[str]]:
        rows = await pool.fetch("select status from operations where type = 'retain'")
        generation = await pool.fetchval("select min(generation) from banks")
        return generation, [row["status"] for row in rows]

    on(source, as_a_dump_leaves_it)
    before = on(source, state)
    done = result("after-restore")
    assert (done["banks"], done["operations"]) == (2, 1)
    assert on(source, state) == (before[0] + 1, ["pending"])


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "no backup"), (b"PK\x03\x04 nothing", "no backup")]
)
def test_a_file_that_is_none(source: str, tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "x.backup"
    file.write_bytes(content)
    for command in (("backup", "verify", str(file)), ("restore", str(file), "--replace")):
        code, words = fourfold(*command)
        assert (code, said in words) == (1, True), words
    assert on(source, texts) == WHOLE


def test_a_damaged_backup_changes_nothing(source: str, tmp_path: Path) -> None:
    file = tmp_path / "all.backup"
    result("backup", str(file))
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 0xFF
    file.write_bytes(data)
    for command in (("backup", "verify", str(file)), ("restore", str(file), "--replace")):
        code, words = fourfold(*command)
        assert (code, "damaged" in words) == (1, True), words
    assert on(source, texts) == WHOLE
