"""Taking away what was selected, with everything that was made from it: one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias
from uuid import UUID

from retrieval.ingest.context import WriteContext
from retrieval.ingest.entities import forgetting
from retrieval.ingest.write import stored
from retrieval.ingest.write.transaction import Change, write
from retrieval.lifecycle.erasure.selection import Selection, Selectors, select, still_saying
from retrieval.store import erasure, mental_models
from retrieval.store.edge import as_texts
from retrieval.store.erasure import ErasureEntry
from retrieval.types import FactType

Observations: TypeAlias = Literal["delete", "keep_supported"]

_FILES = "select count(*) from attachments where bank = $1"

SHOWN = 100
"""Ids that a dry run names."""


@dataclass(frozen=True, slots=True)
class Erased:
    """What is gone, by id, and what became of what stays. As JSON it is `wire`."""

    at: str
    version: int
    memories: Sequence[str] = ()
    observations: Sequence[str] = ()
    kept_observations: Sequence[str] = ()
    documents: Sequence[str] = ()
    shortened: Sequence[str] = ()
    emptied: Sequence[str] = ()
    entities: Sequence[str] = ()
    entity_numbers: Sequence[int] = ()
    models: Sequence[str] = ()
    own: Sequence[str] = ()
    counts: Mapping[str, int] = ()  # type: ignore[assignment]

    def wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, wire: Mapping[str, Any]) -> Erased:
        return cls(**wire)

    @property
    def every(self) -> list[UUID]:
        """Ids of memories and observations."""
        return [UUID(id) for id in (*self.memories, *self.observations)]


class _Undone(Exception):
    """A dry run: what it would have done."""

    def __init__(self, erased: Erased) -> None:
        super().__init__()
        self.erased = erased


async def preview(
    deps: WriteContext, tenant: str, bank_id: str, wanted: Selectors, observations: Observations
) -> dict[str, Any]:
    """What an erasure would do: it is done and rolled back, so the counts are true."""

    async def work(change: Change) -> None:
        raise _Undone(await _remove(change, wanted, observations))

    quiet = replace(deps, note=None)
    try:
        await write(quiet, tenant, bank_id, work)
    except _Undone as undone:
        found = undone.erased
    return {
        "dry_run": True,
        "counts": found.counts,
        **{name: list(getattr(found, name))[:SHOWN] for name in _IDS},
        "bank_says": list(found.own),
    }


_IDS = ("memories", "observations", "kept_observations", "documents", "entities", "models")


async def remove(
    deps: WriteContext,
    tenant: str,
    bank_id: str,
    wanted: Selectors,
    observations: Observations,
    also: Callable[[Change, Erased], Awaitable[None]],
    operation_id: UUID | None = None,
) -> Erased:
    """Erases. The ledger has it before the commit; `also` runs inside the transaction."""

    async def work(change: Change) -> Erased:
        erased = await _remove(change, wanted, observations)
        await also(change, erased)
        if deps.note is not None:
            every = await asyncio.to_thread(lambda: erased.every)
            await deps.note(
                ErasureEntry(
                    tenant, bank_id, change.now, every, erased.documents,
                    operation_id=operation_id,
                )
            )  # fmt: skip
        return erased

    return await write(deps, tenant, bank_id, work)


async def _remove(change: Change, wanted: Selectors, observations: Observations) -> Erased:
    connection, bank = change.connection, change.bank
    found = await select(connection, bank, wanted)
    kept = await _supported(change, found.memories) if observations == "keep_supported" else []
    doomed = await _built_on(change, found.memories, kept)
    ids = [*found.memories, *doomed]
    places = await erasure.places(connection, bank, ids)
    mentioned = await forgetting.mentioned(change, [*ids, *kept])
    links = await connection.fetchval(
        "select count(*) from links where bank = $1 and (from_id = any($2) or to_id = any($2))",
        bank,
        ids,
    )
    models = await erasure.citing(connection, bank, [*ids, *kept])
    await _release(change, kept, set(ids))
    await change.remove(found.memories, kept)
    files = await connection.fetchval(_FILES, bank)
    chunks = await _documents(change, found)
    cut = await erasure.cut_documents(connection, bank, places, ends=True)
    await connection.execute(
        "delete from document_attachments d using unnest($2::text[], $3::text[]) w(document, id)"
        " where d.bank = $1 and d.document_id = w.document and d.id = w.id",
        bank,
        [document for document, _ in found.files],
        [id for _, id in found.files],
    )
    emptied = await still_saying(connection, bank, wanted, found.texts)
    await connection.execute(
        "update documents set original_text = null, content_hash = ''"
        " where bank = $1 and document_id = any($2)",
        bank,
        emptied,
    )
    emptied = sorted({*emptied, *cut.emptied})
    entities = await forgetting.forget(change, sorted({*mentioned, *found.entities}))
    await erasure.forget_history(connection, bank, ids)
    await erasure.unwrite(connection, bank, models)
    await _definitions(change, found)
    history: str = await connection.execute(
        "delete from mental_model_history where bank = $1", bank
    )
    documents = sorted({*found.documents, *cut.ended})
    texts = await erasure.forget_texts(connection, change.held, documents)
    payloads = await erasure.forget_payloads(connection, bank, documents)
    change.touch()
    change.erases = True
    return Erased(
        change.now.isoformat(),
        change.version,
        await asyncio.to_thread(as_texts, found.memories),
        await asyncio.to_thread(as_texts, doomed),
        await asyncio.to_thread(as_texts, kept),
        documents,
        [id for id in cut.shortened if id not in emptied],
        emptied,
        await asyncio.to_thread(as_texts, entities.ids),
        entities.numbers,
        sorted({*models, *found.models}),
        found.own,
        {
            "memories": len(found.memories),
            "observations": len(doomed),
            "observations_kept": len(kept),
            "documents": len(documents),
            "documents_shortened": len(cut.shortened),
            "documents_emptied": len(emptied),
            "chunks": chunks + cut.chunks_removed,
            "chunks_emptied": cut.chunks_emptied,
            "attachments": files - await connection.fetchval(_FILES, bank),
            "entities": len(entities.ids),
            "entities_renamed": entities.renamed,
            "links": links,
            "mental_models": len({*models, *found.models}),
            "mental_model_history": int(history.rpartition(" ")[2]),
            "directives": len(found.directives),
            "knowledge_renamed": len(found.nodes),
            "operations": payloads,
            **texts,
        },
    )


async def _built_on(change: Change, memories: Sequence[UUID], kept: Sequence[UUID]) -> list[UUID]:
    """Observations that go with these memories, those built on observations included."""
    rows = await change.connection.fetch(
        "with recursive gone as (select unnest($2::uuid[]) as id union select m.id"
        "  from memory_units m join gone g on m.source_ids @> array[g.id]"
        "  where m.bank = $1 and m.fact_type = $3 and m.id <> all($4))"
        " select id from gone where id <> all($2)",
        change.bank,
        list(memories),
        int(FactType.OBSERVATION),
        list(kept),
    )
    return [row["id"] for row in rows]


async def _supported(change: Change, memories: Sequence[UUID]) -> list[UUID]:
    """Observations on these memories that have a source left, and so may stay."""
    rows = await change.connection.fetch(
        "select id, source_ids from memory_units where bank = $1 and fact_type = $2"
        " and source_ids <> '{}' and id <> all($3)",
        change.bank,
        int(FactType.OBSERVATION),
        list(memories),
    )
    return await asyncio.to_thread(_left_with_a_source, rows, set(memories))


def _left_with_a_source(rows: Sequence[Mapping[str, Any]], gone: set[UUID]) -> list[UUID]:
    sources = {row["id"]: set(row["source_ids"]) for row in rows}
    while True:
        more = {id for id, own in sources.items() if id not in gone and own <= gone}
        if not more:
            return [id for id, own in sources.items() if id not in gone and own & gone]
        gone |= more


async def _release(change: Change, kept: Sequence[UUID], gone: set[UUID]) -> None:
    """Takes the sources that go out of the observations that stay, and what those were before."""
    if not kept:
        return
    found = await stored.load(change.connection, change.bank, kept)
    pairs = []
    for one in found:
        left = tuple(source for source in one.fact.sources if source not in gone)
        fact = replace(one.fact, sources=left, proof_count=None)
        if one.ordinal is not None:
            pairs.append((one, fact))
        else:
            await change.connection.execute(
                "update memory_units set source_ids = $3 where bank = $1 and id = $2",
                change.bank,
                one.fact.id,
                list(left),
            )
    change.keeps_derived = True
    change.history_limit = 0
    await stored.rewrite(change, pairs)
    await change.connection.execute(
        "delete from observation_history where bank = $1 and observation_id = any($2)",
        change.bank,
        list(kept),
    )


async def _documents(change: Change, found: Selection) -> int:
    """Whole documents, and texts without memories; how many chunks went."""
    connection, bank = change.connection, change.bank
    chunks: int = await connection.fetchval(
        "select count(*) from chunks where bank = $1 and document_id = any($2)",
        bank,
        list(found.documents),
    )
    await connection.execute(
        "delete from documents where bank = $1 and document_id = any($2)",
        bank,
        list(found.documents),
    )
    if found.chunks:
        cut = await erasure.cut_documents(connection, bank, found.chunks, ends=True)
        chunks += cut.chunks_removed
    return chunks


async def _definitions(change: Change, found: Selection) -> None:
    """What was named or asked for in the words that are to be erased: models and directives go,
    folders and pages lose their names, ended operations their accounts."""
    connection, bank = change.connection, change.bank
    for id in found.models:
        await mental_models.delete(connection, bank, id)
    await connection.execute(
        "delete from directives where bank = $1 and id = any($2)", bank, list(found.directives)
    )
    await connection.execute(
        "update knowledge_nodes set name = id, name_key = id, updated_at = now()"
        " where bank = $1 and id = any($2)",
        bank,
        list(found.nodes),
    )
    await connection.execute(
        "update operations set error_message = null, result_metadata = null, progress = null,"
        " document_id = null where bank = $1 and operation_id = any($2)",
        bank,
        list(found.operations),
    )
