"""What may run on which schema: plans, rollbacks, and locks that a migration must not wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest

from retrieval.errors import Unavailable
from retrieval.store.database import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from tests.retrieval.store.servers import server

pytestmark = pytest.mark.integration

KNOWN = migrate.known()
LAST = KNOWN[-1][0]
ADDS = (LAST + 1, "adds", f"-- oldest program: {LAST}\ncreate table extra (x int);")
BREAKS = (LAST + 2, "breaks", "alter table extra rename to other;")


@pytest.fixture
async def empty() -> AsyncIterator[Pool]:
    schema = f"u{uuid4().hex[:12]}"
    pool = await open_pool(PoolSettings(server().dsn, schema=schema, min_size=1, max_size=3))
    yield pool
    await pool.execute(f'drop schema if exists "{schema}" cascade')
    await pool.close()


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this program one that knows these migrations."""

    def knows(*more: tuple[int, str, str]) -> None:
        monkeypatch.setattr(migrate, "known", lambda: [*KNOWN, *more])

    return knows


async def test_a_plan_changes_nothing_and_check_names_the_command(empty: Pool) -> None:
    assert await migrate.missing(empty) == [(number, name) for number, name, _ in KNOWN]
    with pytest.raises(migrate.SchemaTooOld, match=r"0001_initial on: run `fourfold migrate`"):
        await migrate.check(empty)
    there = "select exists (select from pg_namespace where nspname = $1)"
    assert not await empty.fetchval(there, empty.schema)
    await migrate.migrate(empty)
    assert await migrate.missing(empty) == []
    await migrate.check(empty)


async def test_a_schema_goes_as_far_as_told(empty: Pool) -> None:
    numbers = [number for number, _, _ in KNOWN]
    middle = numbers[len(numbers) // 2]
    assert await migrate.migrate(empty, middle) == middle
    rows = await empty.fetch("select number from schema_migrations order by number")
    assert [row["number"] for row in rows] == [n for n in numbers if n <= middle]
    assert [n for n, _ in await migrate.missing(empty)] == [n for n in numbers if n > middle]
    assert await migrate.missing(empty, middle) == []
    assert await migrate.migrate(empty) == LAST


async def test_the_program_before_goes_on_where_a_migration_only_adds(
    empty: Pool, program: Callable[..., None]
) -> None:
    program(ADDS)
    await migrate.migrate(empty)
    program()
    await migrate.check(empty)
    assert await migrate.migrate(empty) == ADDS[0]
    stored = "select oldest_program from schema_migrations where number = $1"
    assert await empty.fetchval(stored, ADDS[0]) == LAST

    program(ADDS, BREAKS)
    await migrate.migrate(empty)
    program(ADDS)
    for refused in (migrate.check, migrate.migrate):
        with pytest.raises(migrate.SchemaTooNew, match=f"schema {BREAKS[0]}"):
            await refused(empty)


async def test_a_program_older_than_a_migration_bears_stops(
    empty: Pool, program: Callable[..., None]
) -> None:
    later = (LAST + 3, "later", f"-- oldest program: {ADDS[0]}\ncreate table later (x int);")
    program(ADDS, later)
    await migrate.migrate(empty)
    program(ADDS)
    await migrate.check(empty)
    program()
    with pytest.raises(migrate.SchemaTooNew):
        await migrate.check(empty)


async def test_a_migration_steps_back_from_a_lock_and_comes_again(
    empty: Pool, program: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT_S", 0.2)
    monkeypatch.setattr("retrieval.store.database.pool.RETRY_WAITS_S", (0.01,))
    await migrate.migrate(empty)
    program((LAST + 1, "alters", "alter table banks add column later int;"))
    async with empty.acquire() as reader:
        reading = reader.transaction()
        await reading.start()
        await reader.fetch("select * from banks")
        with pytest.raises(Unavailable, match="lock timeout"):
            await migrate.migrate(empty)
        await empty.execute("insert into banks (tenant_id, bank_id, name) values ('t', 'b', 'b')")
        waiting = asyncio.create_task(migrate.migrate(empty))
        for stands_in_line in (True, False):  # it comes, and steps back
            while stands_in_line is not await empty.fetchval(  # noqa: ASYNC110
                "select exists (select from pg_locks where not granted"
                "  and relation = 'banks'::regclass)"
            ):
                await asyncio.sleep(0.005)
        await reading.rollback()
        assert await waiting == LAST + 1


def test_every_number_that_a_migration_bears_is_there() -> None:
    numbers = {number for number, _, _ in KNOWN}
    for number, name, sql in KNOWN:
        oldest = migrate.oldest_program(sql)
        assert oldest is None or (oldest in numbers and oldest < number), name
