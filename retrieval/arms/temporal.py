"""The temporal arm: memories that touch the question's window, and their neighbours in the story.

Per fact type: the memories most similar to the question among those that touch the window (the
pool) are thinned to entry points that cover the window, and relevance spreads from them along
temporal and causal links. A window ranks, it never filters other arms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.arms.proximity import proximity
from retrieval.bank import filters
from retrieval.bank.filters import WindowBounds, by_date
from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors.flat import Scan
from retrieval.topk import best
from retrieval.types import CAUSAL, NO_TIME, Bools, Doubles, FactType, Floats, Ints, LinkType, Longs

POOL = 60
BUCKETS = 8
ENTRY_POINTS = 10
BATCH = 20
NEIGHBOURS = 10
ROUNDS = 5
LINK_FLOOR = 0.1
PROPAGATION = 0.7
FRONTIER_FLOOR = 0.2
UNDATED_ENTRY = 0.5
UNDATED_NEIGHBOUR = 0.3

_CAUSAL_BOOST = np.ones(len(LinkType))
_CAUSAL_BOOST[[LinkType.CAUSES, LinkType.CAUSED_BY]] = 2.0
_CAUSAL_BOOST[[LinkType.ENABLES, LinkType.PREVENTS]] = 1.5


@dataclass(frozen=True, slots=True)
class TemporalHits:
    """Hits in coverage order, then spreading order; per hit its proximity to the window, [0, 1].

    ordinals int32 (n,), scores float32 (n,) in [0, 1], proximity float64 (n,).
    """

    ordinals: Ints
    scores: Floats
    proximity: Doubles

    def __len__(self) -> int:
        return len(self.ordinals)


def touching(bank: ResidentBank, allowed: Bools, window: WindowBounds) -> Bools:
    """bool (size,): which of the allowed memories touch the window, whatever their type."""
    return allowed & filters.touching(bank.columns, window)


def search(
    bank: ResidentBank,
    scan: Scan,
    allowed: Bools,
    inside: Bools,
    kind: FactType,
    window: WindowBounds,
    *,
    limit: int,
    min_similarity: float,
) -> TemporalHits:
    """The arm's answer for one fact type: at most `limit` hits, or the entry points if more.

    `inside` are those of `allowed` that are `touching` the window; relevance spreads to the others
    too.
    """
    found = np.flatnonzero(inside & (bank.columns.fact_type == kind)).astype(np.int32)
    pool = best(scan.at(found), found, POOL)
    size = int(np.searchsorted(-pool.scores, -np.float32(min_similarity), side="right"))
    found, similarity = pool.ordinals[:size], pool.scores[:size]
    entries = found[cover(_coverage_date(bank, found), similarity, window)]
    near = _near(bank, entries, window, UNDATED_ENTRY)
    # What holds all through the window was told of at another time, and so were its neighbours.
    start = entries[~filters.lasting(bank.columns, entries, window)]
    entered = TemporalHits(entries, near.astype(np.float32), near)
    return _spread(bank, scan, allowed, kind, window, entered, start, limit, min_similarity)


def cover(dates: Longs, similarity: Floats, window: WindowBounds) -> Ints:
    """Positions of at most ENTRY_POINTS of the pool, so that every part of the window speaks.

    The window is cut into BUCKETS; the best of every bucket comes first, then the second best,
    each tier by similarity. An open side is taken from the pool's own dates. A memory without a
    date falls into the first bucket. `similarity` is non-increasing.
    """
    n = len(dates)
    if n <= ENTRY_POINTS:
        return np.arange(n, dtype=np.int32)
    known = dates != NO_TIME
    low, high = window.low, window.high
    if low is None:
        low = int(dates[known].min()) if known.any() else 0
    if high is None:
        high = int(dates[known].max()) if known.any() else low
    bucket = np.zeros(n, np.int64)
    if high > low:
        share = (np.where(known, dates, low) - low).astype(np.float64) / (high - low)
        bucket = np.clip((BUCKETS * share).astype(np.int64), 0, BUCKETS - 1)
    tier = np.zeros(n, np.int64)
    for value in range(BUCKETS):
        mine = bucket == value
        tier[mine] = np.arange(int(mine.sum()))
    return np.lexsort((-similarity, tier))[:ENTRY_POINTS].astype(np.int32)


def merge(parts: Sequence[TemporalHits], similarity: Sequence[Floats]) -> TemporalHits:
    """Fact types rank by rank: every type's first by similarity, then every second, ...

    Coverage order inside a type is kept; sorting by date proximity would undo the selection.
    """
    ordinals = np.concatenate([p.ordinals for p in parts])
    rank = np.concatenate([np.arange(len(p)) for p in parts])
    order = np.lexsort((-np.concatenate(similarity), rank))
    scores = np.concatenate([p.scores for p in parts])
    near = np.concatenate([p.proximity for p in parts])
    return TemporalHits(ordinals[order], scores[order], near[order])


def _coverage_date(bank: ResidentBank, ordinals: Ints) -> Longs:
    columns = bank.columns
    start = columns.occurred_start[ordinals]
    mentioned = columns.mentioned_at[ordinals]
    end = columns.occurred_end[ordinals]
    return np.where(start != NO_TIME, start, np.where(mentioned != NO_TIME, mentioned, end))


def _near(bank: ResidentBank, ordinals: Ints, window: WindowBounds, undated: float) -> Doubles:
    """Nearness to the window; what carries only a date is near by the window's own days."""
    columns = bank.columns
    start, end = columns.occurred_start[ordinals], columns.occurred_end[ordinals]
    mentioned = columns.mentioned_at[ordinals]
    if len(columns.timed):
        start, end = filters.held(columns, ordinals, window)
    near = proximity(start, end, mentioned, (window.low, window.high))
    if window.local:
        shown = proximity(start, end, mentioned, (window.first, window.last))
        near = np.where(by_date(start, end), shown, near)
    return np.where(np.isnan(near), undated, near)


def _spread(
    bank: ResidentBank,
    scan: Scan,
    allowed: Bools,
    kind: FactType,
    window: WindowBounds,
    entered: TemporalHits,
    start: Ints,
    limit: int,
    min_similarity: float,
) -> TemporalHits:
    """Breadth-first from `start` along temporal and causal links, strongest first, in bounded
    rounds; behind what has `entered`."""
    ordinals, scores, nears = [entered.ordinals], [entered.scores], [entered.proximity]
    visited = set(entered.ordinals.tolist())
    frontier = [(ordinal, 1.0) for ordinal in start.tolist()]
    remaining = limit - len(entered)
    for _ in range(ROUNDS):
        if not frontier or remaining <= 0:
            break
        batch, frontier = frontier[:BATCH], frontier[BATCH:]
        sources = np.array([ordinal for ordinal, _ in batch], np.int32)
        held = np.array([score for _, score in batch])
        row, target, weight, type_ = _outgoing(bank, sources)
        fits = allowed[target] & (bank.columns.fact_type[target] == kind)
        fits &= ~np.isin(target, np.fromiter(visited, np.int32, len(visited)))
        row, target, weight, type_ = row[fits], target[fits], weight[fits], type_[fits]
        similar = scan.at(target) >= min_similarity
        row, target, weight, type_ = row[similar], target[similar], weight[similar], type_[similar]
        _, first = np.unique(target, return_index=True)
        first = np.sort(first)[:remaining]
        row, target, weight, type_ = row[first], target[first], weight[first], type_[first]
        if not len(target):
            continue
        own = _near(bank, target, window, UNDATED_NEIGHBOUR)
        carried = np.minimum(held[row] * weight * _CAUSAL_BOOST[type_] * PROPAGATION, 1.0)
        score = np.maximum(own, carried)
        ordinals.append(target)
        scores.append(score)
        nears.append(own)
        visited.update(target.tolist())
        remaining -= len(target)
        going = score > FRONTIER_FLOOR
        frontier += zip(target[going].tolist(), score[going].tolist(), strict=True)
    return TemporalHits(
        np.concatenate(ordinals).astype(np.int32),
        np.concatenate(scores).astype(np.float32),
        np.concatenate(nears),
    )


def _outgoing(bank: ResidentBank, sources: Ints) -> tuple[Ints, Ints, Doubles, NDArray[np.uint8]]:
    """Each source's strongest NEIGHBOURS links, in source order, weight descending."""
    stored = bank.links.neighbours(sources, (LinkType.TEMPORAL, *CAUSAL))
    forward = stored.direction >= 0
    close = bank.temporal_neighbours(sources)
    row = np.concatenate([stored.row[forward], close.row])
    target = np.concatenate([stored.target[forward], close.target])
    weight = np.concatenate([stored.weight[forward], close.weight]).astype(np.float64)
    type_ = np.concatenate(
        [stored.type[forward], np.full(len(close.row), LinkType.TEMPORAL, np.uint8)]
    )
    strong = weight >= LINK_FLOOR
    row, target, weight, type_ = row[strong], target[strong], weight[strong], type_[strong]
    order = np.lexsort((target, -weight, row))
    row, target, weight, type_ = row[order], target[order], weight[order], type_[order]
    start = np.searchsorted(row, row, side="left")
    kept = np.arange(len(row)) - start < NEIGHBOURS
    return row[kept], target[kept], weight[kept], type_[kept]
