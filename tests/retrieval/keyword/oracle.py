"""BM25 from dictionaries, written without the code under test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def oracle(
    documents: Mapping[int, Mapping[str, float]], query: Mapping[str, float], k1: float, b: float
) -> dict[int, float]:
    """documents: ordinal -> term -> tf of every live memory. Returns the scores above 0."""
    if not documents:
        return {}
    lengths = {ordinal: sum(terms.values()) for ordinal, terms in documents.items()}
    average = sum(lengths.values()) / len(documents)
    out: dict[int, float] = {}
    for term, weight in query.items():
        holders = [ordinal for ordinal, terms in documents.items() if terms.get(term)]
        if not holders:
            continue
        idf = math.log(1 + (len(documents) - len(holders) + 0.5) / (len(holders) + 0.5))
        for ordinal in holders:
            tf = documents[ordinal][term]
            share = lengths[ordinal] / average if average else 0.0
            gain = tf * (k1 + 1) / (tf + k1 * (1 - b + b * share))
            out[ordinal] = out.get(ordinal, 0.0) + weight * idf * gain
    return out


def ranked(scores: Mapping[int, float], among: Sequence[int], limit: int) -> list[int]:
    kept = [ordinal for ordinal in among if ordinal in scores]
    return sorted(kept, key=lambda ordinal: (-scores[ordinal], ordinal))[:limit]
