"""How near memories lie to a time window."""

from __future__ import annotations

import numpy as np

from retrieval.types import NO_TIME, Doubles, Longs


def proximity(
    start: Longs, end: Longs, mentioned: Longs, window: tuple[int | None, int | None]
) -> Doubles:
    """How near each memory lies to the middle of a time window, in [0, 1]; NaN without a date.

    The date is the middle of the event, else its start, its end, or when it was mentioned. A
    window open on one side has no middle: inside counts 1, outside 0. A window of zero length
    counts 1.
    """
    low, high = window
    both = (start != NO_TIME) & (end != NO_TIME)
    middle = np.where(both, start, 0) // 2 + np.where(both, end, 0) // 2
    date = np.where(
        both,
        middle,
        np.where(start != NO_TIME, start, np.where(end != NO_TIME, end, mentioned)),
    )
    known = date != NO_TIME
    at = np.where(known, date, 0).astype(np.float64)
    if low is None or high is None:
        inside = np.ones(len(at), np.bool_)
        if low is not None:
            inside &= at >= low
        if high is not None:
            inside &= at <= high
        near = inside.astype(np.float64)
    elif high == low:
        near = np.ones(len(at))
    else:
        half = (high - low) / 2
        near = 1.0 - np.minimum(np.abs(at - (low + half)) / half, 1.0)
    return np.where(known, near, np.nan)
