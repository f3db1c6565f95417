"""Exact vector search over a bank: the interface, and the store for the CPU.

One pass over a bank's vectors gives a query's similarity to every memory, at the speed of memory;
every arm of a recall reads that one scan. The kernels are FAISS's, over buffers of our own: its
indexes cannot grow by a snapshot, and their search costs a heap per query where a dense pass is
needed anyway.

FAISS computes each row by itself in a fixed order of operations, so equal vectors have equal
similarities wherever they stand, and a row's similarity is the same to the last bit in a full
scan and in a gathered one. A BLAS product promises neither.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from retrieval.bank.columns import Population
from retrieval.bank.csr import Column
from retrieval.bank.selection import best, joined_nearest, nearest_of, no_nearest
from retrieval.types import Bools, FactType, Floats, Hits, Ints

_kernels: Any = faiss  # its type stubs leave out the C functions
_pointer = _kernels.swig_ptr

NOBODY = 255

GATHER_SHARE = 0.6
"""Below this share of a bank's rows, gathering them one by one beats one pass over all. Measured by
`bench vectors`: 50,000 x 384 break even at 0.7 to 0.8."""


SHARED_GATHER_SHARE = 0.25
"""The same where the pass over all is shared by several queries."""


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
        self, blocks: Sequence[Floats], absent: Bools, population: Population
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


class FlatBackend:
    """Vectors in host memory."""

    def empty(self) -> FlatVectors:
        matrix = Column.empty(np.float32, (0,))
        return FlatVectors(matrix, Column.empty(np.bool_), Population.empty())


@dataclass(frozen=True, slots=True)
class FlatVectors:
    """fp32 rows in one block of host memory, ordinal order."""

    _matrix: Column[np.float32]
    _absent: Column[np.bool_]
    _population: Population

    @property
    def size(self) -> int:
        return len(self._absent)

    @property
    def dimension(self) -> int:
        return int(self._matrix.values.shape[1])

    @property
    def nbytes(self) -> int:
        return self._matrix.values.nbytes

    @property
    def device_nbytes(self) -> int:
        return 0

    def extended(
        self, blocks: Sequence[Floats], absent: Bools, population: Population
    ) -> FlatVectors:
        matrix = self._matrix
        width = width_of(blocks, self.dimension)
        if width and not self.dimension:
            matrix = Column.empty(np.float32, (width,))
            blocks = [np.zeros((self.size, width), np.float32), *blocks]
        return FlatVectors(matrix.extended(*blocks), self._absent.extended(absent), population)

    def scan(self, query: Floats) -> HostScan:
        query = checked(query, self.dimension)
        return HostScan(self, query, partial(self.dense, query), GATHER_SHARE)

    def scan_many(self, queries: Floats) -> Sequence[HostScan]:
        queries = checked(queries, self.dimension)
        table = _Table(self, queries)
        return [
            HostScan(self, q, partial(table.row, i), SHARED_GATHER_SHARE)
            for i, q in enumerate(queries)
        ]

    def nearest(
        self, vectors: Floats, types: NDArray[np.uint8], k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        matrix = self.matrix
        if not self.dimension:
            return no_nearest()
        vectors = checked(vectors, self.dimension)
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
        return rows if not absent.any() else rows[~absent[rows]]

    def kinds(self) -> NDArray[np.uint8]:
        """The type of every ordinal, NOBODY where it cannot be found."""
        kinds = np.full(len(self._absent), NOBODY, np.uint8)
        for fact_type in FactType:
            kinds[self.candidates(fact_type)] = fact_type
        return kinds


_BLOCK = 512
_TABLE = 1 << 22


def _products(query: Floats, rows: Floats, out: Floats) -> None:
    _kernels.fvec_inner_products_ny(
        _pointer(out), _pointer(query), _pointer(rows), rows.shape[1], len(rows)
    )


class _Table:
    """Similarities of several queries to all rows, made when first asked for."""

    __slots__ = ("_lock", "_queries", "_store", "_table")

    def __init__(self, store: FlatVectors, queries: Floats) -> None:
        self._store = store
        self._queries = queries
        self._table: Floats | None = None
        self._lock = threading.Lock()

    def row(self, index: int) -> Floats:
        with self._lock:
            if self._table is None:
                self._table = self._store.dense_many(self._queries)
            row: Floats = self._table[index]
        return row


class Rows(Protocol):
    """What a scan on the host needs of a store."""

    @property
    def size(self) -> int: ...
    @property
    def dimension(self) -> int: ...
    def candidates(self, fact_type: FactType) -> Ints: ...
    def gathered(self, query: Floats, ordinals: Ints) -> Floats: ...


class HostScan:
    """Similarities of one query, made when asked for and kept.

    Fewer rows than `gather_share` of the bank are gathered; that is at most a quarter dearer than
    one pass over all, even if in the end every row was asked for.
    """

    __slots__ = ("_dense", "_done", "_few", "_known", "_query", "_store", "_values")

    def __init__(
        self,
        store: Rows,
        query: Floats,
        dense: Callable[[], Floats],
        gather_share: float,
    ) -> None:
        self._store = store
        self._query = query
        self._dense = dense
        self._few = gather_share * store.size
        self._done = False
        self._values: Floats | None = None
        self._known: Bools | None = None

    def top(self, k: int, allowed: Bools | None, fact_type: FactType) -> Hits:
        rows = self._store.candidates(fact_type)
        if allowed is not None:
            rows = rows[allowed[rows]]
        return best(self._similarities(rows), rows, k)

    def at(self, ordinals: Ints) -> Floats:
        return np.clip(self._similarities(ordinals), -1.0, 1.0)

    def moments(self, fact_type: FactType | None) -> tuple[float, float]:
        types = FactType if fact_type is None else (fact_type,)
        values = self._similarities(np.concatenate([self._store.candidates(t) for t in types]))
        if not len(values):
            return 0.0, 0.0
        wide = values.astype(np.float64)
        mean = float(wide.mean())
        wide -= mean
        return mean, float(np.sqrt(wide @ wide / len(wide)))

    def _similarities(self, ordinals: Ints) -> Floats:
        store = self._store
        if not store.dimension or not len(ordinals):
            return np.zeros(len(ordinals), np.float32)
        if self._done and self._values is not None:
            return self._values[ordinals]
        if self._values is None or self._known is None:
            if len(ordinals) < self._few:
                found = store.gathered(self._query, ordinals)
                values, known = np.empty(store.size, np.float32), np.zeros(store.size, np.bool_)
                values[ordinals] = found
                known[ordinals] = True
                self._values, self._known = values, known
                return found
            self._values, self._done = self._dense(), True
            return self._values[ordinals]
        missing = ordinals[~self._known[ordinals]]
        if len(missing) < self._few:
            if len(missing):
                self._values[missing] = store.gathered(self._query, missing)
                self._known[missing] = True
        else:
            self._values, self._done = self._dense(), True
        return self._values[ordinals]
