"""Room in one block of device memory: which spans of it are taken. Bookkeeping only."""

from __future__ import annotations

import threading
import weakref
from bisect import insort
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class Slab:
    """Hands out spans of [0, size). Best fit; neighbours that are free again grow together.

    Safe from any thread: spans come back from whichever thread drops the last snapshot.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._free: list[tuple[int, int]] = [(0, size)] if size else []
        """(start, length), ascending, never touching."""
        self._given: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()

    @property
    def free(self) -> int:
        """How much is not taken, in all."""
        with self._lock:
            self._join()
            return sum(length for _, length in self._free)

    def take(self, length: int) -> int | None:
        """The start of a span of this length, or None where no gap is large enough."""
        with self._lock:
            self._join()
            fitting = [(gap, start) for start, gap in self._free if gap >= length]
            if not fitting or length <= 0:
                return None
            gap, start = min(fitting)
            self._free.remove((start, gap))
            if gap > length:
                insort(self._free, (start + length, gap - length))
            return start

    def give(self, start: int, length: int) -> None:
        """Takes a span back, exactly as it was handed out. May be called by a finalizer at any
        point, in the middle of `take` too: it only notes the span down."""
        self._given.append((start, length))

    def _join(self) -> None:
        if not self._given:
            return
        while self._given:
            insort(self._free, self._given.popleft())
        joined: list[tuple[int, int]] = []
        for begin, gap in self._free:
            if joined and joined[-1][0] + joined[-1][1] == begin:
                joined[-1] = (joined[-1][0], joined[-1][1] + gap)
            else:
                joined.append((begin, gap))
        self._free = joined


class Extent:
    """Rows of one bank in the slab; goes back when the last snapshot that uses it is gone."""

    __slots__ = ("__weakref__", "capacity", "dimension", "start", "used")

    def __init__(self, start: int, capacity: int, dimension: int) -> None:
        self.start = start
        self.capacity = capacity
        self.dimension = dimension
        self.used = 0

    @classmethod
    def of(cls, room: Slab, capacity: int, dimension: int) -> Extent | None:
        length = capacity * dimension
        start = room.take(length)
        if start is None:
            return None
        extent = cls(start, capacity, dimension)
        weakref.finalize(extent, room.give, start, length)
        return extent

    def rows(self, slab: Tensor, size: int) -> Tensor:
        return slab[self.start : self.start + size * self.dimension].view(size, self.dimension)
