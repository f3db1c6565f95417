"""Bringing the schema to what this code knows."""

from __future__ import annotations

import hashlib
import re
from importlib import resources

from retrieval.errors import FourfoldError
from retrieval.store import banks
from retrieval.store.database import requirements
from retrieval.store.database.pool import Connection, Pool, read, write

# Any number that no other program locks with: "fourfold" in ASCII, as int8.
_LOCK = int.from_bytes(b"fourfold", "big") & 0x7FFF_FFFF_FFFF_FFFF


class SchemaTooNew(FourfoldError):
    """The database was migrated by a newer version of the program."""


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


async def migrate(pool: Pool) -> int:
    """Applies what is missing, each migration once; returns the schema's number.

    Several processes may start at once: one migrates, the others wait and find nothing to do.
    Nothing is changed where this raises: Unsuitable if the database cannot hold the schema,
    SchemaTooNew if it knows a migration that this code does not, SchemaChanged if one that it took
    has another text here.
    """
    made = tables()
    await read(pool, lambda connection: requirements.check(connection, pool.schema, made))
    return await write(pool, lambda connection: _apply(connection, pool.schema))


async def _apply(connection: Connection, schema: str) -> int:
    await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
    found = "select to_regnamespace(quote_ident($1)) is not null"
    if not await connection.fetchval(found, schema):
        await connection.execute(f'create schema "{schema}"')
    columns = await connection.fetch(
        "select attname from pg_attribute where attnum > 0 and not attisdropped"
        " and attrelid = to_regclass(quote_ident($1) || '.schema_migrations')",
        schema,
    )
    if not columns:
        await connection.execute(
            "create table schema_migrations ("
            " number int primary key, name text not null,"
            " applied_at timestamptz not null default now(), sha256 text)"
        )
    elif "sha256" not in {row["attname"] for row in columns}:
        await connection.execute("alter table schema_migrations add column sha256 text")
    rows = await connection.fetch("select number, name, sha256 from schema_migrations")
    done = {row["number"]: row["sha256"] for row in rows}
    migrations = known()
    if unknown := done.keys() - {number for number, _, _ in migrations}:
        raise SchemaTooNew(
            f"the database has schema {max(unknown)}, this program knows up to"
            f" {migrations[-1][0]}: use the newer version of the program"
        )
    for number, name, sql in migrations:
        text = checksum(sql)
        if number not in done:
            await connection.execute(sql)
            await connection.execute(
                "insert into schema_migrations (number, name, sha256) values ($1, $2, $3)",
                number,
                name,
                text,
            )
        elif done[number] is None:  # taken before checksums were kept
            await connection.execute(
                "update schema_migrations set sha256 = $2 where number = $1", number, text
            )
        elif done[number] != text:
            raise SchemaChanged(
                f"migration {number:04d}_{name} is not the one that this database took: use the"
                " program that it was made with, or one whose migrations were not edited"
            )
    await banks.fill_search_keys(connection)
    return migrations[-1][0]
