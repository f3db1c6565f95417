"""Refusals take their time where one asker gets many.

A refusal costs about as much as the answer that it replaces, and who repeats a refused request at
once has the server busy with refusing. So refusals leave at a rate that no sane client reaches, and
those beyond wait for their time; a place in line or at the database is not held meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

HOLD_MAX_S = 5.0
"""Clients that wait less give up, and are busy with that."""
_HELD_MAX, _KNOWN_MAX = 4_096, 10_000


class Brake:
    """Lets `per_s` refusals a second go to each asker, and as many at once; 0: all of them."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._clock = clock
        self._due: dict[str, float] = {}  # when the asker's next refusal would be on the rate
        self._held = 0

    async def hold(self, asker: str, since: float | None = None) -> None:
        """Returns when a refusal may be sent to `asker`, HOLD_MAX_S after `since` (on the clock; by
        default now) at the latest: who was refused after a wait in line has waited."""
        if not self._per_s:
            return
        now = self._clock()
        since = now if since is None else since
        if len(self._due) > _KNOWN_MAX:
            self._due = {name: due for name, due in self._due.items() if due > now}
        due = max(self._due.get(asker, 0.0), now - 1.0)  # a second's worth may come at once
        self._due[asker] = min(due + 1.0 / self._per_s, now + HOLD_MAX_S)
        until = min(due, since + HOLD_MAX_S)
        if until > now and self._held < _HELD_MAX:
            self._held += 1
            try:
                await asyncio.sleep(until - now)
            finally:
                self._held -= 1
