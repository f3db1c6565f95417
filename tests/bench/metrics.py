"""Measures of a ranked list, as functions over arrays of questions.

A ranking of q questions is a matrix of gains, float64 (q, k): the gain of what stands at each
rank, 0 where it is not relevant or the list has ended. What was to be found is a matrix of ideal
gains, float64 (q, m): the gains of everything relevant, descending, padded with 0. Each function
gives one value per question, float64 (q,); a question without anything relevant gets NaN.

nDCG uses linear gains and log2(rank + 1) (Järvelin and Kekäläinen, 2002), as trec_eval does.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from retrieval.types import Doubles

Key = TypeVar("Key", bound=Hashable)


def gains(
    rankings: Sequence[Sequence[Key]],
    relevant: Sequence[Mapping[Key, float]],
    depth: int,
) -> tuple[Doubles, Doubles]:
    """The gains (q, depth) and ideal gains (q, m) of rankings of distinct keys."""
    found = np.zeros((len(rankings), depth))
    most = max((len(gold) for gold in relevant), default=0)
    ideal = np.zeros((len(rankings), max(most, 1)))
    for row, (ranking, gold) in enumerate(zip(rankings, relevant, strict=True)):
        head = ranking[:depth]
        found[row, : len(head)] = [gold.get(key, 0.0) for key in head]
        ideal[row, : len(gold)] = sorted(gold.values(), reverse=True)
    return found, ideal


def recall(found: Doubles, ideal: Doubles, k: int) -> Doubles:
    """The share of what is relevant that stands within the first k ranks."""
    return _ratio((found[:, :k] > 0).sum(axis=1), (ideal > 0).sum(axis=1))


def complete(found: Doubles, ideal: Doubles, k: int) -> Doubles:
    """1 where everything relevant stands within the first k ranks, else 0."""
    total = (ideal > 0).sum(axis=1)
    return _ratio(((found[:, :k] > 0).sum(axis=1) == total) * total, total)


def reciprocal_rank(found: Doubles, ideal: Doubles) -> Doubles:
    """1 / the rank of the first relevant one, 0 where there is none in the list."""
    hit = found > 0
    first = np.where(hit.any(axis=1), 1.0 / (1 + hit.argmax(axis=1)), 0.0)
    return np.where((ideal > 0).any(axis=1), first, np.nan)


def ndcg(found: Doubles, ideal: Doubles, k: int) -> Doubles:
    """Discounted cumulative gain within k ranks, as a share of the best possible one."""
    return _ratio(_dcg(found[:, :k]), _dcg(ideal[:, :k]))


def _dcg(values: Doubles) -> Doubles:
    discounted: Doubles = values @ (1.0 / np.log2(np.arange(2, values.shape[1] + 2)))
    return discounted


def _ratio(part: Doubles, whole: Doubles) -> Doubles:
    with np.errstate(invalid="ignore", divide="ignore"):
        shares: Doubles = np.asarray(part, np.float64) / whole
    return shares
