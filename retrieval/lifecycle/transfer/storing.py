"""The lines of an archive as rows of a bank that is being built.

The database converts and checks the values: what it does not take makes a bad archive, as does a
line that refers to something that the archive does not have. Numbers (of documents, entities and
tags, and ordinals) are given anew and dense, in the order of the lines, as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, Final
from uuid import UUID, uuid4

import numpy as np

from retrieval.errors import InvalidInput
from retrieval.ingest.attached import MEDIA_TYPE, filename
from retrieval.ingest.context import WriteContext
from retrieval.ingest.facts import Fact, Mention, Prepared
from retrieval.ingest.write import numbering, rows
from retrieval.ingest.write.enrich import Vectors, embedded
from retrieval.keyword.analyser import IndexedText
from retrieval.lifecycle.transfer import shapes
from retrieval.lifecycle.transfer.archive import ArchivePart, BadArchive
from retrieval.lifecycle.transfer.inserting import insert
from retrieval.lifecycle.transfer.lines import Line
from retrieval.lifecycle.transfer.unpacking import Unpacker
from retrieval.lifecycle.webhooks.vault import Vault
from retrieval.settings import RetainSettings
from retrieval.store import attachments
from retrieval.store.attachments import Attachment
from retrieval.store.database.pool import Connection
from retrieval.store.edge import micros, parse_time
from retrieval.store.segments import table as segments
from retrieval.store.segments.format import pack
from retrieval.types import FactType, LinkType

VERSION: Final = 1
"""The version that all rows of a built bank come with."""

_OWN: Final = ("entities", "links", "history", "invalidated", "chunk_index", "fact_type")
"""Fields of a memory's line that are no columns."""


@dataclass(frozen=True, slots=True)
class TargetBank:
    """The bank that is being built."""

    bank: int
    tenant: str
    bank_id: str
    settings: RetainSettings
    vault: Vault


async def store_documents(
    connection: Connection, target: TargetBank, lines: Sequence[Line]
) -> None:
    new: list[Line] = []
    number = await connection.fetchval(
        "select next_document from banks where bank = $1", target.bank
    )
    for line in lines:
        if "more_text" in line:
            await insert(connection, "documents", new)
            new = []
            await connection.execute(
                "update documents set original_text = coalesce(original_text, '') || $3"
                " where bank = $1 and document_id = $2",
                target.bank, _text(line["document_id"]), _text(line["more_text"]),
            )  # fmt: skip
            continue
        new.append({**line, "bank": target.bank, "document_no": number})
        number += 1
    await insert(connection, "documents", new)
    await connection.execute(
        "update banks set next_document = $2 where bank = $1", target.bank, number
    )


def chunk_id(target: TargetBank, document_id: object, index: object) -> str:
    return f"{target.bank_id}_{document_id}_{index}"


async def store_chunks(connection: Connection, target: TargetBank, lines: Sequence[Line]) -> None:
    await insert(
        connection,
        "chunks",
        [
            {
                **line,
                "bank": target.bank,
                "chunk_id": chunk_id(target, line["document_id"], line["chunk_index"]),
            }
            for line in lines
        ],
    )


async def store_blob(
    connection: Connection, target: TargetBank, part: ArchivePart, unpacker: Unpacker
) -> None:
    """A file, whose checksum was looked at; references follow in the same bank."""
    await attachments.store(connection, target.bank, blob(part, unpacker))


def blob(part: ArchivePart, unpacker: Unpacker) -> Attachment:
    return Attachment(
        "file", "application/octet-stream", bytes.fromhex(part.sha256), part.bytes, None,
        lambda: unpacker.whole(part.name, attachments.BYTES_MOST),
    )  # fmt: skip


def attachment(line: Line, held: Attachment) -> Attachment:
    """The file of a line that refers to it."""
    kind, media_type, name = line["kind"], line["media_type"], line.get("filename")
    if kind not in ("image", "file") or not MEDIA_TYPE.fullmatch(_text(media_type)):
        raise ValueError("a kind or a type")
    name = None if name is None else filename(_text(name))
    return replace(held, kind=kind, media_type=media_type, filename=name)


async def store_attachments(
    connection: Connection, target: TargetBank, lines: Sequence[Line]
) -> None:
    ids = [bytes.fromhex(line["hash"]).hex()[: attachments.ID_DIGITS] for line in lines]
    nothing = Attachment("file", "", b"", 0)
    made = []
    for id, line in zip(ids, lines, strict=True):
        one = attachment(line, nothing)
        made.append(
            {**line, "bank": target.bank, "id": id, "kind": one.kind,
             "media_type": one.media_type, "filename": one.filename}
        )  # fmt: skip
    await insert(connection, "document_attachments", made)


async def store_entities(connection: Connection, target: TargetBank, lines: Sequence[Line]) -> None:
    number = await connection.fetchval("select next_entity from banks where bank = $1", target.bank)
    made = [
        {**line, "bank": target.bank, "entity_no": number + i, "version": VERSION,
         "merged_into": None}
        for i, line in enumerate(lines)
    ]  # fmt: skip
    await insert(connection, "entities", made)
    aliases = [
        {"bank": target.bank, "name_key": key, "entity_no": line["entity_no"]}
        for line in made
        for key in line.get("aliases") or ()
    ]
    await insert(connection, "entity_aliases", aliases)
    await connection.execute(
        "update banks set next_entity = $2 where bank = $1", target.bank, number + len(lines)
    )


async def store_merges(connection: Connection, target: TargetBank, lines: Sequence[Line]) -> None:
    """Which entities are now others: after all of them are there."""
    merged = [(UUID(line["id"]), UUID(line["merged_into"])) for line in lines
              if line.get("merged_into")]  # fmt: skip
    if merged:
        await connection.execute(
            "update entities e set merged_into = s.entity_no"
            " from unnest($2::uuid[], $3::uuid[]) w(id, survivor)"
            " join entities s on s.bank = $1 and s.id = w.survivor"
            " where e.bank = $1 and e.id = w.id",
            target.bank,
            [id for id, _ in merged],
            [survivor for _, survivor in merged],
        )


async def _numbers(connection: Connection, bank: int, ids: Sequence[UUID]) -> dict[UUID, int]:
    found = {
        row["id"]: row["entity_no"]
        for row in await connection.fetch(
            "select id, entity_no from entities where bank = $1 and id = any($2)", bank, ids
        )
    }
    if len(found) < len(set(ids)):
        raise BadArchive("rows refer to entities that the archive does not have")
    return found


async def store_cooccurrences(
    connection: Connection, target: TargetBank, lines: Sequence[Line]
) -> None:
    pairs = [(UUID(line["a"]), UUID(line["b"])) for line in lines]
    numbers = await _numbers(connection, target.bank, [id for pair in pairs for id in pair])
    made = []
    for line, pair in zip(lines, pairs, strict=True):
        low, high = sorted(numbers[id] for id in pair)
        made.append(
            {"bank": target.bank, "a": low, "b": high, "count": line["count"],
             "last_cooccurred": line["last"]}
        )  # fmt: skip
    await insert(connection, "entity_cooccurrences", made)


# Memories


@dataclass(frozen=True, slots=True)
class MemoryBatch:
    """Memories with all that can be made of them before the bank is locked; `live` of them come
    first and have vectors and postings."""

    lines: Sequence[Line]
    facts: Sequence[Fact]
    live: int
    prepared: Prepared
    updated: Sequence[datetime]


def fact_of(line: Line) -> Fact:
    """The memory of a line, but for its references to others."""
    shapes.check("memory_units", line)
    tags = line.get("tags") or []
    text = _text(line["text"])
    if not text.strip() or not all(isinstance(tag, str) for tag in tags):
        raise ValueError("a text or a tag")
    return Fact(
        id=UUID(line["id"]),
        text=text,
        fact_type=FactType.of(line["fact_type"]),
        key=line.get("key"),
        context=line.get("context"),
        occurred_start=_time(line.get("occurred_start")),
        occurred_end=_time(line.get("occurred_end")),
        mentioned_at=_time(line.get("mentioned_at")),
        document_id=line.get("document_id"),
        position=int(line.get("position") or 0),
        tags=tuple(tags),
        metadata=line.get("metadata"),
        proof_count=line.get("proof_count"),
        sources=tuple(UUID(id) for id in line.get("source_ids") or ()),
        mentions=tuple(Mention(_text(each["mention"])) for each in line.get("entities") or ()),
        observation_scopes=line.get("observation_scopes"),
        created_at=_time(line["created_at"]),
        edited_at=_time(line.get("edited_at")),
        valid_from=_time(line.get("valid_from")),
        valid_until=_time(line.get("valid_until")),
        superseded_by=None if line.get("superseded_by") is None else UUID(line["superseded_by"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text")
    return value


def _time(value: Any) -> datetime | None:
    return None if value is None else parse_time(_text(value), "time")


def is_live(line: Line) -> bool:
    return line.get("invalidated") is None


async def prepare(
    deps: WriteContext, target: TargetBank, lines: Sequence[Line], vectors: Vectors | None
) -> MemoryBatch:
    """`vectors`: those of the live memories, where the archive has them; else they are made."""
    live = sum(map(is_live, lines))
    if any(map(is_live, lines[live:])):
        raise BadArchive("live memories do not come before those that are invalidated")
    facts, updated = await asyncio.to_thread(_facts, lines)
    documents = [
        IndexedText(fact.text, fact.context, line.get("text_signals"))
        for fact, line in zip(facts[:live], lines, strict=False)
    ]
    postings = await deps.run(_weigh, deps.analyser, target.settings, documents)
    if vectors is None:
        vectors = (
            await embedded(deps.embedder, facts[:live], target.tenant)
            if live
            else Vectors(np.empty((0, deps.embedder.dimension), np.float32), deps.vector_set)
        )
    tokens = np.fromiter((_count(line["token_count"]) for line in lines[:live]), np.int32, live)
    signals = [line.get("text_signals") for line in lines[:live]]
    version = deps.analyser(target.settings).version
    prepared = Prepared(
        facts[:live], vectors.rows, vectors.vector_set, postings, tokens, signals, version
    )
    return MemoryBatch(lines, facts, live, prepared, updated)


def _facts(lines: Sequence[Line]) -> tuple[list[Fact], list[datetime]]:
    return [fact_of(line) for line in lines], [
        parse_time(_text(line["updated_at"]), "updated_at") for line in lines
    ]


def _weigh(analyser: Any, settings: RetainSettings, documents: Sequence[IndexedText]) -> Any:
    return analyser(settings).weigh(documents)


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 24:
        raise ValueError("a count")
    return value


async def store_memories(connection: Connection, target: TargetBank, batch: MemoryBatch) -> None:
    """Rows, and a segment of each kind but links for the live ones."""
    bank, lines, facts, live = target.bank, batch.lines, batch.facts, batch.live
    first = await connection.fetchval("select next_ordinal from banks where bank = $1", bank)
    documents = list(dict.fromkeys(f.document_id for f in facts if f.document_id is not None))
    numbers = await numbering.document_numbers(connection, bank, documents) if documents else {}
    tags = await numbering.tag_numbers(connection, bank, facts, VERSION)
    mentioned = [[(UUID(each["id"]), each["mention"]) for each in line.get("entities") or ()]
                 for line in lines]  # fmt: skip
    known = await _numbers(connection, bank, [id for own in mentioned for id, _ in own])
    named = [[(known[id], mention) for id, mention in own] for own in mentioned]
    made = [_row(target, line, first + i if i < live else None) for i, line in enumerate(lines)]
    await insert(connection, "memory_units", made)
    await rows.copy_entities(connection, bank, facts, named)
    past = [
        {**state, "bank": bank, "observation_id": line["id"]}
        for line in lines
        for state in line.get("history") or ()
    ]
    await insert(connection, "observation_history", past)
    if not live:
        return
    arrays = await asyncio.to_thread(
        rows.columns, facts[:live], batch.prepared, numbers, tags, named[:live], batch.updated[0]
    )
    arrays["updated_at"] = np.fromiter(map(micros, batch.updated[:live]), np.int64, live)
    for kind, content in (
        ("columns", arrays),
        (f"vectors:{batch.prepared.vector_set}", {"vectors": batch.prepared.vectors}),
        (f"postings:{batch.prepared.analyser}", batch.prepared.postings),
    ):
        packed = await asyncio.to_thread(pack, content)
        await segments.append(connection, bank, kind, first, live, VERSION, packed)
    await connection.execute(
        "update banks set next_ordinal = $2 where bank = $1", bank, first + live
    )


def _row(target: TargetBank, line: Line, ordinal: int | None) -> Line:
    gone = line.get("invalidated") or {}
    index = line.get("chunk_index")
    return {
        **{name: value for name, value in line.items() if name not in _OWN},
        "bank": target.bank,
        "ordinal": ordinal,
        "fact_type": int(FactType.of(line["fact_type"])),
        "chunk_id": None if index is None else chunk_id(target, line.get("document_id"), index),
        "invalidated_at": gone.get("at"),
        "invalidation_reason": gone.get("reason"),
    }


@cache
def _link_types() -> Mapping[str, LinkType]:
    return {kind.wire: kind for kind in LinkType}


async def store_links(connection: Connection, target: TargetBank, lines: Sequence[Line]) -> None:
    """What memories were said to lead to: after all of them are there."""
    made = [
        {
            "bank": target.bank,
            "from_id": line["id"],
            "to_id": link["to"],
            "type": int(_link_types()[link["type"]]),
            "weight": link["weight"],
            "created_at": link.get("created_at") or line["created_at"],
        }
        for line in lines
        for link in line.get("links") or ()
    ]
    await insert(connection, "links", made)


# What is kept beside the memories


async def store_document_history(
    connection: Connection, target: TargetBank, lines: Sequence[Line]
) -> None:
    made = [{**line, "bank": target.bank} for line in lines]
    await insert(connection, "document_history", made)


async def store_mental_models(
    connection: Connection, target: TargetBank, lines: Sequence[Line]
) -> None:
    most: int = await connection.fetchval(
        "select next_ordinal from banks where bank = $1", target.bank
    )
    made = []
    for line in lines:
        parked = line.get("parked_at")
        made.append(
            {
                **line,
                "bank": target.bank,
                "watermark": min(int(line.get("watermark") or 0), most),
                "parked_at": None if parked is None else min(int(parked), most),
                "vector_set": "",
                "terms": None,
                "vector": None,
            }
        )
    await insert(connection, "mental_models", made)
    for table, field, name in (
        ("mental_model_citations", "citations", "memory_id"),
        ("mental_model_history", "history", ""),
    ):
        own: list[Line] = []
        for line in lines:
            for each in line.get(field) or ():
                content = {name: each} if name else each
                own.append({**content, "bank": target.bank, "model_id": line["id"]})
        await insert(connection, table, own)


async def store_knowledge(
    connection: Connection, target: TargetBank, lines: Sequence[Line]
) -> None:
    await insert(connection, "knowledge_nodes", [{**line, "bank": target.bank} for line in lines])


async def store_directives(
    connection: Connection, target: TargetBank, lines: Sequence[Line]
) -> None:
    await insert(connection, "directives", [{**line, "bank": target.bank} for line in lines])


async def store_operations(
    connection: Connection, target: TargetBank, lines: Sequence[Line]
) -> None:
    if any(line.get("status") not in ("completed", "failed", "cancelled") for line in lines):
        raise BadArchive("an operation in the archive has not ended")
    # The names of what builds banks are left to those that run here.
    made = [{**line, "bank": target.bank, "payload": {}} for line in lines]
    await insert(connection, "operations", made)


async def store_llm_requests(
    connection: Connection, target: TargetBank, lines: Sequence[Line]
) -> None:
    own = {"tenant_id": target.tenant, "bank_id": target.bank_id}
    await insert(
        connection, "llm_requests", [{**line, **own, "id": str(uuid4())} for line in lines]
    )


async def store_edges(
    connection: Connection, target: TargetBank, edges: Any, first: int, end: int
) -> None:
    """The links segment of ordinals [first, end), whose edges reach no further."""
    arrays = {name: np.ascontiguousarray(edges[name]) for name in edges.dtype.names}
    packed = await asyncio.to_thread(pack, arrays)
    await segments.append(connection, target.bank, "links", first, end - first, VERSION, packed)


def checked_config(config: Any) -> Mapping[str, Any]:
    """A bank's overrides, as far as this program knows them and takes their values."""
    from retrieval.store import bankconfig

    if config is None:
        return {}
    if not isinstance(config, Mapping):
        raise BadArchive("the settings of the bank are no object")
    known = {k: v for k, v in config.items() if k in bankconfig.names() and v is not None}
    try:
        found = bankconfig.checked(known)
        bankconfig.agree(found)
    except InvalidInput as error:
        raise BadArchive(f"a setting of the bank cannot be kept: {error}") from None
    return found
