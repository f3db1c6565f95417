"""Pools of candidates that differ only in what is given, and a model whose weights are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from retrieval.arms.affinity import Scale
from retrieval.ranking.scoring_model import GATES, ScoringModel
from retrieval.ranking.signals import CONTEXT, SIGNALS, CandidatePool

SCALE = Scale(0.2, 0.1, 8.0)


def pool(n: int, **given: Any) -> CandidatePool:
    window = np.full((n, 5), -1, np.int32)
    window[:, 0] = np.arange(n)
    inputs: dict[str, Any] = {
        "window": window,
        "similarity": np.full((n, 5), 0.2, np.float32),
        "terms": np.zeros((0, n, 5), np.float32),
        "ceilings": np.empty(0, np.float32),
        "scale": SCALE,
        "ranks": np.zeros((n, 4), np.int32),
        "document": np.full(n, -1, np.int32),
        "tokens": np.full(n, 20, np.int32),
        "named": np.zeros(n, np.bool_),
        "evidence": np.zeros(n, np.float32),
        "support": np.full(n, -1, np.int32),
        "asks": np.zeros((n, 2), np.bool_),
    }
    inputs.update(given)
    return CandidatePool(**inputs)


def matrix(n: int, rows: dict[tuple[int, int], float], fill: float = 0.0) -> np.ndarray[Any, Any]:
    out = np.full((n, 5), fill, np.float32)
    for at, value in rows.items():
        out[at] = value
    return out


def plain(evidence: float = 1.5, **weights: float) -> ScoringModel:
    """A model that weighs the named signals so in every context."""
    return trusting({}, evidence, **weights)


def trusting(
    slopes: Mapping[tuple[str, str], float], evidence: float = 1.5, **weights: float
) -> ScoringModel:
    """As `plain`, with slopes of trust: (gate, entry of the context) -> slope."""
    table = np.zeros((len(GATES), len(CONTEXT)))
    for (gate, name), slope in slopes.items():
        table[list(GATES).index(gate), CONTEXT.index(name)] = slope
    row = np.array([weights.get(name, 0.0) for name in SIGNALS])
    return ScoringModel(row, evidence, 1.0, 1.5, table)
