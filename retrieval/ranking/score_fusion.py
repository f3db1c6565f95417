"""The fused order: what serves a recall when nothing reads the texts.

Adding calibrated scores keeps what ranks throw away: by how much a memory is better (Bruch, Gai
and Ingber, An Analysis of Fusion Functions for Hybrid Retrieval, 2023). The fused score is

    score = sum of what the signals of a memory are worth to this question (scoring_model.py)
          + 0.6 if it touches the time window of the question
          + 18 if the question asks for all that happened in its window, and it touches that
          - 2.5 if the question asks about now and the memory does not hold now
          - 6.0 if it is known not to hold at the time that the question means
          + what the graph walk handed to it, which lifts it to a step behind the memory that it
            comes from at most: what fits the question by itself stays ahead of what it leads to

`fused_scores` returns exp(sharpness * (score - best score)): positive, at most 1, and a factor from
the boosts of recency, time and proof (0.9 .. 1.1 each) moves a memory by the same 0.2 / sharpness
of score or less wherever it stands, instead of shuffling a list whose scores lie close together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.ranking.scoring_model import ScoringModel, packaged
from retrieval.ranking.signals import SIGNALS, CandidatePool, signals
from retrieval.topk import places
from retrieval.types import Doubles

_LONGEST_PATH = 3
_TIMELY = 0.6
_HAPPENED = 18.0
_SUPERSEDED = 2.5
_OUTSIDE = 6.0
_SHARPNESS = 0.5
"""What no evaluation set asks for often enough to be fitted: chosen by hand, in the unit of the
score."""

_GROUPS = {
    "meaning": ("meaning", "meaning_high"),
    "words": ("words", "words_half", "held"),
    "document": ("document_meaning", "document_words"),
    "neighbours": ("covered", "beside_meaning", "beside_words", "further_meaning", "further_words"),
    "name": ("named",),
    "length": ("length",),
    "asking": ("asks",),
    "time": ("timely",),
}

PARTS = (*_GROUPS, "validity", "links", "best")
"""What a score is the sum of; `best` takes off the score of the best candidate."""

_ADDED = np.array([[name in group for group in _GROUPS.values()] for name in SIGNALS], np.float64)
_TIME, _VALIDITY, _LINKS, _BEST = (PARTS.index(p) for p in ("time", "validity", "links", "best"))


@dataclass(frozen=True, slots=True)
class Fused:
    """score float64 (n,) in (0, 1], 1 for the best; parts float64 (n, PARTS), whose sum over PARTS
    is the logarithm of the score."""

    score: Doubles
    parts: Doubles


def fused_scores(pool: CandidatePool, model: ScoringModel | None = None) -> Fused:
    """The fused scores of a pool, by the packaged model unless another is given.

    Pure; no value depends on the order of the candidates.
    """
    if not len(pool):
        return Fused(np.empty(0), np.empty((0, len(PARTS))))
    model = model or packaged()
    values, context = signals(pool)
    parts = np.zeros((len(pool), len(PARTS)))
    parts[:, : len(_GROUPS)] = model.parts(values, context) @ _ADDED
    happened, invalid = _by_hand(pool)
    parts[:, _TIME] += happened
    parts[:, _VALIDITY] = invalid
    own: Doubles = parts.sum(axis=1)
    handed = model.worth(context) * pool.evidence.astype(np.float64)
    support = places(pool.window[:, 0], pool.support)
    score = lifted(own, handed, support, model.behind)
    parts[:, _LINKS] = score - own
    parts[:, _BEST] = -score.max()
    parts *= _SHARPNESS
    fused: Doubles = np.exp(_SHARPNESS * (score - score.max()))
    return Fused(np.maximum(fused, np.finfo(np.float64).tiny), parts)


def by_hand(pool: CandidatePool) -> Doubles:
    """The part of each score that no model gives, float64 (n,)."""
    happened, invalid = _by_hand(pool)
    return happened + invalid


def _by_hand(pool: CandidatePool) -> tuple[Doubles, Doubles]:
    happened, invalid = np.zeros(len(pool)), np.zeros(len(pool))
    if pool.timely is not None:
        happened += (_TIMELY + _HAPPENED * pool.happened) * pool.timely
    if pool.superseded is not None:
        invalid -= _SUPERSEDED * pool.superseded
    if pool.outside is not None:
        invalid -= _OUTSIDE * pool.outside
    return happened, invalid


def lifted(score: Doubles, by: Doubles, support: NDArray[np.intp], behind: float) -> Doubles:
    """Scores with evidence added, each kept behind the memory that it comes from.

    support: places among the scores, -1 for none.
    """
    held, free = support >= 0, score + by
    raised = np.where(held, score, free)
    for _ in range(_LONGEST_PATH):
        bound = np.where(held, raised[support] - behind, np.inf)
        raised = np.maximum(score, np.minimum(free, bound))
    return raised
