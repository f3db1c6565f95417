"""What changed in a bank, newest first, out of what says so by an index.

Memories go by ordinal: a write and every change gives the next one. The others go by time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from typing import Any, Literal

from retrieval.store import banks, keyset
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.edge import iso
from retrieval.types import FactType

Kind = Literal["written", "edited", "remade", "invalidated", "document", "operation"]

_TEXT = 200
_Row = tuple[datetime, Any, dict[str, Any]]
"""When; where the next page of this kind of thing goes on; what is shown."""


async def changes(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    cursor: str | None = None,
    kinds: Collection[Kind] | None = None,
    limit: int = 50,
) -> dict[str, Any]:
    """{items: [{at, kind, id, text, was}], next}; `next` is None at the end.

    `was`: what is known of the state before, such as the reason of an invalidation. InvalidInput
    for a cursor that is none.
    """
    places = _read(cursor)
    wanted = None if not kinds else frozenset(kinds)

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        rows: list[tuple[str, _Row]] = []
        for name, (source, own) in _SOURCES.items():
            if wanted is None or wanted & own:
                found = await source(connection, bank, places.get(name), limit, wanted or own)
                rows += [(name, row) for row in found]
        rows.sort(key=lambda entry: entry[1][0], reverse=True)
        shown, after = rows[:limit], dict(places)
        for name, (_, place, _) in shown:
            after[name] = place
        more = len(rows) > limit or len(shown) == limit
        return {
            "items": [row[2] for _, row in shown],
            "next": keyset.closed(after) if more and shown else None,
        }

    return await read(pool, work)


def _read(cursor: str | None) -> dict[str, Any]:
    if not cursor:
        return {}
    try:
        found = keyset.opened(cursor)
        if not isinstance(found, dict) or not found.keys() <= _SOURCES.keys():
            raise ValueError("not ours")
        for name, place in found.items():
            if name in ("memories", "history"):
                if type(place) is not int or abs(place) >= 2**62:
                    raise ValueError("not ours")
            else:
                datetime.fromisoformat(place)
    except (ValueError, TypeError):
        raise keyset.foreign() from None
    return found


async def _memories(
    connection: Connection, bank: int, before: int | None, limit: int, kinds: Collection[str]
) -> list[_Row]:
    rows = await connection.fetch(
        "select ordinal, id, left(text, $4) as text, fact_type, created_at, updated_at, edited_at"
        " from memory_units where bank = $1 and ordinal < coalesce($2, 2147483647)"
        " order by ordinal desc limit $3",
        bank,
        None if before is None else max(0, min(before, 2**31 - 1)),
        limit,
        _TEXT,
    )
    found = []
    for row in rows:
        kind = "written"
        if row["edited_at"] is not None:
            kind = "edited"
        elif row["fact_type"] == FactType.OBSERVATION and row["updated_at"] > row["created_at"]:
            kind = "remade"
        if kind in kinds:
            at = row["edited_at"] or (row["updated_at"] if kind == "remade" else row["created_at"])
            found.append((at, row["ordinal"], _item(at, kind, row["id"], row["text"], None)))
    return found


async def _invalidated(
    connection: Connection, bank: int, before: str | None, limit: int, _: Collection[str]
) -> list[_Row]:
    rows = await connection.fetch(
        "select id, left(text, $4) as text, invalidated_at as at, invalidation_reason as reason"
        " from memory_units where bank = $1 and ordinal is null and invalidated_at is not null"
        " and ($2::timestamptz is null or invalidated_at < $2) order by invalidated_at desc"
        " limit $3",
        bank,
        None if before is None else datetime.fromisoformat(before),
        limit,
        _TEXT,
    )
    return [
        (row["at"], iso(row["at"]), _item(row["at"], "invalidated", row["id"], row["text"],
                                          row["reason"]))
        for row in rows
    ]  # fmt: skip


async def _history(
    connection: Connection, bank: int, before: int | None, limit: int, _: Collection[str]
) -> list[_Row]:
    rows = await connection.fetch(
        "select document_id, place, kind, created_at, facts_added, facts_removed"
        " from document_history where bank = $1 and place < coalesce($2, 9223372036854775807)"
        " order by place desc limit $3",
        bank,
        before,
        limit,
    )
    return [
        (
            row["created_at"],
            row["place"],
            _item(
                row["created_at"],
                "document",
                row["document_id"],
                f"{row['kind']}: {row['facts_added']} added, {row['facts_removed']} removed",
                None,
            ),
        )
        for row in rows
    ]


async def _operations(
    connection: Connection, bank: int, before: str | None, limit: int, _: Collection[str]
) -> list[_Row]:
    rows = await connection.fetch(
        "select operation_id, type, status, created_at as at, error_message from operations"
        " where bank = $1 and ($2::timestamptz is null or created_at < $2)"
        " order by created_at desc limit $3",
        bank,
        None if before is None else datetime.fromisoformat(before),
        limit,
    )
    return [
        (
            row["at"],
            iso(row["at"]),
            _item(
                row["at"],
                "operation",
                row["operation_id"],
                f"{row['type']}: {row['status']}",
                row["error_message"],
            ),
        )
        for row in rows
    ]


def _item(at: datetime, kind: str, id: Any, text: str, was: str | None) -> dict[str, Any]:
    return {"at": iso(at), "kind": kind, "id": str(id), "text": text, "was": was}


_Source = Callable[[Connection, int, Any, int, Collection[str]], Awaitable[list[_Row]]]
_SOURCES: dict[str, tuple[_Source, frozenset[str]]] = {
    "memories": (_memories, frozenset({"written", "edited", "remade"})),
    "invalidated": (_invalidated, frozenset({"invalidated"})),
    "history": (_history, frozenset({"document"})),
    "operations": (_operations, frozenset({"operation"})),
}
