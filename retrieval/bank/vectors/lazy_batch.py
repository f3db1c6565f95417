"""Work for several queries that costs less when it is done at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from retrieval.types import Floats


class LazyBatch:
    """One row for each query, made for all of them when the first is asked for. Thread-safe."""

    __slots__ = ("_lock", "_make", "_rows")

    def __init__(self, make: Callable[[], Floats]) -> None:
        self._make = make
        self._rows: Floats | None = None
        self._lock = threading.Lock()

    def row(self, index: int) -> Floats:
        with self._lock:
            if self._rows is None:
                self._rows = self._make()
            row: Floats = self._rows[index]
        return row
