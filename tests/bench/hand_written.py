"""The formula that ordered recalls before a model was fitted: what `fit` compares with.

Chosen by hand on LoCoMo, MuSiQue, HotpotQA, LongMemEval, SciFact, Cranfield and CISI:

    own = deviation of the similarity  +  4 * coverage / best coverage
    near = min(1, 96 / tokens)
    score = own + 0.5 * (own + near * (best own score in the same document - own))
          + near * (0.5 * best affinity one step away  +  0.4 * best affinity two steps away)
          + 1.5 * evidence of the graph walk, 1 behind the memory that it comes from at most
          + 0.7 if the question names what the memory is about
          + 1.3 * ln((1 + min(tokens, 48)) / (1 + 48))
          + 0.5 if the memory before it asks, - 0.5 if it asks itself
          + 1.0 if it touches the time window of the question, 5.0 if the question asks for all
            that happened then
          - 1.5 if it does not hold now and the question asks about now
          - 4.0 if it is known not to hold at the time that the question means
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from retrieval.arms.affinity import KEYWORD, Scale, affinity
from retrieval.ranking.signals import CandidatePool
from retrieval.topk import places
from retrieval.types import Bools, Doubles, Floats


def scores(pool: CandidatePool) -> Doubles:
    """The scores of a pool that is not empty, float64 (n,)."""
    present = pool.window >= 0
    terms = np.where(present, pool.terms, 0.0)
    matched = terms.sum(axis=0)
    scale = replace(pool.scale, keyword=float(matched[:, 0].max()))
    around = np.where(present, affinity(pool.similarity, matched, scale), 0.0)
    covered = np.maximum.reduce(
        [terms[..., 0], 0.4 * terms[..., 1:3].max(axis=-1), 0.3 * terms[..., 3:5].max(axis=-1)]
    ).sum(axis=0)
    own = _meant(pool.similarity[:, 0], scale)
    if covered.max() > 0:
        own = own + KEYWORD * covered / covered.max()
    near = np.minimum(1.0, 96 / np.maximum(pool.tokens, 1))
    best = np.full(int(pool.document.max()) + 2, -np.inf)
    np.maximum.at(best, pool.document, own)
    score = (
        own
        + 0.5 * (own + near * (np.where(pool.document >= 0, best[pool.document], own) - own))
        + near * 0.5 * _best(around[:, 1:3], present[:, 1:3])
        + near * 0.4 * _best(around[:, 3:5], present[:, 3:5])
        + 0.7 * pool.named
        + 1.3 * np.log((1 + np.minimum(pool.tokens, 48)) / 49)
        + 0.5 * (pool.asks[:, 1].astype(np.float64) - pool.asks[:, 0])
    )
    if pool.timely is not None:
        score += (5.0 if pool.happened else 1.0) * pool.timely
    if pool.superseded is not None:
        score -= 1.5 * pool.superseded
    if pool.outside is not None:
        score -= 4.0 * pool.outside
    support = places(pool.window[:, 0], pool.support)
    held, free = support >= 0, score + 1.5 * pool.evidence
    lifted = np.where(held, score, free)
    for _ in range(3):
        bound = np.where(held, lifted[support] - 1.0, np.inf)
        lifted = np.maximum(score, np.minimum(free, bound))
    return lifted


def _meant(similarity: Floats, scale: Scale) -> Doubles:
    return affinity(similarity, np.zeros_like(similarity), scale)


def _best(values: Doubles, present: Bools) -> Doubles:
    best: Doubles = np.where(present, values, -np.inf).max(axis=1)
    return np.where(np.isfinite(best), best, 0.0)
