"""Reads what model servers answer: scores by index, vectors; nothing is trusted to be complete."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from models.types import BadOutput, Floats


def in_order(answer: Any, field: str, count: int, part: str) -> list[float]:
    """Scores by `index`; BadOutput unless every index from 0 to count - 1 is there once."""
    try:
        found = {int(item["index"]): item[field] for item in answer}
        scores = [math.nan if found[i] is None else float(found[i]) for i in range(count)]
    except (KeyError, TypeError, ValueError) as error:
        raise BadOutput(f"{part}: the answer lacks scores: {str(answer)[:120]}") from error
    if len(answer) != count:
        raise BadOutput(f"{part}: {len(answer)} scores for {count} documents")
    return scores


def unit_rows(vectors: Sequence[Any], part: str) -> Floats:
    """float32 (n, d) of length 1; BadOutput for nulls, unequal lengths, zeros and NaN."""
    try:
        rows = np.array(vectors, np.float32)
    except (TypeError, ValueError) as error:
        raise BadOutput(f"{part}: the answer holds no vectors of one length") from error
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise BadOutput(f"{part}: the answer holds vectors that are not finite")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if not norms.all():
        raise BadOutput(f"{part}: the answer holds a zero vector")
    return np.asarray(rows / norms, np.float32)


def bank_header(bank: str) -> dict[str, str]:
    """Tells a server which bank asks, where the name fits into a header."""
    return {"X-Hindsight-Bank-Id": bank} if bank and bank.isascii() and bank.isprintable() else {}
