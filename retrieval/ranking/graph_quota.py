"""Places for what only links found, after a reranker that reads each memory by itself.

A memory two links away from the question shares no word with it, so a cross-encoder ranks it low.
Either it reads the path that leads there (`document.path_prefixed`; the setting
`rerank_graph_paths`, off by default), or a few such memories keep a place behind the memory that
leads to them (`keep`; the setting `graph_quota`, 2 by default).

No cross-encoder was available to tune them with. With the packaged embedding model in its place,
two places kept raise the recall of the first five from 0.590 to 0.696 on MuSiQue and from 0.767 to
0.833 on HotpotQA; paths change it to 0.526 and 0.767, as a long path blurs a single vector
(tests/bench/graph_quota.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retrieval.types import Bools, Doubles, Floats, Ints

SHOWN = 10
"""Places from the top within which a memory counts as found by the reranker."""

STRONG = 2.0
"""Least evidence of a walk, in deviations of affinity, that a place is kept for."""


def keep(
    weight: Doubles, order: Ints, evidence: Floats, support: NDArray[np.intp], quota: int
) -> tuple[Doubles, Ints, Bools]:
    """(weight, order, lifted): at most `quota` candidates are moved directly behind their support,
    the stronger ahead, and weigh as much.

    Those with the most evidence, STRONG at least, that `order` has outside the first SHOWN while
    the memory that they come from stands inside, or was lifted itself. Weights float64 (c,),
    order (c,) places, best first; evidence float32 (c,), support (c,) a place or -1.
    """
    lifted, found = np.zeros(len(weight), np.bool_), np.zeros(len(weight), np.bool_)
    found[order[:SHOWN]] = True
    weight, moved = weight.copy(), order.tolist()
    strong = np.flatnonzero((evidence >= STRONG) & (support >= 0) & ~found)
    for i in strong[np.argsort(-evidence[strong], kind="stable")].tolist():
        if lifted.sum() >= quota:
            break
        if not found[support[i]]:
            continue
        moved.remove(i)
        at = moved.index(support[i]) + 1
        while at < len(moved) and lifted[moved[at]]:
            at += 1
        moved.insert(at, i)
        weight[i] = weight[support[i]]
        lifted[i] = found[i] = True
    return weight, np.array(moved, np.int32), lifted
