"""The semantic arm: the memories most similar to the question, by exact cosine."""

from __future__ import annotations

import numpy as np

from retrieval.bank.vectors.flat import Scan
from retrieval.settings import RecallSettings
from retrieval.store.heads import model_of
from retrieval.types import Bools, FactType, Hits

_FLOORS = {"all-MiniLM-L6-v2": 0.1}
_FLOOR = 0.3
"""What unrelated texts may have in common without being listed depends on the model. The public
default of 0.3 belongs to BGE small, whose similarities lie above it for nearly all pairs: it keeps
small banks whole. MiniLM gives 0.0 to 0.2 there; on LoCoMo turns no floor from 0 to 0.3 changed
recall@10 by more than 0.001."""


def floor_of(settings: RecallSettings, vector_set: str) -> float:
    """The least similarity of the arm: the setting, or what the model of the bank's vectors calls
    for."""
    if settings.semantic_min_similarity is not None:
        return settings.semantic_min_similarity
    return _FLOORS.get(model_of(vector_set).rpartition("/")[2], _FLOOR)


def search(scan: Scan, allowed: Bools, kind: FactType, *, limit: int, floor: float) -> Hits:
    """At most `limit` memories of one type with similarity >= floor, similarity descending."""
    hits = scan.top(limit, allowed, kind)
    kept = int(np.searchsorted(-hits.scores, -np.float32(floor), side="right"))
    return Hits(hits.ordinals[:kept], hits.scores[:kept])
