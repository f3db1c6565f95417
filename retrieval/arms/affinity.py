"""How well memories fit a question by themselves: its vector and its words, on one scale.

Meaning is measured in deviations of the bank's similarities, held within -3 .. 8 and bending from
-1 and 6 on: where all memories are alike (one template, a log), what is not of their kind lies any
number of deviations from the mean, and no word could make up for it. Words are measured as a share
of the best candidate's BM25.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retrieval.bank.vectors.flat import Scan
from retrieval.keyword.bm25 import ScoredMatches
from retrieval.types import Doubles, Floats, Ints

KEYWORD = 4.0
"""What the best keyword score of a question is worth in deviations of similarity."""

_LOW, _HIGH, _BEYOND = -1.0, 6.0, 2.0
_PRIOR_COUNT, _PRIOR_DEVIATION = 10, 0.1


@dataclass(frozen=True, slots=True)
class Scale:
    """What a question's scores are measured against.

    mean, deviation: of its similarity to every memory of the bank, (0, 0) where it has no vector;
    keyword: its best keyword score among the memories that may be returned, 0 where none matches.
    """

    mean: float
    deviation: float
    keyword: float


@dataclass(frozen=True, slots=True)
class Affinity:
    """The affinity of the memories of one bank to one question."""

    scan: Scan
    matches: ScoredMatches
    scale: Scale

    def __call__(self, ordinals: Ints) -> Doubles:
        return affinity(self.scan.at(ordinals), self.matches.at(ordinals), self.scale)


def spread(deviation: float, count: int) -> float:
    """The deviation of `count` similarities, held towards a usual one where they are few.

    Two memories always stand one deviation from their mean, however alike they are: without
    this, a difference in the third digit would outweigh words, dates and links in a small bank.
    """
    if deviation <= 0:
        return 0.0
    variance = (count * deviation**2 + _PRIOR_COUNT * _PRIOR_DEVIATION**2) / (count + _PRIOR_COUNT)
    return float(np.sqrt(variance))


def affinity(similarity: Floats, keyword: Floats, scale: Scale) -> Doubles:
    """How well memories fit a question by themselves, float64, any shape; about 0 on average."""
    return deviations(similarity, scale) + KEYWORD * share(keyword, scale.keyword)


def deviations(similarity: Floats, scale: Scale) -> Doubles:
    """From the mean of the bank; 0 where the question has no vector."""
    if scale.deviation <= 0:
        return np.zeros(similarity.shape)
    deviations = (similarity.astype(np.float64) - scale.mean) / scale.deviation
    inside = np.clip(deviations, _LOW, _HIGH)
    beyond = deviations - inside
    return inside + beyond / (1 + np.abs(beyond) / _BEYOND)


def share(score: Floats | Doubles, best: float) -> Doubles:
    """Of the best score; 0 where there is none."""
    return score.astype(np.float64) / best if best > 0 else np.zeros(score.shape)
