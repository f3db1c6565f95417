"""One batch, committed: observations, their histories and the marks of the memories, or nothing.

Everything that was shown is read again under the bank's lock. What has changed meanwhile grounds
nothing: actions that cite it are void, and their memories stay to be consolidated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np

from retrieval.consolidation import scopes
from retrieval.consolidation.actions import Action, Decided, reading
from retrieval.consolidation.batch import Batch
from retrieval.consolidation.dedup import Twin
from retrieval.consolidation.deps import ConsolidationDeps
from retrieval.errors import ModelChanged
from retrieval.ingest.facts import Fact, new_ids
from retrieval.ingest.scopes import scope_key
from retrieval.ingest.write.enrich import Vectors, prepare
from retrieval.ingest.write.stored import StoredMemory, load, outgoing
from retrieval.ingest.write.transaction import Change, write
from retrieval.store import history, operations
from retrieval.store.history import DocumentChange
from retrieval.store.operations import Claim
from retrieval.store.segments import table as segments
from retrieval.types import FactType, Floats

ERROR_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What is to be written of a batch. `vectors` by text: those of all texts that are new, of the
    model that `vector_set` names."""

    batch: Batch
    decided: Decided
    twins: Sequence[Twin]
    vectors: Mapping[str, Floats]
    vector_set: str


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What became of a batch. `done`: memories that are finished in this scope; `waiting`: those
    that stay to be consolidated since something changed meanwhile."""

    done: frozenset[UUID] = frozenset()
    waiting: frozenset[UUID] = frozenset()
    created: tuple[UUID, ...] = ()
    updated: tuple[UUID, ...] = ()
    ended: tuple[UUID, ...] = ()
    merged: tuple[UUID, ...] = ()
    capped: int = 0
    void: int = 0


@dataclass(slots=True)
class _Draft:
    """An observation as it will be; `before` is what it was."""

    id: UUID
    text: str
    before: StoredMemory | None = None
    cited: dict[UUID, StoredMemory] = field(default_factory=dict)
    said: dict[UUID, StoredMemory] = field(default_factory=dict)
    """Those of the cited memories that the text rests on: the others only say that it is over."""
    since: datetime | None = None
    until: datetime | None = None
    superseded_by: UUID | None = None
    reason: str = ""
    gone: list[StoredMemory] = field(default_factory=list)
    """Others that become this one."""
    ends: bool = False

    @classmethod
    def of(cls, before: StoredMemory) -> _Draft:
        fact = before.fact
        return cls(
            fact.id, fact.text, before, since=fact.valid_from, until=fact.valid_until,
            superseded_by=fact.superseded_by,
        )  # fmt: skip

    def fact(self, tags: Sequence[str]) -> Fact:
        """As a memory: sources united, dates widened."""
        old = [s.fact for s in ([self.before] if self.before else []) + self.gone]
        every = [*old, *(stored.fact for stored in self.said.values())]
        sources = dict.fromkeys([*(s for one in old for s in one.sources), *self.cited])
        made = Fact(
            self.id,
            self.text,
            FactType.OBSERVATION,
            occurred_start=min((f.occurred_start for f in every if f.occurred_start), default=None),
            occurred_end=max((f.occurred_end for f in every if f.occurred_end), default=None),
            mentioned_at=max((f.mentioned_at for f in every if f.mentioned_at), default=None),
            tags=tuple(tags),
            sources=tuple(sources),
            valid_from=self.since,
            valid_until=self.until,
            superseded_by=self.superseded_by,
        )
        if self.before is None:
            return made
        kept = self.before.fact
        return replace(
            made, key=kept.key, context=kept.context, metadata=kept.metadata, tags=kept.tags,
            position=kept.position, created_at=kept.created_at, edited_at=kept.edited_at,
        )  # fmt: skip


async def commit(
    deps: ConsolidationDeps, claimed: Claim, plan: CommitPlan, progress: int
) -> CommitResult:
    """Writes what was decided, as one transaction. Conflict where the operation is not ours any
    more. `progress`: memories that the operation had finished before."""
    batch = plan.batch
    own = deps.settings.with_overrides(batch.bank.head.config)
    settings = scopes.settings_of(own, batch.scope)

    async def work(change: Change) -> CommitResult:
        await operations.proceed(
            change.connection,
            claimed,
            {
                "stage": "consolidating",
                "at": change.now.isoformat(),
                "processed": progress + len(batch.facts),
            },
        )
        fresh = await _fresh(change, plan)
        change.history_limit = (
            settings.observation_history_max_entries if settings.enable_observation_history else 0
        )
        change.keeps_derived = True
        good, void = _surviving(plan, fresh)
        drafts = _drafts(plan, good, fresh)
        created = [draft for draft in drafts if draft.before is None]
        capped = await _over(change, batch.scope, len(created), settings)
        dropped = {draft.id for draft in created[len(created) - capped :]}
        drafts = [draft for draft in drafts if draft.id not in dropped]
        for draft in drafts:
            if draft.superseded_by in dropped:
                draft.superseded_by = None
        await _store(deps, change, plan, drafts)
        written = _written(plan, void, fresh, drafts, capped)
        default = own.default_observation_scopes
        await mark_done(change, written.done, batch.scope, default)
        await history.record(change.connection, change.bank, _events(claimed, drafts))
        if drafts and deps.changed is not None:
            await deps.changed(change, [batch.scope])
        return written

    return await write(deps.ingest, batch.tenant, batch.bank_id, work)


async def mark_failed(
    deps: ConsolidationDeps, claimed: Claim, batch: Batch, reason: str
) -> frozenset[UUID]:
    """Marks the batch's memories as failed, unless they changed meanwhile."""

    async def work(change: Change) -> frozenset[UUID]:
        await operations.proceed(change.connection, claimed)
        fresh = await _reread(change, batch.facts)
        failed = [one.fact.id for one in batch.facts if fresh.get(one.fact.id) == one.fact]
        await change.connection.execute(
            "update memory_units set consolidation_failed_at = now(), consolidation_error = $3"
            " where bank = $1 and id = any($2)",
            change.bank,
            failed,
            reason[:ERROR_CHARS],
        )
        return frozenset(failed)

    return await write(deps.ingest, batch.tenant, batch.bank_id, work)


async def mark_done(
    change: Change, ids: Collection[UUID], scope: frozenset[str], default: Any
) -> None:
    """Marks memories as consolidated in a scope, and altogether where it was their last. `default`:
    scopes of memories that say nothing."""
    if not ids:
        return
    rows = await change.connection.fetch(
        "update memory_units set consolidated_scopes ="
        "  array(select unnest(consolidated_scopes) union select $3)"
        " where bank = $1 and id = any($2)"
        " returning id, tags, observation_scopes, consolidated_scopes",
        change.bank,
        list(ids),
        scope_key(scope),
    )
    finished = [
        row["id"]
        for row in rows
        if {scope_key(s) for s in scopes.of_memory(row["observation_scopes"], row["tags"], default)}
        <= set(row["consolidated_scopes"])
    ]
    await change.connection.execute(
        "update memory_units set consolidated_at = now(), consolidation_failed_at = null,"
        " consolidation_error = null, consolidation_group = null"
        " where bank = $1 and id = any($2)",
        change.bank,
        finished,
    )


async def _reread(change: Change, stored: Sequence[StoredMemory]) -> dict[UUID, Fact]:
    found = await load(change.connection, change.bank, [one.fact.id for one in stored])
    return {one.fact.id: one.fact for one in found if one.ordinal is not None}


@dataclass(frozen=True, slots=True)
class _Fresh:
    """What is unchanged of what was shown: places of facts; observations by id, as they are."""

    facts: frozenset[int]
    observations: Mapping[UUID, StoredMemory]


async def _fresh(change: Change, plan: CommitPlan) -> _Fresh:
    batch = plan.batch
    facts = await _reread(change, batch.facts)
    shown = {one.stored.fact.id: one.stored for one in batch.observations}
    shown |= {twin.other.fact.id: twin.other for twin in plan.twins if twin.other is not None}
    found = await load(change.connection, change.bank, list(shown))
    return _Fresh(
        frozenset(i for i, one in enumerate(batch.facts) if facts.get(one.fact.id) == one.fact),
        {
            one.fact.id: one
            for one in found
            if one.ordinal is not None and one.fact == shown[one.fact.id].fact
        },
    )


def _surviving(plan: CommitPlan, fresh: _Fresh) -> tuple[dict[int, Action], list[Action]]:
    """The actions that cite nothing that changed, by place; and the void ones."""
    good, void = {}, []
    for place, action in enumerate(plan.decided.actions):
        about = None
        if action.observation is not None:
            about = plan.batch.observations[action.observation].stored.fact.id
        if set(action.facts) <= fresh.facts and (about is None or about in fresh.observations):
            good[place] = action
        else:
            void.append(action)
    return good, void


def _drafts(plan: CommitPlan, good: Mapping[int, Action], fresh: _Fresh) -> list[_Draft]:
    """What becomes of observations: the texts first, then what ends for them."""
    batch = plan.batch
    twins = {twin.place: twin for twin in plan.twins}
    drafts: dict[UUID, _Draft] = {}
    targets: dict[int, _Draft] = {}

    def known(id: UUID) -> _Draft:
        if id not in drafts:
            drafts[id] = _Draft.of(fresh.observations[id])
        return drafts[id]

    facts = [shown.stored.fact for shown in reversed(batch.observations)]
    shown = {reading(fact.text): fact.id for fact in facts if fact.id in fresh.observations}

    def alike(text: str) -> _Draft | None:
        said = reading(text)
        if said in shown:
            return known(shown[said])
        return next((draft for draft in drafts.values() if reading(draft.text) == said), None)

    def placed(place: int, action: Action) -> _Draft:
        twin = twins.get(place)
        other = twin.other if twin is not None else None
        if other is not None and other.fact.id not in fresh.observations:
            other = None
        if action.observation is None:
            if other is not None:
                return known(other.fact.id)
            if twin is not None and twin.earlier in targets:
                return targets[twin.earlier]
            if (found := alike(action.text)) is not None:
                return found
            draft = _Draft(new_ids(1)[0], action.text)
            drafts[draft.id] = draft
            return draft
        own = known(batch.observations[action.observation].stored.fact.id)
        own.text = action.text
        if other is None or other.fact.id in drafts or own.gone:
            return own
        return _merged(own, other, drafts)

    for place, action in good.items():
        if action.do not in ("create", "update"):
            continue
        draft = targets[place] = placed(place, action)
        _cite(draft, action, batch)
        draft.said |= {id: draft.cited[id] for id in _ids(action, batch)}
        new = draft.before is None or action.observation is not None
        if new and action.since is not None:
            draft.since = action.since
        if new and action.until is not None:
            draft.until = action.until
    for action in good.values():
        if action.do != "end" or action.observation is None:
            continue
        draft = known(batch.observations[action.observation].stored.fact.id)
        partner = targets.get(action.partner) if action.partner is not None else None
        if partner is draft:
            continue  # what it would end is what holds since
        _cite(draft, action, batch)
        draft.ends, draft.until = True, action.until
        if partner is not None:
            draft.superseded_by = partner.id
    for draft in drafts.values():
        if draft.since is not None and draft.until is not None and draft.until < draft.since:
            draft.since = None
    return [draft for draft in drafts.values() if draft.cited]


def _merged(own: _Draft, other: StoredMemory, drafts: dict[UUID, _Draft]) -> _Draft:
    """One draft of two observations that say the same: the older id stays."""
    before = own.before
    assert before is not None
    if _age(other) >= _age(before):
        own.gone.append(other)
        return own
    survivor = _Draft.of(other)
    survivor.text, survivor.gone = own.text, [before]
    survivor.cited, survivor.said = own.cited, own.said
    drafts[survivor.id] = survivor
    del drafts[own.id]
    return survivor


def _age(stored: StoredMemory) -> tuple[datetime, int]:
    """What is older sorts first."""
    assert stored.fact.created_at is not None
    return stored.fact.created_at, stored.ordinal or 0


def _ids(action: Action, batch: Batch) -> list[UUID]:
    return [batch.facts[place].fact.id for place in action.facts]


def _cite(draft: _Draft, action: Action, batch: Batch) -> None:
    facts = (batch.facts[place] for place in action.facts)
    draft.cited |= {stored.fact.id: stored for stored in facts}
    draft.reason = action.reason or draft.reason


async def _over(
    change: Change, scope: frozenset[str], wanted: int, settings: scopes.ScopeSettings
) -> int:
    """How many of so many new observations are too many for the scope."""
    limit = settings.max_observations_per_scope
    if limit < 0 or not wanted or not scope:
        return 0
    held: int = await change.connection.fetchval(
        "select count(*) from memory_units where bank = $1 and fact_type = $2"
        " and ordinal is not null and tags @> $3 and tags <@ $3",
        change.bank,
        int(FactType.OBSERVATION),
        sorted(scope),
    )
    return max(0, min(wanted, wanted - (limit - held)))


async def _store(
    deps: ConsolidationDeps, change: Change, plan: CommitPlan, drafts: Sequence[_Draft]
) -> None:
    if not drafts:
        return
    tags = sorted(plan.batch.scope)
    facts = [draft.fact(tags) for draft in drafts]
    change.reasons = {draft.id: draft.reason for draft in drafts if draft.reason}
    vectors = await _vectors(change, plan, drafts)
    prepared = await prepare(deps.ingest, change.settings, facts, plan.batch.tenant, vectors)
    old = [draft for draft in drafts if draft.before is not None]
    stated = await outgoing(change.connection, change.bank, [draft.id for draft in old])
    gone = [(one.fact.id, draft.id) for draft in drafts for one in draft.gone]
    if gone:
        await _join(change, gone)
        lost = {id for id, _ in gone}
        stated = [link for link in stated if link.target not in lost]
    named = {draft.id: draft.before.named for draft in old if draft.before is not None}
    await change.add(prepared, stated, named)


async def _vectors(change: Change, plan: CommitPlan, drafts: Sequence[_Draft]) -> Vectors:
    """Vectors of all drafts: of new texts those made before, of others those that are stored."""
    kept = [d for d in drafts if d.text not in plan.vectors and d.before is not None]
    rows: Floats = np.empty((0, 0), np.float32)
    if kept:
        if plan.vectors and plan.vector_set != change.held.vector_set:
            raise ModelChanged(change.held.vector_set, plan.vector_set)
        ordinals = np.array([d.before.ordinal for d in kept if d.before], np.int32)
        rows = await segments.vectors(
            change.connection, change.bank, change.held.vector_set, ordinals
        )
    stored = {draft.id: row for draft, row in zip(kept, rows, strict=True)}
    found = [stored[d.id] if d.id in stored else plan.vectors[d.text] for d in drafts]
    made_by = plan.vector_set if plan.vectors else change.held.vector_set
    return Vectors(np.stack(found).astype(np.float32), made_by)


async def _join(change: Change, gone: Sequence[tuple[UUID, UUID]]) -> None:
    """Takes observations away that became another one, whose history goes on with theirs."""
    connection, bank = change.connection, change.bank
    old, new = [id for id, _ in gone], [id for _, id in gone]
    pairs = "unnest($2::uuid[], $3::uuid[]) w(gone, stays)"
    await connection.execute(
        "insert into observation_history (bank, observation_id, changed_at, content)"
        " select h.bank, w.stays, h.changed_at, h.content from observation_history h"
        f" join {pairs} on h.observation_id = w.gone where h.bank = $1 on conflict do nothing",
        bank, old, new,
    )  # fmt: skip
    await connection.execute(
        "delete from observation_history where bank = $1 and observation_id = any($2)", bank, old
    )
    await connection.execute(
        f"update memory_units m set superseded_by = w.stays from {pairs}"
        " where m.bank = $1 and m.superseded_by = w.gone",
        bank, old, new,
    )  # fmt: skip
    await connection.execute(
        "update memory_units m set source_ids = array(select distinct case when s = w.gone"
        f"  then w.stays else s end from unnest(m.source_ids) s) from {pairs}"
        " where m.bank = $1 and w.gone = any(m.source_ids)",
        bank, old, new,
    )  # fmt: skip
    rows = await connection.fetch(
        "delete from memory_units where bank = $1 and id = any($2) returning ordinal", bank, old
    )
    change.tombstone(row["ordinal"] for row in rows)


def _written(
    plan: CommitPlan, void: Sequence[Action], fresh: _Fresh, drafts: Sequence[_Draft], capped: int
) -> CommitResult:
    facts = plan.batch.facts
    waiting = {fact for action in void for fact in action.facts}
    waiting |= set(range(len(facts))) - fresh.facts
    again = set(plan.decided.open)
    return CommitResult(
        done=frozenset(
            one.fact.id for i, one in enumerate(facts) if i not in waiting and i not in again
        ),
        waiting=frozenset(facts[i].fact.id for i in waiting),
        created=tuple(d.id for d in drafts if d.before is None),
        updated=tuple(d.id for d in drafts if d.before is not None and not d.ends),
        ended=tuple(d.id for d in drafts if d.ends),
        merged=tuple(one.fact.id for d in drafts for one in d.gone),
        capped=capped,
        void=len(void),
    )


def _events(claimed: Claim, drafts: Sequence[_Draft]) -> list[DocumentChange]:
    """What the histories of the facts' documents tell."""
    made: dict[str, list[UUID]] = defaultdict(list)
    changed: dict[str, list[UUID]] = defaultdict(list)
    for draft in drafts:
        for document in {s.fact.document_id for s in draft.cited.values()} - {None}:
            assert document is not None
            (made if draft.before is None else changed)[document].append(draft.id)
    return [
        DocumentChange(
            document,
            "consolidation",
            claimed.operation_id,
            observations_created=made[document],
            observations_updated=changed[document],
        )
        for document in sorted({*made, *changed})
    ]
