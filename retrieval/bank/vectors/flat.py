"""Exact vector search over a bank: the interface, and the store for the CPU.

One pass over a bank's vectors gives a query's similarity to every memory, at the speed of memory;
every arm of a recall reads that one scan. The kernels are FAISS's, over buffers of our own: its
indexes cannot grow by a snapshot, and their search costs a heap per query where a dense pass is
needed anyway.

FAISS computes each row by itself in a fixed order of operations, so equal vectors have equal
similarities wherever they stand, and a row's similarity is the same to the last bit in a full
scan and in a gathered one (but for the kernels it has for 1, 2, 4, 8 and 12 dimensions). A BLAS
product promises neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from retrieval.bank.columns import AliveSet
from retrieval.bank.csr import Column
from retrieval.bank.vectors.bounds import QuantizedIndex, ScoreBounds
from retrieval.bank.vectors.lazy_batch import LazyBatch
from retrieval.bank.vectors.scan_host import GATHER_SHARE, SHARED_GATHER_SHARE, HostScan
from retrieval.topk import best, joined_nearest, nearest_of, no_nearest
from retrieval.types import Bools, FactType, Floats, Hits, Ints

_kernels: Any = faiss  # its type stubs leave out the C functions
_pointer = _kernels.swig_ptr

NO_TYPE = 255


class Scan(Protocol):
    """The similarities of one query to a bank's memories. Safe to use from several threads.

    Work is done at the first question that needs it: call from a worker thread.
    """

    def top(self, k: int, allowed: Bools | None, fact_type: FactType) -> Hits:
        """The k most similar live memories of a type, of those with allowed[ordinal].

        Exact; similarity descending, ties by ordinal; similarities in [-1, 1]. Fewer than k only
        where fewer exist. Memories without a vector are never among them.
        """
        ...

    def at(self, ordinals: Ints) -> Floats:
        """Similarities of these ordinals, float32 in [-1, 1], in their order; any ordinal of the
        bank, dead ones too; 0 where there is no vector."""
        ...

    def moments(self, fact_type: FactType | None) -> tuple[float, float]:
        """(mean, standard deviation) over all live memories with a vector, of one type or of all;
        (0, 0) where there are none."""
        ...


class VectorStore(Protocol):
    """The vectors of one bank at one version. Immutable; any number of threads may search.

    Extending is for one thread at a time and gives the next version.
    """

    @property
    def dimension(self) -> int:
        """0 as long as the bank has no vectors."""
        ...

    @property
    def nbytes(self) -> int:
        """Host memory held."""
        ...

    @property
    def device_nbytes(self) -> int:
        """Accelerator memory held."""
        ...

    def extended(
        self, blocks: Sequence[Floats], absent: Bools, population: AliveSet
    ) -> VectorStore:
        """With the unit rows of these blocks, one after the other, added: (m, d) in all.

        absent[i]: row i has no vector. `population` is the bank's newest and covers all rows.
        Blocks are copied where they lie, so a caller need not join them first.
        """
        ...

    def scan(self, query: Floats) -> Scan:
        """`query` float32 (d,), unit length. ValueError on a wrong shape or a value not finite."""
        ...

    def scan_many(self, queries: Floats) -> Sequence[Scan]:
        """One scan per row of `queries` (b, d), computed together."""
        ...

    def nearest(
        self, vectors: Floats, types: NDArray[np.uint8], k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        """(row, ordinal, similarity): per row the <= k most similar live memories of types[row]
        with similarity >= floor. Rows ascending, similarity descending, ties by ordinal."""
        ...

    def rows(self, ordinals: Ints) -> Floats:
        """A copy of these memories' vectors (m, d); zeros where there is none."""
        ...

    def searchable(self, fact_type: FactType | None) -> int:
        """How many live memories have a vector, of one type or of all."""
        ...


class VectorBackend(Protocol):
    """Makes the empty store of a bank: on the host, or on an accelerator."""

    def empty(self) -> VectorStore: ...


def width_of(blocks: Sequence[Floats], dimension: int) -> int:
    """The dimension of a bank of `dimension` (0: unknown) and these rows; ValueError if unlike."""
    for width in (block.shape[1] for block in blocks if len(block)):
        if dimension and width != dimension:
            raise ValueError(f"vectors of {width} dimensions in a bank of {dimension}")
        dimension = width
    return dimension


def checked(queries: Floats, dimension: int) -> Floats:
    """Queries (b, d) as contiguous float32; ValueError where they cannot be searched."""
    queries = np.ascontiguousarray(queries, np.float32)
    if queries.shape[-1] != dimension and dimension:
        raise ValueError(
            f"a vector of {queries.shape[-1]} dimensions cannot be compared with this bank's, "
            f"which have {dimension}"
        )
    if not np.isfinite(queries).all():
        raise ValueError("a query vector has values that are not finite")
    return queries


def without_vector(vectors: Floats) -> Bools:
    """Which rows are no direction at all: all zero, or not finite."""
    norms = np.empty(len(vectors), np.float32)
    rows = np.ascontiguousarray(vectors, np.float32)
    if len(rows):
        _kernels.fvec_norms_L2sqr(_pointer(norms), _pointer(rows), rows.shape[1], len(rows))
    return ~(np.isfinite(norms) & (norms > 0))


SURVEYED_ROWS = 20_000
"""From this many rows on a quantised index pays. Measured by `bench vectors`."""

SURVEYED_DIMENSION = 2048
"""Up to this many dimensions: sums of products grow by their square. 20,000 rows take 0.05 CPU-s at
384, 0.6 at 1,536 and 2.7 at 3,072, in the write that brings the bank there and in every load."""


FEW = 8
"""At most this many vectors find their nearest through the quantised index; for more at once, one
product is cheaper. Measured at 20,000 and 100,000 rows."""


class FlatBackend:
    """Vectors in host memory; banks of `surveyed_rows` rows and more with a survey, which makes
    answers cheaper and changes none of them."""

    def __init__(self, surveyed_rows: int = SURVEYED_ROWS) -> None:
        self.surveyed_rows = surveyed_rows

    def empty(self) -> FlatVectors:
        matrix = Column.empty(np.float32, (0,))
        return FlatVectors(
            matrix, Column.empty(np.bool_), AliveSet.empty(), self.surveyed_rows, None
        )


@dataclass(frozen=True, slots=True)
class FlatVectors:
    """fp32 rows in one block of host memory, ordinal order."""

    _matrix: Column[np.float32]
    _absent: Column[np.bool_]
    _population: AliveSet
    _surveyed_rows: int
    survey: QuantizedIndex | None

    @property
    def size(self) -> int:
        return len(self._absent)

    @property
    def dimension(self) -> int:
        return int(self._matrix.values.shape[1])

    @property
    def nbytes(self) -> int:
        return self._matrix.values.nbytes + (self.survey.nbytes if self.survey else 0)

    @property
    def device_nbytes(self) -> int:
        return 0

    def extended(
        self, blocks: Sequence[Floats], absent: Bools, population: AliveSet
    ) -> FlatVectors:
        matrix = self._matrix
        width = width_of(blocks, self.dimension)
        if width and not self.dimension:
            matrix = Column.empty(np.float32, (width,))
            blocks = [np.zeros((self.size, width), np.float32), *blocks]
        grown = replace(
            self,
            _matrix=matrix.extended(*blocks),
            _absent=self._absent.extended(absent),
            _population=population,
        )
        return replace(grown, survey=grown._surveyed_after(self))

    def scan(self, query: Floats) -> HostScan:
        query = checked(query, self.dimension)
        outlook = None if self.survey is None else self.survey.ask(query)
        return HostScan(self, query, partial(self.dense, query), GATHER_SHARE, outlook)

    def scan_many(self, queries: Floats) -> Sequence[HostScan]:
        queries = checked(queries, self.dimension)
        if self.survey is not None:
            return [
                HostScan(self, query, partial(self.dense, query), GATHER_SHARE, outlook)
                for query, outlook in zip(queries, self.survey.ask_many(queries), strict=True)
            ]
        table = LazyBatch(partial(self.dense_many, queries))
        return [
            HostScan(self, query, partial(table.row, i), SHARED_GATHER_SHARE)
            for i, query in enumerate(queries)
        ]

    def nearest(
        self, vectors: Floats, types: NDArray[np.uint8], k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        matrix = self.matrix
        if not self.dimension:
            return no_nearest()
        vectors = checked(vectors, self.dimension)
        if self.survey is not None and len(vectors) <= FEW:
            parts = zip(vectors, types, self.survey.ask_many(vectors), strict=True)
            return joined_nearest([self._near(*part, k, floor) for part in parts], 1)
        kinds = self.kinds()
        step = max(1, _TABLE // max(1, len(matrix)))
        return joined_nearest(
            [
                nearest_of(
                    vectors[first : first + step] @ matrix.T,
                    kinds,
                    types[first : first + step],
                    k,
                    floor,
                )
                for first in range(0, len(vectors), step)
            ],
            step,
        )

    def rows(self, ordinals: Ints) -> Floats:
        return self._matrix.values[ordinals]

    @property
    def matrix(self) -> Floats:
        """All rows (size, d), ordinal order, read-only."""
        return self._matrix.values

    def dense(self, query: Floats) -> Floats:
        """Similarities of all rows, one pass."""
        out = np.empty(len(self.matrix), np.float32)
        _products(query, self.matrix, out)
        return out

    def dense_many(self, queries: Floats) -> Floats:
        """Similarities of all rows to each query (b, size)."""
        table = np.empty((len(queries), len(self.matrix)), np.float32)
        for first in range(0, len(self.matrix), _BLOCK):
            # A block stays in the processor's cache while every query passes over it.
            block = self.matrix[first : first + _BLOCK]
            for query, row in zip(queries, table, strict=True):
                _products(query, block, row[first : first + _BLOCK])
        return table

    def gathered(self, query: Floats, ordinals: Ints) -> Floats:
        """Similarities of some rows, one by one."""
        out = np.empty(len(ordinals), np.float32)
        ids = ordinals.astype(np.int64)
        _kernels.fvec_inner_products_by_idx(
            _pointer(out),
            _pointer(query),
            _pointer(self.matrix),
            _pointer(ids),
            self.dimension,
            1,
            len(ids),
        )
        return out

    def searchable(self, fact_type: FactType | None) -> int:
        types = FactType if fact_type is None else (fact_type,)
        return sum(len(self.candidates(t)) for t in types)

    def candidates(self, fact_type: FactType) -> Ints:
        """Live ordinals of a type that have a vector, ascending."""
        rows = self._population.rows[fact_type]
        absent = self._absent.values
        return rows if not absent.any() else rows.compress(~absent[rows])

    def kinds(self) -> NDArray[np.uint8]:
        """The type of every ordinal, NO_TYPE where it cannot be found."""
        kinds = np.full(len(self._absent), NO_TYPE, np.uint8)
        for fact_type in FactType:
            kinds[self.candidates(fact_type)] = fact_type
        return kinds

    def _near(
        self, vector: Floats, fact_type: np.uint8, outlook: ScoreBounds, k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        """`nearest` of one vector."""
        _, upper = outlook.bounds()
        rows = self.candidates(FactType(int(fact_type)))
        rows = rows.compress(upper[rows] >= floor)
        found = self.gathered(vector, rows)
        high = np.flatnonzero(found >= floor)
        hits = best(found[high], rows[high], k)
        return np.zeros(len(hits), np.int32), hits.ordinals, hits.scores

    def _there(self) -> Bools:
        """Which rows can be found."""
        return self._population.live & ~self._absent.values

    def _surveyed_after(self, before: FlatVectors) -> QuantizedIndex | None:
        if self.size < self._surveyed_rows or not 0 < self.dimension <= SURVEYED_DIMENSION:
            return None
        if before.survey is None:
            return QuantizedIndex.of(self.matrix, self._there())
        return before.survey.extended(self.matrix, before._there(), self._there())


_BLOCK = 512
_TABLE = 1 << 22


def _products(query: Floats, rows: Floats, out: Floats) -> None:
    _kernels.fvec_inner_products_ny(
        _pointer(out), _pointer(query), _pointer(rows), rows.shape[1], len(rows)
    )
