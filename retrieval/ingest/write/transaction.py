"""The one write transaction.

`write` locks the bank's row, gives a `Change` to the caller, and commits: rows, segments,
tombstones and the bank's new version, or nothing. Embedding and analysing come before
(`enrich.prepare`). Writers of one bank take turns; readers are never held up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import numpy as np

from retrieval.ingest.collecting import held_off
from retrieval.ingest.context import WriteContext
from retrieval.ingest.entities import resolution as entities
from retrieval.ingest.entities.mentions import FactMentions
from retrieval.ingest.facts import Fact, Link, Prepared
from retrieval.ingest.scopes import scope_key
from retrieval.ingest.write import links, numbering, references, rows
from retrieval.ingest.write.enrich import weighed_by
from retrieval.ingest.write.sets import agreed
from retrieval.settings import RetainSettings
from retrieval.store import banks
from retrieval.store.database.copying import execute_many
from retrieval.store.database.pool import Connection
from retrieval.store.database.pool import write as transact
from retrieval.store.heads import BankHead
from retrieval.store.segments import table as segments
from retrieval.store.segments.format import pack
from retrieval.types import FactType

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Old:
    """What is kept of a memory that a write replaces."""

    ordinal: int | None
    text: str
    fact_type: int
    document_id: str | None
    position: int
    created_at: datetime
    said: tuple[Any, ...]
    """What a consolidation reads of it."""
    marks: tuple[Any, ...]
    """How far it is consolidated."""


_SAID = "text, fact_type, context, occurred_start, occurred_end, mentioned_at, observation_scopes"
_MARKS = (
    "consolidated_at, consolidated_scopes, consolidation_failed_at, consolidation_error,"
    " consolidation_group"
)


async def write(
    deps: WriteContext,
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

    async def transaction(connection: Connection) -> tuple[T, BankHead]:
        if create:
            await banks.ensure(connection, tenant, bank_id)
        held = await banks.lock(connection, tenant, bank_id, building=deps.builds)
        change = Change(deps, connection, held)
        result = await work(change)
        return result, await change.finish()

    async with deps.bank_locks.held(deps.pool, tenant, bank_id):
        result, head = await transact(deps.pool, transaction)
    deps.committed(head)
    return result


class Change:
    """What one write does to one bank. Used by one task, inside `write` only."""

    def __init__(self, deps: WriteContext, connection: Connection, held: BankHead) -> None:
        self.deps = deps
        self.connection = connection
        self.held = held
        self.bank = held.bank
        self.version = held.version + 1
        self.now = deps.clock()
        self.settings: RetainSettings = deps.settings.with_overrides(held.config)
        self._next_ordinal = held.next_ordinal
        self._dead: list[int] = []
        self.derived: list[UUID] = []
        """The observations that this write removed with what they were made of."""
        self.unconsolidated = False
        """Does this write leave memories that are to be consolidated?"""
        self.history_limit = rows.HISTORY_LIMIT
        self.reasons: Mapping[UUID, str] = {}
        """Why observations change, for their histories."""
        self.keeps_derived = False
        """Whether what was built on an observation stays when that says something else."""
        self.erases = False
        """Whether what this write takes away is to be gone from the segments, too, before long."""
        self._touched = False
        self._wrote_document = False
        self._serving = (held.vector_set, held.analyser)

    async def finish(self) -> BankHead:
        """Tombstones and the new version; nothing if nothing was done. The bank's head then."""
        if self.unconsolidated and self.deps.ripens is not None:
            await self.deps.ripens(self.connection, self.held)
        if not self._touched:
            return self.held
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
            " last_document_at = case when $6 then now() else last_document_at end,"
            " erase_since = case when $7 then coalesce(erase_since, now()) else erase_since end"
            " where bank = $1",
            self.bank,
            self.version,
            self._next_ordinal,
            vector_set,
            analyser,
            self._wrote_document,
            self.erases,
        )
        return replace(
            self.held,
            version=self.version,
            next_ordinal=self._next_ordinal,
            vector_set=vector_set,
            analyser=analyser,
        )

    def touch(self) -> None:
        """Says that rows were changed which replicas read by version."""
        self._touched = True

    def tombstone(self, ordinals: Iterable[int | None]) -> None:
        """Marks ordinals as dead from this version on."""
        self._touched = True
        self._dead += [ordinal for ordinal in ordinals if ordinal is not None]

    # Taking away

    async def remove(self, ids: Sequence[UUID], keep: Sequence[UUID] = ()) -> int:
        """Deletes memories, their links, and the observations built on them but those in `keep`;
        how many in all."""
        rows = await self.connection.fetch(
            "delete from memory_units where bank = $1 and id = any($2)"
            " returning id, ordinal, source_ids, tags",
            self.bank,
            list(ids),
        )
        await self._after_removal(rows)
        return len(rows) + await self.remove_derived([row["id"] for row in rows], keep)

    async def remove_derived(self, sources: Sequence[UUID], keep: Sequence[UUID] = ()) -> int:
        """Deletes observations built on these memories, and what is built on those in turn.

        Their other sources are to be consolidated again. `keep` stays.
        """
        count = 0
        while sources:
            rows = await self.connection.fetch(
                "delete from memory_units where bank = $1 and source_ids <> '{}'"
                " and source_ids && $2::uuid[] and fact_type = $3 and id <> all($4)"
                " returning id, ordinal, source_ids, tags",
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
            self.derived += sources
        return count

    async def _after_removal(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.tombstone(row["ordinal"] for row in rows)
        made = [(row, source) for row in rows for source in row["source_ids"]]
        if not made:
            return
        gone = [row["id"] for row in rows]
        await self.connection.execute(
            "delete from observation_history where bank = $1 and observation_id = any($2)",
            self.bank,
            gone,
        )
        await self.connection.execute(
            "update memory_units set superseded_by = null"
            " where bank = $1 and superseded_by = any($2)",
            self.bank,
            gone,
        )
        # What is left of an observation's sources is shown together again.
        await self.connection.execute(
            "update memory_units m set consolidated_at = null, consolidation_failed_at = null,"
            " consolidation_error = null, consolidation_group = w.made, consolidated_scopes ="
            "  array(select unnest(m.consolidated_scopes) except select unnest(w.scopes))"
            " from (select id, array_agg(scope) as scopes, (array_agg(made))[1] as made"
            "  from unnest($2::uuid[], $3::text[], $4::uuid[]) s(id, scope, made) group by id) w"
            " where m.bank = $1 and m.id = w.id",
            self.bank,
            [source for _, source in made],
            [scope_key(row["tags"]) for row, _ in made],
            [row["id"] for row, _ in made],
        )
        self.unconsolidated = True

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
        self.tombstone([ordinal])
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
        with held_off(len(prepared.facts)):
            return await self._add(prepared, stated, known or {})

    async def _add(
        self,
        prepared: Prepared,
        stated: Sequence[Link],
        known: Mapping[UUID, Sequence[tuple[int, str]]],
    ) -> list[UUID]:
        self._touched = True
        connection, bank = self.connection, self.bank
        version = self.deps.analyser(self.settings).version
        sets = await agreed(connection, self.held, prepared.vector_set, version)
        self._serving = sets.serving
        prepared = await weighed_by(self.deps, self.settings, prepared)
        facts = await references.with_known_ids(connection, bank, prepared.facts)
        by_key = await references.keys(connection, bank, facts, stated)
        facts = await asyncio.to_thread(references.with_sources, facts, by_key)
        await references.check_sources(connection, bank, facts)
        old = await self._old([fact.id for fact in facts])
        edges = await references.stated(connection, bank, stated, by_key, facts)
        incoming = await references.incoming(connection, bank, list(old))
        await self._replace(facts, old)
        documents, facts = await self._documents(facts, old)
        tags = await numbering.tag_numbers(connection, bank, facts, self.version)
        named = await self._named(facts, known)
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
        facts = await references.with_proof(connection, bank, facts)
        await rows.copy_units(connection, bank, facts, prepared, first, self.now)
        await self._keep_marks(facts, old)
        await rows.copy_entities(connection, bank, facts, named)
        await rows.copy_links(connection, bank, [*edges, *incoming], self.now)
        stated_edges = await references.ordinals(
            connection,
            bank,
            [*edges, *incoming],
            {fact.id: first + i for i, fact in enumerate(facts)},
        )
        columns = await asyncio.to_thread(
            rows.columns, facts, prepared, documents, tags, named, self.now
        )
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

    async def _old(self, ids: Sequence[UUID]) -> dict[UUID, _Old]:
        rows = await self.connection.fetch(
            f"select id, ordinal, {_SAID}, document_id, position, created_at, tags, {_MARKS}"
            " from memory_units where bank = $1 and id = any($2)",
            self.bank,
            list(ids),
        )
        return await asyncio.to_thread(_olds, rows)

    async def _replace(self, facts: Sequence[Fact], old: Mapping[UUID, _Old]) -> None:
        if not old:
            return
        await rows.remember_observations(
            self.connection, self.bank, facts, old, self.now, self.history_limit, self.reasons
        )
        await self.connection.execute(
            "delete from memory_units where bank = $1 and id = any($2)", self.bank, list(old)
        )
        self.tombstone(before.ordinal for before in old.values())
        changed = [
            fact.id
            for fact in facts
            if (before := old.get(fact.id)) is not None
            and (before.text, before.fact_type) != (fact.text, fact.fact_type)
        ]
        if not self.keeps_derived:
            await self.remove_derived(changed, keep=[fact.id for fact in facts])

    async def _keep_marks(self, facts: Sequence[Fact], old: Mapping[UUID, _Old]) -> None:
        """A memory that a write changes in nothing that a consolidation reads stays as far
        consolidated as it was; the others are to be consolidated."""
        kept = [
            (f.id, old[f.id].marks) for f in facts if f.id in old and _said(f) == old[f.id].said
        ]
        if kept:
            await execute_many(
                self.connection,
                "update memory_units set consolidated_at = $3, consolidated_scopes = $4,"
                " consolidation_failed_at = $5, consolidation_error = $6, consolidation_group = $7"
                " where bank = $1 and id = $2",
                ((self.bank, id, *marks) for id, marks in kept),
            )
        known = {id for id, marks in kept if marks[0] is not None or marks[2] is not None}
        self.unconsolidated |= any(
            fact.fact_type is not FactType.OBSERVATION and fact.id not in known for fact in facts
        )

    async def _documents(
        self, facts: Sequence[Fact], old: Mapping[UUID, _Old]
    ) -> tuple[dict[str, int], list[Fact]]:
        """Document numbers by id, and the facts with their places inside their documents."""
        ids = list(dict.fromkeys(f.document_id for f in facts if f.document_id is not None))
        if not ids:
            return {}, await asyncio.to_thread(_all_placed, facts, old, {})
        self._wrote_document = True
        numbers = await numbering.document_numbers(self.connection, self.bank, ids)
        places = {
            row["document_id"]: row["next_position"]
            for row in await self.connection.fetch(
                "select document_id, next_position from documents"
                " where bank = $1 and document_id = any($2)",
                self.bank,
                ids,
            )
        }
        placed = await asyncio.to_thread(_all_placed, facts, old, places)
        await self.connection.execute(
            "update documents d set next_position = w.p, updated_at = now()"
            " from unnest($2::text[], $3::int[]) w(id, p)"
            " where d.bank = $1 and d.document_id = w.id",
            self.bank,
            ids,
            [places[id] for id in ids],
        )
        return numbers, placed

    async def _named(
        self, facts: Sequence[Fact], known: Mapping[UUID, Sequence[tuple[int, str]]]
    ) -> list[Sequence[tuple[int, str]]]:
        open_facts = [fact for fact in facts if fact.id not in known]
        found = await self._entities([FactMentions(f.mentions, f.event_date) for f in open_facts])
        every = {**known, **dict(zip((f.id for f in open_facts), found, strict=True))}
        return [every[fact.id] for fact in facts]

    async def _entities(
        self, named_facts: Sequence[FactMentions]
    ) -> Sequence[Sequence[tuple[int, str]]]:
        if not any(named_fact.mentions for named_fact in named_facts):
            return [()] * len(named_facts)
        next_entity = await self.connection.fetchval(
            "select next_entity from banks where bank = $1", self.bank
        )
        resolution = await entities.resolve(
            self.connection, self.bank, self.version, next_entity, named_facts, self.settings
        )
        if resolution.next_entity != next_entity:
            await self.connection.execute(
                "update banks set next_entity = $2 where bank = $1",
                self.bank,
                resolution.next_entity,
            )
        return resolution.entities

    async def _segment(self, kind: str, first: int, count: int, arrays: Mapping[str, Any]) -> None:
        packed = await asyncio.to_thread(pack, arrays)
        await segments.append(self.connection, self.bank, kind, first, count, self.version, packed)


def _said(fact: Fact) -> tuple[Any, ...]:
    return (
        fact.text, int(fact.fact_type), fact.context, fact.occurred_start, fact.occurred_end,
        fact.mentioned_at, fact.observation_scopes, frozenset(fact.tags),
    )  # fmt: skip


def _all_placed(
    facts: Sequence[Fact], old: Mapping[UUID, _Old], places: dict[str, int]
) -> list[Fact]:
    """The facts with positions: `places` are the next ones of their documents, and go on."""
    placed = []
    for i, fact in enumerate(facts):
        before = old.get(fact.id)
        if fact.document_id is None:
            placed.append(_placed(fact, i))
        elif fact.position is None and before and before.document_id == fact.document_id:
            placed.append(_placed(fact, before.position))
        else:
            document = fact.document_id
            at = places[document] if fact.position is None else fact.position
            places[document] = max(places[document], at + 1)
            placed.append(_placed(fact, at))
    return placed


def _placed(fact: Fact, position: int) -> Fact:
    return fact if fact.position is not None else replace(fact, position=position)


def _olds(rows: Sequence[Mapping[str, Any]]) -> dict[UUID, _Old]:
    said, marks = _SAID.split(", "), _MARKS.split(", ")
    return {
        row["id"]: _Old(
            row["ordinal"], row["text"], row["fact_type"], row["document_id"],
            row["position"], row["created_at"],
            (*(row[name] for name in said), frozenset(row["tags"])),
            tuple(row[name] for name in marks),
        )
        for row in rows
    }  # fmt: skip
