"""Turns at one account, shared by everybody who asks with the same address and key.

Bounded requests at once, fewer while the server says that it is too much; a hold that all callers
respect; and an order: by class of work, inside a class the tenant with fewest running calls first.
A quarter of the permits (at least one) stays free of background work.
No locks: use from one event loop.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from models.llm.types import Turn
from models.types import DeadlineExceeded

GOOD_TO_GROW = 10
"""Good answers in a row after which one more request at once is tried."""


@dataclass(slots=True)
class _Waiting:
    turn: Turn
    tenant: str
    at_once: int
    order: int
    called: asyncio.Future[None]


class Account:
    """`max_concurrent` requests at once at most."""

    def __init__(self, max_concurrent: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = max_concurrent
        self._clock = clock
        self._limit = float(max_concurrent)
        self._good = 0
        self._held_until = -math.inf
        self._running: Counter[str] = Counter()
        self._background = 0
        self._line: list[_Waiting] = []
        self._order = 0
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def running(self) -> int:
        return self._running.total()

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def held_s(self) -> float:
        """How long nobody may ask."""
        return max(0.0, self._held_until - self._clock())

    @property
    def limit(self) -> int:
        return max(1, int(self._limit))

    @asynccontextmanager
    async def turn(
        self, turn: Turn, tenant: str, *, at_once: int = 0, deadline: float | None = None
    ) -> AsyncIterator[None]:
        """Inside, one permit is held. `at_once`: of this tenant at the same time, 0 any number.

        DeadlineExceeded where no permit comes free in time.
        """
        await self._enter(turn, tenant, at_once, deadline)
        try:
            yield
        finally:
            self._leave(turn, tenant)

    def good(self) -> None:
        """An answer came: after enough of them one more request at once may run."""
        self._good += 1
        if self._good >= GOOD_TO_GROW and self._limit < self._most:
            self._good, self._limit = 0, min(float(self._most), self.limit + 1.0)
            self._call()

    def limited(self, wait_s: float) -> None:
        """The server said that it is too much: everybody waits, and fewer go on afterwards."""
        if self.held_s == 0:  # one flood of refusals halves once
            self._limit = max(1.0, self._limit / 2)
        self._good = 0
        self._held_until = max(self._held_until, self._clock() + wait_s)

    async def _enter(self, turn: Turn, tenant: str, at_once: int, deadline: float | None) -> None:
        self._order += 1
        called = asyncio.get_running_loop().create_future()
        waiting = _Waiting(turn, tenant, at_once, self._order, called)
        self._line.append(waiting)
        self._call()
        left = None if deadline is None else max(0.0, deadline - self._clock())
        try:
            async with asyncio.timeout(left):
                await called
        except BaseException as error:
            if waiting in self._line:
                self._line.remove(waiting)
            elif called.done() and not called.cancelled():  # called in the same moment
                self._leave(turn, tenant)
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded("waiting for the language model") from None
            raise

    def _leave(self, turn: Turn, tenant: str) -> None:
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]
        self._background -= turn.background
        self._call()

    def _call(self) -> None:
        """Lets in whoever may go now."""
        if self.held_s > 0:
            if self._line and self._alarm is None:
                loop = asyncio.get_running_loop()
                self._alarm = loop.call_later(self.held_s, self._wake)
            return
        while self.running < self.limit:
            able = [w for w in self._line if self._may(w)]
            if not able:
                return
            first = min(able, key=lambda w: (w.turn, self._running[w.tenant], w.order))
            self._line.remove(first)
            if first.called.done():
                continue
            self._running[first.tenant] += 1
            self._background += first.turn.background
            first.called.set_result(None)

    def _wake(self) -> None:
        self._alarm = None
        self._call()

    def _may(self, waiting: _Waiting) -> bool:
        if waiting.at_once and self._running[waiting.tenant] >= waiting.at_once:
            return False
        if not waiting.turn.background:
            return True
        kept = max(1, self.limit // 4) if self.limit > 1 else 0
        return self._background < self.limit - kept
