"""A keyword back-end inside Postgres for all banks: made, checked at start, and left again.

Its table is kept in line by triggers of its own, so it stays complete whichever servers write, also
those that rank with the resident postings. These are always written too: going back is free.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing

import asyncpg

from retrieval.errors import Conflict, Unavailable
from retrieval.keyword import backends
from retrieval.keyword.backends import BackendFinding, BuildProgress, KeywordBackend
from retrieval.store.database.pool import Connection, Pool, read, write

_LOCK = 6
"""Class of our advisory lock; upkeep has 5."""


async def ready(pool: Pool, backend: KeywordBackend) -> None:
    """Returns if recalls may rely on the back-end; makes its table where no memory is stored yet.

    Conflict names the command that makes it on a database with memories; Unavailable says what the
    server lacks. Several processes may start at once.
    """

    async def check(connection: Connection) -> None:
        await _take_turns(connection)
        if await _signature(connection, backend) != backend.signature:
            if await connection.fetchval(
                "select exists (select from memory_units where ordinal is not null)"
            ):
                raise Conflict(f"the keyword back-end {backend.name} {_remedy(backend)}")
            await _make(connection, backend)
        elif missing := await backend.missing(connection):
            raise Conflict(f"{missing} memories are not in {backend.table}: it {_remedy(backend)}")

    await _explained(pool, backend, write(pool, check))


async def reindex(
    pool: Pool, backend: KeywordBackend
) -> AsyncGenerator[tuple[str, BuildProgress], None]:
    """Makes the back-end ready on a database with memories: (bank id, progress) as it goes.

    Writes and recalls go on. Stopped at any point and run again, it keeps what is there, unless
    settings that the stored rows depend on have changed. Unavailable says what the server lacks.
    """

    async def make(connection: Connection) -> None:
        await _take_turns(connection)
        if await _signature(connection, backend) != backend.signature:
            for statement in backends.dismantle(backend.name):
                await connection.execute(statement)
            await _make(connection, backend)

    await _explained(pool, backend, write(pool, make))
    rows = await read(
        pool, lambda connection: connection.fetch("select bank, bank_id from banks order by bank")
    )
    async with pool.acquire() as connection:
        for row in rows:
            async with aclosing(backend.reindex(connection, row["bank"])) as steps:
                async for progress in steps:
                    yield row["bank_id"], progress
    await pool.execute(f"analyze {backend.table}")


async def leave(pool: Pool) -> None:
    """Takes the tables and triggers of all back-ends away: the resident postings serve."""

    async def work(connection: Connection) -> None:
        await _take_turns(connection)
        for name in backends.NAMES:
            for statement in backends.dismantle(name):
                await connection.execute(statement)

    await write(pool, work)


async def examine(pool: Pool, backend: KeywordBackend) -> list[BackendFinding]:
    """What `doctor` says of the back-end, in the order to put it right."""
    findings = await read(pool, backend.doctor)
    made = await read(pool, lambda connection: _signature(connection, backend))
    if made not in ("", backend.signature):
        findings.append(
            BackendFinding(
                False,
                f"table {backend.table} was made with other settings",
                f"run `{_command(backend)}`",
            )
        )
    return findings


def _command(backend: KeywordBackend) -> str:
    return f"fourfold reindex --keyword {backend.name}"


def _remedy(backend: KeywordBackend) -> str:
    return f"has to be filled first: run `{_command(backend)}`, or unset TEXT_SEARCH_EXTENSION"


async def _take_turns(connection: Connection) -> None:
    await connection.execute("select pg_advisory_xact_lock($1, hashtext(current_schema()))", _LOCK)


async def _signature(connection: Connection, backend: KeywordBackend) -> str:
    """What the table was made with; empty where there is none."""
    found: str | None = await connection.fetchval(
        "select obj_description(to_regclass($1), 'pg_class')", backend.table
    )
    return found or ""


async def _make(connection: Connection, backend: KeywordBackend) -> None:
    for statement in (*backend.ddl(), *backend.sync_ddl()):
        await connection.execute(statement)
    await connection.execute(f"comment on table {backend.table} is '{backend.signature}'")


async def _explained(pool: Pool, backend: KeywordBackend, work: Awaitable[None]) -> None:
    """`work`, with what `doctor` finds wrong where the server refuses it."""
    try:
        await work
    except asyncpg.PostgresError as error:
        findings = await read(pool, backend.doctor)
        wrong = [f"{f.what}: {f.remedy}" for f in findings if not f.ok]
        reason = wrong[0] if wrong else str(error)
        raise Unavailable(f"the keyword back-end {backend.name}", reason) from error
