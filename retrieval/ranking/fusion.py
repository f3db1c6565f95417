"""Fusion: the arms' lists become one list of distinct candidates.

rrf: reciprocal rank fusion (Cormack, Clarke and Buettcher 2009) with k = 60; every arm weighs the
same. interleave: round robin. By another score: `gather`, then `by_score`. Ties keep insertion
order: arm order semantic, bm25, graph, temporal, then rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retrieval.messages import message
from retrieval.types import Arm, Doubles, Floats, Hits, Ints

RRF_K = 60
"""The constant of the paper; fixed, because clients calibrate floors on it."""


@message
@dataclass(frozen=True, slots=True)
class Candidates:
    """Distinct candidates, best first.

    ordinals int32 (c,); ranks int32 (c, arms), 1-based, 0 where the arm did not surface it;
    scores float32 (c, arms), NaN there; rrf float64 (c,), non-increasing: the reciprocal rank
    score, or that of another fusion that put the list in order.
    """

    ordinals: Ints
    ranks: Ints
    scores: Floats
    rrf: Doubles

    def __len__(self) -> int:
        return len(self.ordinals)

    def take(self, index: Ints | slice) -> Candidates:
        """The candidates at these positions, in that order."""
        return Candidates(
            self.ordinals[index], self.ranks[index], self.scores[index], self.rrf[index]
        )


def cap_per_source(hits: Hits, cap: int) -> Hits:
    """The first `cap` hits of an arm; all of them where cap <= 0."""
    if cap <= 0 or len(hits) <= cap:
        return hits
    return Hits(hits.ordinals[:cap], hits.scores[:cap])


def gather(arms: Sequence[Hits]) -> Candidates:
    """Distinct candidates in insertion order with their rank and score per arm; rrf is zero.

    TypeError names the arm that is no `Hits`.
    """
    for number, hits in enumerate(arms):
        if not isinstance(hits, Hits):
            raise TypeError(
                f"arm {arm_name(number)} gave {type(hits).__name__} instead of Hits at rank 1"
            )
    every = np.concatenate([hits.ordinals for hits in arms]) if arms else np.empty(0, np.int32)
    _, first, inverse = np.unique(every, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    rows = place[inverse]
    ranks = np.zeros((len(order), len(arms)), np.int32)
    scores = np.full((len(order), len(arms)), np.nan, np.float32)
    at = 0
    for number, hits in enumerate(arms):
        mine = rows[at : at + len(hits)]
        # Reversed, so that the best rank wins should an arm ever repeat an ordinal.
        ranks[mine[::-1], number] = np.arange(len(hits), 0, -1, dtype=np.int32)
        scores[mine[::-1], number] = hits.scores[::-1]
        at += len(hits)
    return Candidates(every[first[order]], ranks, scores, np.zeros(len(order)))


def rrf(arms: Sequence[Hits]) -> Candidates:
    """Reciprocal rank fusion: sum over arms of 1 / (60 + rank)."""
    found = gather(arms)
    return by_score(found, rank_scores(found.ranks))


def by_score(found: Candidates, score: Doubles) -> Candidates:
    """Best score first, equal ones as they stand; the score takes the place of `rrf`."""
    order = np.argsort(-score, kind="stable").astype(np.int32)
    picked = found.take(order)
    return Candidates(picked.ordinals, picked.ranks, picked.scores, score[order])


def interleave(arms: Sequence[Hits]) -> Candidates:
    """Round robin in arm order, seen ones skipped. `rrf` is n - position, so order is kept."""
    found = gather(arms)
    seen = found.ranks > 0
    rank = np.where(seen, found.ranks, np.iinfo(np.int32).max)
    turn = rank.min(axis=1) if found.ranks.shape[1] else np.empty(0, np.int32)
    arm = rank.argmin(axis=1) if found.ranks.shape[1] else np.empty(0, np.int64)
    order = np.lexsort((arm, turn)).astype(np.int32)
    placed = found.take(order)
    n = len(placed)
    return Candidates(
        placed.ordinals, placed.ranks, placed.scores, np.arange(n, 0, -1, dtype=np.float64)
    )


def rank_scores(ranks: Ints, divisors: Doubles | None = None) -> Doubles:
    """Sum over arms of 1 / (60 + rank / divisor), float64 (c,); ranks (c, arms), 0 = absent."""
    scaled = ranks if divisors is None else ranks / divisors
    parts: Doubles = np.where(ranks > 0, 1.0 / (RRF_K + scaled), 0.0)
    total: Doubles = parts.sum(axis=1)
    return total


def arm_name(number: int) -> str:
    """semantic, bm25, graph, temporal; a list beyond these is source_<n>."""
    return Arm(number).wire if number < len(Arm) else f"source_{number}"
