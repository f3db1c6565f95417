"""A server that refuses, goes away and comes back, under a pool that lives on."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest

from retrieval.errors import DeadlineExceeded, FourfoldError, Unavailable
from retrieval.store import banks
from retrieval.store.database import pool
from retrieval.store.database.embedded import EmbeddedPostgres
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Connection, Pool, PoolSettings, open_pool, read, write
from tests.retrieval.store.servers import QUICK, fresh

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "RETRY_WAITS_S", (0.02, 0.05, 0.1))
    monkeypatch.setattr(pool, "TROUBLE_S", 0.0)
    monkeypatch.setattr(pool, "_EXPIRY_S", 0.0)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    folder = fresh(tmp_path_factory.mktemp("outages") / "data")
    with EmbeddedPostgres(folder, settings={**QUICK, "max_connections": "24"}) as server:
        yield server


@asynccontextmanager
async def opened(postgres: EmbeddedPostgres, **changes: object) -> AsyncIterator[Pool]:
    settings = {"min_size": 2, "max_size": 4, "command_timeout_s": 20.0, **changes}
    made = await open_pool(PoolSettings(postgres.dsn, **settings))  # type: ignore[arg-type]
    try:
        await migrate(made)
        yield made
    finally:
        await made.finish()


async def admin(postgres: EmbeddedPostgres, *statements: str) -> None:
    connection = await asyncpg.connect(postgres.dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def settled(made: Pool, name: str) -> None:
    """Until a write goes through."""
    async with asyncio.timeout(20):
        while True:
            try:
                await banks.ensure(made, "default", name)
            except FourfoldError:
                await asyncio.sleep(0.05)
            else:
                return


async def test_a_read_only_server_is_said_and_given_up(postgres: EmbeddedPostgres) -> None:
    async with opened(postgres) as made:
        await banks.ensure(made, "default", "before")
        before = {await read(made, lambda c: c.fetchval("select pg_backend_pid()"))}
        on = "alter system set default_transaction_read_only = on"
        await admin(postgres, on, "select pg_reload_conf()")
        try:
            async with asyncio.timeout(10):
                while await read(made, pool.refuses_writes) is None:  # noqa: ASYNC110 - the server's
                    await asyncio.sleep(0.02)
            with pytest.raises(Unavailable, match="read-only") as told:
                await banks.ensure(made, "default", "during")
            assert told.value.retry_after_s > 1
            assert "read-only" in str(made.trouble)
            assert await read(made, lambda c: c.fetchval("select 1")) == 1
            # every connection that led to it was replaced
            after = await read(made, lambda c: c.fetchval("select pg_backend_pid()"))
            assert after not in before
        finally:
            await admin(
                postgres,
                "set default_transaction_read_only = off",
                "alter system reset default_transaction_read_only",
                "select pg_reload_conf()",
            )
        await settled(made, "after")
        assert made.trouble is None
        with pytest.raises(FourfoldError):
            await banks.head(made, "default", "during")


async def test_terminated_connections_are_replaced(postgres: EmbeddedPostgres) -> None:
    async with opened(postgres) as made:
        await asyncio.gather(*(read(made, lambda c: c.fetchval("select 1")) for _ in range(4)))
        await admin(
            postgres,
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where pid <> pg_backend_pid() and backend_type = 'client backend'",
        )
        done = await asyncio.gather(
            *(banks.ensure(made, "default", f"terminated{i}") for i in range(8))
        )
        assert len(done) == 8


async def test_no_connection_is_left_on_the_server(postgres: EmbeddedPostgres) -> None:
    async with opened(postgres, min_size=0) as made:
        held: list[asyncpg.Connection] = []
        try:
            with suppress(asyncpg.PostgresError):  # the server's last
                while len(held) < 40:
                    held.append(await asyncpg.connect(postgres.dsn))
            assert 10 < len(held) < 40
            await made.expire_connections()
            with pytest.raises(Unavailable, match="too many clients"):
                await asyncio.gather(
                    *(read(made, lambda c: c.fetchval("select pg_sleep(0.3)")) for _ in range(4))
                )
        finally:
            for connection in held:
                await connection.close()
        await settled(made, "room")


async def test_a_server_that_stops_and_starts(postgres: EmbeddedPostgres) -> None:
    async with opened(postgres) as made:
        await banks.ensure(made, "default", "stopping")
        postgres.stop()
        try:
            with pytest.raises(Unavailable):
                await read(made, lambda c: c.fetchval("select 1"))
            with pytest.raises(Unavailable):
                await banks.ensure(made, "default", "stopped")
        finally:
            await asyncio.to_thread(postgres.start)
        await settled(made, "started")
        assert (await banks.head(made, "default", "stopping")).bank_id == "stopping"


@pytest.mark.parametrize(
    "code", ["53100", "53200", "53400", "25006", "25P03", "57P03", "58030", "XX001", "XX002"]
)
async def test_what_a_statement_may_meet(postgres: EmbeddedPostgres, code: str) -> None:
    """The server raises it in the middle of a write: nothing stays, and the next one goes on."""
    async with opened(postgres) as made:

        async def work(connection: Connection) -> None:
            await connection.execute(
                "insert into tenants (tenant_id) values ($1)", f"left-behind-{code}"
            )
            await connection.execute(
                f"do $$ begin raise exception 'the disk says no' using errcode = '{code}'; end $$"
            )

        with pytest.raises(Unavailable, match="the disk says no"):
            await write(made, work)
        assert "the disk says no" in str(made.trouble)
        await settled(made, f"after{code}")
        assert made.trouble is None
        assert not await made.fetchval(
            "select count(*) from tenants where tenant_id like 'left-behind-%'"
        )


async def test_a_full_disk_of_temporary_files(postgres: EmbeddedPostgres) -> None:
    async with opened(postgres) as made:

        async def work(connection: Connection) -> None:
            await connection.execute(
                "set local temp_file_limit = '1MB'; set local work_mem = '64kB'"
            )
            await connection.fetch(
                "select count(*) from (select repeat(n::text, 9) t"
                " from generate_series(1, 200000) n order by 1) s"
            )

        with pytest.raises(Unavailable, match="temp_file_limit"):
            await write(made, work)


async def test_an_error_at_the_commit_says_that_nothing_was_done(
    postgres: EmbeddedPostgres,
) -> None:
    async with opened(postgres) as made:
        await made.execute(
            "create or replace function full_disk() returns trigger language plpgsql as $$"
            " begin raise exception 'no space' using errcode = '53100'; end $$;"
            "create constraint trigger full_disk after insert on tenants"
            " deferrable initially deferred for each row execute function full_disk()"
        )
        try:
            with pytest.raises(Unavailable, match="no space"):
                await write(made, lambda c: c.execute("insert into tenants values ('deferred')"))
        finally:
            await made.execute("drop trigger full_disk on tenants")
        assert not await made.fetchval("select true from tenants where tenant_id = 'deferred'")


async def test_an_administrator_may_cancel(postgres: EmbeddedPostgres) -> None:
    async with opened(postgres) as made:
        waiting = asyncio.create_task(read(made, lambda c: c.fetchval("select pg_sleep(30)")))
        async with asyncio.timeout(10):
            while not waiting.done():  # one that comes before the statement runs cancels nothing
                await made.execute(
                    "select pg_cancel_backend(pid) from pg_stat_activity"
                    " where query like 'select pg_sleep(30)%' and state = 'active'"
                )
                await asyncio.sleep(0.02)
        with pytest.raises(Unavailable, match="cancel"):
            await waiting


async def test_our_own_limit_is_a_deadline(postgres: EmbeddedPostgres) -> None:
    async with opened(postgres, statement_timeout_s=0.1) as made:
        with pytest.raises(DeadlineExceeded):
            await read(made, lambda c: c.fetchval("select pg_sleep(5)"))


@pytest.mark.parametrize(
    ("dsn", "said"),
    [
        ("postgresql://nobody@127.0.0.1:1/x", "(?i)connect"),
        ("postgresql://nobody@no-such-host.invalid/x", "(?i)name|resolution|address"),
        ("nonsense://x", "(?i)dsn"),
    ],
)
async def test_a_server_that_cannot_be_reached(dsn: str, said: str) -> None:
    with pytest.raises(Unavailable, match=said):
        await open_pool(PoolSettings(dsn, min_size=1, max_size=1))


async def test_a_database_that_is_not_there(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(Unavailable, match="nowhere"):
        await open_pool(PoolSettings(postgres.dsn.replace("/fourfold?", "/nowhere?"), min_size=1))


async def test_a_server_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(Unavailable, match="does not answer"):
            await open_pool(
                PoolSettings(
                    f"postgresql://x@127.0.0.1:{port}/x", min_size=1, acquire_timeout_s=0.2
                )
            )
