"""Mental models as rows: documents, what they cite, how they were, and the refreshes that wait.

Everything here runs on the caller's connection, inside its transaction where it changes something.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from retrieval.errors import Conflict, NotFound
from retrieval.store import operations
from retrieval.store.database.pool import Connection
from retrieval.store.tags import TagFilter, visible
from retrieval.types import FactType, Filters

REFRESH = "refresh_mental_model"
"""The type of the operations that refresh one."""
MOST = 2_000
"""Mental models of one bank, pages included."""
HISTORY_MOST = 50

_LIST = (
    "bank, id, name, source_query, tags, max_tokens, trigger, is_page, content, watermark,"
    " created_at, updated_at, last_refreshed_at, last_memory_seen_at, last_refresh_failed_at,"
    " last_full_refreshed_at, content_query"
)
"""What a list needs; the answer behind a document may be large."""
_MATCHES = {
    "any": "tags && {}",
    "all": "tags @> {}",
    "exact": "tags @> {} and tags <@ {}",
}
MATCHES = tuple(_MATCHES)


@dataclass(frozen=True, slots=True)
class Model:
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


_FIELDS = Model.__slots__


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


async def model(connection: Connection, bank: int, id: str, *, lock: bool = False) -> Model:
    found = await row(connection, bank, id, lock=lock)
    values = {name: found[name] for name in _FIELDS}
    return Model(**{**values, "tags": tuple(found["tags"])})


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
    where += f" or ({_MATCHES[tags_match].format('$3', '$3')}))"
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
    await forget_refreshes(connection, bank, [id])


async def forget_refreshes(connection: Connection, bank: int, ids: Sequence[str]) -> None:
    """Ends the refreshes of models that are gone."""
    await connection.execute(
        "with ended as (update operations set status = 'cancelled', lease = null,"
        "  leased_until = null, updated_at = now()"
        "  where bank = $1 and type = $2 and status in ('pending', 'processing')"
        "  and payload->>'mental_model_id' = any($3) returning operation_id)"
        " delete from operation_lanes l using ended e"
        " where l.bank = $1 and l.operation_id = e.operation_id",
        bank,
        REFRESH,
        list(ids),
    )


async def clear(connection: Connection, bank: int, id: str) -> None:
    """Empties the document, which its history keeps; the next refresh is a full one."""
    held = await row(connection, bank, id, lock=True)
    await remember(connection, bank, id, held["content"])
    await connection.execute(
        "update mental_models set content = '', document = null, content_query = null,"
        " reflect_response = null, watermark = 0, last_memory_seen_at = null,"
        " revision = revision + 1, updated_at = now(),"
        " terms = null, vector = null, parked_at = null, failed_deltas = 0, failed_fulls = 0"
        " where bank = $1 and id = $2",
        bank,
        id,
    )
    await cite(connection, bank, id, ())


# What was, and what it rests on


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


_CONSOLIDATES = "o.type = 'consolidation' and o.status in ('pending', 'processing')"
"""Is operation `o` a consolidation that waits or runs?"""


async def consolidating(connection: Connection, bank: int) -> bool:
    """Whether a consolidation of the bank waits or runs: its observations are about to change."""
    found: bool = await connection.fetchval(
        f"select exists (select from operations o where o.bank = $1 and {_CONSOLIDATES})",
        bank,
    )
    return found


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
    held: Model,
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
    held: Model,
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


# Refreshes


async def queue_refresh(
    connection: Connection,
    bank: int,
    id: str,
    *,
    full: bool = False,
    wait_s: float = 0.0,
    asked: bool = True,
) -> UUID:
    """The operation that refreshes the model next: one that waits, or a new one. The model's row is
    locked.

    `asked`: somebody asks for it now, so what waits for its time goes at once; otherwise it begins
    in `wait_s` seconds, or when the waiting one does.
    """
    waiting: UUID | None = await connection.fetchval(
        "select operation_id from operations where bank = $1 and type = $2 and status = 'pending'"
        " and payload->>'mental_model_id' = $3 order by place limit 1 for update",
        bank,
        REFRESH,
        id,
    )
    if waiting is None:
        waiting, _ = await operations.create(
            connection,
            bank,
            REFRESH,
            {"mental_model_id": id, "full": full, "asked": asked},
            items_count=1,
            lanes=[operations.model_lane(id)],
            wait_s=0.0 if asked else wait_s,
        )
    elif asked or full:
        await connection.execute(
            "update operations set payload = payload || $3,"
            " next_retry_at = case when $4 then null else next_retry_at end, updated_at = now()"
            " where bank = $1 and operation_id = $2",
            bank,
            waiting,
            {**({"full": True} if full else {}), **({"asked": True} if asked else {})},
            asked,
        )
    await connection.execute(
        "update mental_models set pending_refresh = false where bank = $1 and id = $2", bank, id
    )
    return waiting


async def unpark(connection: Connection, bank: int, id: str) -> None:
    """Takes up again what was given up after refreshes that failed."""
    await connection.execute(
        "update mental_models set parked_at = null, failed_deltas = 0, failed_fulls = 0"
        " where bank = $1 and id = $2 and parked_at is not null",
        bank,
        id,
    )


# Refreshes that nobody asks for


async def mark(connection: Connection, bank: int) -> None:
    """Notes that documents which follow the bank's observations may have to be refreshed."""
    await connection.execute(
        "update mental_models set pending_refresh = true where bank = $1 and not pending_refresh"
        " and trigger->'refresh_after_consolidation' = 'true'",
        bank,
    )


async def unmark(connection: Connection, bank: int, id: str) -> None:
    await connection.execute(
        "update mental_models set pending_refresh = false where bank = $1 and id = $2", bank, id
    )


async def marked(connection: Connection, limit: int) -> list[tuple[int, str]]:
    """(bank, id) of marked models in banks where no consolidation waits or runs."""
    rows = await connection.fetch(
        "select d.bank, d.id from mental_models d join banks b using (bank)"
        " where pending_refresh and b.state = 'open' and not exists ("
        f" select from operations o where o.bank = d.bank and {_CONSOLIDATES}) limit $1",
        limit,
    )
    return [(row["bank"], row["id"]) for row in rows]


async def due(connection: Connection, limit: int) -> list[tuple[int, str]]:
    """(bank, id) of models one of whose schedules came round."""
    rows = await connection.fetch(
        "select d.bank, d.id from mental_models d join banks b using (bank)"
        " where b.state = 'open'"
        " and (next_refresh_at is not null or next_full_refresh_at is not null)"
        " and least(next_refresh_at, next_full_refresh_at) <= now()"
        " order by least(next_refresh_at, next_full_refresh_at) limit $1",
        limit,
    )
    return [(row["bank"], row["id"]) for row in rows]


async def claimed_row(connection: Connection, bank: int, id: str) -> Mapping[str, Any] | None:
    """The row, locked; None where somebody else has it, or it is gone."""
    found: Mapping[str, Any] | None = await connection.fetchrow(
        "select * from mental_models where bank = $1 and id = $2 for update skip locked", bank, id
    )
    return found


async def bank_interval(connection: Connection, bank: int) -> int | None:
    """The least seconds between two refreshes, as the bank has it."""
    found = await connection.fetchval(
        "select config->'mental_model_min_refresh_interval_seconds' from banks where bank = $1",
        bank,
    )
    return found if isinstance(found, int) else None


async def rows(connection: Connection, bank: int, ids: Sequence[str]) -> list[Mapping[str, Any]]:
    """What a list needs of these models; those that are gone are left out."""
    found: list[Mapping[str, Any]] = await connection.fetch(
        f"select {_LIST} from mental_models where bank = $1 and id = any($2)", bank, list(ids)
    )
    return found
