"""Mean and deviation of a query's similarities to a bank, without comparing it with any row.

Over rows x the products q.x have the mean q.m and the variance q'Cq, where m is the mean of the
rows and C their covariance: (d, d) numbers in place of (n, d). Both come from sums over the rows,
to which new rows are added and from which rows that died are taken away. The sums are of
differences from a fixed centre, so that no variance is a small difference of large numbers (Chan,
Golub and LeVeque, Algorithms for Computing the Sample Variance, 1983).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from retrieval.types import Doubles, Floats, Ints

WAITING = 64
"""So many rows that came or went are compared one by one before the sums take them in: copying
the sums costs as much as some hundred comparisons."""
_ROWS_AT_ONCE = 2048
"""Products of this many rows are summed in fp32, the rest in fp64."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over some rows of a matrix. Immutable.

    Of the `count` rows summed so far: `sum` (d,) of x - centre, `products` (d, d) of its outer
    product with itself. `came` and `went`: rows that are not in these sums yet, or still. `gone`:
    how many were taken out of them since they were made.
    """

    centre: Floats
    count: int
    sum: Doubles
    products: Doubles
    came: Ints
    went: Ints
    gone: int

    @classmethod
    def of(cls, matrix: Floats, rows: Ints) -> Moments:
        """Those of these rows of `matrix` (n, d)."""
        dimension = matrix.shape[1]
        centre = np.zeros(dimension, np.float32)
        if len(rows):
            some = rows[:: 1 + len(rows) // _ROWS_AT_ONCE]
            centre = matrix[some].mean(axis=0, dtype=np.float64).astype(np.float32)
        none = np.empty(0, np.int32)
        sums = np.zeros(dimension), np.zeros((dimension, dimension))
        return cls(centre, 0, *sums, rows, none, 0)._settled(matrix)

    @property
    def nbytes(self) -> int:
        return self.products.nbytes + self.sum.nbytes + self.centre.nbytes

    def extended(self, matrix: Floats, came: Ints, went: Ints) -> Moments:
        """With some rows of `matrix` more, and without some that were counted."""
        if not len(came) and not len(went):
            return self
        changed = replace(
            self,
            came=np.concatenate([self.came, came]),
            went=np.sort(np.concatenate([self.went, went])),
        )
        if len(changed.came) + len(changed.went) <= WAITING:
            return changed
        return changed._settled(matrix)

    def worn(self, more: int) -> bool:
        """With `more` rows taken out: have more gone than are left? What the sums were once is
        then no measure any more of how exact they are, and they are better rebuilt."""
        left = self.count + len(self.came) - len(self.went) - more
        return self.gone + len(self.went) + more > left

    def about(self, query: Floats, similarities: Callable[[Ints], Floats]) -> tuple[float, float]:
        """(mean, standard deviation) of the products of `query` (d,) with the rows; (0, 0) where
        there are none. `similarities` are those of some rows."""
        count = self.count + len(self.came) - len(self.went)
        if not count:
            return 0.0, 0.0
        wide = query.astype(np.float64)
        start = float(wide @ self.centre)
        first, second = float(wide @ self.sum), float(wide @ self.products @ wide)
        for rows, sign in ((self.came, 1), (self.went, -1)):
            if len(rows):
                off = similarities(rows).astype(np.float64) - start
                first += sign * float(off.sum())
                second += sign * float(off @ off)
        mean = first / count
        return start + mean, float(np.sqrt(max(0.0, second / count - mean * mean)))

    def _settled(self, matrix: Floats) -> Moments:
        """With all rows that wait in the sums."""
        total, products = self.sum.copy(), self.products.copy()
        for rows, sign in ((self.came, 1), (self.went, -1)):
            for at in range(0, len(rows), _ROWS_AT_ONCE):
                off = _taken(matrix, rows[at : at + _ROWS_AT_ONCE]) - self.centre
                total += sign * off.sum(axis=0, dtype=np.float64)
                products += sign * (off.T @ off)
        none = np.empty(0, np.int32)
        return Moments(
            self.centre,
            self.count + len(self.came) - len(self.went),
            total,
            products,
            none,
            none,
            self.gone + len(self.went),
        )


def _taken(matrix: Floats, rows: Ints) -> Floats:
    """These rows, ascending, without a copy where none is left out between them."""
    first, last = int(rows[0]), int(rows[-1])
    return matrix[first : last + 1] if last - first + 1 == len(rows) else matrix[rows]
