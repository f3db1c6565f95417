"""What tells of all rows of a large bank without reading them in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from retrieval.bank.vectors.codes import Codes
from retrieval.bank.vectors.lazy_batch import LazyBatch
from retrieval.bank.vectors.moments import Moments
from retrieval.types import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class QuantizedIndex:
    """Codes of all rows, and the moments of those that can be found. Immutable."""

    codes: Codes
    moments: Moments

    @classmethod
    def of(cls, matrix: Floats, there: Bools) -> QuantizedIndex:
        """Of these rows (n, d); `there` (n,): which of them can be found."""
        codes = Codes.empty(matrix.shape[1]).extended(matrix)
        return cls(codes, Moments.of(matrix, _where(there)))

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.moments.nbytes

    def extended(self, matrix: Floats, before: Bools, there: Bools) -> QuantizedIndex:
        """With the rows that `matrix` has beyond those known; `before` (m,) could be found until
        now, `there` (n,) can be from now on."""
        known = len(before)
        codes = self.codes.extended(matrix[known:])
        went = _where(before & ~there[:known])
        if self.moments.worn(len(went)):
            return QuantizedIndex(codes, Moments.of(matrix, _where(there)))
        came = _where(there[known:]) + np.int32(known)
        return QuantizedIndex(codes, self.moments.extended(matrix, came, went))

    def ask(self, query: Floats) -> ScoreBounds:
        return ScoreBounds(self, query, lambda: self.codes.sums(query[None])[0])

    def ask_many(self, queries: Floats) -> Sequence[ScoreBounds]:
        """One for each query, with one pass over the codes for all."""
        together = LazyBatch(partial(self.codes.sums, queries))
        return [ScoreBounds(self, q, partial(together.row, i)) for i, q in enumerate(queries)]


@dataclass(frozen=True, slots=True)
class ScoreBounds:
    """What a survey tells of one query's similarities."""

    _survey: QuantizedIndex
    _query: Floats
    _sums: Callable[[], Floats]

    def bounds(self) -> tuple[Floats, Floats]:
        """(lower, upper): every row's similarity is between them. A pass over the codes."""
        return self._survey.codes.bounds(self._query, self._sums())

    def moments(self, similarities: Callable[[Ints], Floats]) -> tuple[float, float]:
        """(mean, standard deviation) over all rows that can be found; `similarities` are those of
        some rows."""
        return self._survey.moments.about(self._query, similarities)


def _where(flags: Bools) -> Ints:
    return np.flatnonzero(flags).astype(np.int32)
