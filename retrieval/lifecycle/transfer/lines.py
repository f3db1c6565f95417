"""The rows of a bank as the lines of an archive, read through cursors: a slice of about a MiB at a
time, whatever the bank's size. Everything runs inside one snapshot, on one connection."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np

from retrieval.store.database.pool import Connection
from retrieval.store.segments.slices import Place
from retrieval.types import FactType, Ints, LinkType

Line: TypeAlias = dict[str, Any]

SLICE_BYTES: Final = 1 << 20
SLICE_ROWS: Final = 500
PIECE: Final = 1 << 20
"""Characters of a document's text in one line; what is longer goes on in the next."""

_KEEP_MARKS: Final = (
    "consolidated_at", "consolidated_scopes", "consolidation_failed_at", "consolidation_error",
    "consolidation_group", "superseded_by",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chosen:
    """What of a bank is read. documents: only these; None: all. observations: are they to be there?
    Without them memories are to be consolidated anew where they arrive."""

    bank: int
    documents: Sequence[str] | None = None
    observations: bool = True

    @property
    def whole(self) -> bool:
        return self.documents is None and self.observations

    def test(self, table: str) -> str:
        """The SQL condition on rows of memory_units; its parameters are $1 and $2."""
        kinds = (
            "" if self.observations else f" and {table}.fact_type <> {int(FactType.OBSERVATION)}"
        )
        return f"{table}.bank = $1 and ($2::text[] is null or {table}.document_id = any($2)){kinds}"

    @property
    def parameters(self) -> tuple[int, list[str] | None]:
        return self.bank, None if self.documents is None else list(self.documents)


async def slices(
    connection: Connection, sql: str, *parameters: Any
) -> AsyncIterator[list[Mapping[str, Any]]]:
    """Runs of the rows of a light query, whose column `size` says how heavy each is."""
    held: list[Mapping[str, Any]] = []
    size = 0
    async for row in connection.cursor(sql, *parameters, prefetch=2000):
        if held and (size + row["size"] > SLICE_BYTES or len(held) >= SLICE_ROWS):
            yield held
            held, size = [], 0
        held.append(row)
        size += row["size"]
    if held:
        yield held


async def documents(connection: Connection, chosen: Chosen) -> AsyncIterator[list[Line]]:
    where = "bank = $1 and ($2::text[] is null or document_id = any($2))"
    keys = (
        "select document_id, 1024 + 4 * least(length(original_text), $3)"
        " + pg_column_size(metadata) + pg_column_size(retain_params) as size"
        f" from documents where {where} order by document_no"
    )
    async for part in slices(connection, keys, *chosen.parameters, PIECE):
        rows = await connection.fetch(
            "select to_jsonb(d) - '{bank,document_no,original_text}'::text[] as line,"
            " left(original_text, $3) as text, length(original_text) as length from documents d"
            " where bank = $1 and document_id = any($2) order by document_no",
            chosen.bank,
            [row["document_id"] for row in part],
            PIECE,
        )
        for row in rows:
            yield [{**row["line"], "original_text": row["text"]}]
            for begin in range(PIECE, row["length"] or 0, PIECE):
                more = await connection.fetchval(
                    "select substr(original_text, $3, $4) from documents"
                    " where bank = $1 and document_id = $2",
                    chosen.bank, row["line"]["document_id"], begin + 1, PIECE,
                )  # fmt: skip
                yield [{"document_id": row["line"]["document_id"], "more_text": more}]


async def chunks(connection: Connection, chosen: Chosen) -> AsyncIterator[list[Line]]:
    keys = (
        "select document_id, chunk_index, 512 + octet_length(chunk_text) as size from chunks"
        " where bank = $1 and ($2::text[] is null or document_id = any($2))"
        " order by document_id, chunk_index"
    )
    async for part in slices(connection, keys, *chosen.parameters):
        rows = await connection.fetch(
            "select to_jsonb(c) - '{bank,chunk_id}'::text[] as line from chunks c"
            " join unnest($2::text[], $3::int[]) w(id, at)"
            "  on c.document_id = w.id and c.chunk_index = w.at"
            " where c.bank = $1 order by c.document_id, c.chunk_index",
            chosen.bank,
            [row["document_id"] for row in part],
            [row["chunk_index"] for row in part],
        )
        yield [row["line"] for row in rows]


_OF_CHOSEN: Final = "d.bank = $1 and ($2::text[] is null or d.document_id = any($2))"


async def blobs(connection: Connection, chosen: Chosen) -> list[Mapping[str, Any]]:
    """{id, hash} of the files that documents refer to."""
    found: list[Mapping[str, Any]] = await connection.fetch(
        "select a.id, a.hash from attachments a where a.bank = $1 and exists (select from"
        f" document_attachments d where d.id = a.id and {_OF_CHOSEN}) order by a.id",
        *chosen.parameters,
    )
    return found


async def parts(connection: Connection, bank: int, id: str) -> AsyncIterator[bytes]:
    """The bytes of one of them."""
    part = 0
    while (
        data := await connection.fetchval(
            "select data from attachment_parts where bank = $1 and id = $2 and part = $3",
            bank,
            id,
            part,
        )
    ) is not None:
        yield data
        part += 1


async def attachments(connection: Connection, chosen: Chosen) -> AsyncIterator[list[Line]]:
    """Which document refers to which file, as what."""
    rows = (
        "select to_jsonb(d) - '{bank,id}'::text[] || jsonb_build_object('hash',"
        "  encode(a.hash, 'hex')) as line, 512 as size"
        f" from document_attachments d join attachments a using (bank, id) where {_OF_CHOSEN}"
        " order by d.document_id, d.id"
    )
    async for part in slices(connection, rows, *chosen.parameters):
        yield [row["line"] for row in part]


async def entities(connection: Connection, chosen: Chosen) -> AsyncIterator[list[Line]]:
    mentioned = (
        f" and exists (select from unit_entities u join memory_units m"
        f"  on m.bank = u.bank and m.id = u.unit_id where u.bank = $1 and u.entity_no = e.entity_no"
        f"  and {chosen.test('m')})"
    )
    keys = (
        "select entity_no, 512 + pg_column_size(metadata) as size from entities e"
        f" where bank = $1 and ($2::text[] is null or true){'' if chosen.whole else mentioned}"
        " order by entity_no"
    )
    async for part in slices(connection, keys, *chosen.parameters):
        rows = await connection.fetch(
            "select to_jsonb(e) - '{bank,entity_no,merged_into,version}'::text[] as line,"
            " (select s.id from entities s where s.bank = e.bank and s.entity_no = e.merged_into)"
            "  as survivor,"
            " array(select a.name_key from entity_aliases a where a.bank = e.bank"
            "  and a.entity_no = e.entity_no order by a.name_key) as aliases"
            " from entities e where bank = $1 and entity_no = any($2) order by entity_no",
            chosen.bank,
            [row["entity_no"] for row in part],
        )
        yield [
            {
                **row["line"],
                "aliases": row["aliases"],
                "merged_into": None if row["survivor"] is None else str(row["survivor"]),
            }
            for row in rows
        ]


async def cooccurrences(connection: Connection, chosen: Chosen) -> AsyncIterator[list[Line]]:
    if not chosen.whole:
        return
    rows = (
        "select x.id as a, y.id as b, count, last_cooccurred, 160 as size"
        " from entity_cooccurrences c"
        " join entities x on x.bank = c.bank and x.entity_no = c.a"
        " join entities y on y.bank = c.bank and y.entity_no = c.b"
        " where c.bank = $1 order by c.a, c.b"
    )
    async for part in slices(connection, rows, chosen.bank):
        yield [
            {"a": row["a"], "b": row["b"], "count": row["count"], "last": row["last_cooccurred"]}
            for row in part
        ]


async def memory_keys(
    connection: Connection, chosen: Chosen
) -> AsyncIterator[list[Mapping[str, Any]]]:
    """Runs of (id, ordinal), live ones first, by ordinal; then those that are invalidated."""
    keys = (
        "select id, ordinal, 1024 + octet_length(text) + coalesce(octet_length(context), 0)"
        " + coalesce(pg_column_size(metadata), 0) + 40 * cardinality(source_ids) as size"
        f" from memory_units m where {chosen.test('m')} order by ordinal nulls last, id"
    )
    async for part in slices(connection, keys, *chosen.parameters):
        yield part


async def memories(
    connection: Connection, chosen: Chosen, ids: Sequence[UUID], columns: Sequence[Place]
) -> list[Line]:
    """The lines of these memories. `columns`: the bank's segments of that kind, which know in which
    order a memory names its entities."""
    rows = await connection.fetch(
        "select to_jsonb(m) - '{bank,ordinal,chunk_id,invalidated_at,invalidation_reason}'::text[]"
        "  as line, m.id, m.ordinal, m.invalidated_at, m.invalidation_reason, c.chunk_index"
        " from memory_units m left join chunks c on c.bank = m.bank and c.chunk_id = m.chunk_id"
        " where m.bank = $1 and m.id = any($2) order by m.ordinal nulls last, m.id",
        chosen.bank,
        ids,
    )
    named = await _named(connection, chosen.bank, ids)
    orders = await _orders(
        connection, columns, [row["ordinal"] for row in rows if row["ordinal"] is not None]
    )
    links = await _links(connection, chosen, ids)
    past = await _past(connection, chosen.bank, ids) if chosen.observations else {}
    return await asyncio.to_thread(_assembled, chosen, rows, named, orders, links, past)


def _assembled(
    chosen: Chosen,
    rows: Sequence[Mapping[str, Any]],
    named: Mapping[UUID, Sequence[tuple[int, UUID, str]]],
    orders: Mapping[int, Sequence[int]],
    links: Mapping[UUID, list[Line]],
    past: Mapping[UUID, list[Line]],
) -> list[Line]:
    """Memories with what other tables say of them, as lines."""
    found = []
    for row in rows:
        id, line = row["id"], row["line"]
        if not chosen.observations:
            line = {k: v for k, v in line.items() if k not in _KEEP_MARKS}
        place = {number: i for i, number in enumerate(orders.get(row["ordinal"], ()))}
        own = sorted(named.get(id, ()), key=lambda each: place.get(each[0], len(place)))
        gone = {"at": row["invalidated_at"], "reason": row["invalidation_reason"]}
        found.append(
            {
                **line,
                "fact_type": FactType(line["fact_type"]).wire,
                "chunk_index": row["chunk_index"],
                "entities": [{"id": entity, "mention": mention} for _, entity, mention in own],
                "links": links.get(id, []),
                "history": past.get(id, []),
                "invalidated": gone if row["ordinal"] is None else None,
            }
        )
    return found


async def _named(
    connection: Connection, bank: int, ids: Sequence[UUID]
) -> dict[UUID, list[tuple[int, UUID, str]]]:
    found = defaultdict(list)
    for row in await connection.fetch(
        "select u.unit_id, u.entity_no, e.id, u.mention from unit_entities u"
        " join entities e on e.bank = u.bank and e.entity_no = u.entity_no"
        " where u.bank = $1 and u.unit_id = any($2) order by u.unit_id, u.entity_no",
        bank,
        ids,
    ):
        found[row["unit_id"]].append((row["entity_no"], row["id"], row["mention"]))
    return found


async def _orders(
    connection: Connection, columns: Sequence[Place], ordinals: Sequence[int]
) -> dict[int, list[int]]:
    """ordinal -> numbers of its entities, as the replicas have them."""
    found: dict[int, list[int]] = {}
    for place in columns:
        own = [ordinal for ordinal in ordinals if place.first <= ordinal < place.end]
        if not own:
            continue
        begin, end = own[0] - place.first, own[-1] - place.first + 1
        pointer = await place.rows(connection, "entity_ptr", begin, end + 1)
        entity = await place.rows(connection, "entity", int(pointer[0]), int(pointer[-1]))
        base = int(pointer[0])
        for ordinal in own:
            at = ordinal - place.first - begin
            found[ordinal] = entity[int(pointer[at]) - base : int(pointer[at + 1]) - base].tolist()
    return found


async def _links(
    connection: Connection, chosen: Chosen, ids: Sequence[UUID]
) -> dict[UUID, list[Line]]:
    """What these memories were said to lead to, as far as that travels too."""
    found = defaultdict(list)
    for row in await connection.fetch(
        "select l.from_id, l.to_id, l.type, l.weight, l.created_at from links l"
        f" join memory_units m on m.bank = l.bank and m.id = l.to_id and {chosen.test('m')}"
        " where l.bank = $1 and l.from_id = any($3) order by l.from_id, l.to_id, l.type",
        *chosen.parameters,
        ids,
    ):
        found[row["from_id"]].append(
            {
                "to": row["to_id"],
                "type": LinkType(row["type"]).wire,
                "weight": float(f"{row['weight']:.9g}"),
                "created_at": row["created_at"],
            }
        )
    return found


async def _past(connection: Connection, bank: int, ids: Sequence[UUID]) -> dict[UUID, list[Line]]:
    """Earlier states of observations, oldest first."""
    found = defaultdict(list)
    for row in await connection.fetch(
        "select observation_id, changed_at, content from observation_history"
        " where bank = $1 and observation_id = any($2) order by observation_id, changed_at",
        bank,
        ids,
    ):
        found[row["observation_id"]].append(
            {"changed_at": row["changed_at"], "content": row["content"]}
        )
    return found


async def document_history(connection: Connection, chosen: Chosen) -> AsyncIterator[list[Line]]:
    rows = (
        "select to_jsonb(h) - '{bank,place}'::text[] as line,"
        " 256 + coalesce(pg_column_size(observations), 0) as size from document_history h"
        " where bank = $1 and ($2::text[] is null or document_id = any($2))"
        " order by document_id, place"
    )
    async for part in slices(connection, rows, *chosen.parameters):
        yield [row["line"] for row in part]


async def mental_models(
    connection: Connection, bank: int, places: Ints
) -> AsyncIterator[list[Line]]:
    """`places`: ordinal -> place among the memories that travel, -1 for those that do not."""
    ids = await connection.fetch("select id from mental_models where bank = $1 order by id", bank)
    live = np.concatenate([[0], np.cumsum(places >= 0)])
    for (id,) in ids:
        row = await connection.fetchrow(
            "select to_jsonb(m) - '{bank,terms,vector,vector_set,watermark,parked_at}'::text[]"
            "  as line, watermark, parked_at,"
            " array(select memory_id from mental_model_citations c"
            "  where c.bank = m.bank and c.model_id = m.id order by memory_id) as citations"
            " from mental_models m where bank = $1 and id = $2",
            bank,
            id,
        )
        past = await connection.fetch(
            "select previous_content, changed_at from mental_model_history"
            " where bank = $1 and model_id = $2 order by entry",
            bank,
            id,
        )

        def place(ordinal: int | None) -> int | None:
            return None if ordinal is None else int(live[min(ordinal, len(live) - 1)])

        yield [
            {
                **row["line"],
                "watermark": place(row["watermark"]),
                "parked_at": place(row["parked_at"]),
                "citations": row["citations"],
                "history": [dict(each) for each in past],
            }
        ]


async def knowledge(connection: Connection, bank: int) -> AsyncIterator[list[Line]]:
    """Folders and pages, each behind the folder that it lies in."""
    rows = (
        "with recursive tree as ("
        " select n.*, 0 as depth from knowledge_nodes n where bank = $1 and parent_id is null"
        " union all select n.*, t.depth + 1 from knowledge_nodes n"
        "  join tree t on n.bank = $1 and n.parent_id = t.id)"
        " select to_jsonb(t) - '{bank,depth}'::text[] as line, 512 as size from tree t"
        " order by depth, id"
    )
    async for part in slices(connection, rows, bank):
        yield [row["line"] for row in part]


async def directives(connection: Connection, bank: int) -> AsyncIterator[list[Line]]:
    rows = (
        "select to_jsonb(d) - 'bank' as line, 512 + octet_length(content) as size"
        " from directives d where bank = $1 order by id"
    )
    async for part in slices(connection, rows, bank):
        yield [row["line"] for row in part]


async def by_key(
    connection: Connection, keys: str, rows: str, *parameters: Any
) -> AsyncIterator[list[Line]]:
    """The lines of `rows` for the keys that come first in `keys`, as many at a time as their sizes
    allow; `rows` has the keys as its last parameter, behind those of both."""
    async for part in slices(connection, keys, *parameters):
        these = [next(iter(row.values())) for row in part]
        found = await connection.fetch(rows, *parameters, these)
        yield [row["line"] for row in found]


async def ended_operations(connection: Connection, bank: int) -> AsyncIterator[list[Line]]:
    """Without what they were given: it may hold texts."""
    keys = (
        "select operation_id, 1024 + coalesce(pg_column_size(result_metadata), 0) as size"
        " from operations where bank = $1 and status in ('completed', 'failed', 'cancelled')"
        " order by place"
    )
    rows = (
        "select to_jsonb(o) - '{bank,payload,lease,leased_until,place,next_retry_at}'::text[]"
        " as line from operations o where bank = $1 and operation_id = any($2) order by place"
    )
    async for part in by_key(connection, keys, rows, bank):
        yield part


async def llm_requests(
    connection: Connection, tenant: str, bank_id: str
) -> AsyncIterator[list[Line]]:
    keys = (
        "select id, 1024 + coalesce(pg_column_size(input), 0) * 4"
        " + coalesce(octet_length(output), 0) as size from llm_requests"
        " where tenant_id = $1 and bank_id = $2 order by started_at, id"
    )
    rows = (
        "select to_jsonb(r) - '{tenant_id,bank_id}'::text[] as line from llm_requests r"
        " where tenant_id = $1 and bank_id = $2 and id = any($3) order by started_at, id"
    )
    async for part in by_key(connection, keys, rows, tenant, bank_id):
        yield part
