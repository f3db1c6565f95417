"""Approximate vector search for very large banks: inverted lists beside the exact store.

Rows stay where they are, in full precision. Each belongs to the list of its nearest centroid (the
coarse quantiser of Jégou, Douze and Schmid, Product Quantization for Nearest Neighbor Search,
2011), and a question reads the lists whose centroids it is most similar to: their rows' codes,
which lie together in a copy of the survey's codes, and in full those rows that may be among the
best by what the codes tell. So an answer is the one that comparing all rows of these lists gives,
and a similarity is exact; a hit may be missing. How many lists are read is not guessed: when lists
are made, questions made from the bank's own rows are searched in full, and as many lists are read
as hold the wanted share of the true hits.

What a type or an allowed set leaves few of is compared row by row, so a filter never starves an
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from retrieval.bank.codes import Codes, joined
from retrieval.bank.columns import Population
from retrieval.bank.scan_host import MOST, HostScan, contenders
from retrieval.bank.selection import best
from retrieval.bank.vectors import NOBODY, SURVEYED_ROWS, FlatBackend, FlatVectors, checked
from retrieval.types import Bools, FactType, Floats, Hits, Ints

_faiss: Any = faiss  # its type stubs know the C++ signatures, not Python's

REGROWTH = 2.0
"""Centroids are made anew when the bank has so many times the rows that they were made for."""
LOOSE = 0.1
"""New rows are read in full until they are this share of the bank, and then join their lists."""
ASKED, DEPTH = 64, 300
"""How many questions recall is measured with, and among how many hits."""
FEW = 0.5
"""Lists are read where more than this share of the rows that they hold may be found at all."""
_ROUNDS, _POINTS = 6, 48
_ROWS_AT_ONCE = 1 << 16
_SEED = 7


class IvfBackend:
    """Stores like those of FlatBackend that turn approximate at `least_rows` rows.

    recall: the share of the true hits that lists are read for, in (0, 1]. Making lists of a million
    rows takes some 25 CPU seconds, in the thread that extends the store.
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
    ordinals[ptr[i] : ptr[i + 1]], `codes` are those of `ordinals`. probes: how many lists a
    question reads, for `recall` as measured.
    """

    centroids: Floats
    trained: int
    of: Ints
    ptr: NDArray[np.int64]
    ordinals: Ints
    codes: Codes
    probes: int
    recall: float

    @property
    def size(self) -> int:
        return len(self.of)

    @property
    def expected(self) -> float:
        """About how many rows the lists hold that a question reads."""
        return self.size * self.probes / len(self.centroids)

    def read(self, query: Floats) -> tuple[Ints, Floats, Floats]:
        """The ordinals in the lists that a question reads, and lower and upper bounds of their
        similarities."""
        runs = self._runs(query)
        bounds = self.codes.bounds(query, self.codes.sums_of(query, runs), runs)
        return joined(self.ordinals, runs), *bounds

    def _runs(self, query: Floats) -> Sequence[slice]:
        """Where the lists lie that a question reads; neighbours are one run."""
        similarity = self.centroids @ query
        cut = len(similarity) - self.probes
        chosen = np.sort(np.argpartition(similarity, cut)[cut:] if cut else np.arange(self.probes))
        starts, ends = self.ptr[chosen], self.ptr[chosen + 1]
        apart = starts[1:] != ends[:-1]
        starts, ends = starts[np.append(True, apart)], ends[np.append(apart, True)]
        return list(map(slice, starts.tolist(), ends.tolist()))


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
        lists = self.lists
        parts = (lists.centroids, lists.of, lists.ordinals, lists.codes, self.kinds)
        return self.exact.nbytes + sum(part.nbytes for part in parts)

    @property
    def device_nbytes(self) -> int:
        return 0

    def extended(
        self, blocks: Sequence[Floats], absent: Bools, population: Population
    ) -> IvfVectors:
        exact, lists = self.exact.extended(blocks, absent, population), self.lists
        survey = exact.survey
        if exact.size < self._backend.least_rows or survey is None:
            return replace(self, exact=exact)
        kinds = exact.kinds()
        there = np.flatnonzero(kinds != NOBODY).astype(np.int32)
        if not len(there):
            return replace(self, exact=exact, lists=None)
        if lists is None or exact.size > REGROWTH * lists.trained:
            lists = _made(exact, survey.codes, there, self._backend.recall)
        elif exact.size > (1 + LOOSE) * lists.size:
            lists = _filed(lists, exact, survey.codes)
        return IvfVectors(self._backend, exact, lists, kinds)

    def scan(self, query: Floats) -> HostScan | IvfScan:
        survey = self.exact.survey
        if self.lists is None or survey is None:
            return self.exact.scan(query)
        return IvfScan(self, self.lists, survey.codes, checked(query, self.dimension))

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

    __slots__ = ("_codes", "_lists", "_near", "_query", "_scan", "_store")

    def __init__(self, store: IvfVectors, lists: Lists, codes: Codes, query: Floats) -> None:
        self._store = store
        self._lists = lists
        self._codes = codes
        self._query = query
        self._scan = store.exact.scan(query)
        self._near: tuple[Ints, Floats, Floats] | None = None

    def top(self, k: int, allowed: Bools | None, fact_type: FactType) -> Hits:
        most = self._store.searchable(fact_type)
        if allowed is not None:
            most = min(most, int(np.count_nonzero(allowed)))
        if most <= FEW * self._lists.expected:
            return self._scan.top(k, allowed, fact_type)
        rows, lower, upper = self._read()
        mine = self._store.kinds[rows] == fact_type
        if allowed is not None:
            mine &= allowed[rows]
        kept = np.flatnonzero(mine)
        if len(kept) < k:
            return self._scan.top(k, allowed, fact_type)
        if len(kept) < len(rows):
            rows, lower, upper = rows[kept], lower[kept], upper[kept]
        if 0 < k <= MOST * len(rows):
            rows = contenders(rows, lower, upper, k, self._scan.similarities)
        rows = np.sort(rows)
        return best(self._scan.similarities(rows), rows, k)

    def at(self, ordinals: Ints) -> Floats:
        return self._scan.at(ordinals)

    def moments(self, fact_type: FactType | None) -> tuple[float, float]:
        return self._scan.moments(fact_type)

    def _read(self) -> tuple[Ints, Floats, Floats]:
        """The rows of the lists and those that are in none yet, with bounds."""
        if self._near is None:
            filed, known, size = self._lists.read(self._query), self._lists.size, len(self._codes)
            if known == size:
                self._near = filed
            else:
                runs = [slice(known, size)]
                sums = self._codes.sums_of(self._query, runs)
                lower, upper = self._codes.bounds(self._query, sums, runs)
                loose = np.arange(known, size, dtype=np.int32)
                self._near = (
                    np.concatenate([filed[0], loose]),
                    np.concatenate([filed[1], lower]),
                    np.concatenate([filed[2], upper]),
                )
        return self._near


def _made(exact: FlatVectors, codes: Codes, there: Ints, recall: float) -> Lists:
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
    none = np.empty(0, np.int32)
    lists = Lists(means.centroids, exact.size, none, np.zeros(1, np.int64), none, codes, count, 1.0)
    return _measured(_filed(lists, exact, codes), exact, there, recall, chance)


def _filed(lists: Lists, exact: FlatVectors, codes: Codes) -> Lists:
    """All rows of the store, which have these codes, in the list of their nearest centroid."""
    parts = [lists.of]
    for first in range(lists.size, exact.size, _ROWS_AT_ONCE):
        rows = exact.matrix[first : first + _ROWS_AT_ONCE]
        _, nearest = _faiss.knn(rows, lists.centroids, 1, metric=faiss.METRIC_INNER_PRODUCT)
        parts.append(nearest[:, 0].astype(np.int32))
    of = np.concatenate(parts)
    sizes = np.bincount(of, minlength=len(lists.centroids))
    ordinals = np.argsort(of, kind="stable").astype(np.int32)
    return replace(
        lists,
        of=of,
        ptr=np.concatenate([[0], np.cumsum(sizes)]),
        ordinals=ordinals,
        codes=codes.taken(ordinals),
    )


def _measured(
    lists: Lists, exact: FlatVectors, there: Ints, wanted: float, chance: np.random.Generator
) -> Lists:
    """With the fewest lists read that hold the wanted share of the true hits."""
    # Between two memories, as a question lies: not on one, where its own list would be enough.
    one, other = (exact.rows(chance.choice(there, ASKED)) for _ in range(2))
    questions = 0.7 * one + 0.5 * other
    questions /= np.linalg.norm(questions, axis=1, keepdims=True) + 1e-12
    depth = min(DEPTH, len(there))
    _, truth = _faiss.knn(questions, exact.matrix, depth, metric=faiss.METRIC_INNER_PRODUCT)
    order = np.argsort(-(questions @ lists.centroids.T), axis=1)
    # A hit is found where as many lists are read as stand up to its own in the question's order.
    needed = np.take_along_axis(np.argsort(order, axis=1), lists.of[truth], axis=1) + 1
    found = np.cumsum(np.bincount(needed.ravel())) / needed.size
    probes = int(np.searchsorted(found, wanted))
    return replace(lists, probes=probes, recall=float(found[probes]))
