"""Retaining content: documents are cut into chunks, chunks become facts, facts are written.

A document is known by its id. Sent again it is compared chunk by chunk: chunks that stand
unchanged at their place keep their memories, the others are extracted anew. `append` puts new
content behind the stored text. All items of a call are stored or none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import orjson

from retrieval.errors import Conflict, InvalidInput
from retrieval.ingest import stored as stored_facts
from retrieval.ingest.augment import prepare, together
from retrieval.ingest.chunking import chunk
from retrieval.ingest.deps import IngestDeps
from retrieval.ingest.extract.by_model import Chunk, Job
from retrieval.ingest.extract.section import Section
from retrieval.ingest.extraction import Extraction
from retrieval.ingest.facts import ExtractedFact, Fact, Link, new_ids
from retrieval.ingest.importing import settings_of
from retrieval.ingest.items import Item, parse
from retrieval.ingest.numbering import document_numbers
from retrieval.ingest.stored import Stored
from retrieval.ingest.writing import Change, write
from retrieval.settings import RetainSettings
from retrieval.store import banks
from retrieval.store.edge import iso
from retrieval.store.pool import Connection, read

FACTS_PER_CHUNK = 4096
"""Room for positions: fact j of chunk i has position i * FACTS_PER_CHUNK + j."""

_ATTEMPTS = 5


class _Stale(Exception):
    """A document changed between reading it and locking the bank."""


@dataclass(frozen=True, slots=True)
class Anew:
    """Tells a retain to make all memories of a document anew, changed or not.

    `sections`, by chunk index, are what is known of chunks that stand unchanged at their place;
    `updated_at` is the state of the document that they were read from.
    """

    updated_at: datetime
    sections: Mapping[int, Section]


async def retain(
    deps: IngestDeps,
    tenant: str,
    bank_id: str,
    items: Sequence[Mapping[str, Any]],
    *,
    document_tags: Sequence[str] | None = None,
    now: datetime | None = None,
    also: Callable[[Connection], Awaitable[None]] | None = None,
    anew: Anew | None = None,
) -> dict[str, int]:
    """Stores the items and returns the tokens that extraction cost.

    The bank is made if there is none. InvalidInput names the item and the field; then nothing
    has changed. `now` is the time of items without one. `also` runs inside the same transaction.
    With `anew`, Conflict if the document was changed since.
    """
    banks.check_id(bank_id)
    checked = parse(items, document_tags, now or deps.clock(), deps.settings.retain_max_items)
    settings = await settings_of(deps, tenant, bank_id)
    job = Job(
        tenant,
        bank_id,
        narrator=bank_id,
        pool=deps.pool,
        fresh=anew is not None,
        trace_id=str(uuid4()),
    )
    extraction = Extraction(deps.extractor, job)
    usage = extraction.outcome.usage
    if not checked and also is None:
        await banks.ensure(deps.pool, tenant, bank_id)
        return usage.wire()
    for _ in range(_ATTEMPTS):
        try:
            await _store(deps, tenant, bank_id, settings, checked, extraction, also, anew)
            return usage.wire()
        except _Stale:
            continue
    raise Conflict("a document of this call is being written by others all the time; try again")


# One document: what is stored, what comes


@dataclass(frozen=True, slots=True)
class _Stored:
    """A document as it is in the bank; `hashes` by chunk index."""

    content_hash: str | None
    text: str | None
    hashes: Mapping[int, str]
    mentioned: Mapping[int, datetime | None]
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class _Piece:
    """One chunk to be."""

    index: int
    text: str
    hash: str
    section: Section
    settings: RetainSettings


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a write does to one document."""

    document_id: str
    before: _Stored | None
    text: str
    content_hash: str
    pieces: Sequence[_Piece]
    changed: Sequence[_Piece]
    last: Item
    tags: tuple[str, ...]
    parts: Sequence[int]
    facts: list[Fact] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def _stored(connection: Connection, bank: int, ids: Sequence[str]) -> dict[str, _Stored]:
    documents = await connection.fetch(
        "select document_id, content_hash, original_text, updated_at from documents"
        " where bank = $1 and document_id = any($2)",
        bank,
        list(ids),
    )
    chunks = await connection.fetch(
        "select c.document_id, c.chunk_index, c.content_hash,"
        " (select min(m.mentioned_at) from memory_units m"
        "   where m.bank = c.bank and m.document_id = c.document_id and m.chunk_id = c.chunk_id)"
        " as mentioned from chunks c where c.bank = $1 and c.document_id = any($2)",
        bank,
        list(ids),
    )
    return {
        row["document_id"]: _Stored(
            row["content_hash"],
            row["original_text"],
            {c["chunk_index"]: c["content_hash"] for c in chunks if c[0] == row[0]},
            {c["chunk_index"]: c["mentioned"] for c in chunks if c[0] == row[0]},
            row["updated_at"],
        )
        for row in documents
    }


def _plan(
    document_id: str,
    items: Sequence[Item],
    before: _Stored | None,
    settings: RetainSettings,
    anew: Anew | None,
) -> _Plan:
    parts: list[tuple[str, Item]] = []
    for item in items:
        if item.append:
            if not settings.store_document_text:
                raise InvalidInput(
                    "append needs stored document texts, which this bank does not keep",
                    "update_mode",
                )
            old = "\n".join(text for text, _ in parts)
            if not parts and before is not None:
                old = before.text or ""
            parts = [(_appended(old, item.content), item)]
        else:
            parts.append((item.content, item))
    text = "\n".join(part for part, _ in parts)
    pieces: list[_Piece] = []
    changed: list[_Piece] = []
    for part, item in parts:
        own = _strategy(settings, item.strategy)
        for piece_text in chunk(part, own.retain_chunk_size, own.retain_structured_chunk_size):
            index, hash = len(pieces), _hash(piece_text)
            section = item.section
            if anew is not None and before is not None and before.hashes.get(index) == hash:
                section = anew.sections.get(index, section)
            piece = _Piece(index, piece_text, hash, section, own)
            pieces.append(piece)
            if (
                before is None
                or anew is not None
                or before.hashes.get(piece.index) != piece.hash
                or (
                    item.dated
                    and not item.append
                    and before.mentioned.get(piece.index) != item.section.timestamp
                )
            ):
                changed.append(piece)
    tags = tuple(dict.fromkeys(tag for item in items for tag in item.section.tags))
    lengths = [len(part) for part, _ in parts]
    return _Plan(document_id, before, text, _hash(text), pieces, changed, items[-1], tags, lengths)


def _appended(old: str, new: str) -> str:
    """Two JSON arrays become one; other texts follow on a new line."""
    if not old:
        return new
    if old.lstrip().startswith("[") and new.lstrip().startswith("["):
        try:
            first, second = orjson.loads(old), orjson.loads(new)
        except orjson.JSONDecodeError:
            pass
        else:
            return orjson.dumps(first + second).decode()
    return f"{old}\n{new}"


async def _store(
    deps: IngestDeps,
    tenant: str,
    bank_id: str,
    settings: RetainSettings,
    items: Sequence[Item],
    extraction: Extraction,
    also: Callable[[Connection], Awaitable[None]] | None,
    anew: Anew | None,
) -> None:
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.document_id, []).append(item)

    async def look(connection: Connection) -> dict[str, _Stored]:
        bank = await connection.fetchval(
            "select bank from banks where tenant_id = $1 and bank_id = $2", tenant, bank_id
        )
        return {} if bank is None else await _stored(connection, bank, list(groups))

    stored = await read(deps.pool, look)
    plans = [_plan(id, group, stored.get(id), settings, anew) for id, group in groups.items()]
    todo = [(plan, piece) for plan in plans for piece in plan.changed]
    found = await extraction.facts(
        [
            Chunk(
                piece.text,
                piece.section,
                piece.settings,
                plan.document_id,
                f"chunk {piece.index} of document {plan.document_id!r}",
            )
            for plan, piece in todo
        ]
    )
    for (plan, piece), extracted in zip(todo, found, strict=True):
        _add_facts(plan, bank_id, piece, extracted)
    facts = [fact for plan in plans for fact in plan.facts]
    links = [link for plan in plans for link in plan.links]
    prepared = await prepare(deps, settings, facts, tenant) if facts else None

    async def work(change: Change) -> None:
        fresh = await _stored(change.connection, change.bank, list(groups))
        for plan in plans:
            now, then = fresh.get(plan.document_id), plan.before
            if (now is None) != (then is None) or (
                now is not None and then is not None and now.content_hash != then.content_hash
            ):
                raise _Stale
            if anew is not None and (now is None or now.updated_at != anew.updated_at):
                raise Conflict(f"document {plan.document_id!r} was changed meanwhile")
        stale: list[tuple[Stored, Fact]] = []
        for plan in plans:
            stale += await _write_document(change, bank_id, plan, settings)
        if stale:
            old = await stored_facts.again(change, stale)
            both = old.prepared if prepared is None else together(old.prepared, prepared)
            await change.add(both, [*old.links, *links], old.known)
        elif prepared is not None:
            await change.add(prepared, links)
        if also is not None:
            await also(change.connection)

    await write(deps, tenant, bank_id, work, create=True)


def _strategy(settings: RetainSettings, name: str | None) -> RetainSettings:
    name = name or settings.retain_default_strategy
    if name is None:
        return settings
    bundle = (settings.retain_strategies or {}).get(name)
    if bundle is None:
        raise InvalidInput(f"the bank has no strategy {name!r}", "strategy")
    return settings.with_overrides(bundle)


def _chunk_id(bank_id: str, document_id: str, index: int) -> str:
    return f"{bank_id}_{document_id}_{index}"


def _add_facts(plan: _Plan, bank_id: str, piece: _Piece, found: Sequence[ExtractedFact]) -> None:
    ids = new_ids(len(found))
    section = piece.section
    for j, (fact, id) in enumerate(zip(found, ids, strict=True)):
        plan.facts.append(
            Fact(
                id=id,
                text=fact.text,
                fact_type=fact.fact_type,
                context=section.context,
                occurred_start=fact.occurred_start,
                occurred_end=fact.occurred_end,
                mentioned_at=section.timestamp,
                document_id=plan.document_id,
                chunk_id=_chunk_id(bank_id, plan.document_id, piece.index),
                position=piece.index * FACTS_PER_CHUNK + min(j, FACTS_PER_CHUNK - 1),
                tags=tuple(dict.fromkeys((*section.tags, *fact.tags))),
                metadata={**(section.metadata or {}), "extraction": "failed"}
                if fact.raw
                else section.metadata,
                mentions=fact.mentions,
                observation_scopes=section.observation_scopes,
            )
        )
        plan.links.extend(
            Link(id, ids[earlier], kind) for earlier, kind in fact.links if earlier < j
        )


async def _write_document(
    change: Change, bank_id: str, plan: _Plan, settings: RetainSettings
) -> list[tuple[Stored, Fact]]:
    """The document's row and chunks, and the end of memories whose chunk changed or went.

    Returns the memories of kept chunks that the items label otherwise now, and what they become.
    """
    connection, bank = change.connection, change.bank
    change.touch()
    await document_numbers(connection, bank, [plan.document_id])
    section = plan.last.section
    keeps_text = settings.store_document_text
    await connection.execute(
        "update documents set original_text = $3, content_hash = $4, tags = $5, metadata = $6,"
        " retain_params = $7, observation_scopes = $8, updated_at = now(),"
        " next_position = greatest(next_position, $9)"
        " where bank = $1 and document_id = $2",
        bank,
        plan.document_id,
        plan.text if keeps_text else None,
        plan.content_hash,
        plan.tags,
        section.metadata or {},
        _params(plan),
        section.observation_scopes,
        len(plan.pieces) * FACTS_PER_CHUNK,
    )
    redone = {piece.index for piece in plan.changed}
    kept = {piece.index for piece in plan.pieces} - redone
    gone = set(plan.before.hashes) - kept if plan.before else set()
    if gone:
        rows = await connection.fetch(
            "select id from memory_units where bank = $1 and document_id = $2"
            " and chunk_id = any($3)",
            bank,
            plan.document_id,
            [_chunk_id(bank_id, plan.document_id, index) for index in gone],
        )
        await change.remove([row["id"] for row in rows])
        await connection.execute(
            "delete from chunks where bank = $1 and document_id = $2 and chunk_index = any($3)",
            bank,
            plan.document_id,
            list(gone),
        )
    await connection.copy_records_to_table(
        "chunks",
        columns=("bank", "chunk_id", "document_id", "chunk_index", "chunk_text", "content_hash"),
        records=[
            (
                bank,
                _chunk_id(bank_id, plan.document_id, piece.index),
                plan.document_id,
                piece.index,
                piece.text if keeps_text else "",
                piece.hash,
            )
            for piece in plan.changed
        ],
    )
    return await _relabelled(change, bank_id, plan, redone)


async def _relabelled(
    change: Change, bank_id: str, plan: _Plan, redone: set[int]
) -> list[tuple[Stored, Fact]]:
    sections = {
        _chunk_id(bank_id, plan.document_id, piece.index): piece.section
        for piece in plan.pieces
        if piece.index not in redone
    }
    rows = await change.connection.fetch(
        "select id from memory_units where bank = $1 and document_id = $2"
        " and chunk_id = any($3) and ordinal is not null order by ordinal",
        change.bank,
        plan.document_id,
        list(sections),
    )
    found = []
    for memory in await stored_facts.load(change.connection, change.bank, [r["id"] for r in rows]):
        section = sections[memory.fact.chunk_id or ""]
        fact = replace(
            memory.fact,
            tags=section.tags,
            metadata=section.metadata,
            context=section.context,
            observation_scopes=section.observation_scopes,
        )
        if fact != memory.fact:
            found.append((memory, fact))
    await change.remove_derived([m.fact.id for m, fact in found if m.fact.tags != fact.tags])
    return found


def _params(plan: _Plan) -> dict[str, Any]:
    """What a later reprocessing needs; `parts` are the lengths of several items' texts."""
    item, section = plan.last, plan.last.section
    params = {
        "context": section.context,
        "event_date": iso(section.timestamp),
        "metadata": section.metadata,
        "strategy": item.strategy,
        "entities": [{"text": mention.name} for mention in section.mentions] or None,
        "resolve_entities": None if all(m.resolve for m in section.mentions) else False,
        "parts": plan.parts if len(plan.parts) > 1 else None,
    }
    return {key: value for key, value in params.items() if value is not None}
