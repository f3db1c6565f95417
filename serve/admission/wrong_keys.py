"""Who tries wrong keys: each costs a look at the database, so an address gets only so many."""

from __future__ import annotations

import time
from collections.abc import Callable

from retrieval.errors import RateLimited

_KNOWN_MAX = 10_000


class WrongKeys:
    """A token bucket for each address: `burst` wrong keys at once, `per_s` in the long run; 0: any
    number. What goes beyond is refused without a look. No locks: one event loop."""

    def __init__(
        self, per_s: float, burst: int = 100, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._spent: dict[str, tuple[float, float]] = {}  # tokens taken, and when that was so

    def check(self, address: str) -> None:
        """RateLimited where the address has tried too many."""
        if self._per_s and (over := self._taken(address) - self._burst + 1) > 0:
            raise RateLimited("too many wrong API keys from this address", over / self._per_s)

    def wrong(self, address: str) -> None:
        """Notes that a key from the address was wrong."""
        if not self._per_s:
            return
        if len(self._spent) >= _KNOWN_MAX:
            self._spent = {one: kept for one, kept in self._spent.items() if self._taken(one) > 0}
            if len(self._spent) >= _KNOWN_MAX:
                self._spent.clear()
        self._spent[address] = (self._taken(address) + 1, self._clock())

    def _taken(self, address: str) -> float:
        taken, at = self._spent.get(address, (0.0, 0.0))
        return max(0.0, taken - (self._clock() - at) * self._per_s)
