"""A scan in host memory: one question, compared with as few rows as its answers take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import numpy as np

from retrieval.bank.vectors.bounds import ScoreBounds
from retrieval.topk import best, leading, moments
from retrieval.types import Bools, FactType, Floats, Hits, Ints

GATHER_SHARE = 0.6
"""Below this share of a bank's rows, gathering them one by one beats one pass over all. Measured by
`bench vectors`: 50,000 x 384 break even at 0.7 to 0.8."""

SHARED_GATHER_SHARE = 0.25
"""The same where the pass over all is shared by several queries."""

SURVEY_SHARE = 0.2
"""The same where the pass is one over codes: 0.4 at 20,000 rows, 0.15 at a million."""

MOST = 0.25
"""Where more than this share is asked for, most of the rows are compared in any case."""


def contenders(
    rows: Ints, lower: Floats, upper: Floats, k: int, similarities: Callable[[Ints], Floats]
) -> Ints:
    """Those of `rows`, more than k > 0 of them, that may be among their k best, in their order:
    each one's similarity lies between its bounds."""
    # What k rows reach is what the k-th best reaches at least.
    floor = similarities(rows[leading(lower, k)]).min()
    return rows[np.flatnonzero(upper >= floor)]


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
    one pass over all, even if in the end every row was asked for. With an `outlook` the best of
    many rows are found by a pass over codes: only rows that may be among them are compared in full.
    """

    __slots__ = (
        "_bounds", "_dense", "_done", "_few", "_known", "_lock", "_outlook", "_query", "_store",
        "_values",
    )  # fmt: skip

    def __init__(
        self,
        store: Rows,
        query: Floats,
        dense: Callable[[], Floats],
        gather_share: float,
        outlook: ScoreBounds | None = None,
    ) -> None:
        self._store = store
        self._query = query
        self._dense = dense
        self._few = gather_share * store.size
        self._outlook = outlook
        self._lock = threading.Lock()  # of what is known so far
        self._bounds: tuple[Floats, Floats] | None = None
        self._done = False
        self._values: Floats | None = None
        self._known: Bools | None = None

    def top(self, k: int, allowed: Bools | None, fact_type: FactType) -> Hits:
        rows = self._store.candidates(fact_type)
        if allowed is not None:
            rows = rows.compress(allowed[rows])
        if not self._done and 0 < k <= MOST * len(rows):
            rows = self._contenders(rows, k)
        return best(self.similarities(rows), rows, k)

    def at(self, ordinals: Ints) -> Floats:
        return np.clip(self.similarities(ordinals), -1.0, 1.0)

    def moments(self, fact_type: FactType | None) -> tuple[float, float]:
        if fact_type is None and self._outlook is not None:
            return self._outlook.moments(self.similarities)
        types = FactType if fact_type is None else (fact_type,)
        rows = np.concatenate([self._store.candidates(t) for t in types])
        return moments(self.similarities(rows))

    def _contenders(self, rows: Ints, k: int) -> Ints:
        """Those of `rows` that may be among their k best; all of them where that is cheaper."""
        if self._bounds is None:
            few = len(rows) < SURVEY_SHARE * self._store.size
            if self._outlook is None or few:
                return rows
            self._bounds = self._outlook.bounds()
        lower, upper = self._bounds
        if len(rows) < self._store.size:
            lower, upper = lower[rows], upper[rows]
        return contenders(rows, lower, upper, k, self.similarities)

    def similarities(self, ordinals: Ints) -> Floats:
        """As `at`, as the kernels give them."""
        store = self._store
        if not store.dimension or not len(ordinals):
            return np.zeros(len(ordinals), np.float32)
        with self._lock:
            return self._found(ordinals)

    def _found(self, ordinals: Ints) -> Floats:
        store = self._store
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
