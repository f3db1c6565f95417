"""Packing: the ranked list is cut to a token budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retrieval.types import Ints


@dataclass(frozen=True, slots=True)
class Packed:
    """kept: positions in rank order; tokens: what they cost; truncated: something was dropped."""

    kept: Ints
    tokens: int
    truncated: bool


def pack(tokens: Ints, max_tokens: int) -> Packed:
    """Takes what fits, in rank order; skips what does not and goes on.

    If nothing fits but something is there, the first row is returned whole, so that a match is
    never answered with an empty list; max_tokens <= 0 asks for no rows at all.
    """
    n = len(tokens)
    if max_tokens <= 0 or n == 0:
        return Packed(np.empty(0, np.int32), 0, n > 0)
    total = np.cumsum(tokens, dtype=np.int64)
    if total[-1] <= max_tokens:
        return Packed(np.arange(n, dtype=np.int32), int(total[-1]), False)
    # Greedy with skips is sequential; everything before the first overflow is taken at once.
    fits = int(np.searchsorted(total, max_tokens, side="right"))
    kept, used = list(range(fits)), int(total[fits - 1]) if fits else 0
    for position, cost in enumerate(tokens[fits:].tolist(), fits):
        if used + cost <= max_tokens:
            kept.append(position)
            used += cost
    if not kept:
        kept, used = [0], int(tokens[0])
    return Packed(np.array(kept, np.int32), used, len(kept) < n)
