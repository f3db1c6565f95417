"""Semantic links of new memories: who is most similar, among the stored and the new. Pure numpy,
but for the question to the resident bank."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.protocols import Neighbours
from retrieval.store.heads import BankHead
from retrieval.types import Floats, Ints, LinkType

_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Edges:
    """Links by bank ordinals: source, target int32, type uint8, weight float32; all (m,)."""

    source: Ints
    target: Ints
    type: NDArray[np.uint8]
    weight: Floats

    def __len__(self) -> int:
        return len(self.source)


def edges(source: Ints, target: Ints, type: LinkType, weight: Floats) -> Edges:
    kinds = np.full(len(source), type, np.uint8)
    return Edges(source, target, kinds, np.clip(weight, 0.0, 1.0).astype(np.float32))


def within(
    vectors: Floats, types: NDArray[np.uint8], k: int, floor: float
) -> tuple[Ints, Ints, Floats]:
    """Similar pairs inside a batch: (later row, earlier row, similarity), each pair once.

    A pair is in if one of the two has the other among its k most similar of the same type, and
    their cosine is at least `floor`. Work is in blocks of 1024 rows.
    """
    rows: list[Ints] = []
    columns: list[Ints] = []
    values: list[Floats] = []
    n = len(vectors)
    for start in range(0, n, _BLOCK):
        block = slice(start, min(start + _BLOCK, n))
        similar = vectors[block] @ vectors.T
        same = types[block, None] == types[None, :]
        similar[~same] = -1.0
        own = np.arange(block.start, block.stop)
        similar[np.arange(len(own)), own] = -1.0
        crowded = np.count_nonzero(similar >= floor, axis=1) > k
        for i in np.flatnonzero(crowded):
            line = similar[i]
            line[np.argpartition(-line, k)[k:]] = -1.0
        at = np.nonzero(similar >= floor)
        rows.append((at[0] + block.start).astype(np.int32))
        columns.append(at[1].astype(np.int32))
        values.append(similar[at])
    if not rows:
        return np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32)
    left, right, value = np.concatenate(rows), np.concatenate(columns), np.concatenate(values)
    later, earlier = np.maximum(left, right), np.minimum(left, right)
    _, first = np.unique(later.astype(np.int64) * n + earlier, return_index=True)
    return later[first], earlier[first], value[first].astype(np.float32)


async def semantic(
    neighbours: Neighbours,
    head: BankHead,
    vectors: Floats,
    types: NDArray[np.uint8],
    first_ordinal: int,
    gone: Ints,
    *,
    k: int,
    floor: float,
) -> Edges:
    """Links of the new memories (ordinals from `first_ordinal`) to similar ones.

    The caller holds the bank's lock at `head`. gone: ordinals that this write removes.
    """
    found: list[Edges] = []
    if head.next_ordinal and len(vectors):
        row, ordinal, similarity = await neighbours.neighbours(
            head, vectors, types, k=k, floor=floor
        )
        stays = ~np.isin(ordinal, gone)
        found.append(
            edges(
                row[stays] + np.int32(first_ordinal),
                ordinal[stays],
                LinkType.SEMANTIC,
                similarity[stays],
            )
        )
    later, earlier, similarity = await asyncio.to_thread(within, vectors, types, k, floor)
    base = np.int32(first_ordinal)
    found.append(edges(later + base, earlier + base, LinkType.SEMANTIC, similarity))
    return joined(found)


def none() -> Edges:
    empty = np.empty(0, np.int32)
    return Edges(empty, empty, np.empty(0, np.uint8), np.empty(0, np.float32))


def joined(parts: list[Edges]) -> Edges:
    if not parts:
        return none()
    return Edges(
        np.concatenate([e.source for e in parts]).astype(np.int32, copy=False),
        np.concatenate([e.target for e in parts]).astype(np.int32, copy=False),
        np.concatenate([e.type for e in parts]),
        np.concatenate([e.weight for e in parts]),
    )
