"""Bringing the schema to what this code knows."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from importlib import resources

import asyncpg

from retrieval.errors import FourfoldError, Unavailable
from retrieval.store import banks
from retrieval.store.database import requirements
from retrieval.store.database.pool import Connection, Pool, read, write

# Any number that no other program locks with: "fourfold" in ASCII, as int8.
_LOCK = int.from_bytes(b"fourfold", "big") & 0x7FFF_FFFF_FFFF_FFFF


_OLDEST = re.compile(r"^-- oldest program: (\d+)$", re.M)

_SEARCH_KEYS = 40
"""The migration that gave banks search keys, which are computed here."""

LOCK_TIMEOUT_S = 2.0
"""How long a migration waits for a lock, and with it whoever comes later; then it steps back."""

_LOCKED_TRIES = 5

MIGRATION_S = 3600.0
"""Most seconds of one migration."""


class SchemaTooNew(FourfoldError):
    """The database was migrated by a newer version of the program, for newer ones alone."""


class SchemaTooOld(FourfoldError):
    """The database lacks migrations that this program needs."""


class SchemaChanged(FourfoldError):
    """A migration is not what it was when the database took it."""


def known() -> list[tuple[int, str, str]]:
    """(number, name, SQL) of every migration in the package, ascending."""
    files = resources.files("retrieval.store").joinpath("migrations").iterdir()
    return sorted(
        (int(match[1]), match[2], file.read_text("utf-8"))
        for file in files
        if (match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name))
    )


def tables() -> list[str]:
    """Names of the tables that the migrations make."""
    made = re.compile(r"^create (?:unlogged )?table (?:if not exists )?(\w+)", re.M | re.I)
    return sorted({name for _, _, sql in known() for name in made.findall(sql)})


def checksum(sql: str) -> str:
    return hashlib.sha256(sql.encode()).hexdigest()


def oldest_program(sql: str) -> int | None:
    """The migration that a program must know to run on the schema that `sql` leaves. None: `sql`.

    A migration that only adds (tables, nullable columns, indexes) says so in a line of its own:
    `-- oldest program: 92`. Then programs that know 92, and not this one, start on its schema, and
    a rollback needs no way down.
    """
    found = _OLDEST.search(sql)
    return int(found[1]) if found else None


async def missing(pool: Pool, to: int | None = None) -> list[tuple[int, str]]:
    """(number, name) of what `migrate` would apply, ascending.

    SchemaTooNew and SchemaChanged as `migrate`.
    """
    done = await read(pool, lambda connection: _done(connection, pool.schema))
    return [(number, name) for number, name, _ in _lacking(done, to)]


async def check(pool: Pool) -> None:
    """Returns where this program may run on the database as it is; it changes nothing.

    SchemaTooOld names the command that helps; SchemaTooNew, SchemaChanged as `migrate`.
    """
    if lacking := await missing(pool):
        first = f"{lacking[0][0]:04d}_{lacking[0][1]}"
        raise SchemaTooOld(
            f"the database lacks {len(lacking)} of this program's migrations, from {first} on:"
            " run `fourfold migrate`"
        )


async def migrate(pool: Pool, to: int | None = None) -> int:
    """Applies what is missing (up to the number `to`), each migration once; the schema's number.

    Several processes may start at once: one migrates, the others wait and find nothing to do.
    Nothing is changed where this raises: Unsuitable if the database cannot hold the schema,
    SchemaTooNew if it took a migration that bears no program that does not know it,
    SchemaChanged if one that it took has another text here, Unavailable where a lock that is needed
    is held for long.
    """
    made = tables()
    await read(pool, lambda connection: requirements.check(connection, pool.schema, made))
    for left in reversed(range(_LOCKED_TRIES)):
        try:
            return await write(pool, lambda connection: _apply(connection, pool.schema, to))
        except Unavailable as error:
            if not left or not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                raise
            await asyncio.sleep(LOCK_TIMEOUT_S)
    raise AssertionError("unreachable")


async def _done(connection: Connection, schema: str) -> dict[int, tuple[str | None, int | None]]:
    """number -> (checksum, oldest program) of what the database took."""
    columns = await _columns(connection, schema)
    if not columns:
        return {}
    wanted = [
        name if name in columns else f"null as {name}" for name in ("sha256", "oldest_program")
    ]
    table = f'"{schema}".schema_migrations'
    rows = await connection.fetch(f"select number, {', '.join(wanted)} from {table}")
    return {row["number"]: (row["sha256"], row["oldest_program"]) for row in rows}


async def _columns(connection: Connection, schema: str) -> set[str]:
    rows = await connection.fetch(
        "select attname from pg_attribute where attnum > 0 and not attisdropped"
        " and attrelid = to_regclass(quote_ident($1) || '.schema_migrations')",
        schema,
    )
    return {row["attname"] for row in rows}


def _lacking(
    done: Mapping[int, tuple[str | None, int | None]], to: int | None
) -> list[tuple[int, str, str]]:
    """What is to be applied to a database that took `done`, ascending."""
    migrations = known()
    numbers = {number for number, _, _ in migrations}
    closed = [n for n in done.keys() - numbers if done[n][1] not in numbers]
    if closed:
        raise SchemaTooNew(
            f"the database has schema {max(closed)}, this program knows up to {max(numbers)}: use"
            " the newer version of the program"
        )
    for number, name, sql in migrations:
        if number in done and done[number][0] not in (None, checksum(sql)):
            raise SchemaChanged(
                f"migration {number:04d}_{name} is not the one that this database took: use the"
                " program that it was made with, or one whose migrations were not edited"
            )
    return [one for one in migrations if one[0] not in done and (to is None or one[0] <= to)]


async def _apply(connection: Connection, schema: str, to: int | None) -> int:
    await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
    # Who waits for a lock on a table stops all who come after: better to step back, and try again.
    await connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT_S}s'")
    await connection.execute("set local statement_timeout = 0")
    found = "select to_regnamespace(quote_ident($1)) is not null"
    if not await connection.fetchval(found, schema):
        await connection.execute(f'create schema "{schema}"')
    columns = await _columns(connection, schema)
    if not columns:
        await connection.execute(
            "create table schema_migrations ("
            " number int primary key, name text not null,"
            " applied_at timestamptz not null default now(), sha256 text, oldest_program int)"
        )
    for name, kind in (("sha256", "text"), ("oldest_program", "int")):
        if columns and name not in columns:
            await connection.execute(f"alter table schema_migrations add column {name} {kind}")
    done = await _done(connection, schema)
    for number, name, sql in _lacking(done, to):
        await connection.execute(sql, timeout=MIGRATION_S)
        await connection.execute(
            "insert into schema_migrations (number, name, sha256, oldest_program)"
            " values ($1, $2, $3, $4)",
            number,
            name,
            checksum(sql),
            oldest_program(sql),
        )
        done[number] = (checksum(sql), oldest_program(sql))
    await connection.executemany(  # taken before checksums were kept
        "update schema_migrations set sha256 = $2 where number = $1 and sha256 is null",
        [(number, checksum(sql)) for number, _, sql in known() if number in done],
    )
    if _SEARCH_KEYS in done:
        await banks.fill_search_keys(connection)
    return max(done, default=0)
