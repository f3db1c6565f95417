"""Picking the best of scored ordinals: pure functions over arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from retrieval.types import Bools, Floats, Hits, Ints, no_hits

I = TypeVar("I", bound=np.integer)  # noqa: E741


def distinct(values: NDArray[I]) -> NDArray[I]:
    """The values ascending, each once. For the few hundred of a recall this takes a third of the
    time of np.unique, which makes a table of hashes first."""
    ordered = np.sort(values)
    if len(ordered) < 2:
        return ordered
    first = np.empty(len(ordered), np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def among(values: NDArray[I], few: NDArray[I]) -> Bools:
    """Which of the values are among a few: np.isin without its preparations."""
    found: Bools = (values[:, None] == few).any(axis=1)
    return found


def best(similarities: Floats, ordinals: Ints, k: int) -> Hits:
    """The k largest, descending, ties by ordinal; `ordinals` ascend."""
    if k <= 0 or not len(ordinals):
        return no_hits()
    if k < len(ordinals):
        # Ties at the cut go by ordinal.
        kept = leading(similarities, k)
        similarities, ordinals = similarities[kept], ordinals[kept]
    order = np.argsort(-similarities, kind="stable")[:k]
    return Hits(ordinals[order], np.clip(similarities[order], -1.0, 1.0))


def leading(values: Floats, k: int) -> NDArray[np.intp]:
    """Where the k largest of more than k values stand, and all that equal the last, ascending."""
    cut = np.partition(values, len(values) - k)[len(values) - k]
    return np.flatnonzero(values >= cut)


def moments(similarities: Floats) -> tuple[float, float]:
    """(mean, standard deviation); (0, 0) of none."""
    if not len(similarities):
        return 0.0, 0.0
    wide = similarities.astype(np.float64)
    mean = float(wide.mean())
    wide -= mean
    return mean, float(np.sqrt(wide @ wide / len(wide)))


def places(ordinals: Ints, wanted: Ints) -> NDArray[np.intp]:
    """Where each of `wanted` stands in `ordinals` (distinct, not empty), -1 nowhere."""
    order = np.argsort(ordinals, kind="stable")
    at = order[np.minimum(np.searchsorted(ordinals, wanted, sorter=order), len(order) - 1)]
    return np.where(ordinals[at] == wanted, at, -1)


def no_nearest() -> tuple[Ints, Ints, Floats]:
    none = np.empty(0, np.int32)
    return none, none, np.empty(0, np.float32)


def nearest_of(
    table: Floats, kinds: NDArray[np.uint8], types: NDArray[np.uint8], k: int, floor: float
) -> tuple[Ints, Ints, Floats]:
    """`VectorStore.nearest` from a table of similarities (b, n), with `kinds` (n,)."""
    row, ordinal = np.nonzero(table >= floor)
    same = kinds[ordinal] == types[row]
    row, ordinal = row[same], ordinal[same]
    return best_per_row(row, ordinal, table[row, ordinal], k)


def best_per_row(
    row: NDArray[np.integer], ordinal: NDArray[np.integer], similarity: Floats, k: int
) -> tuple[Ints, Ints, Floats]:
    """The k most similar of each row: rows ascending, similarity descending, ties by ordinal."""
    order = np.lexsort((ordinal, -similarity, row))
    row = row[order]
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    order, row = order[rank < k], row[rank < k]
    return (
        row.astype(np.int32),
        ordinal[order].astype(np.int32),
        np.clip(similarity[order], -1.0, 1.0),
    )


def joined_nearest(
    parts: Sequence[tuple[Ints, Ints, Floats]], step: int
) -> tuple[Ints, Ints, Floats]:
    """The answers to consecutive blocks of `step` queries as one."""
    if not parts:
        return no_nearest()
    rows = [row + np.int32(i * step) for i, (row, _, _) in enumerate(parts)]
    return (
        np.concatenate(rows),
        np.concatenate([p[1] for p in parts]),
        np.concatenate([p[2] for p in parts]),
    )
