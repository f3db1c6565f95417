"""Writing a document: its row, its chunks, and what becomes of the memories it had."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from retrieval.ingest.documents.anchoring import Known
from retrieval.ingest.documents.planning import Before, DocumentPlan
from retrieval.ingest.extract.section import ContentSection
from retrieval.ingest.facts import Fact, Link
from retrieval.ingest.write import stored as stored_facts
from retrieval.ingest.write.numbering import document_numbers
from retrieval.ingest.write.stored import StoredMemory
from retrieval.ingest.write.transaction import Change
from retrieval.settings import RetainSettings
from retrieval.store import attachments
from retrieval.store.database.copying import copy, execute_many
from retrieval.store.database.pool import Connection

CHUNK_ROOM: Final = 4096
"""Room for positions: the facts of a chunk lie so far from those of the next, at first."""

_POSITION_MOST: Final = 1 << 30

_DOCUMENTS_AT_ONCE: Final = 100
"""Documents whose facts get their places in one pass of the event loop."""


@dataclass(frozen=True, slots=True)
class DocumentFacts:
    """The new facts of one document; `pieces`: the number of the chunk that each comes from.

    relabelled: stored memories that are rewritten, and what they become. removed: how many
    facts the document lost.
    """

    facts: Sequence[Fact]
    links: Sequence[Link]
    pieces: Sequence[int]
    relabelled: Sequence[tuple[StoredMemory, Fact]] = ()
    removed: int = 0


async def known(
    connection: Connection,
    bank: int,
    ids: Sequence[str],
    with_text: Collection[str] = (),
    *,
    texts: bool = False,
) -> dict[str, Before]:
    """Those of the documents that are stored: their chunks, with `texts` the texts of those, and
    the whole text of the documents `with_text`."""
    documents = await connection.fetch(
        "select document_id, content_hash, updated_at,"
        " case when document_id = any($3) then original_text end as text"
        " from documents where bank = $1 and document_id = any($2)",
        bank,
        list(ids),
        list(with_text),
    )
    if not documents:
        return {}
    rows = await connection.fetch(
        "select document_id, chunk_index, content_hash, mentioned_at,"
        " case when $3 then chunk_text else '' end as chunk_text from chunks"
        " where bank = $1 and document_id = any($2) order by document_id, chunk_index",
        bank,
        [row["document_id"] for row in documents],
        texts,
    )
    chunks: dict[str, list[Known]] = {row["document_id"]: [] for row in documents}
    mentioned: dict[str, dict[int, Any]] = {row["document_id"]: {} for row in documents}
    for id, index, hash, time, text in rows:
        chunks[id].append(Known(index, text, hash))
        mentioned[id][index] = time
    return {
        row["document_id"]: Before(
            row["content_hash"],
            row["text"],
            chunks[row["document_id"]],
            mentioned[row["document_id"]],
            row["updated_at"],
        )
        for row in documents
    }


def chunk_id(bank_id: str, document_id: str, index: int) -> str:
    return f"{bank_id}_{document_id}_{index}"


async def write_documents(
    change: Change,
    bank_id: str,
    plans: Sequence[DocumentPlan],
    new: Sequence[DocumentFacts],
    settings: RetainSettings,
    operation: UUID | None = None,
) -> list[DocumentFacts]:
    """Brings rows and chunks of the documents to what is planned, ends the memories of chunks that
    went, and gives the new facts their positions.

    Chunks that stay keep their memories; those that are labelled otherwise now, or have to make
    room, are returned as `relabelled`. `operation`: whose files are attached.
    """
    connection, bank = change.connection, change.bank
    change.touch()
    await document_numbers(connection, bank, [plan.document_id for plan in plans])
    await _rows(connection, bank, plans, settings)
    for plan in plans:
        await attachments.keep(connection, bank, plan.document_id, plan.attached, operation)
        if plan.replaces and plan.before:
            given = [one.id for one in plan.attached]
            await attachments.let_go(connection, bank, plan.document_id, [plan.text], given)
    removed = await _remove(change, bank_id, [plan for plan in plans if plan.before])
    for plan in plans:
        if plan.before:
            await _renumber(connection, bank, bank_id, plan)
    await _chunks(connection, bank, bank_id, plans, settings.store_document_text)
    done = []
    for number, (plan, each) in enumerate(zip(plans, new, strict=True)):
        if number % _DOCUMENTS_AT_ONCE == 0:  # new ones wait for nothing
            await asyncio.sleep(0)
        positions, moved = await _positions(connection, bank, bank_id, plan, each)
        many = len(each.facts) > _DOCUMENTS_AT_ONCE
        placing = (each.facts, positions)
        facts = await asyncio.to_thread(_placed, *placing) if many else _placed(*placing)
        done.append(
            replace(
                each,
                facts=facts,
                relabelled=await _relabelled(change, bank_id, plan, moved),
                removed=removed[plan.document_id],
            )
        )
    return done


async def _rows(
    connection: Connection, bank: int, plans: Sequence[DocumentPlan], settings: RetainSettings
) -> None:
    await execute_many(
        connection,
        "update documents set original_text = $3, content_hash = $4, tags = $5, metadata = $6,"
        " retain_params = $7, observation_scopes = $8, updated_at = now()"
        " where bank = $1 and document_id = $2",
        (
            (
                bank,
                plan.document_id,
                plan.text if settings.store_document_text else None,
                plan.content_hash,
                plan.tags,
                plan.last.section.metadata or {},
                plan.params,
                plan.last.section.observation_scopes,
            )
            for plan in plans
        ),
    )


async def _remove(change: Change, bank_id: str, plans: Sequence[DocumentPlan]) -> Counter[str]:
    """Ends the memories of chunks that go; in a replace also those that came without a chunk.

    How many facts each document lost.
    """
    if not plans:
        return Counter()
    kept = [chunk_id(bank_id, plan.document_id, index) for plan in plans for index in plan.kept]
    ids = [plan.document_id for plan in plans]
    rows = await change.connection.fetch(
        "select id, document_id from memory_units where bank = $1 and document_id = any($2)"
        " and case when chunk_id is null then document_id = any($4) else chunk_id <> all($3) end",
        change.bank,
        ids,
        kept,
        [plan.document_id for plan in plans if plan.replaces],
    )
    await change.remove([row["id"] for row in rows])
    await change.connection.execute(
        "delete from chunks where bank = $1 and document_id = any($2) and chunk_id <> all($3)",
        change.bank,
        ids,
        kept,
    )
    return Counter(row["document_id"] for row in rows)


async def _renumber(connection: Connection, bank: int, bank_id: str, plan: DocumentPlan) -> None:
    """Chunks that stay get their new numbers; their memories follow, with the ids they have."""
    moved = {old: new for old, new in plan.kept.items() if old != new}
    if not moved:
        return
    # In two steps: a number is free only when the chunk that had it has left.
    await connection.execute(
        "update chunks set chunk_index = -1 - chunk_index, chunk_id = chunk_id || '#'"
        " where bank = $1 and document_id = $2 and chunk_index = any($3)",
        bank,
        plan.document_id,
        list(moved),
    )
    await connection.execute(
        "update chunks c set chunk_index = w.new, chunk_id = w.id"
        " from unnest($3::int[], $4::int[], $5::text[]) w(old, new, id)"
        " where c.bank = $1 and c.document_id = $2 and c.chunk_index = -1 - w.old",
        bank,
        plan.document_id,
        list(moved),
        list(moved.values()),
        [chunk_id(bank_id, plan.document_id, new) for new in moved.values()],
    )
    await connection.execute(
        "update memory_units m set chunk_id = w.new from unnest($3::text[], $4::text[]) w(old, new)"
        " where m.bank = $1 and m.document_id = $2 and m.chunk_id = w.old",
        bank,
        plan.document_id,
        [chunk_id(bank_id, plan.document_id, old) for old in moved],
        [chunk_id(bank_id, plan.document_id, new) for new in moved.values()],
    )


async def _chunks(
    connection: Connection, bank: int, bank_id: str, plans: Sequence[DocumentPlan], keeps_text: bool
) -> None:
    await copy(
        connection,
        "chunks",
        (
            "bank", "chunk_id", "document_id", "chunk_index", "chunk_text", "content_hash",
            "mentioned_at",
        ),
        (
            (
                bank,
                chunk_id(bank_id, plan.document_id, index),
                plan.document_id,
                index,
                piece.text if keeps_text else "",
                piece.hash,
                piece.section.timestamp,
            )
            for plan in plans
            for index, piece in enumerate(plan.pieces)
            if piece.known is None
        ),
    )  # fmt: skip
    if keeps_text:
        await execute_many(
            connection,
            "update chunks set chunk_text = $4"
            " where bank = $1 and document_id = $2 and chunk_index = $3",
            (
                (bank, plan.document_id, index, piece.text)
                for plan in plans
                for index, piece in enumerate(plan.pieces)
                if not piece.same
            ),
        )


# Places inside the document


def _placed(facts: Sequence[Fact], positions: Sequence[int]) -> list[Fact]:
    return [replace(fact, position=at) for fact, at in zip(facts, positions, strict=True)]


async def _positions(
    connection: Connection, bank: int, bank_id: str, plan: DocumentPlan, new: DocumentFacts
) -> tuple[list[int], dict[str, int]]:
    """Positions of the new facts, in their order, and what has to be added to those of kept chunks
    (by chunk id), which is nothing as long as there is room between them."""
    if not new.pieces:
        return [], {}
    counts = [0] * len(plan.pieces)
    for piece in new.pieces:
        counts[piece] += 1
    held: dict[str, tuple[int, int]] = {}
    if plan.before:
        rows = await connection.fetch(
            "select chunk_id, min(position), max(position) from memory_units"
            " where bank = $1 and document_id = $2 group by chunk_id",
            bank,
            plan.document_id,
        )
        held = {row[0]: (row[1], row[2]) for row in rows}
    ids = [chunk_id(bank_id, plan.document_id, index) for index in range(len(plan.pieces))]
    kept = [
        held.get(id) if piece.known is not None else None
        for id, piece in zip(ids, plan.pieces, strict=True)
    ]
    last = max((high for _, high in held.values()), default=-1)
    bases = _bases(counts, kept, last)
    moved: dict[str, int] = {}
    if bases is None:  # no room: all chunks get new places
        bases = [index * CHUNK_ROOM for index in range(len(counts))]
        moved = {
            id: base - span[0]
            for id, span, base in zip(ids, kept, bases, strict=True)
            if span is not None and base != span[0]
        }
    seen = [0] * len(counts)
    positions = []
    for piece in new.pieces:
        positions.append(bases[piece] + min(seen[piece], CHUNK_ROOM - 1))
        seen[piece] += 1
    return positions, moved


def _bases(
    counts: Sequence[int], kept: Sequence[tuple[int, int] | None], last: int
) -> list[int] | None:
    """The first position of each chunk's new facts; None where there is not enough room.

    counts: how many new facts each chunk has. kept: the positions that chunks have already, lowest
    and highest. last: the highest position in the document.
    """
    bases = [0] * len(counts)
    left: int | None = None
    run: list[int] = []
    for index, span in enumerate([*kept, None]):
        ends = index == len(counts)
        if not ends and span is None:
            if counts[index]:
                run.append(index)
            continue
        if run:
            placed = _run([counts[i] for i in run], left, None if span is None else span[0], last)
            if placed is None:
                return None
            for i, base in zip(run, placed, strict=True):
                bases[i] = base
            run = []
        if span is not None:
            left = span[1]
    return bases


def _run(counts: Sequence[int], left: int | None, right: int | None, last: int) -> list[int] | None:
    """Places for neighbouring new chunks between positions that are taken, or None."""
    if right is None:
        first = (max(last, -1) // CHUNK_ROOM + 1) * CHUNK_ROOM
        found = [first + i * CHUNK_ROOM for i in range(len(counts))]
    elif left is None:
        first = (right // CHUNK_ROOM - len(counts)) * CHUNK_ROOM
        found = [first + i * CHUNK_ROOM for i in range(len(counts))]
    else:
        step = (right - left - 1) // len(counts)
        if step < min(max(counts), CHUNK_ROOM):
            return None
        found = [left + 1 + (step - min(most, step)) // 2 + i * step
                 for i, most in enumerate(counts)]  # fmt: skip
    return found if all(abs(base) < _POSITION_MOST for base in found) else None


# Labels


async def _relabelled(
    change: Change, bank_id: str, plan: DocumentPlan, moved: Mapping[str, int]
) -> list[tuple[StoredMemory, Fact]]:
    """Live memories of kept chunks that the items label otherwise now, or whose place changes."""
    sections: dict[str, ContentSection] = {}
    groups: dict[int, tuple[ContentSection, list[str]]] = {}
    for index, piece in enumerate(plan.pieces):
        if piece.known is not None:
            chunk = chunk_id(bank_id, plan.document_id, index)
            sections[chunk] = piece.section
            groups.setdefault(id(piece.section), (piece.section, []))[1].append(chunk)
    ids = []
    for section, chunks in groups.values():
        rows = await change.connection.fetch(
            "select id from memory_units where bank = $1 and document_id = $2"
            " and chunk_id = any($3) and ordinal is not null"
            " and (chunk_id = any($8) or tags is distinct from $4 or metadata is distinct from $5"
            "  or context is distinct from $6 or observation_scopes is distinct from $7)"
            " order by ordinal",
            change.bank,
            plan.document_id,
            chunks,
            section.tags,
            section.metadata,
            section.context,
            section.observation_scopes,
            list(moved),
        )
        ids += [row["id"] for row in rows]
    found = []
    for memory in await stored_facts.load(change.connection, change.bank, ids):
        chunk = memory.fact.chunk_id or ""
        section = sections[chunk]
        fact = replace(
            memory.fact,
            tags=section.tags,
            metadata=section.metadata,
            context=section.context,
            observation_scopes=section.observation_scopes,
            position=(memory.fact.position or 0) + moved.get(chunk, 0),
        )
        if fact != memory.fact:
            found.append((memory, fact))
    await change.remove_derived([m.fact.id for m, fact in found if m.fact.tags != fact.tags])
    return found
