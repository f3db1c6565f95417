"""The one write transaction.

`write` locks the bank's row, gives a `Change` to the caller, and commits: rows, segments,
tombstones and the bank's new version, or nothing. Embedding and analysing come before
(`augment.prepare`). Writers of one bank take turns; readers are never held up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import numpy as np

from retrieval.bank.segment import pack
from retrieval.errors import InvalidInput
from retrieval.ingest import entities, links
from retrieval.ingest.augment import weighed_by
from retrieval.ingest.deps import IngestDeps
from retrieval.ingest.entities import Sighting
from retrieval.ingest.facts import Fact, Link, Prepared, Ref
from retrieval.ingest.fields import fail, with_key
from retrieval.ingest.links import Edges
from retrieval.ingest.sets import agreed
from retrieval.ingest.subject import flags, subject
from retrieval.settings import RetainSettings
from retrieval.store import banks, segments
from retrieval.store.edge import iso, micros
from retrieval.store.heads import BankHead
from retrieval.store.pool import Connection
from retrieval.store.pool import write as transact
from retrieval.types import NO_PROOF, FactType, Ints, LinkType

T = TypeVar("T")

HISTORY_LIMIT = 50
"""Earlier states that are kept of an observation."""

_UNIT_COLUMNS = (
    "bank", "id", "ordinal", "key", "text", "fact_type", "context", "occurred_start",
    "occurred_end", "mentioned_at", "document_id", "chunk_id", "position", "tags", "metadata",
    "proof_count", "source_ids", "observation_scopes", "text_signals", "token_count", "created_at",
    "updated_at", "edited_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Old:
    """What is kept of a memory that a write replaces."""

    ordinal: int | None
    text: str
    fact_type: int
    document_id: str | None
    position: int
    created_at: datetime


async def write(
    deps: IngestDeps,
    tenant: str,
    bank_id: str,
    work: Callable[[Change], Awaitable[T]],
    *,
    create: bool = False,
) -> T:
    """Runs `work` as the bank's only writer and commits what it did, as one new version.

    With `create` a missing bank is made, in the same transaction; else NotFound. `work` may run
    again if the connection is lost before the commit, so it must not keep state outside.
    """

    async def transaction(connection: Connection) -> T:
        if create:
            await banks.ensure(connection, tenant, bank_id)
        change = Change(deps, connection, await banks.lock(connection, tenant, bank_id))
        result = await work(change)
        await change.finish()
        return result

    async with deps.turns.of(deps.pool, tenant, bank_id):
        return await transact(deps.pool, transaction)


class Change:
    """What one write does to one bank. Used by one task, inside `write` only."""

    def __init__(self, deps: IngestDeps, connection: Connection, held: BankHead) -> None:
        self.deps = deps
        self.connection = connection
        self.held = held
        self.bank = held.bank
        self.version = held.version + 1
        self.now = deps.clock()
        self.settings: RetainSettings = deps.settings.with_overrides(held.config)
        self._next_ordinal = held.next_ordinal
        self._dead: list[int] = []
        self._touched = False
        self._wrote_document = False
        self._serving = (held.vector_set, held.analyser)

    async def finish(self) -> None:
        """Tombstones and the new version; nothing if nothing was done."""
        if not self._touched:
            return
        await self.connection.execute(
            "insert into tombstones (bank, ordinal, version)"
            " select $1, o, $2 from unnest($3::int[]) o on conflict do nothing",
            self.bank,
            self.version,
            self._dead,
        )
        vector_set, analyser = self._serving
        await self.connection.execute(
            "update banks set version = $2, next_ordinal = $3, vector_set = $4, analyser = $5,"
            " updated_at = now(), last_write_at = now(),"
            " last_document_at = case when $6 then now() else last_document_at end"
            " where bank = $1",
            self.bank,
            self.version,
            self._next_ordinal,
            vector_set,
            analyser,
            self._wrote_document,
        )

    def touch(self) -> None:
        """Says that rows were changed which replicas read by version."""
        self._touched = True

    def bury(self, ordinals: Iterable[int | None]) -> None:
        """Marks ordinals as dead from this version on."""
        self._touched = True
        self._dead += [ordinal for ordinal in ordinals if ordinal is not None]

    # Taking away

    async def remove(self, ids: Sequence[UUID]) -> int:
        """Deletes memories, their links, and the observations built on them; how many in all."""
        rows = await self.connection.fetch(
            "delete from memory_units where bank = $1 and id = any($2)"
            " returning id, ordinal, source_ids",
            self.bank,
            list(ids),
        )
        await self._after_removal(rows)
        return len(rows) + await self.remove_derived([row["id"] for row in rows])

    async def remove_derived(self, sources: Sequence[UUID], keep: Sequence[UUID] = ()) -> int:
        """Deletes observations built on these memories, and what is built on those in turn.

        Their other sources are to be consolidated again. `keep` stays.
        """
        count = 0
        while sources:
            rows = await self.connection.fetch(
                "delete from memory_units where bank = $1 and source_ids <> '{}'"
                " and source_ids && $2::uuid[] and fact_type = $3 and id <> all($4)"
                " returning id, ordinal, source_ids",
                self.bank,
                list(sources),
                int(FactType.OBSERVATION),
                list(keep),
            )
            if not rows:
                break
            count += len(rows)
            await self._after_removal(rows)
            sources = [row["id"] for row in rows]
        return count

    async def _after_removal(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.bury(row["ordinal"] for row in rows)
        if sources := [source for row in rows for source in row["source_ids"]]:
            await self.connection.execute(
                "delete from observation_history where bank = $1 and observation_id = any($2)",
                self.bank,
                [row["id"] for row in rows],
            )
            await self.connection.execute(
                "update memory_units set consolidated_at = null, consolidation_failed_at = null"
                " where bank = $1 and id = any($2)",
                self.bank,
                sources,
            )

    async def invalidate(self, id: UUID, reason: str | None) -> None:
        """Takes a memory out of every arm; its row and stated links stay for a restore."""
        ordinal = await self.connection.fetchval(
            "update memory_units m set ordinal = null, invalidation_reason = $3,"
            " invalidated_at = now(), updated_at = now() from memory_units before"
            " where m.bank = $1 and m.id = $2 and before.bank = $1 and before.id = $2"
            " returning before.ordinal",
            self.bank,
            id,
            reason,
        )
        self.bury([ordinal])
        await self.remove_derived([id])

    # Adding

    async def add(
        self,
        prepared: Prepared,
        stated: Sequence[Link] = (),
        known: Mapping[UUID, Sequence[tuple[int, str]]] | None = None,
    ) -> list[UUID]:
        """Writes the facts under the next ordinals; returns their ids, in order.

        A fact whose key or id the bank holds already takes that memory's place: same id, new
        ordinal, incoming stated links kept, outgoing ones only if `stated` has them, observations
        on a changed text deleted. `known` gives the (entity number, name) lists of facts whose
        entities are settled. InvalidInput names a link or source that leads nowhere. Call it once.
        """
        if not prepared.facts:
            return []
        self._touched = True
        analyser = self.deps.analyser(self.settings)
        sets = await agreed(self.connection, self.held, self.deps.vector_set, analyser.version)
        self._serving = sets.serving
        prepared = await weighed_by(analyser, prepared)
        facts = await self._with_known_ids(prepared.facts)
        by_key = await self._keys(facts, stated)
        facts = _with_sources(facts, by_key)
        await self._check_sources(facts)
        old = await self._old([fact.id for fact in facts])
        edges = await self._stated(stated, by_key, facts)
        incoming = await self._incoming(list(old))
        await self._replace(facts, old)
        documents, facts = await self._documents(facts, old)
        tags = await self._tags(facts)
        named = await self._named(facts, known or {})
        first = self._next_ordinal
        self._next_ordinal += len(facts)
        semantic = (
            await links.semantic(
                self.deps.neighbours,
                self.held,
                prepared.vectors,
                prepared.types,
                first,
                np.array(self._dead, np.int32),
                k=self.settings.semantic_link_top_k,
                floor=self.settings.semantic_link_min_similarity,
            )
            if sets.linkable
            else links.none()
        )
        facts = await self._with_proof(facts)
        await self._copy_units(facts, prepared, first)
        await self._copy_entities(facts, named)
        await self._copy_links([*edges, *incoming])
        stated_edges = await self._ordinals(
            [*edges, *incoming], {fact.id: first + i for i, fact in enumerate(facts)}
        )
        columns = _columns(facts, prepared, documents, tags, named, self.now)
        await self._segment("columns", first, len(facts), columns)
        await self._segment(
            f"vectors:{sets.vectors}", first, len(facts), {"vectors": prepared.vectors}
        )
        await self._segment(f"postings:{sets.postings}", first, len(facts), prepared.postings)
        every = links.joined([semantic, stated_edges])
        if len(every):
            await self._segment(
                "links",
                first,
                len(facts),
                {
                    "source": every.source,
                    "target": every.target,
                    "type": every.type,
                    "weight": every.weight,
                },
            )
        return [fact.id for fact in facts]

    async def _with_known_ids(self, facts: Sequence[Fact]) -> list[Fact]:
        keys = [fact.key for fact in facts if fact.key is not None]
        if not keys:
            return list(facts)
        rows = await self.connection.fetch(
            "select key, id from memory_units where bank = $1 and key = any($2)", self.bank, keys
        )
        known = {row["key"]: row["id"] for row in rows}
        return [replace(fact, id=known[fact.key]) if fact.key in known else fact for fact in facts]

    async def _keys(self, facts: Sequence[Fact], stated: Sequence[Link]) -> dict[str, UUID]:
        """The ids behind every key that a source or link may name."""
        own = {fact.key: fact.id for fact in facts if fact.key is not None}
        wanted = {ref for fact in facts for ref in fact.sources if isinstance(ref, str)}
        wanted |= {
            ref for link in stated for ref in (link.source, link.target) if isinstance(ref, str)
        }
        rows = await self.connection.fetch(
            "select key, id from memory_units where bank = $1 and key = any($2)",
            self.bank,
            list(wanted - own.keys()),
        )
        known = {row["key"]: row["id"] for row in rows} | own
        ids = {ref: id for ref in wanted - known.keys() if (id := _as_id(ref)) is not None}
        rows = await self.connection.fetch(
            "select id from memory_units where bank = $1 and id = any($2)",
            self.bank,
            list(ids.values()),
        )
        stored = {row["id"] for row in rows}
        return {**{ref: id for ref, id in ids.items() if id in stored}, **known}

    async def _check_sources(self, facts: Sequence[Fact]) -> None:
        own = {fact.id for fact in facts}
        wanted = {ref for fact in facts for ref in fact.sources if isinstance(ref, UUID)} - own
        if not wanted:
            return
        rows = await self.connection.fetch(
            "select id from memory_units where bank = $1 and id = any($2)", self.bank, list(wanted)
        )
        missing = wanted - {row["id"] for row in rows}
        for fact in facts:
            for i, ref in enumerate(fact.sources):
                if ref in missing:
                    raise _nowhere(ref, f"{fact.where}.sources[{i}]", fact.key)

    async def _old(self, ids: Sequence[UUID]) -> dict[UUID, _Old]:
        rows = await self.connection.fetch(
            "select id, ordinal, text, fact_type, document_id, position, created_at"
            " from memory_units where bank = $1 and id = any($2)",
            self.bank,
            list(ids),
        )
        return {
            row["id"]: _Old(
                row["ordinal"], row["text"], row["fact_type"], row["document_id"],
                row["position"], row["created_at"],
            )
            for row in rows
        }  # fmt: skip

    async def _stated(
        self, stated: Sequence[Link], by_key: Mapping[str, UUID], facts: Sequence[Fact]
    ) -> list[Link]:
        """The links by id, each (from, to, type) once, without loops."""
        found: dict[tuple[Ref, Ref, LinkType], Link] = {}
        for link in stated:
            source, target = (
                by_key.get(ref) if isinstance(ref, str) else ref
                for ref in (link.source, link.target)
            )
            if source is None or target is None:
                missing_end = link.source if source is None else link.target
                raise _nowhere(missing_end, link.where, link.source)
            if source != target:
                found.setdefault(
                    (source, target, link.type), replace(link, source=source, target=target)
                )
        own = {fact.id for fact in facts}
        ends = {ref for link in found.values() for ref in (link.source, link.target)} - own
        rows = await self.connection.fetch(
            "select id from memory_units where bank = $1 and id = any($2)", self.bank, list(ends)
        )
        missing = ends - {row["id"] for row in rows}
        for link in found.values():
            for ref in (link.source, link.target):
                if ref in missing:
                    raise _nowhere(ref, link.where, link.source)
        return list(found.values())

    async def _incoming(self, ids: Sequence[UUID]) -> list[Link]:
        """Stated links from elsewhere to memories that are about to be replaced."""
        if not ids:
            return []
        rows = await self.connection.fetch(
            "select from_id, to_id, type, weight from links"
            " where bank = $1 and to_id = any($2) and from_id <> all($2)",
            self.bank,
            list(ids),
        )
        return [Link(row[0], row[1], LinkType(row[2]), row[3]) for row in rows]

    async def _replace(self, facts: Sequence[Fact], old: Mapping[UUID, _Old]) -> None:
        if not old:
            return
        await self._remember_observations(facts, old)
        await self.connection.execute(
            "delete from memory_units where bank = $1 and id = any($2)", self.bank, list(old)
        )
        self.bury(before.ordinal for before in old.values())
        changed = [
            fact.id
            for fact in facts
            if (before := old.get(fact.id)) is not None
            and (before.text, before.fact_type) != (fact.text, fact.fact_type)
        ]
        await self.remove_derived(changed, keep=[fact.id for fact in facts])

    async def _remember_observations(self, facts: Sequence[Fact], old: Mapping[UUID, _Old]) -> None:
        """Puts what observations said before into their history, which keeps the last 50."""
        changed = {
            fact.id: fact
            for fact in facts
            if fact.fact_type is FactType.OBSERVATION
            and fact.id in old
            and old[fact.id].text != fact.text
        }
        if not changed:
            return
        rows = await self.connection.fetch(
            "select id, text, tags, occurred_start, occurred_end, mentioned_at, source_ids"
            " from memory_units where bank = $1 and id = any($2)",
            self.bank,
            list(changed),
        )
        await self.connection.copy_records_to_table(
            "observation_history",
            columns=("bank", "observation_id", "changed_at", "content"),
            records=[
                (self.bank, row["id"], self.now, _past(row, changed[row["id"]])) for row in rows
            ],
        )
        await self.connection.execute(
            "delete from observation_history h using ("
            "  select observation_id, changed_at, row_number() over ("
            "    partition by observation_id order by changed_at desc) as place"
            "  from observation_history where bank = $1 and observation_id = any($2)) o"
            " where h.bank = $1 and h.observation_id = o.observation_id"
            " and h.changed_at = o.changed_at and o.place > $3",
            self.bank,
            list(changed),
            HISTORY_LIMIT,
        )

    async def _documents(
        self, facts: Sequence[Fact], old: Mapping[UUID, _Old]
    ) -> tuple[dict[str, int], list[Fact]]:
        """Document numbers by id, and the facts with their places inside their documents."""
        ids = list(dict.fromkeys(f.document_id for f in facts if f.document_id is not None))
        if not ids:
            return {}, [_placed(fact, i) for i, fact in enumerate(facts)]
        self._wrote_document = True
        numbers = await self.document_numbers(ids)
        places = {
            row["document_id"]: row["next_position"]
            for row in await self.connection.fetch(
                "select document_id, next_position from documents"
                " where bank = $1 and document_id = any($2)",
                self.bank,
                ids,
            )
        }
        placed = []
        for i, fact in enumerate(facts):
            before = old.get(fact.id)
            if fact.document_id is None:
                placed.append(_placed(fact, i))
            elif fact.position is None and before and before.document_id == fact.document_id:
                placed.append(_placed(fact, before.position))
            else:
                fact = _placed(fact, places[fact.document_id])
                assert fact.position is not None
                places[fact.document_id] = max(places[fact.document_id], fact.position + 1)
                placed.append(fact)
        await self.connection.execute(
            "update documents d set next_position = w.p, updated_at = now()"
            " from unnest($2::text[], $3::int[]) w(id, p)"
            " where d.bank = $1 and d.document_id = w.id",
            self.bank,
            ids,
            [places[id] for id in ids],
        )
        return numbers, placed

    async def document_numbers(self, ids: Sequence[str]) -> dict[str, int]:
        """The dense numbers of documents; rows are made for those that have none."""
        rows = await self.connection.fetch(
            "with known as (select document_id, document_no from documents"
            "  where bank = $1 and document_id = any($2)),"
            " missing as (select id, row_number() over (order by place) as n"
            "  from unnest($2::text[]) with ordinality w(id, place)"
            "  where id not in (select document_id from known)),"
            " base as (update banks set next_document = next_document"
            "   + (select count(*) from missing)::int where bank = $1 returning next_document),"
            " made as (insert into documents (bank, document_id, document_no)"
            "  select $1, id, next_document - (select count(*) from missing)::int + n::int - 1"
            "  from missing, base returning document_id, document_no)"
            " select document_id, document_no from known union all select * from made",
            self.bank,
            list(ids),
        )
        return {row[0]: row[1] for row in rows}

    async def _tags(self, facts: Sequence[Fact]) -> dict[str, int]:
        tags = list(dict.fromkeys(tag for fact in facts for tag in fact.tags))
        if not tags:
            return {}
        rows = await self.connection.fetch(
            "with known as (select tag, tag_no from tags where bank = $1 and tag = any($2)),"
            " missing as (select id, row_number() over (order by place) as n"
            "  from unnest($2::text[]) with ordinality w(id, place)"
            "  where id not in (select tag from known)),"
            " base as (update banks set next_tag = next_tag"
            "   + (select count(*) from missing)::int where bank = $1 returning next_tag),"
            " made as (insert into tags (bank, tag_no, tag, version)"
            "  select $1, next_tag - (select count(*) from missing)::int + n::int - 1, id, $3"
            "  from missing, base returning tag, tag_no)"
            " select tag, tag_no from known union all select * from made",
            self.bank,
            tags,
            self.version,
        )
        return {row[0]: row[1] for row in rows}

    async def _named(
        self, facts: Sequence[Fact], known: Mapping[UUID, Sequence[tuple[int, str]]]
    ) -> list[Sequence[tuple[int, str]]]:
        open_facts = [fact for fact in facts if fact.id not in known]
        found = await self._entities([Sighting(f.mentions, f.event_date) for f in open_facts])
        every = {**known, **dict(zip((f.id for f in open_facts), found, strict=True))}
        return [every[fact.id] for fact in facts]

    async def _entities(self, sightings: Sequence[Sighting]) -> Sequence[Sequence[tuple[int, str]]]:
        if not any(sighting.mentions for sighting in sightings):
            return [()] * len(sightings)
        next_entity = await self.connection.fetchval(
            "select next_entity from banks where bank = $1", self.bank
        )
        resolution = await entities.resolve(
            self.connection, self.bank, self.version, next_entity, sightings, self.settings
        )
        if resolution.next_entity != next_entity:
            await self.connection.execute(
                "update banks set next_entity = $2 where bank = $1",
                self.bank,
                resolution.next_entity,
            )
        return resolution.entities

    async def _with_proof(self, facts: Sequence[Fact]) -> list[Fact]:
        """An observation's proof is how many distinct live memories it was made from."""
        open_ids = {
            ref
            for fact in facts
            if fact.fact_type is FactType.OBSERVATION and fact.proof_count is None
            for ref in fact.sources
        }
        if not open_ids:
            return list(facts)
        rows = await self.connection.fetch(
            "select id from memory_units where bank = $1 and id = any($2) and ordinal is not null",
            self.bank,
            list(open_ids),
        )
        live = {row["id"] for row in rows} | {fact.id for fact in facts}
        return [
            replace(fact, proof_count=len(live.intersection(fact.sources)))
            if fact.fact_type is FactType.OBSERVATION and fact.proof_count is None and fact.sources
            else fact
            for fact in facts
        ]

    async def _copy_units(self, facts: Sequence[Fact], prepared: Prepared, first: int) -> None:
        now = self.now
        await self.connection.copy_records_to_table(
            "memory_units",
            columns=_UNIT_COLUMNS,
            records=[
                (
                    self.bank, fact.id, first + i, fact.key, fact.text, int(fact.fact_type),
                    fact.context, fact.occurred_start, fact.occurred_end, fact.mentioned_at,
                    fact.document_id, fact.chunk_id, fact.position, fact.tags,
                    dict(fact.metadata) if fact.metadata else None, fact.proof_count, fact.sources,
                    fact.observation_scopes, signal, tokens, fact.created_at or now, now,
                    fact.edited_at,
                )
                for i, (fact, signal, tokens) in enumerate(
                    zip(facts, prepared.signals, prepared.tokens.tolist(), strict=True)
                )
            ],
        )  # fmt: skip

    async def _copy_entities(
        self, facts: Sequence[Fact], named: Sequence[Sequence[tuple[int, str]]]
    ) -> None:
        records = [
            (self.bank, fact.id, number, mention)
            for fact, found in zip(facts, named, strict=True)
            for number, mention in found
        ]
        if records:
            await self.connection.copy_records_to_table(
                "unit_entities",
                columns=("bank", "unit_id", "entity_no", "mention"),
                records=records,
            )

    async def _copy_links(self, stated: Sequence[Link]) -> None:
        if stated:
            await self.connection.copy_records_to_table(
                "links",
                columns=("bank", "from_id", "to_id", "type", "weight", "created_at"),
                records=[
                    (self.bank, link.source, link.target, int(link.type), link.weight, self.now)
                    for link in stated
                ],
            )

    async def _ordinals(self, stated: Sequence[Link], new: Mapping[Ref, int]) -> Edges:
        """The stated links by ordinal; those with an invalidated end are left out."""
        known = dict(new)
        wanted = {ref for link in stated for ref in (link.source, link.target)} - known.keys()
        if wanted:
            rows = await self.connection.fetch(
                "select id, ordinal from memory_units"
                " where bank = $1 and id = any($2) and ordinal is not null",
                self.bank,
                list(wanted),
            )
            known.update((row["id"], row["ordinal"]) for row in rows)
        live = [link for link in stated if link.source in known and link.target in known]
        n = len(live)
        return Edges(
            np.fromiter((known[link.source] for link in live), np.int32, n),
            np.fromiter((known[link.target] for link in live), np.int32, n),
            np.fromiter((link.type for link in live), np.uint8, n),
            np.fromiter((link.weight for link in live), np.float32, n),
        )

    async def _segment(self, kind: str, first: int, count: int, arrays: Mapping[str, Any]) -> None:
        await segments.append(
            self.connection, self.bank, kind, first, count, self.version, pack(arrays)
        )


def _as_id(ref: str) -> UUID | None:
    try:
        return UUID(ref)
    except ValueError:
        return None


def _past(row: Mapping[str, Any], now: Fact) -> dict[str, Any]:
    """What the history keeps of an observation's state before `now`."""
    return {
        "previous_text": row["text"],
        "previous_tags": row["tags"],
        "previous_occurred_start": iso(row["occurred_start"]),
        "previous_occurred_end": iso(row["occurred_end"]),
        "previous_mentioned_at": iso(row["mentioned_at"]),
        "new_source_memory_ids": [
            str(source) for source in now.sources if source not in row["source_ids"]
        ],
    }


def _placed(fact: Fact, position: int) -> Fact:
    return fact if fact.position is not None else replace(fact, position=position)


def _with_sources(facts: Sequence[Fact], by_key: Mapping[str, UUID]) -> list[Fact]:
    """The facts with their sources by id, each once."""
    resolved = []
    for fact in facts:
        if fact.sources:
            found: dict[Ref, None] = {}
            for i, ref in enumerate(fact.sources):
                id = by_key.get(ref) if isinstance(ref, str) else ref
                where = f"{fact.where}.sources[{i}]"
                if id is None:
                    raise _nowhere(ref, where, fact.key)
                if id == fact.id:
                    raise with_key(fail(where, "a memory is not its own source"), fact.key)
                found[id] = None
            fact = replace(fact, sources=tuple(found))
        resolved.append(fact)
    return resolved


def _nowhere(ref: Ref, where: str, item: Ref | None) -> InvalidInput:
    what = "key" if isinstance(ref, str) else "id"
    error = fail(where, f"no memory has the {what} {str(ref)!r}")
    return with_key(error, item if isinstance(item, str) else None)


def _columns(
    facts: Sequence[Fact],
    prepared: Prepared,
    documents: Mapping[str, int],
    tags: Mapping[str, int],
    named: Sequence[Sequence[tuple[int, str]]],
    now: datetime,
) -> dict[str, Any]:
    """The arrays of the columns segment."""
    n = len(facts)
    written = micros(now)

    def times(values: Iterable[datetime | None]) -> Any:
        return np.fromiter(map(micros, values), np.int64, n)

    tag_lists = [[tags[tag] for tag in fact.tags] for fact in facts]
    entity_lists = [[number for number, _ in found] for found in named]
    sources = [source for fact in facts for source in fact.sources if isinstance(source, UUID)]
    return {
        "id": _raw_ids([fact.id for fact in facts]),
        "fact_type": prepared.types,
        "created_at": np.fromiter(
            (written if f.created_at is None else micros(f.created_at) for f in facts), np.int64, n
        ),
        "updated_at": np.full(n, written, np.int64),
        "occurred_start": times(fact.occurred_start for fact in facts),
        "occurred_end": times(fact.occurred_end for fact in facts),
        "mentioned_at": times(fact.mentioned_at for fact in facts),
        "document": np.fromiter(
            (-1 if f.document_id is None else documents[f.document_id] for f in facts), np.int32, n
        ),
        "position": np.fromiter((fact.position or 0 for fact in facts), np.int32, n),
        "proof": np.fromiter(
            (NO_PROOF if f.proof_count is None else f.proof_count for f in facts), np.int32, n
        ),
        "tokens": prepared.tokens,
        "subject": np.fromiter(
            (subject(f.text, f.context, found) for f, found in zip(facts, named, strict=True)),
            np.int32,
            n,
        ),
        "flags": np.fromiter((flags(fact.text) for fact in facts), np.uint8, n),
        "tag_ptr": _pointers(tag_lists),
        "tag": _flat(tag_lists),
        "entity_ptr": _pointers(entity_lists),
        "entity": _flat(entity_lists),
        "source_ptr": _pointers([fact.sources for fact in facts]),
        "source": _raw_ids(sources),
    }


def _raw_ids(ids: Sequence[UUID]) -> Any:
    return np.frombuffer(b"".join(id.bytes for id in ids), np.uint8).reshape(-1, 16)


def _pointers(lists: Sequence[Sequence[Any]]) -> Ints:
    pointer = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([len(values) for values in lists], out=pointer[1:])
    return pointer


def _flat(lists: Sequence[Sequence[int]]) -> Ints:
    return np.fromiter((v for values in lists for v in values), np.int32, sum(map(len, lists)))
