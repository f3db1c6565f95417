"""A batch: some memories of one scope, and the observations of that scope that may concern them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar, TypeVarTuple, Unpack
from uuid import UUID

import numpy as np

from retrieval.bank import filters, probe
from retrieval.bank.probe import Probe, ProbeResult
from retrieval.bank.residency import Residency
from retrieval.bank.resident import ResidentBank
from retrieval.ingest.write.rows import raw_ids
from retrieval.ingest.write.stored import StoredMemory, load
from retrieval.keyword.analyser import Analyser
from retrieval.pacing import unhurried
from retrieval.ranking import fusion
from retrieval.settings import RecallSettings
from retrieval.settings.consolidation import ConsolidationSettings
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.text import tokens
from retrieval.types import Bools, FactType, Hits, Ints, TagsMatch

T = TypeVar("T")
Args = TypeVarTuple("Args")

_OF_EACH_ARM = {"low": 20, "mid": 60, "high": 200}
SMALL_BANK = 4_000
"""Banks up to this size are searched on the event loop, as recalls search them."""
_WORDS_OF = 1_000
"""Characters of a fact whose words are looked for."""
_SOURCES = 8
"""Newest sources of an observation that are looked at to be shown."""


@dataclass(frozen=True, slots=True)
class SourceMemory:
    """A memory that an observation was made from, as it is shown."""

    text: str
    when: datetime | None


@dataclass(frozen=True, slots=True)
class Shown:
    """An observation as it is shown, with some of its sources."""

    stored: StoredMemory
    sources: tuple[SourceMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Facts F1 … Fn and observations O1 … Om, by place; `bank` is the snapshot they were found
    in, `mask` bool (size,) the live observations of exactly this scope."""

    tenant: str
    bank_id: str
    scope: frozenset[str]
    facts: tuple[StoredMemory, ...]
    observations: tuple[Shown, ...]
    bank: ResidentBank
    mask: Bools
    mission: str | None = None


def in_scope(bank: ResidentBank, scope: frozenset[str]) -> Bools:
    """bool (size,): the live observations with exactly these tags."""
    exact = filters.tagged(bank, tuple(scope), TagsMatch.EXACT)
    found: Bools = exact & bank.live & (bank.columns.fact_type == FactType.OBSERVATION)
    return found


async def gather(
    pool: Pool,
    residency: Residency,
    analyser: Analyser,
    tenant: str,
    bank_id: str,
    scope: frozenset[str],
    facts: Sequence[StoredMemory],
    settings: ConsolidationSettings,
    recall: RecallSettings,
) -> Batch:
    """The batch of these facts: by meaning, words and shared entities, taken in turns for each.

    Facts that are gone by now are left out. No cross-encoder, no reading of times.
    """
    head = await banks.head(pool, tenant, bank_id)
    bank = await residency.open(head)
    ordinals = bank.ordinal_of(raw_ids([fact.fact.id for fact in facts]))
    facts = [fact for fact, at in zip(facts, ordinals.tolist(), strict=True) if at >= 0]
    ordinals = ordinals[ordinals >= 0]
    mask = in_scope(bank, scope)
    chosen = np.empty(0, np.int32)
    if len(ordinals) and mask.any():
        asked = await _asked(residency, bank, analyser, ordinals, facts)
        found: Sequence[ProbeResult]
        if bank.whole:
            found = [await piece(bank, probe.answer, bank, one, recall) for one in asked]
        else:
            assert residency.split is not None
            found = await residency.split.readings(bank, asked, recall)
        of_each = [
            await piece(bank, _chosen, bank, one, at, mask, settings)
            for one, at in zip(found, ordinals.tolist(), strict=True)
        ]
        every = np.concatenate(of_each)
        chosen = every[np.sort(np.unique(every, return_index=True)[1])]
    observations = await _shown(pool, bank, chosen, scope, settings)
    mission = settings.observations_mission
    return Batch(tenant, bank_id, scope, tuple(facts), observations, bank, mask, mission)


async def piece(bank: ResidentBank, work: Callable[[Unpack[Args]], T], *args: *Args) -> T:
    """What `work` returns, one search of many over this bank."""
    if bank.size <= SMALL_BANK:
        await asyncio.sleep(0)  # others' turn between two
        return work(*args)
    return await unhurried(work, *args)


async def _asked(
    residency: Residency,
    bank: ResidentBank,
    analyser: Analyser,
    ordinals: Ints,
    facts: Sequence[StoredMemory],
) -> list[Probe]:
    """The facts as questions: their own vectors, and their words."""
    if bank.whole:
        vectors = bank.vectors.rows(ordinals)
    else:
        assert residency.split is not None
        vectors = await residency.split.rows(bank.head, ordinals)
    known = [bool(vector.any()) for vector in vectors]
    terms = await asyncio.to_thread(
        lambda: [analyser.query(f.fact.text[:_WORDS_OF]) for f in facts]
    )
    return [
        Probe(vector if there else None, words)
        for vector, there, words in zip(vectors, known, terms, strict=True)
    ]


def _chosen(
    bank: ResidentBank,
    found: ProbeResult,
    ordinal: int,
    mask: Bools,
    settings: ConsolidationSettings,
) -> Ints:
    """Observations for one fact, in order."""
    most = _OF_EACH_ARM[settings.consolidation_recall_budget]
    one = np.array([ordinal], np.int32)
    arms = [
        _hits(np.unique(_within(mask, bank.observations_of(one)[1]))),
        found.scan.top(most, mask, FactType.OBSERVATION),
        _worded(found, mask, most),
        _related(bank, one, mask, most),
    ]
    own = fusion.interleave(arms).ordinals
    spent = np.cumsum(bank.columns.tokens[own])
    within: Ints = own[(spent <= settings.consolidation_recall_max_tokens) | (spent == spent[:1])]
    return within


def _worded(found: ProbeResult, mask: Bools, most: int) -> Hits:
    inside = mask[found.matches.ordinals]
    ordinals, scores = found.matches.ordinals[inside], found.matches.scores[inside]
    order = np.argsort(-scores, kind="stable")[:most]
    return Hits(ordinals[order], scores[order])


def _related(bank: ResidentBank, fact: Ints, mask: Bools, most: int) -> Hits:
    """Observations whose sources mention the fact's entities, those with most of them first."""
    _, entities = bank.entities.of_units(fact)
    if not len(entities):
        return _hits(np.empty(0, np.int32))
    _, unit = bank.entities.units_of(entities)
    units, place = np.unique(unit, return_inverse=True)
    shared = np.bincount(place, minlength=len(units))
    index, observation = bank.observations_of(units.astype(np.int32))
    inside = mask[observation]
    found, at = np.unique(observation[inside], return_inverse=True)
    best = np.zeros(len(found), np.int64)
    np.maximum.at(best, at, shared[index[inside]])
    order = np.lexsort((-found, -best))[:most]
    return Hits(found[order].astype(np.int32), best[order].astype(np.float32))


def _within(mask: Bools, ordinals: Ints) -> Ints:
    return ordinals[mask[ordinals]]


def _hits(ordinals: Ints) -> Hits:
    return Hits(ordinals.astype(np.int32), np.ones(len(ordinals), np.float32))


async def _shown(
    pool: Pool,
    bank: ResidentBank,
    ordinals: Ints,
    scope: frozenset[str],
    settings: ConsolidationSettings,
) -> tuple[Shown, ...]:
    """The observations with their sources, as they are stored by now."""
    if not len(ordinals):
        return ()
    ids = [UUID(bytes=row.tobytes()) for row in bank.columns.id[ordinals]]

    async def work(
        connection: Connection,
    ) -> tuple[list[StoredMemory], Mapping[UUID, SourceMemory]]:
        found = [
            each
            for each in await load(connection, bank.head.bank, ids)
            if each.ordinal is not None
            and each.fact.fact_type is FactType.OBSERVATION
            and frozenset(each.fact.tags) == scope
        ]
        wanted = [source for each in found for source in each.fact.sources[-_SOURCES:]]
        rows = await connection.fetch(
            "select id, left(text, 4000) as text, coalesce(occurred_start, mentioned_at) as at"
            " from memory_units"
            " where bank = $1 and id = any($2) and ordinal is not null",
            bank.head.bank,
            wanted,
        )
        return found, {row["id"]: SourceMemory(row["text"], row["at"]) for row in rows}

    found, sources = await read(pool, work)
    return await asyncio.to_thread(_with_sources, found, sources, settings)


def _with_sources(
    found: Sequence[StoredMemory],
    sources: Mapping[UUID, SourceMemory],
    settings: ConsolidationSettings,
) -> tuple[Shown, ...]:
    """Newest sources first, within the budgets of tokens."""
    costs = dict(zip(sources, tokens.counts([s.text for s in sources.values()]), strict=True))
    left = settings.consolidation_source_facts_max_tokens
    each = settings.consolidation_source_facts_max_tokens_per_observation
    shown = []
    for observation in found:
        own = each
        kept = []
        for id in reversed(observation.fact.sources[-_SOURCES:]):
            if not isinstance(id, UUID):
                continue
            cost = int(costs.get(id, 0))
            if id not in sources or (left >= 0 and cost > left) or (own >= 0 and cost > own):
                continue
            kept.append(sources[id])
            left -= cost if left >= 0 else 0
            own -= cost if own >= 0 else 0
        shown.append(Shown(observation, tuple(kept)))
    return tuple(shown)
