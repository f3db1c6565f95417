"""The semantic arm: the memories most similar to the question, by exact cosine."""

from __future__ import annotations

import numpy as np

from retrieval.bank.vectors import Scan
from retrieval.types import Bools, FactType, Floats, Hits, Ints, no_hits


def search(scan: Scan, allowed: Bools, kind: FactType, *, limit: int, floor: float) -> Hits:
    """At most `limit` memories of one type with similarity >= floor, similarity descending."""
    hits = scan.top(limit, allowed, kind)
    kept = int(np.searchsorted(-hits.scores, -np.float32(floor), side="right"))
    return Hits(hits.ordinals[:kept], hits.scores[:kept])


class Blind:
    """Stands in for a scan where the question has no vector: nothing is similar, and no floor
    keeps the other arms from what words and dates find."""

    def top(self, k: int, allowed: Bools | None, fact_type: FactType) -> Hits:
        return no_hits()

    def at(self, ordinals: Ints) -> Floats:
        return np.ones(len(ordinals), np.float32)

    def moments(self, fact_type: FactType | None) -> tuple[float, float]:
        return 0.0, 0.0
