"""Reading memories: rows by ordinal for recall, lists and single ones for the API.

A memory is live while it has an ordinal; an invalidated one keeps its row without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from retrieval.errors import InvalidInput, NotFound
from retrieval.store import attachments, banks, containing, keyset
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.edge import as_uuid, fits, iso, listing, one_of, page, parse_time
from retrieval.store.heads import BankHead
from retrieval.store.tags import condition
from retrieval.store.visibility import Seen
from retrieval.types import FactType, Ints, MemoryRow

# In the order of MemoryRow. The server writes ids as text faster than the driver makes objects.
_ROW = (
    "ordinal, id::text, text, fact_type, context, occurred_start, occurred_end, mentioned_at,"
    " document_id, chunk_id, tags, metadata, proof_count, source_ids::text[], valid_from,"
    " valid_until, superseded_by::text"
)
_KINDS = tuple(FactType)
AS_NUMBERED = " and ($3::bigint is null or (select generation from banks where bank = $1) = $3)"
"""Ordinals are those of one generation of the bank: of another one they would be other memories."""

_ORIGINS = (
    "with recursive origin (ordinal, id, sources, depth) as ("
    "  select ordinal, id, source_ids, 0 from memory_units"
    f"   where bank = $1 and ordinal = any($2){AS_NUMBERED}"
    "  union select o.ordinal, m.id, m.source_ids, o.depth + 1"
    "   from origin o cross join unnest(o.sources) told(id) cross join lateral ("
    "    select id, source_ids from memory_units where bank = $1 and id = told.id offset 0) m"
    "   where o.depth < 3 and ($4::uuid[] is null or m.id = any($4)))"
)
"""Memories and what they were made from; $4, where given, bounds what is walked through. Each is
looked up by its id, whatever the planner believes of the number of sources."""


def _row(record: Sequence[Any]) -> MemoryRow:
    ordinal, id, text, kind, context, start, end, mentioned, *rest = record
    document_id, chunk_id, tags, metadata, proof_count, source_ids, *validity = rest
    return MemoryRow(
        ordinal, id, text, _KINDS[kind], context, start, end, mentioned, document_id, chunk_id,
        tuple(tags), metadata, proof_count, tuple(source_ids), *validity,
    )  # fmt: skip


async def rows(
    pool: Pool, bank: int, ordinals: Ints, generation: int | None = None
) -> list[MemoryRow]:
    """The live memories at these ordinals, in their order; missing ones are left out. Empty where
    `generation` is given and the bank has another one by now."""
    wanted = ordinals.tolist()
    found = await read(
        pool,
        lambda connection: connection.fetch(
            f"select {_ROW} from memory_units where bank = $1 and ordinal = any($2){AS_NUMBERED}",
            bank,
            wanted,
            generation,
        ),
    )
    by_ordinal = {row[0]: row for row in found}
    return [_row(by_ordinal[ordinal]) for ordinal in wanted if ordinal in by_ordinal]


async def texts(
    pool: Pool, bank: int, ordinals: Ints, generation: int | None = None
) -> list[tuple[int, str, str | None, datetime | None]]:
    """(ordinal, text, context, occurred_start) of the live ones, in the order of `ordinals`;
    `generation` as in `rows`."""
    wanted = ordinals.tolist()
    found = await read(
        pool,
        lambda connection: connection.fetch(
            "select ordinal, text, context, occurred_start from memory_units"
            f" where bank = $1 and ordinal = any($2){AS_NUMBERED}",
            bank,
            wanted,
            generation,
        ),
    )
    by_ordinal = {row[0]: (row[0], row[1], row[2], row[3]) for row in found}
    return [by_ordinal[ordinal] for ordinal in wanted if ordinal in by_ordinal]


async def by_ids(pool: Pool, bank: int, ids: Sequence[UUID | str]) -> list[MemoryRow]:
    """The live memories with these ids, in their order; missing ones are left out."""
    wanted = [str(id) for id in ids]
    found = await read(
        pool,
        lambda connection: connection.fetch(
            f"select {_ROW} from memory_units"
            " where bank = $1 and id = any($2::uuid[]) and ordinal is not null",
            bank,
            wanted,
        ),
    )
    by_id = {row[1]: row for row in found}
    return [_row(by_id[id]) for id in wanted if id in by_id]


async def origins(pool: Pool, bank: int, ordinals: Ints, generation: int) -> list[Seen]:
    """What a filter reads of these memories, and of those that they were made from in up to
    three steps; invalidated ones too. `generation` as in `rows`."""
    found = await read(
        pool,
        lambda connection: connection.fetch(
            f"{_ORIGINS} select id::text, tags, mentioned_at, metadata from memory_units"
            " where bank = $1 and id in (select id from origin)",
            bank,
            ordinals.tolist(),
            generation,
            None,
        ),
    )
    return [Seen(*row) for row in found]


async def seen(pool: Pool, bank: int, ids: Collection[str]) -> list[Seen]:
    """What a filter reads of the memories with these ids, in no order."""
    found = await read(
        pool,
        lambda connection: connection.fetch(
            "select id::text, tags, mentioned_at, metadata from memory_units"
            " where bank = $1 and id = any($2::uuid[])",
            bank,
            list(ids),
        ),
    )
    return [Seen(*row) for row in found]


async def of_chunks(pool: Pool, bank: int, chunk_ids: Sequence[str]) -> list[tuple[str, Seen]]:
    """(chunk id, what a filter reads) of every memory that was cut from these chunks."""
    found = await read(
        pool,
        lambda connection: connection.fetch(
            "select m.chunk_id, m.id::text, m.tags, m.mentioned_at, m.metadata from memory_units m"
            " join chunks c on c.bank = m.bank and c.document_id = m.document_id"
            "  and c.chunk_id = m.chunk_id"
            " where c.bank = $1 and c.chunk_id = any($2)",
            bank,
            list(chunk_ids),
        ),
    )
    return [(chunk, Seen(*row)) for chunk, *row in found]


async def stored_before(pool: Pool, bank: int, ids: Sequence[str], bound: datetime) -> set[str]:
    """Those of the ids whose memories were stored before a time."""
    found = await read(
        pool,
        lambda connection: connection.fetch(
            "select id::text from memory_units where bank = $1 and id = any($2::uuid[])"
            " and created_at < $3",
            bank,
            list(ids),
            bound,
        ),
    )
    return {row[0] for row in found}


async def entity_names(
    pool: Pool,
    bank: int,
    ordinals: Ints,
    generation: int | None = None,
    shown: Collection[str] | None = None,
) -> dict[int, list[tuple[str, str]]]:
    """(entity id, canonical name) per ordinal, by name number; ordinals without any are absent.
    `generation` as in `rows`.

    An observation has its own and those of the memories it was made from: of all, or of those
    whose ids are `shown`.
    """
    found = await read(
        pool,
        lambda connection: connection.fetch(
            f"{_ORIGINS} select distinct o.ordinal, e.entity_no, e.id, e.canonical_name"
            " from origin o cross join lateral (select entity_no from unit_entities"
            "  where bank = $1 and unit_id = o.id offset 0) u"  # a lookup, even before statistics
            " join entities e on e.bank = $1 and e.entity_no = u.entity_no"
            " order by o.ordinal, e.entity_no",
            bank,
            ordinals.tolist(),
            generation,
            None if shown is None else list(shown),
        ),
    )
    names: dict[int, list[tuple[str, str]]] = {}
    for row in found:
        names.setdefault(row["ordinal"], []).append((str(row["id"]), row["canonical_name"]))
    return names


# The API's views

_SLICE = 50
"""Memories of a list that are read and shown in one go."""
_STATES = ("valid", "invalidated")
_CONSOLIDATION = {
    "failed": "m.consolidation_failed_at is not null",
    "pending": "m.consolidated_at is null and m.consolidation_failed_at is null"
    f" and m.fact_type <> {int(FactType.OBSERVATION)}",
    "done": "m.consolidated_at is not null",
}
_TIME_FIELDS = ("created_at", "updated_at", "mentioned_at", "occurred_start", "occurred_end")
_NAMES = (
    "(select coalesce(array_agg(e.canonical_name order by u.entity_no), '{}')"
    " from unit_entities u join entities e using (bank, entity_no)"
    " where u.bank = m.bank and u.unit_id = any(array[m.id] || m.source_ids)) as names"
)


_BY_MENTION = (
    keyset.SortColumn("m.mentioned_at", "time", descending=True, nullable=True),
    keyset.SortColumn("m.created_at", "time", descending=True),
    keyset.SortColumn("m.id", "uuid"),
)


async def list_memories(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    type: str | None = None,
    q: str | None = None,
    state: str | None = None,
    consolidation_state: str | None = None,
    document_id: str | None = None,
    chunk_id: str | None = None,
    entity_id: str | None = None,
    tags: Sequence[str] | None = None,
    tags_match: str = "any",
    time_field: str | None = None,
    start_date: str | None = None,
    end_date: str | None = None,
    limit: int = 100,
    offset: int = 0,
    cursor: str | None = None,
    count: keyset.Count | None = None,
) -> dict[str, Any]:
    """{items, total, limit, offset}; latest mention first, or latest by `time_field`.

    `state` defaults to valid ones. start_date is inclusive, end_date exclusive; they read
    created_at unless `time_field` says otherwise, and rows without that time drop out. `q` is
    a part of the text or the context: see retrieval/store/containing.py. With `count` "upto" the
    total ends at `keyset`'s most, and `next` is the `cursor` of the page that follows.
    """
    limit, offset = page(limit, offset)
    where = ["m.bank = $1"]
    values: list[Any] = []

    def bind(value: Any) -> str:
        values.append(value)
        return f"${len(values) + 1}"

    if type is not None:
        try:
            where.append(f"m.fact_type = {int(FactType.of(type))}")
        except ValueError as error:
            raise InvalidInput(str(error), "type") from None
    live = one_of(state or "valid", _STATES, "state") == "valid"
    where.append("m.ordinal is not null" if live else "m.ordinal is null")
    if consolidation_state is not None:
        one_of(consolidation_state, list(_CONSOLIDATION), "consolidation_state")
        where.append(f"({_CONSOLIDATION[consolidation_state]})")
    if document_id is not None:
        where.append(f"m.document_id = {bind(document_id)}")
    if chunk_id is not None:
        where.append(f"m.chunk_id = {bind(chunk_id)}")
    if entity_id is not None:
        where.append(
            "m.id in (select u.unit_id from unit_entities u join entities e using (bank, entity_no)"
            f" where u.bank = $1 and e.id = {bind(as_uuid(entity_id, 'entity_id'))})"
        )
    if test := condition("m.tags", tags, tags_match, bind):
        where.append(test)
    order = _BY_MENTION
    if time_field is not None or start_date is not None or end_date is not None:
        column = "m." + one_of(time_field or "created_at", _TIME_FIELDS, "time_field")
        where.append(f"{column} is not null")
        if start_date is not None:
            where.append(f"{column} >= {bind(parse_time(start_date, 'start_date'))}")
        if end_date is not None:
            where.append(f"{column} < {bind(parse_time(end_date, 'end_date'))}")
        if time_field is not None:
            order = (keyset.SortColumn(column, "time", descending=True), *_BY_MENTION[1:])

    bank = (await banks.head(pool, tenant, bank_id)).bank
    if q:
        where.append(
            await containing.condition(
                pool, q, table="memory_units m", key="m.id", columns=("m.text", "m.context"),
                where=tuple(where), values=(bank, *values), bind=bind,
            )
        )  # fmt: skip

    all_rows, counted = " and ".join(where), tuple(values)
    if cursor:
        where.append(keyset.behind(order, keyset.read(cursor, order), bind))

    async def work(connection: Connection) -> dict[str, Any]:
        test = " and ".join(where)
        total = await connection.fetchval(
            keyset.total("memory_units m", all_rows, count), bank, *counted
        )
        found = await connection.fetch(
            "select m.id, octet_length(m.text) + coalesce(octet_length(m.context), 0)"
            f" + coalesce(octet_length(m.metadata::text), 0) as size, {keyset.names(order)}"
            f" from memory_units m where {test} order by {keyset.clause(order)}"
            f" limit ${len(values) + 2} offset ${len(values) + 3}",
            bank,
            *values,
            limit,
            offset,
        )
        fits([row["size"] for row in found])
        items = await _listed(connection, bank, [row["id"] for row in found])
        whole = listing("items", items, total, limit, offset)
        return keyset.paged(whole, count, len(found) == limit > 0, keyset.last(found, order))

    return await read(pool, work)


def _common(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "text": row["text"],
        "context": row["context"] or "",
        "date": iso(row["occurred_start"] or row["mentioned_at"]) or "",
        "document_id": row["document_id"],
        "mentioned_at": iso(row["mentioned_at"]),
        "occurred_start": iso(row["occurred_start"]),
        "occurred_end": iso(row["occurred_end"]),
        "chunk_id": row["chunk_id"],
        "proof_count": 1 if row["proof_count"] is None else row["proof_count"],
        "tags": row["tags"],
        "metadata": row["metadata"] or {},
        "consolidated_at": iso(row["consolidated_at"]),
        "consolidation_failed_at": iso(row["consolidation_failed_at"]),
        "consolidation_error": row["consolidation_error"],
        "valid_from": iso(row["valid_from"]),
        "valid_until": iso(row["valid_until"]),
        "superseded_by": None if row["superseded_by"] is None else str(row["superseded_by"]),
        "state": "valid" if row["ordinal"] is not None else "invalidated",
        "invalidation_reason": row["invalidation_reason"],
        "invalidated_at": iso(row["invalidated_at"]),
        "created_at": iso(row["created_at"]),
        "updated_at": iso(row["updated_at"]),
        "edited_at": iso(row["edited_at"]),
        "source_memory_ids": [str(id) for id in row["source_ids"]],
    }


async def _listed(connection: Connection, bank: int, ids: Sequence[UUID]) -> list[dict[str, Any]]:
    """The memories in this order, read a slice at a time: each holds the event loop for some
    milliseconds."""
    items = []
    for start in range(0, len(ids), _SLICE):
        found = await connection.fetch(
            f"select m.*, {_NAMES} from memory_units m"
            " join unnest($2::uuid[]) with ordinality w (id, place) on w.id = m.id"
            " where m.bank = $1 order by w.place",
            bank,
            ids[start : start + _SLICE],
        )
        few = len(ids) <= _SLICE
        items += _items(found) if few else await asyncio.to_thread(_items, found)
    return items


def _items(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            **_common(row),
            "fact_type": FactType(row["fact_type"]).wire,
            "entities": ", ".join(dict.fromkeys(row["names"])),
        }
        for row in rows
    ]


async def get(pool: Pool, tenant: str, bank_id: str, memory_id: str) -> dict[str, Any]:
    """One memory, valid or not; an observation with the memories it was made from."""
    id = as_uuid(memory_id, "memory_id")

    async def work(connection: Connection) -> tuple[BankHead, dict[str, Any]]:
        head = await banks.head_of(connection, tenant, bank_id)
        return head, await view(connection, head.bank, id)

    head, found = await read(pool, work)
    if head.attached:
        await attachments.show(pool, head.bank, head.bank_id, [found])
    return found


async def view(connection: Connection, bank: int, id: UUID) -> dict[str, Any]:
    row = await connection.fetchrow(
        f"select m.*, {_NAMES} from memory_units m where m.bank = $1 and m.id = $2", bank, id
    )
    if row is None:
        raise NotFound(f"there is no memory {id}")
    fact_type = FactType(row["fact_type"])
    found = {
        **_common(row),
        "type": fact_type.wire,
        "entities": list(dict.fromkeys(row["names"])),
        "observation_scopes": row["observation_scopes"],
    }
    if fact_type is FactType.OBSERVATION:
        sources = await connection.fetch(
            "select id, text, fact_type, context, occurred_start, mentioned_at from memory_units"
            " where bank = $1 and id = any($2) order by mentioned_at desc nulls last, id",
            bank,
            row["source_ids"],
        )
        found["source_memories"] = [
            {
                "id": str(source["id"]),
                "text": source["text"],
                "type": FactType(source["fact_type"]).wire,
                "context": source["context"] or "",
                "occurred_start": iso(source["occurred_start"]),
                "mentioned_at": iso(source["mentioned_at"]),
            }
            for source in sources
        ]
        found["history"] = []
    return found


async def history(pool: Pool, tenant: str, bank_id: str, memory_id: str) -> list[dict[str, Any]]:
    """Earlier states of an observation, newest first."""
    id = as_uuid(memory_id, "memory_id")

    async def work(connection: Connection) -> list[dict[str, Any]]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        if not await connection.fetchval(
            "select true from memory_units where bank = $1 and id = $2", bank, id
        ):
            raise NotFound(f"there is no memory {id}")
        found = await connection.fetch(
            "select changed_at, content from observation_history"
            " where bank = $1 and observation_id = $2 order by changed_at desc",
            bank,
            id,
        )
        return [{**row["content"], "changed_at": iso(row["changed_at"])} for row in found]

    return await read(pool, work)


async def observation_scopes(
    pool: Pool, tenant: str, bank_id: str, *, limit: int = 100, offset: int = 0
) -> dict[str, Any]:
    """{scopes: [{tags, count}], total, limit, offset}: the tag sets of the live observations,
    most used first."""
    limit, offset = page(limit, offset)

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        found = await connection.fetch(
            "select s.tags, count(*) as n from memory_units m"
            " cross join lateral"
            "  (select array(select distinct unnest(m.tags) order by 1) as tags) s"
            " where m.bank = $1 and m.fact_type = $2 and m.ordinal is not null"
            " group by s.tags order by n desc, s.tags",
            bank,
            int(FactType.OBSERVATION),
        )
        scopes = [{"tags": row["tags"], "count": row["n"]} for row in found]
        return listing("scopes", scopes[offset : offset + limit], len(scopes), limit, offset)

    return await read(pool, work)
