"""Plain link expansion: one hop from the seeds, shared entities counted as they are.

score = tanh(0.5 * distinct entities shared with any seed)
        + best weight of a semantic link + best weight of a causal link,    each to or from a seed

Observations mention nothing themselves: for them the number of their sources that share an entity
with a source of a seed takes the place of the count. Seeds are not among the results, unless a
causal link leads to them: a stated cause is evidence. Equal scores by similarity, then ordinal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.arms.adjacency import NO_MEMORY, Adjacency, GraphHits, GraphSettings, Late, PathLink
from retrieval.types import CAUSAL, Bools, Doubles, Hits, Ints, LinkType


def link_expansion(
    graph: Adjacency,
    seeds: Ints,
    similarity: Callable[[Ints], Doubles],
    allowed: Bools,
    settings: GraphSettings,
    late: Late,
) -> GraphHits:
    """See `graph.expand`; evidence is 0 throughout."""
    signals = [
        _linked(graph, seeds, allowed, link) for link in (PathLink.SEMANTIC, PathLink.CAUSAL)
    ]
    if not late():
        facts = _sharing(graph, seeds, allowed, settings)
        observations = _sharing_sources(graph, seeds, allowed, settings)
        signals = [_entities(graph.size, seeds, (facts, observations)), *signals]
    for signal in signals:
        signal.keep(settings.limit)
    parts = np.stack([s.score for s in signals])
    total = parts.sum(axis=0)
    found = np.flatnonzero(total > 0).astype(np.int32)
    order = found[np.lexsort((found, -similarity(found), -total[found]))][: settings.limit]
    leading = parts[:, order].argmax(axis=0)
    return GraphHits(
        Hits(order, total[order].astype(np.float32)),
        np.stack([s.parent for s in signals])[leading, order],
        np.array([s.link for s in signals], np.uint8)[leading],
        np.ones(len(order), np.int8),
        np.full(len(order), NO_MEMORY, np.int32),
        np.zeros(len(order), np.float32),
        np.full(len(order), NO_MEMORY, np.int32),
    )


@dataclass(frozen=True, slots=True)
class _Signal:
    """One of the three: per ordinal its score, and the seed it came from. Both (size,)."""

    link: PathLink
    score: Doubles
    parent: Ints

    def keep(self, limit: int) -> None:
        """Only the `limit` best stay above 0; equal ones by ordinal."""
        found = np.flatnonzero(self.score)
        worst = found[np.argsort(-self.score[found], kind="stable")[limit:]]
        self.score[worst] = 0.0


def _linked(graph: Adjacency, seeds: Ints, allowed: Bools, link: PathLink) -> _Signal:
    rows = graph.neighbours(seeds, CAUSAL if link is PathLink.CAUSAL else (LinkType.SEMANTIC,))
    kept = allowed[rows.target]
    if link is PathLink.SEMANTIC:
        kept &= ~np.isin(rows.target, seeds)
    target, weight = rows.target[kept], rows.weight[kept].astype(np.float64)
    score, parent = np.zeros(graph.size), np.full(graph.size, NO_MEMORY, np.int32)
    np.maximum.at(score, target, weight)
    strongest = weight >= score[target]
    parent[target[strongest][::-1]] = seeds[rows.row[kept][strongest]][::-1]
    return _Signal(link, score, parent)


def _entities(size: int, seeds: Ints, parts: tuple[tuple[Ints, Ints], ...]) -> _Signal:
    count, parent = np.zeros(size), np.full(size, NO_MEMORY, np.int32)
    for unit, seed in parts:
        np.add.at(count, unit, 1.0)
        parent[unit[::-1]] = seed[::-1]
    count[seeds] = 0.0
    return _Signal(PathLink.ENTITY, np.tanh(0.5 * count), parent)


def _sharing(
    graph: Adjacency, seeds: Ints, allowed: Bools, settings: GraphSettings
) -> tuple[Ints, Ints]:
    """(unit, seed): once for each entity that a unit shares with any seed, and one such seed."""
    row, entity = graph.of_units(seeds)
    entities, first = np.unique(entity, return_index=True)
    index, unit = graph.units_of(entities.astype(np.int32))
    kept = allowed[unit]
    index, unit = _newest(index[kept], unit[kept], settings.per_entity)
    return unit, seeds[row[first][index]]


def _sharing_sources(
    graph: Adjacency, seeds: Ints, allowed: Bools, settings: GraphSettings
) -> tuple[Ints, Ints]:
    """(observation, seed): once for each source of an observation that shares an entity with a
    source of a seed. Fact types and windows hold for what is returned, not for the
    facts walked through."""
    seed, source = graph.sources_of(seeds)
    row, entity = graph.of_units(source)
    entities, first = np.unique(entity, return_index=True)
    index, unit = graph.units_of(entities.astype(np.int32))
    others = ~np.isin(unit, source)
    index, unit = _newest(index[others], unit[others], settings.per_entity)
    connected, at = np.unique(unit, return_index=True)
    made, observation = graph.observations_of(connected.astype(np.int32))
    kept = allowed[observation]
    return observation[kept], seeds[seed[row[first]]][index[at][made[kept]]]


def _newest(index: Ints, unit: Ints, limit: int) -> tuple[Ints, Ints]:
    """The last `limit` of each run of equal indices."""
    if not len(index):
        return index, unit
    ends = np.searchsorted(index, index, side="right")
    kept: NDArray[np.bool_] = ends - np.arange(len(index)) <= limit
    return index[kept], unit[kept]
