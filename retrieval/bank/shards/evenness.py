"""What share of its banks each slot takes, so that all hold about as many bytes.

Hashing alone leaves the fullest of a thousand slots with 1.7 times the mean. Shares are made by
whoever knows all banks, and told to the routers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.shards.placement import Ranking

FULL = 1.12
"""Times the mean that a slot may hold."""
EASED = 1.08
"""What a fuller one is brought to at a step."""
ENOUGH = 1.2
"""While none holds more, shares stay what they were: each change moves banks."""
LOW = 0.75
"""One below it takes a larger share again."""
LEAST = 0.1
"""A share is never below: a slot full of one bank keeps that one."""
STEPS = 40
GROWTH = 1.05


def shares(
    slots: Sequence[int],
    keys: NDArray[np.uint64],
    sizes: NDArray[np.float64],
    before: Mapping[int, float] | None = None,
) -> dict[int, float]:
    """The share of each slot; none where all of them take all of their banks.

    `keys` and `sizes` (bytes) are of all banks. Starts from the shares `before`, so that few banks
    move. Takes a second for 100,000 banks and 1,000 slots.
    """
    ranking = Ranking(slots, before)
    count, total = len(ranking.slots), float(sizes.sum())
    if count < 2 or total <= 0:
        return {}
    places = ranking.places(keys)
    draws = ranking.draws(keys, places)
    share = ranking.shares.copy()
    best, least = share, np.inf
    for step in range(STEPS):
        first = (draws < share[places]).argmax(axis=1)
        at = places[np.arange(len(keys)), first]
        held = np.bincount(at, weights=sizes, minlength=count) * (count / total)
        if held.max() < least:
            best, least = share, float(held.max())
        over = held > FULL
        if not over.any() or (step == 0 and held.max() <= ENOUGH):
            break
        lowered = share * np.maximum(0.5, EASED / np.maximum(held, EASED))
        raised = np.where(held < LOW, np.minimum(1.0, share * GROWTH), share)
        share = np.where(over, np.maximum(LEAST, lowered), raised)
    if (best >= 1.0).all():
        return {}
    return {s: round(float(part), 4) for s, part in zip(ranking.slots, best, strict=True)}
