"""Directives: rules of a bank that go into its answers. Every function names the bank by (tenant,
bank_id); NotFound where that tenant has no such bank, or the bank no such directive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from retrieval.errors import Conflict, InvalidInput, NotFound
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.edge import iso, listing, one_of, page, uuid_of
from retrieval.store.tags import TAGGED, TagFilter, visible
from retrieval.types import Filters

MOST = 1_000
"""Directives of one bank: all of them may have to go into one prompt."""
_ORDER = "order by priority desc, created_at, id"


@dataclass(frozen=True, slots=True)
class Directive:
    """A rule of the bank for what is said; higher priorities come first."""

    id: str
    name: str
    content: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class AppliedDirectives:
    """The active directives of a bank, most important first: those that hold for an answer, and
    those that it leaves out because their tags are not of its scope."""

    applied: tuple[Directive, ...] = ()
    left_out: tuple[Directive, ...] = ()


def _view(bank_id: str, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "bank_id": bank_id,
        "name": row["name"],
        "content": row["content"],
        "priority": row["priority"],
        "is_active": row["is_active"],
        "tags": row["tags"],
        "created_at": iso(row["created_at"]),
        "updated_at": iso(row["updated_at"]),
    }


def unknown(directive_id: str) -> NotFound:
    return NotFound(f"there is no directive {directive_id[:100]!r}")


def _id(directive_id: str) -> UUID:
    if (id := uuid_of(directive_id)) is None:
        raise unknown(directive_id)
    return id


async def create(
    pool: Pool, tenant: str, bank_id: str, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """A new directive; `fields` are name, content, priority, is_active, tags, all checked. The bank
    is made if there is none. Conflict where it has MOST."""

    async def work(connection: Connection) -> dict[str, Any]:
        await banks.ensure(connection, tenant, bank_id)
        bank = (await banks.lock(connection, tenant, bank_id)).bank
        return _view(bank_id, await put(connection, bank, fields))

    return await write(pool, work)


async def put(connection: Connection, bank: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """A new directive's row, as `create`. The bank's row is locked."""
    if await connection.fetchval(
        "select count(*) >= $2 from directives where bank = $1", bank, MOST
    ):
        raise Conflict(f"a bank has at most {MOST:,} directives")
    row: Mapping[str, Any] = await connection.fetchrow(
        "insert into directives (bank, id, name, content, priority, is_active, tags)"
        " values ($1, $2, $3, $4, $5, $6, $7) returning *",
        bank,
        uuid4(),
        fields["name"],
        fields["content"],
        fields["priority"],
        fields["is_active"],
        list(fields["tags"]),
    )
    return row


async def get(pool: Pool, tenant: str, bank_id: str, directive_id: str) -> dict[str, Any]:
    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        row = await connection.fetchrow(
            "select * from directives where bank = $1 and id = $2", bank, _id(directive_id)
        )
        if row is None:
            raise unknown(directive_id)
        return _view(bank_id, row)

    return await read(pool, work)


async def listed(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    tags: Sequence[str] | None = None,
    tags_match: str = "any",
    active_only: bool = True,
    limit: int = 100,
    offset: int = 0,
) -> dict[str, Any]:
    """{items, total, limit, offset}, higher priority first. With tags, those of that scope, and the
    untagged ones, which are of every scope."""
    limit, offset = page(limit, offset)
    matches = TAGGED[one_of(tags_match, tuple(TAGGED), "tags_match")]
    where = "bank = $1 and (is_active or not $2)"
    if tags:
        where += f" and (tags = '{{}}' or ({matches('$3::text[]')}))"
    else:
        where += " and ($3::text[] is null or true)"

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        given = (bank, active_only, list(tags or ()))
        total = await connection.fetchval(f"select count(*) from directives where {where}", *given)
        rows = await connection.fetch(
            f"select * from directives where {where} {_ORDER} limit $4 offset $5",
            *given,
            limit,
            offset,
        )
        return listing("items", [_view(bank_id, row) for row in rows], total, limit, offset)

    return await read(pool, work)


_CHANGEABLE = ("name", "content", "priority", "is_active", "tags")


async def patch(
    pool: Pool, tenant: str, bank_id: str, directive_id: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Changes the named fields. InvalidInput where none is named."""
    if not any(name in changes for name in _CHANGEABLE):
        raise InvalidInput(f"nothing to change: give {', '.join(_CHANGEABLE)}")
    id = _id(directive_id)

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        return _view(bank_id, await change(connection, bank, id, changes))

    return await write(pool, work)


async def change(
    connection: Connection, bank: int, id: UUID, changes: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Changes the named fields, of which there is one; the row then. NotFound."""
    named = [name for name in _CHANGEABLE if name in changes]
    sets = ", ".join(f"{name} = ${place}" for place, name in enumerate(named, 3))
    row: Mapping[str, Any] | None = await connection.fetchrow(
        f"update directives set {sets}, updated_at = now() where bank = $1 and id = $2 returning *",
        bank,
        id,
        *(changes[name] for name in named),
    )
    if row is None:
        raise unknown(str(id))
    return row


async def delete(pool: Pool, tenant: str, bank_id: str, directive_id: str) -> dict[str, Any]:
    async def work(connection: Connection) -> None:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        gone = await connection.fetchval(
            "delete from directives where bank = $1 and id = $2 returning true",
            bank,
            _id(directive_id),
        )
        if not gone:
            raise unknown(directive_id)

    await write(pool, work)
    return {"status": "deleted"}


async def for_reflect(
    pool: Pool, tenant: str, bank_id: str, scope: Filters, *, apply_all: bool = False
) -> AppliedDirectives:
    """The active directives of an answer with this scope: untagged ones always, tagged ones where
    the scope's tags and tag groups match them; all of them with `apply_all`.

    An answer without tags and tag groups has no scope that a tagged directive could be of.
    """
    parameters: list[Any] = []

    def bind(value: Any) -> str:
        parameters.append(value)
        return f"${len(parameters) + 1}"

    groups = scope.tag_groups or ()
    test = visible("tags", TagFilter(scope.tags, scope.tags_match, groups), bind)
    scoped = bool(scope.tags or groups)
    chosen = "true" if apply_all else f"(tags = '{{}}' or ({test if scoped and test else 'false'}))"
    if apply_all or not scoped:
        parameters.clear()

    async def work(connection: Connection) -> list[Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        found: list[Any] = await connection.fetch(
            f"select id, name, content, priority, {chosen} as chosen from directives"
            f" where bank = $1 and is_active {_ORDER} limit {MOST}",
            bank,
            *parameters,
        )
        return found

    rows = await read(pool, work)
    every = [
        (
            Directive(str(row["id"]), row["name"], row["content"], row["priority"]),
            row["chosen"],
        )
        for row in rows
    ]
    return AppliedDirectives(
        tuple(one for one, chosen in every if chosen),
        tuple(one for one, chosen in every if not chosen),
    )
