"""What a PostgreSQL database must be like to hold our schema, asked before anything is changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from retrieval.errors import FourfoldError
from retrieval.store.database.pool import Connection

OLDEST, NEWEST = 15, 18
"""Major versions of PostgreSQL that the tests run against."""

EXTENSIONS = ("pg_trgm", "btree_gin")

State = Literal["wrong", "note"]


class Unsuitable(FourfoldError):
    """The database cannot hold our schema. Nothing in it was changed."""


@dataclass(frozen=True, slots=True)
class RequirementCheck:
    """`wrong` keeps the server from starting; a `note` is worth knowing. `sentence` says what to
    do about it."""

    state: State
    sentence: str


async def check(connection: Connection, schema: str, tables: Iterable[str]) -> None:
    """Unsuitable, with every reason, unless the database can hold the schema. Changes nothing."""
    wrong = [f.sentence for f in await examine(connection, schema, tables) if f.state == "wrong"]
    if wrong:
        raise Unsuitable("the database cannot be used: " + "; ".join(wrong))


async def examine(
    connection: Connection, schema: str, tables: Iterable[str], app_role: str | None = None
) -> list[RequirementCheck]:
    """What is wrong or worth knowing. `tables`: names that our migrations make; `app_role`: a role
    that makes none. Changes nothing."""
    server = await connection.fetchrow(_SERVER)
    if said := version_finding(server["number"], server["version"]):
        return [RequirementCheck("wrong", said)]
    row = await connection.fetchrow(_DATABASE, schema)
    extensions = await connection.fetch(_EXTENSIONS, list(EXTENSIONS))
    held = await connection.fetch(_TABLES, schema, [*tables, "schema_migrations"])
    return [
        *_server(server, row, schema),
        *(_grants(row, held) if row["role"] == app_role else _rights(row, schema, held)),
        *(found for each in extensions for found in _extension(each, row, schema)),
        *_tables(held, schema),
    ]


def version_finding(number: int, said: str) -> str | None:
    """What is wrong with a server of this `server_version_num`, which calls itself `said`."""
    if not said.startswith("PostgreSQL"):
        return f"it is not PostgreSQL but {said.split(' ')[0]}"
    major = number // 10_000
    if OLDEST <= major <= NEWEST:
        return None
    shown = f"{major}.{number % 10_000}" if major >= 10 else f"{major}.{number // 100 % 100}"
    return f"it is PostgreSQL {shown}: use {OLDEST} to {NEWEST}"


_SERVER = "select current_setting('server_version_num')::int as number, version() as version"

_DATABASE = """
select current_database()::text as database, current_user::text as role,
    pg_is_in_recovery() as standby,
    current_setting('transaction_read_only') = 'on' as fixed,
    current_setting('server_encoding') as encoding,
    current_setting('synchronous_commit') as synchronous,
    current_setting('fsync') as fsync,
    current_setting('search_path') as path,
    d.datcollversion as version_then, pg_database_collation_actual_version(d.oid) as version_now,
    n.oid is not null as made,
    has_database_privilege(d.oid, 'CREATE') as may_make,
    coalesce(has_schema_privilege(n.oid, 'USAGE'), false) as may_use,
    coalesce(has_schema_privilege(n.oid, 'CREATE'), false) as may_fill,
    coalesce(has_schema_privilege(p.oid, 'USAGE'), false) as may_use_public,
    (select rolsuper from pg_roles where rolname = current_user) as super
from pg_database d
left join pg_namespace n on n.nspname = $1
left join pg_namespace p on p.nspname = 'public'
where d.datname = current_database()"""

_EXTENSIONS = """
select w.name, n.nspname::text as schema,
    exists (select from pg_available_extensions a where a.name = w.name) as available,
    exists (select from pg_available_extension_versions v
        where v.name = w.name and v.trusted) as trusted
from unnest($1::text[]) with ordinality w (name, place)
left join pg_extension e on e.extname = w.name
left join pg_namespace n on n.oid = e.extnamespace
order by w.place"""

_TABLES = """
select c.relname::text as name, r.rolname::text as owner, pg_has_role(c.relowner, 'USAGE') as ours,
    has_table_privilege(c.oid, 'SELECT') as readable,
    exists (select from pg_attribute a
        where a.attrelid = c.oid and a.attname = 'number' and not a.attisdropped) as numbered
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_roles r on r.oid = c.relowner
where n.nspname = $1 and c.relname = any($2) and c.relkind in ('r', 'p', 'v', 'm', 'f')
order by c.relname collate "C\""""


def _server(
    server: Mapping[str, Any], row: Mapping[str, Any], schema: str
) -> Iterator[RequirementCheck]:
    if row["standby"]:
        yield RequirementCheck(
            "wrong", "it is a standby, which takes no writes: give the primary's address"
        )
    elif row["fixed"]:
        yield RequirementCheck("wrong", "it is read only: see default_transaction_read_only")
    if row["encoding"] != "UTF8":
        yield RequirementCheck(
            "wrong",
            f"database {row['database']!r} has the encoding {row['encoding']}, which cannot hold"
            " all texts: create one with `encoding 'UTF8' template template0`",
        )
    first = re.match(r'\s*"?((?:[^",]|"")*)"?', row["path"] or "")
    if first is None or first[1].replace('""', '"') != schema:
        yield RequirementCheck(
            "wrong",
            f"the session's search_path ({row['path']}) does not begin with {schema!r}: a pooler"
            " drops what is set at connect; set DB_STATEMENT_CACHE_SIZE to 0",
        )
    if row["synchronous"] == "off" or row["fsync"] == "off":
        what = "fsync" if row["fsync"] == "off" else "synchronous_commit"
        yield RequirementCheck("note", f"{what} is off: a crash of its machine may lose writes")
    if row["version_then"] != row["version_now"]:
        yield RequirementCheck(
            "note",
            f"its collation was made by version {row['version_then']} of a library that is now"
            f" {row['version_now']}: reindex it and `alter database ... refresh collation version`",
        )


def _rights(
    row: Mapping[str, Any], schema: str, held: Iterable[Mapping[str, Any]]
) -> Iterator[RequirementCheck]:
    role = row["role"]
    if not row["made"]:
        if not row["may_make"]:
            yield RequirementCheck(
                "wrong",
                f"there is no schema {schema!r} and role {role!r} may not create it:"
                f' `create schema "{schema}" authorization "{role}"`',
            )
    elif not (row["may_use"] and row["may_fill"]):
        yield RequirementCheck(
            "wrong",
            f"role {role!r} may not create tables in schema {schema!r}:"
            f' `grant usage, create on schema "{schema}" to "{role}"`',
        )
    others = sorted({each["owner"] for each in held if not each["ours"]})
    if others:
        yield RequirementCheck(
            "wrong",
            f"tables of schema {schema!r} belong to role {others[0]!r}:"
            f' `grant "{others[0]}" to "{role}"`, or connect as that role',
        )


def _grants(
    row: Mapping[str, Any], held: Iterable[Mapping[str, Any]]
) -> Iterator[RequirementCheck]:
    """For a role that is to use what the owner made."""
    names = {each["name"]: each["readable"] for each in held}
    closed = [name for name, readable in names.items() if not readable]
    if closed or not names:
        what = f"may not read {', '.join(closed[:3])}" if closed else "finds no tables"
        yield RequirementCheck(
            "wrong",
            f"role {row['role']!r} {what}: run `fourfold migrate` as the owner of the tables, with"
            " DATABASE_APP_ROLE set",
        )


def _extension(
    each: Mapping[str, Any], row: Mapping[str, Any], schema: str
) -> Iterator[RequirementCheck]:
    name, where = each["name"], each["schema"]
    if where is None:
        if not each["available"]:
            yield RequirementCheck(
                "wrong",
                f"the extension {name} is not on its machine: install PostgreSQL's contrib package",
            )
        elif not (row["super"] or (each["trusted"] and row["may_make"])):
            yield RequirementCheck(
                "wrong",
                f"role {row['role']!r} may not create the extension {name}: let an administrator"
                f" run `create extension {name} with schema public`",
            )
        elif not row["may_use_public"]:
            yield RequirementCheck(
                "wrong", f"role {row['role']!r} cannot use the schema public, where {name} belongs"
            )
    elif where not in (schema, "public", "pg_catalog"):
        yield RequirementCheck(
            "wrong",
            f"the extension {name} is in the schema {where!r}, where it is not found:"
            f" `alter extension {name} set schema public`",
        )
    elif where == "public" and not row["may_use_public"]:
        yield RequirementCheck(
            "wrong",
            f"role {row['role']!r} cannot use the schema public, where the extension {name} is:"
            f' `grant usage on schema public to "{row["role"]}"`',
        )


def _tables(held: Iterable[Mapping[str, Any]], schema: str) -> Iterator[RequirementCheck]:
    names = {each["name"]: each for each in held}
    record = names.pop("schema_migrations", None)
    if record is not None and not record["numbered"]:
        yield RequirementCheck(
            "wrong",
            f"schema {schema!r} has a table schema_migrations of another program:"
            " set DATABASE_SCHEMA to a schema of our own",
        )
    elif record is None and names:
        shown = ", ".join(sorted(names)[:3])
        yield RequirementCheck(
            "wrong",
            f"schema {schema!r} has tables of another program ({shown}):"
            " set DATABASE_SCHEMA to a schema of our own",
        )
