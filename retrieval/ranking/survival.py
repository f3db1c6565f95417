"""How what only links found survives a reranker that reads a memory by itself.

A memory two links away from the question shares no word with it. Either the reranker reads the path
that leads to it (`led_documents`), or a few such memories keep a place behind the memory that leads
to them, whatever the reranker makes of them (`lift`).

Both are off by default: no cross-encoder was available to tune them with. With the packaged
embedding model in its place, two places kept raise the recall of the first five from 0.590 to
0.696 on MuSiQue and from 0.767 to 0.833 on HotpotQA; paths change it to 0.526 and 0.767, as a long
path blurs a single vector (tests/bench/survival.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retrieval.arms.adjacency import PathLink
from retrieval.types import Bools, Doubles, Floats, Ints

LONGEST = 3
"""Memories of a path that are read."""

READ_OF_EACH = 200
"""Characters read of each: the memory itself must not be pushed out of the model's length."""

TELLING = (PathLink.ENTITY, PathLink.SUBJECT, PathLink.CAUSAL)
"""Links that say why a memory matters; the next turn or a similar text does not."""

SHOWN = 10
"""Places from the top within which a memory counts as found by the reranker."""

STRONG = 2.0
"""Least evidence of a walk, in deviations of affinity, that a place is kept for."""


def led_documents(
    texts: Sequence[str],
    documents: Sequence[str],
    led: NDArray[np.intp],
    link: NDArray[np.uint8],
) -> list[str]:
    """The documents, each with the texts of its path in front: "first; second; document".

    All of the candidates, in one order. led (c,): the place of the memory that each was reached
    from, -1 for none; link (c,): along what. Only TELLING links are read. A path ends where it
    would repeat itself.
    """
    parent = np.where(np.isin(link, TELLING), led, -1).tolist()
    read = []
    for i, document in enumerate(documents):
        path: list[int] = []
        at = parent[i]
        while at >= 0 and at != i and at not in path and len(path) < LONGEST:
            path.append(at)
            at = parent[at]
        read.append("; ".join([*(texts[p][:READ_OF_EACH] for p in reversed(path)), document]))
    return read


def lift(
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
