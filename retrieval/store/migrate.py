"""Bringing the schema to what this code knows."""

from __future__ import annotations

import re
from importlib import resources

from retrieval.errors import FourfoldError
from retrieval.store.pool import Connection, Pool, write

# Any number that no other program locks with: "fourfold" in ASCII, as int8.
_LOCK = int.from_bytes(b"fourfold", "big") & 0x7FFF_FFFF_FFFF_FFFF


class SchemaTooNew(FourfoldError):
    """The database was migrated by a newer version of the program."""


def known() -> list[tuple[int, str, str]]:
    """(number, name, SQL) of every migration in the package, ascending."""
    files = resources.files("retrieval.store").joinpath("migrations").iterdir()
    return sorted(
        (int(match[1]), match[2], file.read_text("utf-8"))
        for file in files
        if (match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name))
    )


async def migrate(pool: Pool) -> int:
    """Applies what is missing, each migration in a transaction; returns the schema's number.

    Several processes may start at once: one migrates, the others wait and find nothing to do.
    Raises SchemaTooNew if the database knows a migration that this code does not.
    """
    migrations = known()

    async def apply(connection: Connection) -> int:
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        path: str = await connection.fetchval("show search_path")
        schema = path.split(",")[0].strip().strip('"')
        await connection.execute(f'create schema if not exists "{schema}"')
        await connection.execute(
            "create table if not exists schema_migrations ("
            " number int primary key, name text not null,"
            " applied_at timestamptz not null default now())"
        )
        done = {r["number"] for r in await connection.fetch("select number from schema_migrations")}
        if unknown := done - {number for number, _, _ in migrations}:
            raise SchemaTooNew(
                f"the database has schema {max(unknown)}, this program knows up to"
                f" {migrations[-1][0]}: use the newer version of the program"
            )
        for number, name, sql in migrations:
            if number not in done:
                await connection.execute(sql)
                await connection.execute(
                    "insert into schema_migrations (number, name) values ($1, $2)", number, name
                )
        return migrations[-1][0]

    return await write(pool, apply)
