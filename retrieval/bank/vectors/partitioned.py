"""One bank's vectors in several stores, by ordinal range; answers are those of one store.

A range may lie in host memory, in an accelerator's slab or behind a remote store: whatever answers
as a `VectorStore`. Growing a large bank then copies at most one range, and ranges are searched at
the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.columns import AliveSet
from retrieval.bank.shards.placement import shard_ranges
from retrieval.bank.vectors.flat import Scan, VectorBackend, VectorStore, checked, width_of
from retrieval.topk import best, best_per_row, no_nearest
from retrieval.types import Bools, FactType, Floats, Hits, Ints, no_hits

R = TypeVar("R")
S = TypeVar("S")


class PartitionedBackend:
    """Splits banks into ranges of `shard_rows` ordinals, each a store of `inner`; a bank of one
    range is searched as if it were not split.

    `threads`: how many ranges are searched at a time; 1 searches them in the caller's thread.
    """

    def __init__(self, inner: VectorBackend, shard_rows: int, threads: int = 1) -> None:
        self.inner = inner
        self.shard_rows = shard_rows
        self._pool = ThreadPoolExecutor(threads, "bank-shard") if threads > 1 else None

    def empty(self) -> PartitionedVectors:
        return PartitionedVectors(self, 0, (), AliveSet.empty())

    def each(self, work: Callable[[S], R], shards: Iterable[S]) -> list[R]:
        """`work` on every shard, in their order."""
        return list(map(work, shards) if self._pool is None else self._pool.map(work, shards))

    def close(self) -> None:
        """Ends the threads; stores cannot be searched afterwards."""
        if self._pool is not None:
            self._pool.shutdown()


@dataclass(frozen=True, slots=True)
class PartitionedVectors:
    """`VectorStore`: shard i holds the ordinals from i x shard_rows on."""

    backend: PartitionedBackend
    size: int
    shards: tuple[VectorStore, ...]
    population: AliveSet

    @property
    def dimension(self) -> int:
        return max((s.dimension for s in self.shards), default=0)

    @property
    def nbytes(self) -> int:
        return sum(s.nbytes for s in self.shards)

    @property
    def device_nbytes(self) -> int:
        return sum(s.device_nbytes for s in self.shards)

    def extended(
        self, blocks: Sequence[Floats], absent: Bools, population: AliveSet
    ) -> PartitionedVectors:
        width_of(blocks, self.dimension)
        ranges = shard_ranges(population.size, self.backend.shard_rows)
        shards = []
        for i, (first, end) in enumerate(ranges):
            shard = self.shards[i] if i < len(self.shards) else self.backend.inner.empty()
            if end > self.size or self._changed(population, first, end):
                new = slice(max(first, self.size) - self.size, max(end, self.size) - self.size)
                own = population if len(ranges) == 1 else population.between(first, end)
                shard = shard.extended(_within(blocks, new), absent[new], own)
            shards.append(shard)
        return PartitionedVectors(self.backend, population.size, tuple(shards), population)

    def scan(self, query: Floats) -> Scan:
        query = checked(query, self.dimension)
        if len(self.shards) == 1:
            return self.shards[0].scan(query)
        return ShardedScan(self, [s.scan(query) for s in self.shards])

    def scan_many(self, queries: Floats) -> Sequence[Scan]:
        queries = checked(queries, self.dimension)
        each = [s.scan_many(queries) for s in self.shards]
        if len(each) == 1:
            return each[0]
        return [ShardedScan(self, [scans[i] for scans in each]) for i in range(len(queries))]

    def nearest(
        self, vectors: Floats, types: NDArray[np.uint8], k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        if not self.shards or not self.dimension:
            return no_nearest()
        vectors = checked(vectors, self.dimension)
        parts = self.backend.each(lambda s: s.nearest(vectors, types, k, floor), self.shards)
        row = np.concatenate([p[0] for p in parts])
        ordinal = np.concatenate([self._offset(i) + p[1] for i, p in enumerate(parts)])
        return best_per_row(row, ordinal, np.concatenate([p[2] for p in parts]), k)

    def rows(self, ordinals: Ints) -> Floats:
        out = np.zeros((len(ordinals), self.dimension), np.float32)
        for i, at in self.split(ordinals):
            if self.shards[i].dimension:
                out[at] = self.shards[i].rows(ordinals[at] - self._offset(i))
        return out

    def searchable(self, fact_type: FactType | None) -> int:
        return sum(s.searchable(fact_type) for s in self.shards)

    def split(self, ordinals: Ints) -> list[tuple[int, NDArray[np.intp]]]:
        """(shard, where its ordinals stand in `ordinals`) of every shard that is asked."""
        owner = ordinals // self.backend.shard_rows
        return [(int(i), np.flatnonzero(owner == i)) for i in np.unique(owner)]

    def _changed(self, population: AliveSet, first: int, end: int) -> bool:
        """Did somebody of this range die?"""
        return not np.array_equal(population.live[first:end], self.population.live[first:end])

    def _offset(self, shard: int) -> np.int32:
        return np.int32(shard * self.backend.shard_rows)


def _within(blocks: Sequence[Floats], rows: slice) -> list[Floats]:
    """The parts of the blocks that hold these of all their rows."""
    parts, at = [], 0
    for block in blocks:
        part = block[max(0, rows.start - at) : max(0, rows.stop - at)]
        if len(part):
            parts.append(part)
        at += len(block)
    return parts


class ShardedScan:
    """`Scan` over all shards."""

    __slots__ = ("_scans", "_store")

    def __init__(self, store: PartitionedVectors, scans: Sequence[Scan]) -> None:
        self._store = store
        self._scans = scans

    def top(self, k: int, allowed: Bools | None, fact_type: FactType) -> Hits:
        rows = self._store.backend.shard_rows

        def ask(shard: tuple[int, Scan]) -> Hits:
            first = shard[0] * rows
            own = None if allowed is None else allowed[first : first + rows]
            hits = shard[1].top(k, own, fact_type)
            return Hits(hits.ordinals + np.int32(first), hits.scores)

        parts = self._store.backend.each(ask, enumerate(self._scans))
        if not parts:
            return no_hits()
        ordinals = np.concatenate([p.ordinals for p in parts])
        order = np.argsort(ordinals)
        return best(np.concatenate([p.scores for p in parts])[order], ordinals[order], k)

    def at(self, ordinals: Ints) -> Floats:
        out = np.zeros(len(ordinals), np.float32)
        rows = self._store.backend.shard_rows
        for i, at in self._store.split(ordinals):
            out[at] = self._scans[i].at(ordinals[at] - np.int32(i * rows))
        return out

    def moments(self, fact_type: FactType | None) -> tuple[float, float]:
        counts = np.array([s.searchable(fact_type) for s in self._store.shards], np.float64)
        total = counts.sum()
        if not total:
            return 0.0, 0.0
        each = self._store.backend.each(lambda s: s.moments(fact_type), self._scans)
        means, deviations = np.array(each, np.float64).T
        mean = float(counts @ means / total)
        # Within the shards and between them.
        variance = counts @ (deviations**2 + (means - mean) ** 2) / total
        return mean, float(np.sqrt(variance))
