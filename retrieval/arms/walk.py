"""The damped walk of the graph arm; graph.py states its formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.arms.adjacency import (
    NO_MEMORY,
    Adjacency,
    GraphHits,
    GraphSettings,
    Late,
    LinkTable,
    PathLink,
)
from retrieval.topk import among, distinct
from retrieval.types import CAUSAL, Bools, Doubles, Hits, Ints, LinkType

_SHARED, _SUBJECT, _SEMANTIC, _CAUSAL, _CAUSE_ASKED, _SEQUENCE = 0.4, 0.7, 0.4, 0.6, 0.9, 0.5
_NAMED = 5.0
_LEAST_RARITY = 0.2
_LEAST_SIMILAR = 0.7
_FEW_MENTIONS = 20
_FLOOR = 0.1
"""The formula's constants, measured together with the fused order: ranking/score_fusion.py."""

_FRONTIER = 20
"""Memories that each hop goes on from."""

_NAMED_PER_ENTITY = 5
"""Seeds that each entity named in the question adds."""

_ROOM = 1_024
"""Memories that a walk usually meets at most."""

_MOST_MENTIONS = 5_000
"""Mentions read per hop, those of the rarest entities first: what bounds the time of a walk."""


@dataclass(frozen=True, slots=True)
class _Steps:
    """Links from a frontier: per link the index of its parent there, its target, the share it
    hands on, its kind, the entity it goes through."""

    parent: NDArray[np.intp]
    target: Ints
    share: Doubles
    link: NDArray[np.uint8]
    via: Ints

    @classmethod
    def of(
        cls, parent: NDArray[np.intp] | Ints, target: Ints, share: Doubles, link: PathLink
    ) -> _Steps:
        count = len(target)
        return cls(
            parent.astype(np.intp),
            target,
            share,
            np.full(count, link, np.uint8),
            np.full(count, NO_MEMORY, np.int32),
        )

    @classmethod
    def joined(cls, parts: Iterable[_Steps]) -> _Steps:
        every = [part for part in parts if len(part.target)] or [_no_steps()]
        if len(every) == 1:
            return every[0]
        return cls(
            np.concatenate([p.parent for p in every]),
            np.concatenate([p.target for p in every]),
            np.concatenate([p.share for p in every]),
            np.concatenate([p.link for p in every]),
            np.concatenate([p.via for p in every]),
        )

    def where(self, kept: Bools) -> _Steps:
        return _Steps(
            self.parent[kept], self.target[kept], self.share[kept], self.link[kept], self.via[kept]
        )


def leading_of_each(
    ordinals: Ints, derived: Bools | None, limit: int
) -> NDArray[np.intp] | slice[int | None]:
    """Where the first `limit` of the memories stand and the first `limit` of the observations
    (bool over ordinals; None: there are none), ascending."""
    if derived is None:
        return slice(limit)
    made = derived[ordinals]
    place = np.where(made, np.cumsum(made), np.cumsum(~made))
    return np.flatnonzero(place <= limit)


def _first_memory(ordinals: Ints, derived: Bools | None) -> int:
    """The first that is no observation, or the first of all."""
    return 0 if derived is None else int(np.argmin(derived[ordinals]))


class _Table:
    """The memories that the walk has met, seeds first, and what reached each so far. `held` is the
    strength that a memory has by itself. Columns are views of what is in use; an `enter` renews
    them."""

    ordinal: Ints
    held: Doubles
    reached: Doubles
    evidence: Doubles
    support: Ints
    parent: Ints
    via: Ints
    link: NDArray[np.uint8]
    hop: NDArray[np.uint8]

    def __init__(self) -> None:
        self._count = 0
        self._room(_ROOM)

    def __len__(self) -> int:
        return self._count

    def enter(self, ordinals: Ints, held: Doubles) -> None:
        """Adds memories that were not there."""
        old, first = (self._ints, self._doubles, self._bytes), self._count
        self._count += len(ordinals)
        if self._count > self._ints.shape[1]:
            self._room(2 * self._count)
            self._ints[:, :first], self._doubles[:, :first], self._bytes[:, :first] = (
                columns[:, :first] for columns in old
            )
        self._ints[0, first : self._count] = ordinals
        self._doubles[0, first : self._count] = held
        self.ordinal, self.support, self.parent, self.via = self._ints[:, : self._count]
        self.held, self.reached, self.evidence = self._doubles[:, : self._count]
        self.link, self.hop = self._bytes[:, : self._count]

    def _room(self, rows: int) -> None:
        self._ints = np.full((4, rows), NO_MEMORY, np.int32)
        self._doubles = np.zeros((3, rows))
        self._bytes = np.zeros((2, rows), np.uint8)


class Walk:
    """One damped walk; runs once."""

    def __init__(
        self,
        graph: Adjacency,
        affinity: Callable[[Ints], Doubles],
        allowed: Bools,
        settings: GraphSettings,
        late: Late,
        named: Ints,
        derived: Bools | None = None,
    ) -> None:
        self._graph, self._affinity, self._allowed = graph, affinity, allowed
        self._derived = derived
        self._named = named
        if len(named):
            self._named = named[_rarity(graph, named, allowed) >= _LEAST_RARITY]
        self._settings, self._late = settings, late
        self._place = np.zeros(graph.size, np.int32)  # 1 + row in the table, 0 for none
        self._table = _Table()

    def run(self, seeds: Ints) -> GraphHits:
        if len(self._named):
            _, about = self._mentions(self._named, _NAMED_PER_ENTITY, self._allowed)
            about = distinct(about)
            seeds = np.concatenate([seeds, about[~among(about, seeds)]])
        strength = np.maximum(self._affinity(seeds), 0.0)
        if len(self._named):
            row, entity = self._graph.of_units(seeds)
            strength[distinct(row[among(entity, self._named)])] += _NAMED
        self._enter(seeds, strength)
        frontier = seeds
        for hop in range(1, self._settings.hops + 1):
            if not len(frontier):
                break
            self._take(frontier, strength, self._steps(frontier), hop)
            table = self._table
            onward = np.flatnonzero(table.hop == hop)
            led = table.held[onward] + table.reached[onward]
            onward = onward[np.argsort(-led, kind="stable")]
            onward = onward[leading_of_each(table.ordinal[onward], self._derived, _FRONTIER)]
            frontier = table.ordinal[onward]
            strength = np.maximum(table.held[onward], table.reached[onward])
        return self._answer()

    def _enter(self, ordinals: Ints, held: Doubles) -> None:
        first = len(self._table)
        self._table.enter(ordinals, held)
        self._place[ordinals] = np.arange(first + 1, first + 1 + len(ordinals))

    def _take(self, frontier: Ints, strength: Doubles, steps: _Steps, hop: int) -> None:
        """Hands strength on."""
        handed = strength[steps.parent] * steps.share
        place = self._place[steps.target]
        fresh = place == 0
        stands = np.zeros(len(place))
        met = place[~fresh] - 1
        stands[~fresh] = np.maximum(self._table.held[met], self._table.reached[met])
        # Seeds support one another. Later a memory is reached again only by more than it has: what
        # comes back along the walk's own steps is always less.
        kept = self._allowed[steps.target] & (handed > np.where(fresh | (hop == 1), 0.0, stands))
        steps, handed, stands, fresh = steps.where(kept), handed[kept], stands[kept], fresh[kept]
        new = distinct(steps.target[fresh])
        self._enter(new, np.maximum(self._affinity(new), 0.0))
        table, at = self._table, self._place[steps.target] - 1
        parent = frontier[steps.parent]

        np.maximum.at(table.reached, at, handed)
        linked = np.flatnonzero(
            (steps.link != PathLink.SEQUENCE) & (steps.link != PathLink.SEMANTIC)
        )
        np.maximum.at(table.evidence, at[linked], handed[linked])
        # Of equal links the first tells: assigned last.
        most = linked[handed[linked] >= table.evidence[at[linked]]][::-1]
        table.support[at[most]] = parent[most]
        # A seed has a path where others lead to it more strongly than the question does.
        led = np.flatnonzero((fresh | (handed > stands)) & (handed >= table.reached[at]))[::-1]
        table.parent[at[led]] = parent[led]
        table.link[at[led]] = steps.link[led]
        table.via[at[led]] = steps.via[led]
        table.hop[at[led]] = hop

    def _answer(self) -> GraphHits:
        table = self._table
        own = self._affinity(table.ordinal)
        score = own + table.reached
        order = np.lexsort((table.ordinal, -own, -score))
        if len(order):
            best = score[order[_first_memory(table.ordinal[order], self._derived)]]
            order = order[score[order] >= _FLOOR * max(best, 0.0)]
        order = order[leading_of_each(table.ordinal[order], self._derived, self._settings.limit)]
        return GraphHits(
            Hits(table.ordinal[order], score[order].astype(np.float32)),
            table.parent[order],
            table.link[order],
            table.hop[order].view(np.int8),
            table.via[order],
            table.evidence[order].astype(np.float32),
            table.support[order],
        )

    def _steps(self, frontier: Ints) -> _Steps:
        parts = []
        if not self._late():
            parts += [self._through_entities(frontier), self._through_observations(frontier)]
        parts += [self._through_links(frontier), self._through_sequence(frontier)]
        return _Steps.joined(parts)

    def _through_links(self, frontier: Ints) -> _Steps:
        rows = self._graph.neighbours(frontier, (LinkType.SEMANTIC, *CAUSAL))
        semantic = rows.type == LinkType.SEMANTIC
        close = np.clip((rows.weight - _LEAST_SIMILAR) / (1 - _LEAST_SIMILAR), 0.0, 1.0)
        share = np.where(semantic, _SEMANTIC * close, _CAUSAL * rows.weight)
        if self._settings.causes:
            towards = _towards_cause(rows)
            share[towards] = _CAUSE_ASKED * rows.weight[towards]
        steps = _Steps.of(rows.row, rows.target, share, PathLink.CAUSAL)
        steps.link[semantic] = PathLink.SEMANTIC
        return steps

    def _through_sequence(self, frontier: Ints) -> _Steps:
        target = np.concatenate([self._graph.previous[frontier], self._graph.next[frontier]])
        parent = np.tile(np.arange(len(frontier)), 2)
        there = target >= 0
        share = np.full(int(there.sum()), _SEQUENCE)
        return _Steps.of(parent[there], target[there], share, PathLink.SEQUENCE)

    def _through_entities(self, frontier: Ints) -> _Steps:
        row, entity = self._graph.of_units(frontier)
        pairs = self._companions(row, entity, self._allowed)
        kept = pairs.unit != frontier[pairs.row]
        return self._shared(pairs.where(kept))

    def _through_observations(self, frontier: Ints) -> _Steps:
        """Observations mention nothing themselves: their sources' entities lead to other facts,
        and those to the observations made from them. Fact types and windows hold for what is
        returned, not for the facts walked through."""
        seed, source = self._graph.sources_of(frontier)
        if not len(source):
            return _no_steps()
        index, entity = self._graph.of_units(source)
        told = distinct(_key(seed[index], entity))
        pairs = self._companions((told >> 32).astype(np.int32), told.astype(np.int32), None)
        own = distinct(_key(seed, source))
        pairs = pairs.where(~np.isin(_key(pairs.row, pairs.unit), own))
        # One connected source counts once, with the rarest entity that connects it.
        _, first = np.unique(_key(pairs.row, pairs.unit), return_index=True)
        pairs = pairs.where(first)
        at, observation = self._graph.observations_of(pairs.unit)
        steps = _Pairs(pairs.row[at], observation, pairs.entity[at], pairs.rarity[at])
        return self._shared(steps.where(observation != frontier[steps.row]))

    def _companions(self, row: Ints, entity: Ints, allowed: Bools | None) -> _Pairs:
        """Who else mentions what the frontier mentions: a pair for each shared entity."""
        entities = distinct(entity)
        inverse = np.searchsorted(entities, entity)
        rarity = _rarity(self._graph, entities, self._allowed if allowed is None else allowed)
        frequency = self._graph.frequency[entities]
        order = np.argsort(frequency, kind="stable")
        within = np.cumsum(frequency[order]) <= _MOST_MENTIONS
        followed = np.zeros(len(entities), np.bool_)
        followed[order[within]] = True
        followed &= (rarity >= _LEAST_RARITY) & (frequency > 1)
        index, unit = self._mentions(entities[followed], self._settings.per_entity, allowed)
        number = np.cumsum(followed) - 1
        # Rarest first, so that a stable sort by memory leads with its rarest entity.
        asker = np.flatnonzero(followed[inverse])
        asker = asker[np.argsort(-rarity[inverse[asker]], kind="stable")]
        row, inverse = row[asker], inverse[asker]
        starts = np.searchsorted(index, np.arange(int(followed.sum()) + 1))
        asked = number[inverse]
        sizes = starts[asked + 1] - starts[asked]
        owner = np.repeat(np.arange(len(row)), sizes)
        inside = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        mention = starts[asked][owner] + inside
        return _Pairs(row[owner], unit[mention], entities[inverse][owner], rarity[inverse][owner])

    def _mentions(self, entities: Ints, limit: int, allowed: Bools | None) -> tuple[Ints, Ints]:
        """(index, ordinal) of the allowed memories of each entity, at most `limit` of each: those
        that fit the question best."""
        index, unit = self._graph.units_of(entities)
        if allowed is not None:
            kept = allowed[unit]
            index, unit = index[kept], unit[kept]
        sizes = np.bincount(index, minlength=len(entities))
        over = sizes > limit
        if over.any():
            kept = ~over[index]
            fit = np.zeros(len(index))
            fit[~kept] = self._affinity(unit[~kept])
            ends = np.cumsum(sizes)
            for end, size in zip(ends[over], sizes[over], strict=True):
                run = slice(end - size, end)
                kept[run][np.argpartition(-fit[run], limit - 1)[:limit]] = True
            index, unit = index[kept], unit[kept]
        return index, unit

    def _shared(self, pairs: _Pairs) -> _Steps:
        """One step per (parent, memory): by what they share, or by what the memory is about."""
        if not len(pairs.unit):
            return _no_steps()
        key = _key(pairs.row, pairs.unit)
        order = np.argsort(key, kind="stable")
        key, pairs = key[order], pairs.where(order)
        start = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        shared = _SHARED * np.tanh(0.5 * np.add.reduceat(pairs.rarity, start))
        about = self._graph.subject[pairs.unit] == pairs.entity
        subject = _SUBJECT * np.maximum.reduceat(np.where(about, pairs.rarity, 0.0), start)
        steps = _Steps.of(
            pairs.row[start], pairs.unit[start], np.maximum(shared, subject), PathLink.ENTITY
        )
        led = subject >= shared
        steps.link[led] = PathLink.SUBJECT
        steps.via[:] = np.where(led, self._graph.subject[steps.target], pairs.entity[start])
        return steps


@dataclass(frozen=True, slots=True)
class _Pairs:
    """A frontier row and a memory that share an entity, with that entity's rarity; rarest first."""

    row: Ints
    unit: Ints
    entity: Ints
    rarity: Doubles

    def where(self, kept: Bools | NDArray[np.intp]) -> _Pairs:
        return _Pairs(self.row[kept], self.unit[kept], self.entity[kept], self.rarity[kept])


def _key(row: Ints, unit: Ints) -> NDArray[np.int64]:
    return (row.astype(np.int64) << 32) | unit


def _no_steps() -> _Steps:
    none = np.empty(0, np.int32)
    return _Steps.of(none, none, np.empty(0), PathLink.SEED)


def _rarity(graph: Adjacency, entities: Ints, allowed: Bools) -> Doubles:
    """1 for an entity in at most two memories, 0 for one in all, logarithmic between.

    An entity that few of the allowed memories mention is no hub among them, however many others
    do: it is followed, with the least rarity that is.
    """
    frequency = np.maximum(graph.frequency[entities], 1)
    rarity: Doubles = np.zeros(len(entities))
    if (count := graph.mentioning) > 2:
        rarity = np.log(count / frequency) / np.log(count / 2)
        rarity = np.clip(rarity, 0.0, 1.0)
    # Whoever is mentioned by more than those that may not be returned is no exception.
    left_out = graph.living - np.count_nonzero(allowed)
    hubs = np.flatnonzero(
        (rarity < _LEAST_RARITY) & (frequency <= min(_MOST_MENTIONS, _FEW_MENTIONS + left_out))
    )
    if len(hubs):
        index, unit = graph.units_of(entities[hubs])
        few = np.bincount(index[allowed[unit]], minlength=len(hubs)) <= _FEW_MENTIONS
        rarity[hubs[few]] = _LEAST_RARITY
    return rarity


def _towards_cause(rows: LinkTable) -> Bools:
    """Edges whose far end is the cause of the near one."""
    leaves = rows.direction > 0
    caused = rows.type == LinkType.CAUSED_BY
    causing = np.isin(rows.type, (LinkType.CAUSES, LinkType.ENABLES))
    towards: Bools = (leaves & caused) | (~leaves & causing)
    return towards
