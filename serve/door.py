"""The door of a process: how many requests run, wait, and whose turn is next.

Bounded running, bounded waiting, fair turns: whoever has fewest requests running goes first, so a
tenant's flood waits behind itself. A tenant may have limits of its own. No locks: everything
happens on one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from retrieval.errors import DeadlineExceeded, Overloaded, RateLimited


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one tenant: requests at once, running and waiting; a token bucket of `per_s` and
    `burst`. 0: no limit."""

    at_once: int = 0
    per_s: float = 0.0
    burst: int = 1


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Share:
    """What falls to this process of limits that `size` processes share; `place` from 0."""

    place: int = 0
    size: int = 1

    def count(self, whole: int) -> int:
        """Shares add up to the whole, but each is at least 1. 0 stays: no limit."""
        part, rest = divmod(whole, self.size)
        return whole and max(1, part + (self.place < rest))

    def of(self, limits: Limits) -> Limits:
        return Limits(
            self.count(limits.at_once), limits.per_s / self.size, self.count(limits.burst)
        )


@dataclass(slots=True)
class _Guest:
    """One tenant at this door."""

    limits: Limits
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    tokens: float = 0.0
    seen: float = 0.0


class Door:
    """At most `running_max` inside, at most `waiting_max` in line.

    Nobody waits longer than `wait_max_s`: who would have to, judged by how long visits took lately,
    is refused at once. `limits` are those of each tenant, or give them for one; this door keeps its
    `share` of them. What goes beyond is answered with RateLimited, a full or slow line with
    Overloaded; both say when to come back.
    """

    def __init__(
        self,
        running_max: int,
        waiting_max: int,
        *,
        wait_max_s: float = 5.0,
        limits: Limits | Callable[[str], Awaitable[Limits]] = NO_LIMITS,
        share: Callable[[], Share] = Share,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._wait_max_s = wait_max_s
        self._limits = limits
        self._share = share
        self._clock = clock
        self._guests: dict[str, _Guest] = {}
        self._mean_s = 0.1  # of one visit; a guess until the first one ends
        self.running = 0
        self.waiting = 0

    @asynccontextmanager
    async def enter(self, tenant: str, deadline: float | None = None) -> AsyncIterator[None]:
        """Inside, one place is held. `deadline` (on the clock) bounds the wait in line."""
        limits = self._limits
        guest = self._admit(tenant, limits if isinstance(limits, Limits) else await limits(tenant))
        try:
            if self.running < self._running_max and not self.waiting:
                self.running += 1
                guest.running += 1
            else:
                await self._wait(guest, deadline)
            started = self._clock()
            try:
                yield
            finally:
                self._mean_s += 0.1 * (self._clock() - started - self._mean_s)
                self.running -= 1
                guest.running -= 1
                self._call_next()
        finally:
            if not guest.running and not guest.waiting and not guest.limits.per_s:
                self._guests.pop(tenant, None)

    def _admit(self, tenant: str, whole: Limits) -> _Guest:
        now, limits = self._clock(), self._share().of(whole)
        guest = self._guests.get(tenant)
        if guest is None:
            self._forget(now)
            guest = self._guests[tenant] = _Guest(limits, tokens=float(limits.burst), seen=now)
        elif not guest.limits.per_s:
            guest.tokens, guest.seen = float(limits.burst), now
        guest.limits = limits
        present = guest.running + len(guest.waiting)
        if limits.at_once and present >= limits.at_once:
            raise RateLimited(
                f"this tenant has {present} requests open{self._here()},"
                f" the limit is {whole.at_once}",
                self._mean_s,
            )
        if limits.per_s:
            burst = max(1, limits.burst)
            guest.tokens = min(burst, guest.tokens + (now - guest.seen) * limits.per_s)
            guest.seen = now
            if guest.tokens < 1:
                raise RateLimited(
                    f"this tenant may send {whole.per_s:g} requests a second",
                    (1 - guest.tokens) / limits.per_s,
                )
            guest.tokens -= 1
        expected_s = self._mean_s * (self.waiting + 1) / self._running_max
        if self.running >= self._running_max and (
            self.waiting >= self._waiting_max or expected_s > self._wait_max_s
        ):
            raise Overloaded(f"{self.waiting} requests are waiting already", expected_s)
        return guest

    def _here(self) -> str:
        size = self._share().size
        return "" if size == 1 else f" at one of {size} processes"

    def _forget(self, now: float) -> None:
        """Drops tenants whose bucket is full again: bounded memory under many tenants."""
        if len(self._guests) > 10_000:
            self._guests = {
                name: guest
                for name, guest in self._guests.items()
                if guest.running
                or guest.waiting
                or (
                    (per_s := guest.limits.per_s)
                    and (now - guest.seen) * per_s < guest.limits.burst
                )
            }

    async def _wait(self, guest: _Guest, deadline: float | None) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        guest.waiting.append(turn)
        self.waiting += 1
        left = self._wait_max_s
        if deadline is not None:
            left = min(left, deadline - self._clock())
        try:
            async with asyncio.timeout(left):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # called in the same moment: pass it on
                self.running -= 1
                guest.running -= 1
            else:
                guest.waiting.remove(turn)
                self.waiting -= 1
            self._call_next()
            if isinstance(error, TimeoutError):
                if left < self._wait_max_s:
                    raise DeadlineExceeded("waiting for its turn") from None
                raise Overloaded("too many requests were waiting", self._wait_max_s) from None
            raise

    def _call_next(self) -> None:
        while self.waiting and self.running < self._running_max:
            guest = min(
                (guest for guest in self._guests.values() if guest.waiting),
                key=lambda guest: guest.running,
            )
            turn = guest.waiting.popleft()
            self.waiting -= 1
            if not turn.done():
                self.running += 1
                guest.running += 1
                turn.set_result(None)
