"""Rows as signed bytes, and how far the similarities that they give may be from the true ones.

A quarter of the bytes takes a quarter of the time to read. A row x is kept as scale * code, code
in -127 .. 127, with the length of what is lost, ||x - scale * code||. A query q is coded alike, so
by Cauchy and Schwarz q.x lies within

    ||q - q'|| ||x||  +  ||q'|| ||x - x'||

of q'.x', the product of the two codes, which integers give without an error. Real embeddings lose
about 0.007 of a unit row: bounds so near to each other leave a few rows to compare in full where
the best of a bank are asked for, and the answer is the one that comparing all would have given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from retrieval.bank.csr import Column, S
from retrieval.types import Floats, Ints

_kernels: Any = faiss  # its type stubs leave out pointers
_pointer = _kernels.swig_ptr

_LEVELS = 127
_ZERO = 128
"""How FAISS writes a code of 0."""
_LANES = 64
"""Rows are filled up with zeros to a multiple of this: the kernels read so many at a time."""
_ROWS_AT_ONCE = 512
_SHARED_ROWS = 8192
_TINY = np.finfo(np.float32).tiny
ALL = (slice(None),)


@dataclass(frozen=True, slots=True)
class Codes:
    """The first rows of a bank as bytes. Immutable; grows as a `Column` does.

    `longest`: no row is longer.
    """

    dimension: int
    longest: float
    _codes: Column[np.uint8]
    _scale: Column[np.float32]
    _lost: Column[np.float32]

    @classmethod
    def empty(cls, dimension: int) -> Codes:
        width = dimension + -dimension % _LANES
        codes = Column.empty(np.uint8, (width,))
        return cls(dimension, 0.0, codes, Column.empty(np.float32), Column.empty(np.float32))

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def nbytes(self) -> int:
        return sum(c.values.nbytes for c in (self._codes, self._scale, self._lost))

    def extended(self, rows: Floats) -> Codes:
        """With these rows (m, d) added, unit ones or zeros."""
        codes = np.full((len(rows), self._codes.values.shape[1]), _ZERO, np.uint8)
        scale, lost = np.empty(len(rows), np.float32), np.empty(len(rows), np.float32)
        longest = self.longest
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            part = slice(first, first + _ROWS_AT_ONCE)
            block = rows[part]
            coded, scale[part], lost[part] = _coded(block)
            codes[part, : self.dimension] = coded.astype(np.int8).view(np.uint8) ^ np.uint8(_ZERO)
            longest = max(longest, float(_lengths(block).max()))
        return Codes(
            self.dimension,
            longest,
            self._codes.extended(codes),
            self._scale.extended(scale),
            self._lost.extended(lost),
        )

    def taken(self, order: Ints) -> Codes:
        """These rows, in this order."""
        return replace(
            self,
            _codes=_taken(self._codes, order),
            _scale=_taken(self._scale, order),
            _lost=_taken(self._lost, order),
        )

    def sums(self, queries: Floats) -> Floats:
        """The products of the codes of `queries` float32 (b, d) with those of all rows (b, n)."""
        codes = self._codes.values
        padded = self._padded(queries)
        sums = np.empty((len(queries), len(codes)), np.float32)
        step = len(codes) if len(queries) == 1 else _SHARED_ROWS
        for first in range(0, len(codes), step):
            # A block stays in the processor's cache while every query passes over it.
            block = codes[first : first + step]
            for query, row in zip(padded, sums, strict=True):
                _products([block], query, row[first : first + step])
        return sums

    def bounds(
        self, query: Floats, sums: Floats, runs: Sequence[slice] = ALL
    ) -> tuple[Floats, Floats]:
        """(lower, upper) float32 (n,): what an fp32 kernel makes of the product of `query`
        float32 (d,) with each row of these runs, one after the other, lies between them, whichever
        order it adds in. `sums` (n,) are those of this query."""
        coded, scale, lost = _coded(query[None])
        gone, kept = float(lost[0]), float(scale[0] * _lengths(coded)[0])
        # An fp32 sum of d products is off by at most d halves of an ulp of the product of the
        # lengths; twice, as codes are summed alike, and some more for the few products around it.
        rounding = (2 * self.dimension + 64) * 2.0**-24 * self.longest * (gone + kept)
        middle = sums * joined(self._scale.values, runs)
        middle *= scale[0]
        reach = joined(self._lost.values, runs) * np.float32(kept)
        reach += np.float32(gone * self.longest + rounding)
        lower = middle - reach
        middle += reach
        return lower, middle

    def bounds_of(self, query: Floats, runs: Sequence[slice]) -> tuple[Floats, Floats]:
        """`bounds` from a pass over the codes of these runs alone."""
        blocks = [self._codes.values[run] for run in runs]
        sums = np.empty(sum(map(len, blocks)), np.float32)
        _products(blocks, self._padded(query[None])[0], sums)
        return self.bounds(query, sums, runs)

    def _padded(self, queries: Floats) -> Floats:
        """Their codes as float32, as wide as those of the rows."""
        padded = np.zeros((len(queries), self._codes.values.shape[1]), np.float32)
        padded[:, : self.dimension] = _coded(queries)[0]
        return padded


def joined(values: NDArray[S], runs: Sequence[slice]) -> NDArray[S]:
    """The values of these runs, one after the other."""
    parts = [values[run] for run in runs]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _taken(column: Column[S], order: Ints) -> Column[S]:
    values = column.values
    return Column.empty(values.dtype, values.shape[1:]).extended(values.take(order, axis=0))


def _coded(rows: Floats) -> tuple[Floats, Floats, Floats]:
    """Whole numbers in -127 .. 127 (m, d) as float32, the scale of each row (m,), and the length of
    what each loses (m,)."""
    work = np.abs(rows)
    scale = np.maximum(work.max(axis=1) / np.float32(_LEVELS), _TINY)
    np.multiply(rows, (1 / scale)[:, None], out=work)
    coded = np.rint(work)
    work -= coded
    return coded, scale, scale * _lengths(work)


def _lengths(rows: Floats) -> Floats:
    squares: Floats = np.vecdot(rows, rows)
    return np.sqrt(squares)


def _products(blocks: Sequence[NDArray[np.uint8]], query: Floats, out: Floats) -> None:
    """The products of a coded query (width,) with the coded rows of some blocks (m, width), into
    float32 (sum of m,)."""
    quantizer = _kernels.ScalarQuantizer(len(query), _kernels.ScalarQuantizer.QT_8bit_direct_signed)
    scanner = quantizer.select_InvertedListScanner(faiss.METRIC_INNER_PRODUCT, None, True, None)
    try:
        scanner.set_query(_pointer(query))
        scanner.set_list(0, 0.0)
        # A search for everything above minus infinity: all products, in order.
        found = _kernels.RangeSearchResult(1)
        part = _kernels.RangeSearchPartialResult(found)
        products = part.new_result(0)
        for codes in blocks:
            scanner.scan_codes_range(len(codes), _pointer(codes), None, -np.inf, products)
        part.finalize()
        out[:] = _kernels.rev_swig_ptr(found.distances, len(out))
    finally:
        # Python does not own what the quantizer makes, and to tell it so is not enough.
        type(scanner).__swig_destroy__(scanner)
