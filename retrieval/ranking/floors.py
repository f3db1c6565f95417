"""What a caller's floor asks of a score: that it reaches the floor as it is shown, rounded.

So a score taken from an answer, given back as a floor, keeps the memory that had it.
"""

from __future__ import annotations

import math

ARM_DIGITS = 4
"""Of the scores of an arm, as they are shown."""
FINAL_DIGITS = 6
"""Of the reranker's score and the final one."""

_EXACT = 2.0**52
"""Beyond, doubles have no digits behind the point to round."""


def least(floor: float, digits: int) -> float:
    """The least score that is shown, with so many digits, as the floor or more."""
    steps = floor * 10.0**digits
    if not abs(steps) < _EXACT:
        return floor
    return (math.ceil(round(steps, 3)) - 0.5) / 10.0**digits
