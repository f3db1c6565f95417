"""Mental models as rows; what they cite is in citations, when they are refreshed in refreshes.

Everything here runs on the caller's connection, inside its transaction where it changes something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retrieval.errors import Conflict, NotFound
from retrieval.store import citations, refreshes
from retrieval.store.database.pool import Connection
from retrieval.store.tags import TAGGED

MOST = 2_000
"""Mental models of one bank, pages included."""

_LIST = (
    "bank, id, name, source_query, tags, max_tokens, trigger, is_page, content, watermark,"
    " created_at, updated_at, last_refreshed_at, last_memory_seen_at, last_refresh_failed_at,"
    " last_full_refreshed_at, content_query"
)
"""What a list needs; the answer behind a document may be large."""


@dataclass(frozen=True, slots=True)
class MentalModelRow:
    """One row, as a refresh reads it."""

    bank: int
    id: str
    name: str
    source_query: str
    tags: tuple[str, ...]
    max_tokens: int
    trigger: Mapping[str, Any]
    revision: int
    content: str
    document: Any
    content_query: str | None
    reflect_response: Mapping[str, Any] | None
    watermark: int
    last_refreshed_at: datetime | None
    last_memory_seen_at: datetime | None
    failed_deltas: int
    failed_fulls: int
    parked_at: int | None


_FIELDS = MentalModelRow.__slots__


def unknown(model_id: str) -> NotFound:
    return NotFound(f"there is no mental model {model_id[:130]!r}")


async def insert(
    connection: Connection, bank: int, id: str, fields: Mapping[str, Any], *, page: bool = False
) -> None:
    """`fields`: name, source_query, tags, max_tokens, trigger. The bank's row is locked. Conflict
    for an id that is taken, and above MOST."""
    if await connection.fetchval(
        "select count(*) >= $2 from mental_models where bank = $1", bank, MOST
    ):
        raise Conflict(f"a bank has at most {MOST:,} mental models, pages included")
    made = await connection.fetchval(
        "insert into mental_models"
        " (bank, id, name, source_query, tags, max_tokens, trigger, is_page)"
        " values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict do nothing returning true",
        bank,
        id,
        fields["name"],
        fields["source_query"],
        list(fields["tags"]),
        fields["max_tokens"],
        dict(fields["trigger"]),
        page,
    )
    if not made:
        raise Conflict(f"there is a mental model {id!r} already")


async def row(
    connection: Connection, bank: int, id: str, *, lock: bool = False
) -> Mapping[str, Any]:
    """All columns; with `lock` nobody else changes it until the transaction ends. NotFound."""
    found: Mapping[str, Any] | None = await connection.fetchrow(
        "select * from mental_models where bank = $1 and id = $2" + (" for update" if lock else ""),
        bank,
        id,
    )
    if found is None:
        raise unknown(id)
    return found


async def model(
    connection: Connection, bank: int, id: str, *, lock: bool = False
) -> MentalModelRow:
    found = await row(connection, bank, id, lock=lock)
    values = {name: found[name] for name in _FIELDS}
    return MentalModelRow(**{**values, "tags": tuple(found["tags"])})


async def page_of(
    connection: Connection,
    bank: int,
    *,
    tags: Sequence[str] | None,
    tags_match: str,
    without_pages: bool,
    answers: bool,
    limit: int,
    offset: int,
) -> tuple[list[Mapping[str, Any]], int]:
    """(rows by name, how many there are). `answers`: with what is behind the documents."""
    where = "bank = $1 and not ($2 and is_page) and ($3::text[] is null"
    where += f" or ({TAGGED[tags_match]('$3')}))"
    given = (bank, without_pages, list(tags) if tags else None)
    total = await connection.fetchval(f"select count(*) from mental_models where {where}", *given)
    columns = f"{_LIST}, reflect_response" if answers else _LIST
    rows = await connection.fetch(
        f"select {columns} from mental_models where {where}"
        " order by created_at desc, id limit $4 offset $5",
        *given,
        limit,
        offset,
    )
    return rows, total


CHANGEABLE = ("name", "source_query", "tags", "max_tokens", "trigger")


async def change(connection: Connection, bank: int, id: str, changes: Mapping[str, Any]) -> None:
    """Sets columns of a row that exists. A running refresh finds that what it read was changed."""
    named = [name for name in CHANGEABLE if name in changes]
    sets = [f"{name} = ${place}" for place, name in enumerate(named, 3)]
    await connection.execute(
        f"update mental_models set {', '.join(sets)}, revision = revision + 1, updated_at = now(),"
        " terms = null, vector = null, parked_at = null, failed_deltas = 0, failed_fulls = 0"
        " where bank = $1 and id = $2",
        bank,
        id,
        *(dict(changes[n]) if n == "trigger" else changes[n] for n in named),
    )


async def schedule(
    connection: Connection,
    bank: int,
    id: str,
    refresh_at: datetime | None,
    full_refresh_at: datetime | None,
) -> None:
    """The next times of its schedules."""
    await connection.execute(
        "update mental_models set next_refresh_at = $3, next_full_refresh_at = $4"
        " where bank = $1 and id = $2",
        bank,
        id,
        refresh_at,
        full_refresh_at,
    )


async def delete(connection: Connection, bank: int, id: str) -> None:
    """Its page goes with it, and the refreshes that wait. NotFound."""
    gone = await connection.fetchval(
        "delete from mental_models where bank = $1 and id = $2 returning true", bank, id
    )
    if not gone:
        raise unknown(id)
    await refreshes.forget_refreshes(connection, bank, [id])


async def clear(connection: Connection, bank: int, id: str) -> None:
    """Empties the document, which its history keeps; the next refresh is a full one."""
    held = await row(connection, bank, id, lock=True)
    await citations.remember(connection, bank, id, held["content"])
    await connection.execute(
        "update mental_models set content = '', document = null, content_query = null,"
        " reflect_response = null, watermark = 0, last_memory_seen_at = null,"
        " revision = revision + 1, updated_at = now(),"
        " terms = null, vector = null, parked_at = null, failed_deltas = 0, failed_fulls = 0"
        " where bank = $1 and id = $2",
        bank,
        id,
    )
    await citations.cite(connection, bank, id, ())


async def renumber(connection: Connection, bank: int) -> None:
    """Takes what has been seen along where the bank's ordinals are about to be given anew, dense
    and in the same order."""
    await connection.execute(
        "update mental_models d set watermark = (select count(*) from memory_units m"
        "  where m.bank = d.bank and m.ordinal < d.watermark),"
        " parked_at = (select case when d.parked_at is not null then count(*) end"
        "  from memory_units m where m.bank = d.bank and m.ordinal < d.parked_at)"
        " where d.bank = $1 and (d.watermark > 0 or d.parked_at is not null)",
        bank,
    )


async def forget_seen(connection: Connection, bank: int) -> None:
    """All memories of the bank are gone, and ordinals begin anew."""
    await connection.execute(
        "update mental_models set watermark = 0, parked_at = null where bank = $1", bank
    )


# What a refresh leaves


async def refreshed(
    connection: Connection,
    held: MentalModelRow,
    *,
    content: str,
    document: Any,
    content_query: str | None,
    response: Mapping[str, Any] | None,
    watermark: int,
    seen_at: datetime | None,
    full: bool,
) -> None:
    """Stores what a refresh came to. The row is locked."""
    await connection.execute(
        "update mental_models set content = $3, document = $4, content_query = $5,"
        " reflect_response = $6, watermark = $7,"
        " last_memory_seen_at = coalesce($8, last_memory_seen_at),"
        " last_refreshed_at = now(),"
        " last_full_refreshed_at = case when $9 then now() else last_full_refreshed_at end,"
        " failed_deltas = 0, failed_fulls = 0, parked_at = null, revision = revision + 1,"
        " terms = case when content = $3 then terms end,"
        " vector = case when content = $3 then vector end"
        " where bank = $1 and id = $2",
        held.bank,
        held.id,
        content,
        document,
        content_query,
        response,
        watermark,
        seen_at,
        full,
    )


async def refresh_failed(
    connection: Connection,
    held: MentalModelRow,
    *,
    failed_deltas: int,
    failed_fulls: int,
    parked_at: int | None,
) -> None:
    """Counts a refresh that failed. The row is locked."""
    await connection.execute(
        "update mental_models set last_refresh_failed_at = now(), failed_deltas = $3,"
        " failed_fulls = $4, parked_at = $5 where bank = $1 and id = $2",
        held.bank,
        held.id,
        failed_deltas,
        failed_fulls,
        parked_at,
    )


async def rows(connection: Connection, bank: int, ids: Sequence[str]) -> list[Mapping[str, Any]]:
    """What a list needs of these models; those that are gone are left out."""
    found: list[Mapping[str, Any]] = await connection.fetch(
        f"select {_LIST} from mental_models where bank = $1 and id = any($2)", bank, list(ids)
    )
    return found
