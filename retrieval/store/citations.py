"""What mental models rest on: memories of their scopes, those that they cite; and histories.

On the caller's connection, inside its transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from retrieval.store.database.pool import Connection
from retrieval.store.tags import TagFilter, visible
from retrieval.types import FactType, Filters

HISTORY_MOST = 50


async def remember(
    connection: Connection, bank: int, id: str, content: str, most: int = HISTORY_MOST
) -> None:
    """Keeps a content that is about to be replaced; the oldest beyond `most` go."""
    if not content or most < 1:
        return
    await connection.execute(
        "insert into mental_model_history (bank, model_id, previous_content) values ($1, $2, $3)",
        bank,
        id,
        content,
    )
    await connection.execute(
        "delete from mental_model_history where bank = $1 and model_id = $2 and entry <= ("
        " select entry from mental_model_history where bank = $1 and model_id = $2"
        " order by entry desc offset $3 limit 1)",
        bank,
        id,
        most,
    )


async def history(connection: Connection, bank: int, id: str) -> list[Mapping[str, Any]]:
    """Earlier contents, newest first."""
    rows: list[Mapping[str, Any]] = await connection.fetch(
        "select previous_content, changed_at from mental_model_history"
        " where bank = $1 and model_id = $2 order by entry desc limit $3",
        bank,
        id,
        HISTORY_MOST,
    )
    return rows


async def cite(connection: Connection, bank: int, id: str, memories: Iterable[str]) -> None:
    """The memories that a document rests on, in place of the earlier ones."""
    wanted = sorted({UUID(one) for one in memories})
    await connection.execute(
        "delete from mental_model_citations where bank = $1 and model_id = $2"
        " and memory_id <> all($3::uuid[])",
        bank,
        id,
        wanted,
    )
    await connection.execute(
        "insert into mental_model_citations (bank, model_id, memory_id)"
        " select $1, $2, m from unnest($3::uuid[]) m on conflict do nothing",
        bank,
        id,
        wanted,
    )


async def citations(
    connection: Connection, bank: int, ids: Sequence[str]
) -> list[tuple[str, tuple[str, ...] | None, int | None]]:
    """(model, tags, fact type) of what documents cite, each combination once; None, None for
    memories that are no longer there."""
    rows = await connection.fetch(
        "select distinct c.model_id, m.tags, m.fact_type from mental_model_citations c"
        " left join memory_units m on m.bank = c.bank and m.id = c.memory_id"
        "  and m.ordinal is not null"
        " where c.bank = $1 and c.model_id = any($2)",
        bank,
        list(ids),
    )
    return [
        (r["model_id"], None if r["tags"] is None else tuple(r["tags"]), r["fact_type"])
        for r in rows
    ]


@dataclass(frozen=True, slots=True)
class Live:
    """A memory that is there: `time` is what it is about."""

    id: str
    ordinal: int
    text: str
    fact_type: FactType
    tags: tuple[str, ...]
    time: datetime | None


async def live(connection: Connection, bank: int, memories: Collection[str]) -> dict[str, Live]:
    """Those of the memories that are there, by id."""
    rows = await connection.fetch(
        "select id, ordinal, text, fact_type, tags,"
        " coalesce(occurred_end, occurred_start, mentioned_at) as time from memory_units"
        " where bank = $1 and id = any($2::uuid[]) and ordinal is not null",
        bank,
        [UUID(one) for one in memories],
    )
    return {str(r["id"]): _live(r) for r in rows}


async def saying(
    connection: Connection, bank: int, texts: Collection[str], scope: Filters
) -> dict[str, str]:
    """text -> id of a memory in scope that says just that."""
    test, parameters = _scope(scope, first=3)
    rows = await connection.fetch(
        "select text, min(id::text) as id from memory_units where bank = $1"
        f" and ordinal is not null and text = any($2::text[]) and {test} group by text",
        bank,
        list(texts),
        *parameters,
    )
    return {r["text"]: r["id"] for r in rows}


def _live(r: Mapping[str, Any]) -> Live:
    return Live(
        str(r["id"]),
        r["ordinal"],
        r["text"],
        FactType(r["fact_type"]),
        tuple(r["tags"]),
        r["time"],
    )


def _scope(scope: Filters, *, first: int) -> tuple[str, list[Any]]:
    """The SQL test of a scope, and its parameters, the first of which is `$first`."""
    parameters: list[Any] = []

    def bind(value: Any) -> str:
        parameters.append(value)
        return f"${first + len(parameters) - 1}"

    tests = [f"fact_type = any({bind([int(kind) for kind in scope.types])}::smallint[])"]
    wanted = TagFilter(scope.tags, scope.tags_match, scope.tag_groups or ())
    if (tags := visible("tags", wanted, bind)) is not None:
        tests.append(tags)
    return "(" + " and ".join(tests) + ")", parameters


async def since(
    connection: Connection, bank: int, scope: Filters, first: int, end: int, limit: int
) -> list[Live]:
    """Memories in scope with ordinals in [first, end), newest first, at most `limit`."""
    test, parameters = _scope(scope, first=5)
    rows = await connection.fetch(
        "select id, ordinal, text, fact_type, tags,"
        " coalesce(occurred_end, occurred_start, mentioned_at) as time from memory_units"
        f" where bank = $1 and ordinal >= $2 and ordinal < $3 and {test}"
        " order by ordinal desc limit $4",
        bank,
        first,
        end,
        limit,
        *parameters,
    )
    return [_live(r) for r in rows]


async def newest(connection: Connection, bank: int, scope: Filters, end: int) -> datetime | None:
    """When the newest memory in scope with an ordinal below `end` was written."""
    test, parameters = _scope(scope, first=3)
    found: datetime | None = await connection.fetchval(
        "select updated_at from memory_units where bank = $1 and ordinal < $2"
        f" and {test} order by ordinal desc limit 1",
        bank,
        end,
        *parameters,
    )
    return found


async def written_since(
    connection: Connection, bank: int, first: int
) -> list[tuple[tuple[str, ...], int, int]]:
    """(tags, fact type, highest ordinal) of the memories from an ordinal on."""
    rows = await connection.fetch(
        "select tags, fact_type, max(ordinal) as top from memory_units"
        " where bank = $1 and ordinal >= $2 group by tags, fact_type",
        bank,
        first,
    )
    return [(tuple(r["tags"]), r["fact_type"], r["top"]) for r in rows]
