"""Changing and deleting what a bank holds. Each call is one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from retrieval.errors import Conflict, InvalidInput, NotFound
from retrieval.ingest import fields
from retrieval.ingest.context import WriteContext
from retrieval.ingest.entities import forgetting
from retrieval.ingest.facts import Fact
from retrieval.ingest.importing import settings_of
from retrieval.ingest.scopes import check_combinations, resolved
from retrieval.ingest.write import stored
from retrieval.ingest.write.enrich import prepare
from retrieval.ingest.write.stored import StoredMemory
from retrieval.ingest.write.transaction import Change, write
from retrieval.store import (
    banks,
    documents,
    erasure,
    ledger,
    memories,
    mental_models,
    outbox,
    payloads,
)
from retrieval.store.database.pool import Connection, read
from retrieval.store.edge import as_uuid
from retrieval.store.erasure import ErasureEntry
from retrieval.store.history import DocumentChange, Kind, record
from retrieval.types import FactType

_TIMES = ("occurred_start", "occurred_end", "mentioned_at")
_EDITS = ("text", "context", *_TIMES, "fact_type", "entities")
_ATTEMPTS = 5


class _Stale(Exception):
    """The memory changed between reading it and locking the bank."""


async def patch_memory(
    deps: WriteContext, tenant: str, bank_id: str, memory_id: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Edits, invalidates or restores a world or experience memory; returns it.

    changes: `text`, `context`, `occurred_start`, `occurred_end`, `mentioned_at` (null clears a
    time), `fact_type`, `entities`, `resolve_entities`, `state` (valid, invalidated), `reason`. An
    edited or restored memory is embedded and linked again; what was derived from it is deleted.
    """
    id = as_uuid(memory_id, "memory_id")
    wanted = {key: changes[key] for key in (*_EDITS, "state") if key in changes}
    if not wanted:
        raise InvalidInput(f"give at least one of {', '.join((*_EDITS, 'state'))}", "text")
    state = wanted.pop("state", None)
    if state not in (None, "valid", "invalidated"):
        raise InvalidInput("state must be valid or invalidated", "state")
    reason = fields.optional_text(changes.get("reason"), "reason", fields.CONTEXT_LIMIT)
    settings = await settings_of(deps, tenant, bank_id)

    async def look(connection: Connection) -> StoredMemory:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        return await _one(connection, bank, id)

    for _ in range(_ATTEMPTS):
        before = await read(deps.pool, look)
        if before.fact.fact_type is FactType.OBSERVATION:
            raise InvalidInput("an observation is derived and cannot be edited", "memory_id")
        fact = _edited(before.fact, wanted, changes.get("resolve_entities") is not False)
        if before.ordinal is None and state != "valid" and wanted:
            raise InvalidInput("the memory is invalidated: restore it first", "state")
        anew = bool(wanted) or (state == "valid" and before.ordinal is None)
        if wanted:
            fact = replace(fact, edited_at=deps.clock())
        prepared = await prepare(deps, settings, [fact], tenant) if anew else None

        async def work(
            change: Change, before: StoredMemory = before, prepared: Any = prepared
        ) -> dict[str, Any]:
            now = await stored.load(change.connection, change.bank, [id])
            if not now or (now[0].updated_at, now[0].ordinal) != (
                before.updated_at,
                before.ordinal,
            ):
                raise _Stale
            kind = _kind(state, bool(wanted), before.ordinal is None)
            if prepared is not None:
                links = await stored.outgoing(change.connection, change.bank, [id])
                known = {} if "entities" in wanted else {id: before.named}
                await change.remove_derived([id])
                await change.add(prepared, links, known)
            if state == "invalidated" and before.ordinal is not None:
                await change.invalidate(id, reason)
            if kind is not None:
                await _note(change, before.fact, kind)
            return await memories.view(change.connection, change.bank, id)

        try:
            return await write(deps, tenant, bank_id, work)
        except _Stale:
            continue
    raise Conflict(f"memory {id} keeps being changed by other requests; try again")


def _kind(state: str | None, edited: bool, was_invalid: bool) -> Kind | None:
    """What a change of a memory is in its document's history."""
    if state == "invalidated" and not was_invalid:
        return "fact_invalidated"
    if state == "valid" and was_invalid:
        return "fact_restored"
    return "fact_edited" if edited else None


async def _note(change: Change, fact: Fact, kind: Kind, removed: int = 0) -> None:
    """An entry in the history of the memory's document, if it has one."""
    if fact.document_id is not None:
        event = DocumentChange(
            fact.document_id,
            kind,
            fact_id=fact.id,
            facts_removed=removed,
            observations_removed=tuple(change.derived),
        )
        await record(change.connection, change.bank, [event])


def _edited(fact: Fact, wanted: Mapping[str, Any], resolve: bool) -> Fact:
    edits: dict[str, Any] = {}
    if "text" in wanted:
        edits["text"] = fields.text(wanted["text"], "text")
    if "context" in wanted:
        edits["context"] = fields.optional_text(wanted["context"], "context", fields.CONTEXT_LIMIT)
    for name in _TIMES:
        if name in wanted:
            edits[name] = fields.time(wanted[name], name)
    if "fact_type" in wanted:
        if wanted["fact_type"] not in ("world", "experience"):
            raise InvalidInput("fact_type must be world or experience", "fact_type")
        edits["fact_type"] = FactType.of(wanted["fact_type"])
    if "entities" in wanted:
        edits["mentions"] = fields.mentions(wanted["entities"], "entities", resolve)
    edited = replace(fact, **edits)
    start, end = edited.occurred_start, edited.occurred_end
    if start is not None and end is not None and end < start:
        raise InvalidInput("occurred_end is before occurred_start", "occurred_end")
    return edited


async def _one(connection: Connection, bank: int, id: UUID) -> StoredMemory:
    found = await stored.load(connection, bank, [id])
    if not found:
        raise NotFound(f"there is no memory {id}")
    return found[0]


async def delete_memory(
    deps: WriteContext, tenant: str, bank_id: str, memory_id: str
) -> dict[str, Any]:
    """Removes a memory, its links and the observations built on it."""
    id = as_uuid(memory_id, "memory_id")

    async def work(change: Change) -> int:
        found = await _one(change.connection, change.bank, id)
        count = await _end(change, [id])
        await _note(change, found.fact, "fact_deleted", removed=1)
        return count

    count = await write(deps, tenant, bank_id, work)
    return {"success": True, "deleted_count": count}


async def _end(change: Change, ids: Sequence[UUID], documents: Sequence[str] = ()) -> int:
    """Deletes memories with what was made from them and the texts they were made from; how many."""
    connection, bank = change.connection, change.bank
    places = await erasure.places(connection, bank, ids)
    mentioned = await forgetting.mentioned(change, ids)
    count = await change.remove(ids)
    await erasure.cut_documents(connection, bank, places, ends=False)
    await forgetting.forget(change, mentioned)
    await erasure.forget_history(connection, bank, ids)
    change.erases = True
    if change.deps.note is not None:
        held = change.held
        await change.deps.note(ErasureEntry(held.tenant, held.bank_id, change.now, ids, documents))
    return count


async def delete_derived(
    deps: WriteContext, tenant: str, bank_id: str, memory_id: str
) -> dict[str, Any]:
    """Removes the observations built on a memory, which is then to be consolidated again."""
    id = as_uuid(memory_id, "memory_id")

    async def work(change: Change) -> int:
        found = await _one(change.connection, change.bank, id)
        count = await change.remove_derived([id])
        await _note(change, found.fact, "observations_cleared")
        return count

    return {"success": True, "deleted_count": await write(deps, tenant, bank_id, work)}


async def clear(
    deps: WriteContext, tenant: str, bank_id: str, kind: str | None = None
) -> dict[str, Any]:
    """Removes all memories of a type and what was derived from them; without a type everything
    but the bank's profile and settings, so that it can be filled with another model's vectors."""
    if kind is None:

        async def everything(change: Change) -> int:
            await ledger.forget(change.connection, tenant, bank_id)
            return await _clear_all(change)

        return {"success": True, "deleted_count": await write(deps, tenant, bank_id, everything)}
    try:
        fact_type = FactType.of(kind)
    except ValueError as error:
        raise InvalidInput(str(error), "type") from None

    async def work(change: Change) -> int:
        rows = await change.connection.fetch(
            "select id from memory_units where bank = $1 and fact_type = $2",
            change.bank,
            int(fact_type),
        )
        await payloads.forget(change.connection, change.bank)
        await ledger.forget(change.connection, tenant, bank_id)
        return await _end(change, [row["id"] for row in rows])

    return {"success": True, "deleted_count": await write(deps, tenant, bank_id, work)}


async def _clear_all(change: Change) -> int:
    connection, bank = change.connection, change.bank
    rows = await connection.fetch("select id from memory_units where bank = $1", bank)
    gone = await connection.fetch("select document_id from documents where bank = $1", bank)
    for table in (
        "links", "unit_entities", "observation_history", "memory_units", "chunks", "documents",
        "entity_aliases", "entity_cooccurrences", "entities", "tags", "segments", "tombstones",
    ):  # fmt: skip
        await connection.execute(f"delete from {table} where bank = $1", bank)
    await payloads.forget(connection, bank)
    await mental_models.forget_seen(connection, bank)
    await connection.execute(
        "update banks set generation = generation + 1, version = version + 1, next_ordinal = 0,"
        " next_entity = 0, next_tag = 0, next_document = 0, vector_set = '', analyser = '',"
        " updated_at = now(), last_write_at = now(), erase_since = now() where bank = $1",
        bank,
    )
    if change.deps.note is not None:
        held = change.held
        ids, documents = [row["id"] for row in rows], [row["document_id"] for row in gone]
        await change.deps.note(ErasureEntry(held.tenant, held.bank_id, change.now, ids, documents))
    return len(rows)


async def delete_document(
    deps: WriteContext, tenant: str, bank_id: str, document_id: str
) -> dict[str, Any]:
    """Removes a document with its chunks, its memories and what was derived from those."""

    async def work(change: Change) -> int:
        rows = await change.connection.fetch(
            "select id from memory_units where bank = $1 and document_id = $2",
            change.bank,
            document_id,
        )
        ids = [row["id"] for row in rows]
        gone = await change.connection.fetchval(
            "delete from documents where bank = $1 and document_id = $2 returning true",
            change.bank,
            document_id,
        )
        if not gone:
            raise documents.unknown(document_id)
        await _end(change, ids, [document_id])
        await payloads.forget(change.connection, change.bank, document_id)
        await ledger.forget(change.connection, tenant, bank_id, document_id)
        told = {"document_id": document_id, "memory_unit_count": len(rows)}
        await outbox.emit(
            change.connection, change.held, [outbox.OutboxEvent("document.deleted", told)]
        )
        change.touch()
        return len(rows)

    count = await write(deps, tenant, bank_id, work)
    return {
        "success": True,
        "message": f"document {document_id!r} and its {count} memories were deleted",
        "document_id": document_id,
        "memory_units_deleted": count,
    }


async def patch_document(
    deps: WriteContext,
    tenant: str,
    bank_id: str,
    document_id: str,
    tags: Sequence[str] | None = None,
    observation_scopes: Any = None,
) -> dict[str, Any]:
    """Gives a document other tags or observation scopes, and its memories with it.

    Observations go that were made of memories whose tags change, or for which the scopes come to
    mean other tags.
    """
    wanted = None if tags is None else fields.tags(tags, "tags")
    scopes = fields.scopes(observation_scopes, "observation_scopes")
    if wanted is None and scopes is None:
        raise InvalidInput("give tags or observation_scopes", "tags")

    async def work(change: Change) -> None:
        connection, bank = change.connection, change.bank
        old = await connection.fetchval(
            "select tags from documents where bank = $1 and document_id = $2", bank, document_id
        )
        if old is None:
            raise documents.unknown(document_id)
        await connection.execute(
            "update documents set tags = coalesce($3, tags),"
            " observation_scopes = coalesce($4, observation_scopes), updated_at = now()"
            " where bank = $1 and document_id = $2",
            bank,
            document_id,
            wanted,
            scopes,
        )
        change.touch()
        if wanted is not None:
            await retag(change, document_id, frozenset(old), wanted)
        if scopes is not None:
            await _rescope(change, document_id, scopes)
        event = DocumentChange(document_id, "retag", observations_removed=tuple(change.derived))
        await record(connection, bank, [event])

    await write(deps, tenant, bank_id, work)
    return {"success": True}


async def _rescope(change: Change, document_id: str, scopes: Any) -> None:
    """Memories of a document get other scopes; those it means something for are queued again."""
    rows = await change.connection.fetch(
        "select id, tags, observation_scopes from memory_units"
        " where bank = $1 and document_id = $2 and fact_type <> $3",
        change.bank,
        document_id,
        int(FactType.OBSERVATION),
    )
    for row in rows:
        check_combinations(scopes, row["tags"], "observation_scopes")
    moved = [
        row["id"]
        for row in rows
        if resolved(row["observation_scopes"], row["tags"]) != resolved(scopes, row["tags"])
    ]
    await change.connection.execute(
        "update memory_units set observation_scopes = $3, updated_at = now(),"
        " consolidated_at = case when id = any($4) then null else consolidated_at end,"
        " consolidated_scopes = case when id = any($4) then '{}' else consolidated_scopes end,"
        " consolidation_error = case when id = any($4) then null else consolidation_error end,"
        " consolidation_failed_at ="
        "  case when id = any($4) then null else consolidation_failed_at end"
        " where bank = $1 and id = any($2)",
        change.bank,
        [row["id"] for row in rows],
        scopes,
        moved,
    )
    change.unconsolidated |= bool(moved)
    await change.remove_derived(moved)


async def retag(change: Change, document_id: str, old: frozenset[str], new: Sequence[str]) -> None:
    """Memories of a document lose the tags `old` and gain `new`; observations on them go."""
    rows = await change.connection.fetch(
        "select id from memory_units where bank = $1 and document_id = $2 and ordinal is not null"
        " order by ordinal",
        change.bank,
        document_id,
    )
    found = await stored.load(change.connection, change.bank, [row["id"] for row in rows])
    pairs = await asyncio.to_thread(_pairs, found, old, new)
    await change.remove_derived([memory.fact.id for memory, _ in pairs])
    await stored.rewrite(change, pairs)
    # Invalidated ones have no place in the arms: their rows are enough.
    await change.connection.execute(
        "update memory_units set tags = (select coalesce(array_agg(distinct t), '{}') from unnest("
        "  array(select unnest(tags) except select unnest($3::text[])) || $4::text[]) t)"
        " where bank = $1 and document_id = $2 and ordinal is null",
        change.bank,
        document_id,
        list(old),
        list(new),
    )


def _pairs(
    found: Sequence[StoredMemory], old: frozenset[str], new: Sequence[str]
) -> list[tuple[StoredMemory, Fact]]:
    return [
        (memory, replace(memory.fact, tags=tags))
        for memory in found
        if (tags := _retagged(memory.fact.tags, old, new)) != memory.fact.tags
    ]


def _retagged(tags: tuple[str, ...], old: frozenset[str], new: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*(tag for tag in tags if tag not in old), *new)))
