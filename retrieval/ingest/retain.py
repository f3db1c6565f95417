"""Retaining content: documents are cut into chunks, chunks become facts, facts are written.

A document is known by its id. Sent again, chunks whose text still stands in it keep their memories,
wherever they stand now; only what lies between them is extracted. `append` puts new content behind
the stored text. Writers of one document take turns. All items of a call are stored or none.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID, uuid4

from retrieval.errors import Conflict
from retrieval.ingest.collecting import held_off
from retrieval.ingest.context import WriteContext
from retrieval.ingest.documents.planning import Before, DocumentPlan, PlannedChunk, Reprocess, plans
from retrieval.ingest.documents.writing import DocumentFacts, known, write_documents
from retrieval.ingest.extract.by_model import Chunk, Job
from retrieval.ingest.extract.extraction import Extraction
from retrieval.ingest.facts import Fact, Link, new_ids
from retrieval.ingest.importing import settings_of
from retrieval.ingest.items import CONTENT_LIMIT, RetainItem, parse, placed
from retrieval.ingest.write import stored as stored_facts
from retrieval.ingest.write.enrich import prepare, together
from retrieval.ingest.write.transaction import Change, write
from retrieval.settings import RetainSettings
from retrieval.store import answers, banks, outbox
from retrieval.store.answers import Key
from retrieval.store.database.pool import Connection, read
from retrieval.store.history import DocumentChange, Kind, record

_ATTEMPTS = 5


class _Stale(Exception):
    """A document changed between reading it and locking the bank."""


Also: TypeAlias = Callable[[Connection, Mapping[str, Any]], Awaitable[None]]
"""Something for a retain's transaction, told what came of it: unit_ids_count and what extraction
cost (retrieval.ingest.extract.by_model.Outcome.metadata)."""


@dataclass(frozen=True, slots=True)
class Errand:
    """On whose behalf a retain is done. `also` runs inside its transaction; `operation`: the id of
    the operation that it is. With `key` the usage is kept as the answer, and nothing is done where
    there is one. Both times on time.monotonic()'s clock: until when to wait for others who write
    the same documents, and for extraction."""

    also: Also | None = None
    operation: UUID | None = None
    key: Key | None = None
    deadline: float | None = None
    until: float | None = None


async def retain(
    deps: WriteContext,
    tenant: str,
    bank_id: str,
    items: Sequence[Mapping[str, Any]],
    *,
    document_tags: Sequence[str] | None = None,
    now: datetime | None = None,
    also: Also | None = None,
    operation: UUID | None = None,
    key: Key | None = None,
    deadline: float | None = None,
    until: float | None = None,
    longest: int = CONTENT_LIMIT,
) -> dict[str, int]:
    """Reads the items and stores them, as `store` does.

    InvalidInput names the item and the field; then nothing has changed. `now` is the time of items
    without one. DeadlineExceeded where extraction is not done by `until` (time.monotonic()); None:
    as long as the settings allow. `longest`: characters of one item.
    """
    banks.check_id(bank_id)
    last = time.monotonic() + deps.settings.retain_wall_timeout_s
    errand = Errand(also, operation, key, deadline, last if until is None else min(last, until))
    most = deps.settings.retain_max_items
    checked = await deps.run(parse, items, document_tags, now or deps.clock(), most, longest)
    return await store(deps, tenant, bank_id, checked, errand)


async def store(
    deps: WriteContext,
    tenant: str,
    bank_id: str,
    items: Sequence[RetainItem],
    errand: Errand,
    anew: Reprocess | None = None,
) -> dict[str, int]:
    """Stores the items; the tokens that extraction cost. The bank is made if there is none.

    Conflict if others write one of the documents until `errand.deadline`; with `anew` also if the
    document was changed since.
    """

    async def work() -> dict[str, Any]:
        named = [item.document_id for item in items if item.named]
        async with deps.documents.of(deps.pool, tenant, bank_id, named, errand.deadline):
            with held_off(len(items)):
                return await _retain(deps, tenant, bank_id, items, errand, anew)

    return await answers.once(deps.pool, tenant, bank_id, errand.key, work)


async def _retain(
    deps: WriteContext,
    tenant: str,
    bank_id: str,
    items: Sequence[RetainItem],
    errand: Errand,
    anew: Reprocess | None,
) -> dict[str, Any]:
    job = Job(
        tenant,
        bank_id,
        narrator=bank_id,
        turn="retain" if errand.operation is None else "retain_later",
        deadline=errand.until,
        pool=deps.pool,
        fresh=anew is not None,
        trace_id=str(errand.operation or uuid4()),
        operation=errand.operation,
        progress=deps.progress,
    )
    extraction = Extraction(deps.extractor, job)
    usage = extraction.outcome.usage
    if not items and errand.also is None and errand.key is None:
        await banks.ensure(deps.pool, tenant, bank_id)
        return usage.wire()
    settings = await settings_of(deps, tenant, bank_id)
    items = await deps.run(placed, items, settings.timezone)
    for _ in range(_ATTEMPTS):
        try:
            await _store(deps, tenant, bank_id, settings, items, extraction, errand, anew)
            return usage.wire()
        except _Stale:
            continue
    raise Conflict("a document of this call keeps being written by other requests; try again")


async def _store(
    deps: WriteContext,
    tenant: str,
    bank_id: str,
    settings: RetainSettings,
    items: Sequence[RetainItem],
    extraction: Extraction,
    errand: Errand,
    anew: Reprocess | None,
) -> None:
    ids = list(dict.fromkeys(item.document_id for item in items))
    appended = {item.document_id for item in items if item.append}

    async def look(connection: Connection) -> dict[str, Before]:
        bank = await connection.fetchval(
            "select bank from banks where tenant_id = $1 and bank_id = $2", tenant, bank_id
        )
        return {} if bank is None else await known(connection, bank, ids, appended, texts=True)

    stored = await read(deps.pool, look)
    made = await deps.run(plans, items, stored, settings, anew, deps.extractor is not None)
    await _extract(extraction, made)
    written = await deps.run(_all_facts, bank_id, made)
    facts = [fact for each in written for fact in each.facts]
    links = [link for each in written for link in each.links]
    deps.progress.at("embedding", 0, len(facts))
    prepared = await prepare(deps, settings, facts, tenant) if facts else None
    deps.progress.at("storing", 0, len(facts))

    async def work(change: Change) -> None:
        fresh = await known(change.connection, change.bank, ids)
        for plan in made:
            _check(plan, fresh.get(plan.document_id), anew)
        done = await write_documents(change, bank_id, made, written, settings, errand.operation)
        stale = [pair for each in done for pair in each.relabelled]
        placed = [fact for each in done for fact in each.facts]
        derived = tuple(change.derived)
        await record(
            change.connection,
            change.bank,
            [
                _event(plan, each, derived if plan.before else (), errand, anew)
                for plan, each in zip(made, done, strict=True)
            ],
        )
        if anew is None:
            await outbox.emit(
                change.connection,
                change.held,
                [_told(plan, each, errand) for plan, each in zip(made, done, strict=True)],
            )
        ready = None if prepared is None else prepared.with_facts(placed)
        if stale:
            old = await stored_facts.again(change, stale)
            both = old.prepared if ready is None else together(old.prepared, ready)
            await change.add(both, [*old.links, *links], old.known)
        elif ready is not None:
            await change.add(ready, links)
        if errand.key is not None:
            await answers.keep(
                change.connection, change.bank, errand.key, extraction.outcome.usage.wire()
            )
        if errand.also is not None:
            result = {"unit_ids_count": len(placed), **extraction.outcome.metadata()}
            await errand.also(change.connection, result)

    await write(deps, tenant, bank_id, work, create=True)


def _check(plan: DocumentPlan, now: Before | None, anew: Reprocess | None) -> None:
    """Is the document as it was when the plan was made? _Stale if not, Conflict with `anew`."""
    then = plan.before
    if anew is not None and (now is None or now.updated_at != anew.updated_at):
        raise Conflict(f"document {plan.document_id!r} was changed in the meantime")
    if (now is None) != (then is None):
        raise _Stale
    if now is not None and then is not None and not now.same_as(then):
        raise _Stale


async def _extract(extraction: Extraction, made: Sequence[DocumentPlan]) -> None:
    """Fills in the facts of those chunks that a model reads."""
    todo: list[tuple[DocumentPlan, int, PlannedChunk]] = [
        (plan, i, piece)
        for plan in made
        for i, piece in enumerate(plan.pieces)
        if piece.known is None and extraction.asks(piece.settings)
    ]
    found = await extraction.facts(
        [
            Chunk(
                piece.text.strip(),
                piece.section,
                piece.settings,
                plan.document_id,
                f"chunk {i} of document {plan.document_id!r}",
            )
            for plan, i, piece in todo
        ]
    )
    for (plan, i, _), extracted in zip(todo, found, strict=True):
        plan.found[i] = extracted


def _all_facts(bank_id: str, made: Sequence[DocumentPlan]) -> list[DocumentFacts]:
    return [_facts(bank_id, plan) for plan in made]


def _facts(bank_id: str, plan: DocumentPlan) -> DocumentFacts:
    """The new facts of a document, their positions still open, and the links between them."""
    facts: list[Fact] = []
    links: list[Link] = []
    pieces: list[int] = []
    for i, (piece, found) in enumerate(zip(plan.pieces, plan.found, strict=True)):
        ids = new_ids(len(found))
        section = piece.section
        for j, (fact, id) in enumerate(zip(found, ids, strict=True)):
            pieces.append(i)
            facts.append(
                Fact(
                    id=id,
                    text=fact.text,
                    fact_type=fact.fact_type,
                    context=section.context,
                    occurred_start=fact.occurred_start,
                    occurred_end=fact.occurred_end,
                    mentioned_at=section.timestamp,
                    document_id=plan.document_id,
                    chunk_id=f"{bank_id}_{plan.document_id}_{i}",
                    tags=tuple(dict.fromkeys((*section.tags, *fact.tags))),
                    metadata={**(section.metadata or {}), "extraction": "failed"}
                    if fact.raw
                    else section.metadata,
                    mentions=fact.mentions,
                    observation_scopes=section.observation_scopes,
                )
            )
            links += [Link(id, ids[earlier], kind) for earlier, kind in fact.links if earlier < j]
    return DocumentFacts(facts, links, pieces)


def _told(plan: DocumentPlan, done: DocumentFacts, errand: Errand) -> outbox.OutboxEvent:
    data = {
        "document_id": plan.document_id,
        "tags": list(plan.tags),
        "memory_unit_count": len(done.facts),
    }
    return outbox.OutboxEvent("retain.completed", data, errand.operation)


def _event(
    plan: DocumentPlan,
    done: DocumentFacts,
    derived: Sequence[UUID],
    errand: Errand,
    anew: Reprocess | None,
) -> DocumentChange:
    kind: Kind = "reprocess" if anew else "retain" if plan.replaces else "append"
    return DocumentChange(
        plan.document_id,
        kind,
        errand.operation,
        facts_added=len(done.facts),
        facts_removed=done.removed,
        observations_removed=derived,
    )
