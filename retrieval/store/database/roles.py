"""Roles of PostgreSQL with less than the owner's rights: the server's own, and that of keys.

The owner makes the tables (`fourfold migrate`) and grants here what the others need; the roles
themselves, and their passwords, are made by an administrator. The server's role reads and writes
rows and can change no table. Where keys have a role, the server's makes and deletes none: it reads
them, notes their use and revokes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from retrieval.store.database.pool import Connection
from retrieval.store.database.requirements import Unsuitable

MAINTAIN_SINCE = 170_000
"""The first PostgreSQL in which others than the owner may vacuum and analyse a table."""

_LOCK = 7
"""Class of our advisory lock; upkeep has 5, keyword back-ends 6."""

_RECORD = "schema_migrations"
_ROWS = "select, insert, update, delete"
_APP_BESIDE_KEYS = {
    "api_keys": "select, update (last_used_at, revoked_at)",
    "tenants": "select, update (limits)",
}
_KEYS = {
    _RECORD: "select",
    "api_keys": "select, insert, update, delete",
    "tenants": "select, insert",
}


@dataclass(frozen=True, slots=True)
class Roles:
    """Names of roles; None: the owner does it."""

    app: str | None = None
    keys: str | None = None

    def named(self) -> list[str]:
        return [name for name in (self.app, self.keys) if name is not None]


async def grant(connection: Connection, schema: str, tables: Iterable[str], roles: Roles) -> None:
    """Each role has afterwards what it needs of those of `tables` that are there, and no more.

    For the owner, in a transaction. Tables that the owner makes later in this schema are open to
    the server's role as they are made: servers wait for no second step after a migration.
    Unsuitable, and nothing is granted, for a role that does not exist or that could change tables
    or pass over policies in spite of all that is granted here.
    """
    if not (names := roles.named()):
        return
    if len(set(names)) < len(names):
        raise Unsuitable("DATABASE_APP_ROLE and DATABASE_KEYS_ROLE name the same role")
    await connection.execute("select pg_advisory_xact_lock($1, hashtext($2))", _LOCK, schema)
    rows = await connection.fetch(_ROLES, names, schema)
    wrong = [said for row in rows for said in _too_much(dict(row), schema)]
    if wrong:
        raise Unsuitable("the roles cannot be used: " + "; ".join(wrong))
    held = await connection.fetch(_HELD, schema, [*tables, _RECORD])
    version = await connection.fetchval("select current_setting('server_version_num')::int")
    made = [row["name"] for row in held if row["table"]]
    sequences = [row["name"] for row in held if not row["table"]]
    for statement in statements(schema, made, sequences, roles, version >= MAINTAIN_SINCE):
        await connection.execute(statement)


def statements(
    schema: str, tables: Sequence[str], sequences: Sequence[str], roles: Roles, maintain: bool
) -> Iterator[str]:
    """What is to be said to PostgreSQL, in this order."""
    every = ", ".join(f'"{schema}"."{name}"' for name in tables)
    for name in roles.named():
        yield f'grant usage on schema "{schema}" to "{name}"'
        yield f'revoke all on {every} from "{name}"'
    if roles.app is not None:
        rows = f"{_ROWS}, maintain" if maintain else _ROWS
        later = f'alter default privileges in schema "{schema}" grant'
        yield f'{later} {rows} on tables to "{roles.app}"'
        yield f'{later} usage on sequences to "{roles.app}"'
        special = {_RECORD: "select"} | (_APP_BESIDE_KEYS if roles.keys is not None else {})
        for table in tables:
            yield f'grant {special.get(table, rows)} on "{schema}"."{table}" to "{roles.app}"'
        for sequence in sequences:
            yield f'grant usage on sequence "{schema}"."{sequence}" to "{roles.app}"'
    if roles.keys is not None:
        for table in tables:
            if table in _KEYS:
                yield f'grant {_KEYS[table]} on "{schema}"."{table}" to "{roles.keys}"'


_ROLES = """
select w.name, r.oid is not null as there,
    r.rolsuper or r.rolbypassrls or r.rolcreaterole as mighty,
    coalesce(pg_has_role(r.oid, current_user, 'member'), false) as owns,
    coalesce(has_schema_privilege(r.oid, n.oid, 'CREATE'), false) as may_fill,
    coalesce(has_database_privilege(r.oid, d.oid, 'CREATE'), false) as may_make
from unnest($1::text[]) with ordinality w (name, place)
left join pg_roles r on r.rolname = w.name
left join pg_namespace n on n.nspname = $2
left join pg_database d on d.datname = current_database()
order by w.place"""

_HELD = """
select c.relname::text as name, true as table
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relname = any($2) and c.relkind in ('r', 'p')
union all
select s.relname::text, false
from pg_class c join pg_namespace n on n.oid = c.relnamespace
join pg_depend d on d.refobjid = c.oid and d.refclassid = 'pg_class'::regclass
    and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
join pg_class s on s.oid = d.objid and s.relkind = 'S'
where n.nspname = $1 and c.relname = any($2)
order by 1"""


def _too_much(row: dict[str, object], schema: str) -> Iterator[str]:
    role = row["name"]
    if not row["there"]:
        yield f'there is no role {role!r}: let an administrator run `create role "{role}" login`'
    elif row["mighty"]:
        yield f"role {role!r} is a superuser, makes roles or passes over policies: use another"
    elif row["owns"]:
        yield f"role {role!r} is the owner of the tables, or a member of that role: use another"
    elif row["may_make"]:
        yield f"role {role!r} may create schemas: revoke create on the database from it"
    elif row["may_fill"]:
        yield (
            f"role {role!r} may create tables in schema {schema!r}:"
            f' `revoke create on schema "{schema}" from "{role}", public`'
        )
