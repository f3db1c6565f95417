"""What an erasure is about: the memories that satisfy every selector."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from retrieval.store.database.pool import Connection
from retrieval.store.edge import as_uuid
from retrieval.store.tags import condition
from retrieval.text.language import fold

_PAGE = 1_000
_TEXTS = 4
"""Whole documents that are in memory at once."""
_PIECE, _BACK = 5_000, 500
"""Characters that are folded in one go, which keeps the interpreter for some milliseconds; and how
far before its end a piece may be cut at white space."""
_JOINS = ("Mn", "Mc", "Me", "Cf")


@dataclass(frozen=True, slots=True)
class Selectors:
    """All that are given must hold. Tags never match what has none. `text_contains` is looked for
    in whatever is stored of a memory, the chunk that it was made from included; case, accents and
    the like make no difference. `invalidated_before`: memories invalidated until then."""

    document_ids: Sequence[str] = ()
    memory_ids: Sequence[str] = ()
    tags: Sequence[str] = ()
    tags_match: str = "any_strict"
    entity_ids: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    text_contains: str | None = None
    invalidated_before: str | None = None

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Selectors:
        return cls(**{one.name: payload[one.name] for one in fields(cls) if one.name in payload})

    def wire(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def only(self, name: str) -> bool:
        """Is this the one that is given?"""
        names = [one.name for one in fields(self) if one.name != "tags_match"]
        return [one for one in names if getattr(self, one)] == [name]


@dataclass(frozen=True, slots=True)
class Selection:
    """`documents` go as a whole; `entities` (numbers) go although nothing mentions them any more;
    `chunks`: (document id, chunk id) of texts without a memory."""

    memories: Sequence[UUID]
    documents: Sequence[str] = ()
    entities: Sequence[int] = ()
    chunks: Sequence[tuple[str, str]] = ()
    texts: Sequence[str] = ()
    """Documents whose whole text says it, in a chunk or across two."""
    models: Sequence[str] = ()
    directives: Sequence[UUID] = ()
    files: Sequence[tuple[str, str]] = ()
    """(document id, id) of attachments whose name or content, as far as it is text, says it."""
    nodes: Sequence[str] = ()
    """Folders and pages that are named so."""
    operations: Sequence[UUID] = ()
    """Ended ones whose account says it."""
    own: Sequence[str] = ()
    """What of the bank itself says it, and stays: who set it may change it."""


async def select(connection: Connection, bank: int, wanted: Selectors) -> Selection:
    """The memories, and where one selector stands alone what else it means. InvalidInput for an id
    that is none."""
    memories = await _memories(connection, bank, wanted)
    if wanted.only("document_ids"):
        rows = await connection.fetch(
            "select document_id from documents where bank = $1 and document_id = any($2)",
            bank,
            list(wanted.document_ids),
        )
        return Selection(memories, [row["document_id"] for row in rows])
    if wanted.only("entity_ids"):
        rows = await connection.fetch(
            "select coalesce(merged_into, entity_no) as no from entities"
            " where bank = $1 and id = any($2)",
            bank,
            [as_uuid(id, "entity_ids") for id in wanted.entity_ids],
        )
        return Selection(memories, entities=sorted({row["no"] for row in rows}))
    if wanted.only("text_contains"):
        return await _saying(connection, bank, folded_key(wanted.text_contains or ""), memories)
    return Selection(memories)


async def _memories(connection: Connection, bank: int, wanted: Selectors) -> list[UUID]:
    values: list[Any] = [bank]

    def bind(value: Any) -> str:
        values.append(value)
        return f"${len(values)}"

    tests = ["m.bank = $1"]
    if wanted.document_ids:
        tests.append(f"m.document_id = any({bind(list(wanted.document_ids))}::text[])")
    if wanted.memory_ids:
        ids = [as_uuid(id, "memory_ids") for id in wanted.memory_ids]
        tests.append(f"m.id = any({bind(ids)}::uuid[])")
    if wanted.tags:
        match = {"any": "any_strict", "all": "all_strict"}.get(wanted.tags_match, wanted.tags_match)
        tests.append(condition("m.tags", wanted.tags, match, bind) or "true")
    if wanted.entity_ids:
        ids = [as_uuid(id, "entity_ids") for id in wanted.entity_ids]
        tests.append(
            "m.id in (select u.unit_id from unit_entities u join entities e on e.bank = u.bank"
            " and coalesce(e.merged_into, e.entity_no) = u.entity_no"
            f" where u.bank = $1 and e.id = any({bind(ids)}::uuid[]))"
        )
    if wanted.metadata:
        tests.append(f"m.metadata @> {bind(dict(wanted.metadata))}::jsonb")
    if wanted.invalidated_before is not None:
        time = bind(datetime.fromisoformat(wanted.invalidated_before))
        tests.append(f"m.ordinal is null and m.invalidated_at < {time}::timestamptz")
    where = " and ".join(tests)
    if not wanted.text_contains:
        rows = await connection.fetch(
            f"select m.id from memory_units m where {where} order by m.id", *values
        )
        return [row["id"] for row in rows]
    return await _containing(connection, where, values, folded_key(wanted.text_contains))


async def _containing(
    connection: Connection, where: str, values: Sequence[Any], key: str
) -> list[UUID]:
    found: list[UUID] = []
    after = UUID(int=0)
    while True:
        rows = await connection.fetch(
            "select m.id, m.text, m.context, m.text_signals, m.metadata, m.tags, m.key,"
            " m.document_id, c.chunk_text, array(select u.mention from unit_entities u"
            "  where u.bank = m.bank and u.unit_id = m.id) as mentions,"
            " array(select e.canonical_name from unit_entities u join entities e on"
            "  e.bank = u.bank and e.entity_no = u.entity_no"
            "  where u.bank = m.bank and u.unit_id = m.id) as names"
            " from memory_units m left join chunks c on c.bank = m.bank"
            "  and c.document_id = m.document_id and c.chunk_id = m.chunk_id"
            f" where {where} and m.id > ${len(values) + 1} order by m.id limit {_PAGE}",
            *values,
            after,
        )
        found += await asyncio.to_thread(_ids_saying, rows, key)
        if len(rows) < _PAGE:
            return found
        after = rows[-1]["id"]


def _ids_saying(rows: Sequence[Mapping[str, Any]], key: str) -> list[UUID]:
    return [row["id"] for row in rows if _says(key, [v for k, v in row.items() if k != "id"])]


async def _saying(
    connection: Connection, bank: int, key: str, memories: Sequence[UUID]
) -> Selection:
    """What else says it: documents by their names and labels, chunks without memories, models,
    directives, entities."""
    documents = await _rows_saying(
        connection, key,
        "select document_id, metadata, retain_params, tags, document_id as name from documents"
        " where bank = $1", bank,
    )  # fmt: skip
    more = await connection.fetch(
        "select id from memory_units where bank = $1 and document_id = any($2)", bank, documents
    )
    chunks = await _rows_saying(
        connection, key,
        "select (c.document_id, c.chunk_id) as place, c.chunk_text from chunks c where c.bank = $1"
        " and not exists (select from memory_units m where m.bank = c.bank"
        "  and m.document_id = c.document_id and m.chunk_id = c.chunk_id)", bank,
    )  # fmt: skip
    texts = await _rows_saying(
        connection, key,
        "select document_id, original_text from documents where bank = $1", bank, _TEXTS,
    )  # fmt: skip
    models = await _rows_saying(
        connection, key,
        "select id, id as name_of, name, source_query, tags, trigger from mental_models"
        " where bank = $1", bank,
    )  # fmt: skip
    directives = await _rows_saying(
        connection, key,
        "select id, name, content, tags from directives where bank = $1", bank,
    )  # fmt: skip
    nodes = await _rows_saying(
        connection, key, "select id, name from knowledge_nodes where bank = $1", bank
    )
    operations = await _rows_saying(
        connection, key,
        "select operation_id, error_message, result_metadata, progress, document_id"
        " from operations where bank = $1 and status in ('completed', 'failed', 'cancelled')", bank,
    )  # fmt: skip
    entities = await _rows_saying(
        connection, key,
        "select entity_no, canonical_name, metadata from entities where bank = $1", bank,
    )  # fmt: skip
    return Selection(
        sorted({*memories, *(row["id"] for row in more)}),
        documents,
        entities,
        [(document, chunk) for document, chunk in chunks],
        texts,
        models,
        directives,
        await _files(connection, bank, key),
        nodes,
        operations,
        await _own(connection, bank, key),
    )


async def _own(connection: Connection, bank: int, key: str) -> list[str]:
    row = await connection.fetchrow(
        "select bank_id, name, mission, disposition, config,"
        " array(select alias from bank_aliases a where a.bank = b.bank) as aliases"
        " from banks b where bank = $1",
        bank,
    )
    return [name for name, value in row.items() if _says(key, value)]


async def _files(connection: Connection, bank: int, key: str) -> list[tuple[str, str]]:
    rows = await connection.fetch(
        "select document_id, id, filename from document_attachments where bank = $1"
        " order by document_id, id",
        bank,
    )
    saying: dict[str, bool] = {}
    for id in {row["id"] for row in rows}:
        parts = await connection.fetch(
            "select data from attachment_parts where bank = $1 and id = $2 order by part", bank, id
        )
        data = b"".join(row["data"] for row in parts)
        saying[id] = await asyncio.to_thread(_says, key, [data.decode(errors="ignore")])
    return [
        (row["document_id"], row["id"])
        for row in rows
        if saying[row["id"]] or _says(key, row["filename"])
    ]


async def still_saying(
    connection: Connection, bank: int, wanted: Selectors, documents: Sequence[str]
) -> list[str]:
    """Which of the documents say it in the text that is left of them."""
    return await _rows_saying(
        connection,
        folded_key(wanted.text_contains or ""),
        "select document_id, original_text from documents"
        " where bank = $1 and document_id = any($2)",
        bank,
        _TEXTS,
        list(documents),
    )


async def _rows_saying(
    connection: Connection, key: str, statement: str, bank: int, page: int = _PAGE, *more: Any
) -> list[Any]:
    """The first column of the rows that say it in another, a page of them in memory at a time."""
    found: list[Any] = []
    cursor = await connection.cursor(statement, bank, *more)
    while rows := await cursor.fetch(page):
        found += await asyncio.to_thread(_first_of_saying, rows, key)
    return found


def _first_of_saying(rows: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    return [next(iter(row.values())) for row in rows if _says(key, list(row.values())[1:])]


def _says(key: str, values: Any) -> bool:
    """Is the key in one of the texts inside?"""
    if isinstance(values, str):
        return text_says(key, values)
    if isinstance(values, Mapping):
        return any(_says(key, one) for pair in values.items() for one in pair)
    if isinstance(values, list | tuple):
        return any(_says(key, one) for one in values)
    return False


def text_says(key: str, text: str) -> bool:
    end, gap = "", False
    for spaced, piece in _pieces(text):
        folded, gap = folded_key(piece), gap or spaced
        if folded:
            seen = end + " " * gap + folded
            if key in seen:
                return True
            end, gap = seen[-len(key) :], False
    return False


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    """(whether white space stands before it, piece). Cut at white space, or else where no sign is
    that belongs to the one before it."""
    start, spaced = 0, False
    while len(text) - start > _PIECE:
        end = start + _PIECE
        end = next((at for at in range(end, end - _BACK, -1) if text[at].isspace()), end)
        while end < len(text) and unicodedata.category(text[end]) in _JOINS:
            end += 1
        yield spaced, text[start:end]
        start, spaced = end, text[end : end + 1].isspace()
    yield spaced, text[start:]


def folded_key(text: str) -> str:
    return " ".join(fold(text).split())
