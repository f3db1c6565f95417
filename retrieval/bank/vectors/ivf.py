"""Approximate vector search for very large banks: inverted lists beside the exact store.

Rows stay where they are, in full precision. Each belongs to the list of its nearest centroid (the
coarse quantiser of Jégou, Douze and Schmid, Product Quantization for Nearest Neighbor Search,
2011), and a question reads the lists whose centroids it is most similar to: their rows' codes,
which lie together in a copy of the survey's codes, and in full those rows that may be among the
best by what the codes tell. So an answer is the one that comparing all rows of these lists gives,
and a similarity is exact; a hit may be missing. How many lists are read is not guessed: when lists
are made, questions made from the bank's own rows are searched in full, and as many lists are read
as hold the wanted share of the true hits.

What a type or a filter keeps of a bank stands deeper in its order: the 300 best of a tenth of the
rows are about every tenth of the 3,000 best of all. So recall is measured to several depths, and
more lists are read for a part of a bank than for all of it; where little is left, or much would be
read, the exact search is cheaper and answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from retrieval.bank.columns import AliveSet
from retrieval.bank.vectors.codes import Codes, joined
from retrieval.bank.vectors.flat import NO_TYPE, SURVEYED_ROWS, FlatBackend, FlatVectors, checked
from retrieval.bank.vectors.scan_host import MOST, HostScan, contenders
from retrieval.topk import best
from retrieval.types import Bools, FactType, Floats, Hits, Ints, Longs

_faiss: Any = faiss  # its type stubs know the C++ signatures, not Python's

REGROWTH = 2.0
"""Centroids are rebuilt when the bank has so many times the rows that they were made for."""
LOOSE = 0.1
"""Every question reads new rows until they are this share of the bank; then they join lists."""
ASKED = 64
"""How many questions recall is measured with."""
DEPTHS = (10, 30, 100, 300, 1000, 3000, 10_000)
"""Among so many true hits; what lies deeper is searched exactly."""
FEW = 0.2
"""A part of a bank that has less than this share of as many rows as would be read is compared in
full. Either costs the same at a share of 0.3, but what is read serves the other types as well."""
MUCH = 0.5
"""To read more than this share of a bank from lists costs as much as its survey. Both measured by
`bench vectors`."""
_ROUNDS, _POINTS = 6, 48
_ROWS_AT_ONCE = 1 << 16
_SEED = 7


class IvfBackend:
    """Stores like those of FlatBackend that turn approximate at `least_rows` rows.

    recall: the share of the true hits that lists are read for, in (0, 1]. Making lists of a million
    rows takes some 30 CPU seconds, in the thread that extends the store.
    """

    def __init__(self, least_rows: int, recall: float = 0.95) -> None:
        self.least_rows = least_rows
        self.recall = recall

    def empty(self) -> IvfVectors:
        exact = FlatBackend(min(self.least_rows, SURVEYED_ROWS)).empty()
        return IvfVectors(self, exact, None, np.empty(0, np.uint8), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Near:
    """Ordinals, and bounds between which their similarities to a query lie."""

    rows: Ints
    lower: Floats
    upper: Floats

    def __getitem__(self, which: slice | NDArray[np.intp]) -> Near:
        return Near(self.rows[which], self.lower[which], self.upper[which])

    def __add__(self, more: Near) -> Near:
        return Near(
            np.concatenate([self.rows, more.rows]),
            np.concatenate([self.lower, more.lower]),
            np.concatenate([self.upper, more.upper]),
        )


@dataclass(frozen=True, slots=True)
class Lists:
    """Ordinals by nearest centroid, for the first `size` rows.

    centroids float32 (c, d), made when the bank had `trained` rows; list i holds
    ordinals[ptr[i] : ptr[i + 1]], `codes` are those of `ordinals`. probes int64: how many lists
    hold the wanted share of the DEPTHS most similar rows, as measured.
    """

    centroids: Floats
    trained: int
    of: Ints
    ptr: Longs
    ordinals: Ints
    codes: Codes
    probes: Longs

    @property
    def size(self) -> int:
        return len(self.of)

    @property
    def nbytes(self) -> int:
        parts = (self.centroids, self.of, self.ptr, self.ordinals, self.codes)
        return sum(part.nbytes for part in parts)

    def enough(self, depth: float) -> int:
        """How many lists hold the wanted share of so many most similar rows."""
        return int(np.ceil(np.interp(np.log(depth), np.log(DEPTHS), self.probes)))

    def order(self, query: Floats) -> NDArray[np.intp]:
        """All lists, those first whose centroids the query is most similar to."""
        return np.argsort(-(self.centroids @ query), kind="stable")

    def read(self, query: Floats, lists: NDArray[np.intp]) -> Near:
        """The rows of these lists, one list after the other."""
        starts, ends = self.ptr[lists].tolist(), self.ptr[lists + 1].tolist()
        runs = list(map(slice, starts, ends))
        return Near(joined(self.ordinals, runs), *self.codes.bounds_of(query, runs))


@dataclass(frozen=True, slots=True)
class IvfVectors:
    """`VectorStore`; `lists` is None below the backend's threshold.

    kinds uint8: the type of every ordinal, NO_TYPE where it cannot be found; counts int64: how many
    there are of each type. Empty without lists.
    """

    _backend: IvfBackend
    exact: FlatVectors
    lists: Lists | None
    kinds: NDArray[np.uint8]
    counts: Longs

    @property
    def dimension(self) -> int:
        return self.exact.dimension

    @property
    def nbytes(self) -> int:
        if self.lists is None:
            return self.exact.nbytes
        return self.exact.nbytes + self.lists.nbytes + self.kinds.nbytes

    @property
    def device_nbytes(self) -> int:
        return 0

    def extended(self, blocks: Sequence[Floats], absent: Bools, population: AliveSet) -> IvfVectors:
        exact, lists = self.exact.extended(blocks, absent, population), self.lists
        survey = exact.survey
        if exact.size < self._backend.least_rows or survey is None:
            return replace(self, exact=exact)
        kinds = exact.kinds()
        there = np.flatnonzero(kinds != NO_TYPE).astype(np.int32)
        if not len(there):
            return replace(self, exact=exact, lists=None)
        if lists is None or exact.size > REGROWTH * lists.trained:
            lists = _made(exact, survey.codes, there, self._backend.recall)
        elif exact.size > (1 + LOOSE) * lists.size:
            lists = _filed(lists, exact, survey.codes)
        counts = np.bincount(kinds[there], minlength=len(FactType))
        return IvfVectors(self._backend, exact, lists, kinds, counts)

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

    __slots__ = ("_codes", "_lists", "_query", "_read", "_scan", "_store")

    def __init__(self, store: IvfVectors, lists: Lists, codes: Codes, query: Floats) -> None:
        self._store = store
        self._lists = lists
        self._codes = codes
        self._query = query
        self._scan = store.exact.scan(query)
        self._read: tuple[NDArray[np.intp], int, Near] | None = None

    def top(self, k: int, allowed: Bools | None, fact_type: FactType) -> Hits:
        probes = self._probes(k, allowed, fact_type)
        if not probes:
            return self._scan.top(k, allowed, fact_type)
        near = self._near(probes)
        mine = self._store.kinds[near.rows] == fact_type
        if allowed is not None:
            mine &= allowed[near.rows]
        kept = np.flatnonzero(mine)
        if len(kept) < k:
            return self._scan.top(k, allowed, fact_type)
        if len(kept) < len(mine):
            near = near[kept]
        rows = near.rows
        if k <= MOST * len(rows):
            rows = contenders(rows, near.lower, near.upper, k, self._scan.similarities)
        rows = np.sort(rows)
        return best(self._scan.similarities(rows), rows, k)

    def at(self, ordinals: Ints) -> Floats:
        return self._scan.at(ordinals)

    def moments(self, fact_type: FactType | None) -> tuple[float, float]:
        return self._scan.moments(fact_type)

    def _probes(self, k: int, allowed: Bools | None, fact_type: FactType) -> int:
        """How many lists to read; 0: search exactly."""
        part = int(self._store.counts[fact_type])
        if allowed is None:
            return self._probes_for(k, part)
        # Smaller parts are searched exactly: where the filter alone makes it one, a count is saved.
        if not self._probes_for(k, min(part, int(np.count_nonzero(allowed)))):
            return 0
        mine = (self._store.kinds == fact_type) & allowed
        return self._probes_for(k, int(np.count_nonzero(mine)))

    def _probes_for(self, k: int, part: int) -> int:
        """The same for a part of the bank that has so many rows."""
        lists = self._lists
        depth = k * int(self._store.counts.sum()) / max(1, part)
        if not 0 < depth <= DEPTHS[-1]:
            return 0
        probes = lists.enough(depth)
        share = probes / len(lists.centroids)
        return 0 if share > MUCH or part < FEW * share * lists.size else probes

    def _near(self, probes: int) -> Near:
        """The rows that are in no list yet, and those of so many lists. What was read is kept."""
        lists, query = self._lists, self._query
        known, size = lists.size, len(self._codes)
        if self._read is None:
            loose = np.arange(known, size, dtype=np.int32)
            near = Near(loose, *self._codes.bounds_of(query, [slice(known, size)]))
            self._read = lists.order(query), 0, near
        order, done, near = self._read
        if done < probes:
            near += lists.read(query, order[done:probes])
            self._read = order, probes, near
        read = order[:probes]
        return near[: size - known + (lists.ptr[read + 1] - lists.ptr[read]).sum()]


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
    none, zero = np.empty(0, np.int32), np.zeros(1, np.int64)
    lists = Lists(means.centroids, exact.size, none, zero, none, codes, zero.repeat(len(DEPTHS)))
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
    deepest = min(DEPTHS[-1], len(there))
    _, truth = _faiss.knn(questions, exact.matrix, deepest, metric=faiss.METRIC_INNER_PRODUCT)
    rank = np.argsort([lists.order(question) for question in questions], axis=1)
    needed = np.take_along_axis(rank, lists.of[truth], axis=1) + 1
    return replace(
        lists,
        probes=np.array(
            [np.quantile(needed[:, :depth], wanted, method="inverted_cdf") for depth in DEPTHS]
        ),
    )
