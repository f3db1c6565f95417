"""The scan of a question that has no vector."""

from __future__ import annotations

import numpy as np

from retrieval.types import Bools, FactType, Floats, Hits, Ints, no_hits


class Blind:
    """Stands in for a scan where the question has no vector: nothing is similar, and no floor
    keeps the other arms from what words and dates find."""

    def top(self, k: int, allowed: Bools | None, fact_type: FactType) -> Hits:
        return no_hits()

    def at(self, ordinals: Ints) -> Floats:
        return np.ones(len(ordinals), np.float32)

    def moments(self, fact_type: FactType | None) -> tuple[float, float]:
        return 0.0, 0.0
