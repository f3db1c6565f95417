"""The first of every arm keeps a place near the top, whatever the other arms make of it.

An arm that knows something alone is outvoted where the others are many and alike: among thousands
of notes of one template all resemble the question, and the one with its rare words stands first in
the keyword arm and nowhere else.
"""

from __future__ import annotations

import numpy as np

from retrieval.types import Bools, Ints

PLACES = 10
"""The first of every arm stands within so many, floors and budgets permitting."""


def first(ranks: Ints, without: Bools | None = None) -> Bools:
    """bool (c,): which candidates are an arm's first; ranks (c, arms), 1-based, 0 for absent.

    Given `without`, bool (c,), an arm whose first is one of these, or was cut, is led by its next.
    """
    leads: Bools
    if without is None:
        leads = (ranks == 1).any(axis=1)
        return leads
    last = np.iinfo(ranks.dtype).max
    listed = (ranks > 0) & ~without[:, None]
    ranks = np.where(listed, ranks, last)
    leads = (listed & (ranks == ranks.min(axis=0, initial=last))).any(axis=1)
    return leads


def kept(order: Ints, leads: Bools, places: int = PLACES) -> Ints:
    """`order`, with those of its candidates that lead an arm among the first `places`.

    Those that are not yet there come behind those that are, in the order they have; the last that
    lead nothing make room. order: distinct positions, best first; leads bool over positions.
    """
    top, rest = order[:places], order[places:]
    outside = rest[leads[rest]]
    free = np.flatnonzero(~leads[top])
    outside = outside[: len(free)]
    if not len(outside):
        return order
    gone = top[free[len(free) - len(outside) :]]
    return np.concatenate(
        [top[~np.isin(top, gone)], outside, gone, rest[~np.isin(rest, outside)]]
    ).astype(order.dtype)
