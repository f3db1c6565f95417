"""Approximate vector search for very large banks: inverted lists beside the exact store.

Rows stay where they are, in full precision. Each belongs to the list of its nearest centroid (the
coarse quantiser of Jégou, Douze and Schmid, Product Quantization for Nearest Neighbor Search,
2011), and a question compares itself with the rows of the lists whose centroids it is most similar
to. So a similarity that is given is exact; a hit may be missing. How many lists are read is not
guessed: when lists are made, questions made from the bank's own rows are searched in full, and as
many lists are read as find the wanted share of the true hits.

What an allowed set leaves few of is compared row by row, so a filter never starves an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from retrieval.bank.columns import Population
from retrieval.bank.scan_host import HostScan
from retrieval.bank.selection import best
from retrieval.bank.vectors import NOBODY, SURVEYED_ROWS, FlatBackend, FlatVectors, checked
from retrieval.types import Bools, FactType, Floats, Hits, Ints

_faiss: Any = faiss  # its type stubs know the C++ signatures, not Python's

REGROWTH = 2.0
"""Centroids are made anew when the bank has so many times the rows that they were made for."""
LOOSE = 0.1
"""New rows are read in full until they are this share of the bank, and then join their lists."""
ASKED, DEPTH = 32, 300
"""How many questions recall is measured with, and among how many hits."""
_ROUNDS, _POINTS = 6, 48
_ROWS_AT_ONCE = 1 << 16
_SEED = 7


class IvfBackend:
    """Stores like those of FlatBackend that turn approximate at `least_rows` rows.

    recall: the share of the true hits that lists are read for, in (0, 1]; 1 reads all of them
    where fewer do not find everything. Making lists of a million rows takes some 25 CPU seconds,
    in the thread that extends the store.
    """

    def __init__(self, least_rows: int, recall: float = 0.95) -> None:
        self.least_rows = least_rows
        self.recall = recall

    def empty(self) -> IvfVectors:
        exact = FlatBackend(min(self.least_rows, SURVEYED_ROWS)).empty()
        return IvfVectors(self, exact, None, np.empty(0, np.uint8))


@dataclass(frozen=True, slots=True)
class Lists:
    """Ordinals by nearest centroid, for the first `size` rows.

    centroids float32 (c, d), made when the bank had `trained` rows; list i holds
    ordinals[ptr[i] : ptr[i + 1]]. probes: how many lists a question reads, for `recall` as
    measured.
    """

    centroids: Floats
    trained: int
    of: Ints
    ptr: NDArray[np.int64]
    ordinals: Ints
    probes: int
    recall: float

    @property
    def size(self) -> int:
        return len(self.of)

    @property
    def expected(self) -> float:
        """About how many rows a question is compared with."""
        return self.size * self.probes / len(self.centroids)

    def read(self, query: Floats) -> Ints:
        """The ordinals that a question is compared with."""
        return _read(self, query, self.probes)


@dataclass(frozen=True, slots=True)
class IvfVectors:
    """`VectorStore`; `lists` is None below the backend's threshold.

    kinds uint8: the type of every ordinal, NOBODY where it cannot be found; empty without lists.
    """

    _backend: IvfBackend
    exact: FlatVectors
    lists: Lists | None
    kinds: NDArray[np.uint8]

    @property
    def dimension(self) -> int:
        return self.exact.dimension

    @property
    def nbytes(self) -> int:
        if self.lists is None:
            return self.exact.nbytes
        parts = (self.lists.centroids, self.lists.of, self.lists.ordinals, self.kinds)
        return self.exact.nbytes + sum(part.nbytes for part in parts)

    @property
    def device_nbytes(self) -> int:
        return 0

    def extended(
        self, blocks: Sequence[Floats], absent: Bools, population: Population
    ) -> IvfVectors:
        exact, lists = self.exact.extended(blocks, absent, population), self.lists
        if exact.size < self._backend.least_rows or not exact.dimension:
            return replace(self, exact=exact)
        kinds = exact.kinds()
        there = np.flatnonzero(kinds != NOBODY).astype(np.int32)
        if not len(there):
            return replace(self, exact=exact, lists=None)
        if lists is None or exact.size > REGROWTH * lists.trained:
            lists = _made(exact, there, self._backend.recall)
        elif exact.size > (1 + LOOSE) * lists.size:
            lists = _filed(lists, exact)
        return IvfVectors(self._backend, exact, lists, kinds)

    def scan(self, query: Floats) -> HostScan | IvfScan:
        if self.lists is None:
            return self.exact.scan(query)
        return IvfScan(self, self.lists, checked(query, self.dimension))

    def scan_many(self, queries: Floats) -> Sequence[HostScan | IvfScan]:
        if self.lists is None:
            return self.exact.scan_many(queries)
        return [self.scan(query) for query in queries]

    def nearest(
        self, vectors: Floats, types: NDArray[np.uint8], k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        return self.exact.nearest(vectors, types, k, floor)

    def rows(self, ordinals: Ints) -> Floats:
        return self.exact.rows(ordinals)

    def searchable(self, fact_type: FactType | None) -> int:
        return self.exact.searchable(fact_type)


class IvfScan:
    """`Scan`: exact similarities, of the rows that the lists lead to."""

    __slots__ = ("_lists", "_near", "_query", "_scan", "_store")

    def __init__(self, store: IvfVectors, lists: Lists, query: Floats) -> None:
        self._store = store
        self._lists = lists
        self._query = query
        self._scan = store.exact.scan(query)
        self._near: Ints | None = None

    def top(self, k: int, allowed: Bools | None, fact_type: FactType) -> Hits:
        if allowed is not None and int(np.count_nonzero(allowed)) <= self._lists.expected:
            return self._scan.top(k, allowed, fact_type)
        near = self._candidates()
        rows = near[self._store.kinds[near] == fact_type]
        if allowed is not None:
            rows = rows[allowed[rows]]
        if len(rows) < k:
            return self._scan.top(k, allowed, fact_type)
        return best(self._scan.at(rows), rows, k)

    def at(self, ordinals: Ints) -> Floats:
        return self._scan.at(ordinals)

    def moments(self, fact_type: FactType | None) -> tuple[float, float]:
        return self._scan.moments(fact_type)

    def _candidates(self) -> Ints:
        if self._near is None:
            loose = np.arange(self._lists.size, self._store.exact.size, dtype=np.int32)
            self._near = np.concatenate([np.sort(self._lists.read(self._query)), loose])
        return self._near


def _made(exact: FlatVectors, there: Ints, recall: float) -> Lists:
    """Lists for all rows, with as many read as `recall` takes."""
    chance = np.random.default_rng(_SEED)
    count = max(1, int(2 * np.sqrt(len(there))))
    means = _faiss.Kmeans(
        exact.dimension,
        count,
        niter=_ROUNDS,
        spherical=True,
        seed=_SEED,
        min_points_per_centroid=1,
        max_points_per_centroid=_POINTS,
    )
    points = np.sort(chance.choice(there, min(len(there), _POINTS * count), replace=False))
    means.train(exact.rows(points))
    lists = _filed(
        Lists(
            means.centroids, exact.size, np.empty(0, np.int32), np.zeros(1, np.int64),
            np.empty(0, np.int32), count, 1.0,
        ),
        exact,
    )  # fmt: skip
    return _measured(lists, exact, there, recall, chance)


def _filed(lists: Lists, exact: FlatVectors) -> Lists:
    """All rows of the store in the list of their nearest centroid."""
    parts = [lists.of]
    for first in range(lists.size, exact.size, _ROWS_AT_ONCE):
        rows = exact.matrix[first : first + _ROWS_AT_ONCE]
        _, nearest = _faiss.knn(rows, lists.centroids, 1, metric=faiss.METRIC_INNER_PRODUCT)
        parts.append(nearest[:, 0].astype(np.int32))
    of = np.concatenate(parts)
    sizes = np.bincount(of, minlength=len(lists.centroids))
    return replace(
        lists,
        of=of,
        ptr=np.concatenate([[0], np.cumsum(sizes)]),
        ordinals=np.argsort(of, kind="stable").astype(np.int32),
    )


def _read(lists: Lists, query: Floats, probes: int) -> Ints:
    similarity = lists.centroids @ query
    if probes < len(similarity):
        chosen = np.argpartition(-similarity, probes)[:probes]
    else:
        chosen = np.arange(len(similarity))
    parts = [lists.ordinals[lists.ptr[i] : lists.ptr[i + 1]] for i in chosen.tolist()]
    return np.concatenate(parts)


def _measured(
    lists: Lists, exact: FlatVectors, there: Ints, wanted: float, chance: np.random.Generator
) -> Lists:
    """With the fewest lists read, of 1, 2, 3, 5, ..., that find the wanted share of true hits."""
    # Between two memories, as a question lies: not on one, where its own list would be enough.
    one, other = (exact.rows(chance.choice(there, ASKED)) for _ in range(2))
    questions = 0.7 * one + 0.5 * other
    questions /= np.linalg.norm(questions, axis=1, keepdims=True) + 1e-12
    depth = min(DEPTH, len(there))
    _, truth = _faiss.knn(questions, exact.matrix, depth, metric=faiss.METRIC_INNER_PRODUCT)
    probes = 1
    while True:
        found = [
            np.isin(true, _read(lists, question, probes)).mean()
            for question, true in zip(questions, truth, strict=True)
        ]
        recall = float(np.mean(found))
        if recall >= wanted or probes >= len(lists.centroids):
            return replace(lists, probes=probes, recall=recall)
        probes = min(probes + (probes + 1) // 2, len(lists.centroids))
