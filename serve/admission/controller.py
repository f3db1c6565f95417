"""Admission to a process: how many requests run, how many wait, and whose turn is next.

Fair turns: whoever has fewest requests running goes first, and of those the one that was not called
for longest. Every tenant has a line of its own, one place is kept for tenants that have nothing
running, and nobody has more than half of the places while others ask, too: a flood waits behind
itself, and what runs beside somebody's request is not all the flood's. No locks: everything happens
on one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from retrieval.errors import DeadlineExceeded, Overloaded, RateLimited


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Of one tenant: requests at once, running and waiting; a token bucket of `per_s` and
    `burst`. 0: no limit."""

    at_once: int = 0
    per_s: float = 0.0
    burst: int = 1


NO_LIMITS = AdmissionLimits()
LATELY_S = 1.0
"""A tenant that asked so long ago is still counted as one that shares the places."""


@dataclass(frozen=True, slots=True)
class LimitShare:
    """What falls to this process of limits that `world_size` processes share; `rank` from 0."""

    rank: int = 0
    world_size: int = 1

    def count(self, whole: int) -> int:
        """Shares add up to the whole, but each is at least 1. 0 stays: no limit."""
        part, rest = divmod(whole, self.world_size)
        return whole and max(1, part + (self.rank < rest))

    def of(self, limits: AdmissionLimits) -> AdmissionLimits:
        return AdmissionLimits(
            self.count(limits.at_once), limits.per_s / self.world_size, self.count(limits.burst)
        )


@dataclass(slots=True)
class TenantQueue:
    """One tenant: what it has running, and its own line."""

    limits: AdmissionLimits
    mean_s: float = 0.1
    """Of its own visits; at first a guess."""
    running: int = 0
    waiting: dict[asyncio.Future[bool], None] = field(default_factory=dict)
    called: int = 0
    """Number of the turn in which one of its requests began last."""
    tokens: float = 0.0
    seen: float = 0.0


class AdmissionController:
    """At most `running_max` requests run; at most `waiting_max` of each tenant wait.

    The last places, `kept` of them, are left to tenants with nothing running, where there are more.
    While another tenant asked within LATELY_S, a tenant has at most half of the places.
    Nobody waits longer than `wait_max_s`; who stands in a line that would take longer, judged by
    the tenant's own visits and its part of the places, is refused at once. `limits` are those of
    each tenant, or give them for one; this process keeps its `share` of them. What goes beyond a
    tenant's limits is answered with RateLimited, a full or slow line with Overloaded; both say when
    to come back.
    """

    def __init__(
        self,
        running_max: int,
        waiting_max: int,
        *,
        wait_max_s: float = 5.0,
        kept: int = 1,
        limits: AdmissionLimits | Callable[[str], Awaitable[AdmissionLimits]] = NO_LIMITS,
        share: Callable[[], LimitShare] = LimitShare,
        clock: Callable[[], float] = time.monotonic,
        refused: Callable[[str, str], None] = lambda _tenant, _reason: None,
        visited: Callable[[str, float], None] = lambda _tenant, _seconds: None,
    ) -> None:
        """`refused` hears of each refusal: the tenant, and `limit`, its own, or `full`; `visited`
        of each visit that ended, and how long it was."""
        self._wait_max_s = wait_max_s
        self._wanted_kept = kept
        self._set(running_max, waiting_max)
        self._limits = limits
        self._share = share
        self._clock = clock
        self._refused = refused
        self._visited = visited
        self._tenants: dict[str, TenantQueue] = {}
        self._lines: dict[str, TenantQueue] = {}  # those with somebody waiting
        self._active = 0  # tenants with something running
        self._turns = 0
        self._asked: list[tuple[TenantQueue, float]] = []  # the last two tenants, the newest first
        self.running = 0
        self.waiting = 0

    @asynccontextmanager
    async def enter(
        self, tenant: str, deadline: float | None = None, since: float | None = None
    ) -> AsyncIterator[None]:
        """Inside, one place is held. `deadline` (on the clock) bounds the wait in line, which
        counts from `since`: who has waited elsewhere waits less here."""
        limits = self._limits
        whole = limits if isinstance(limits, AdmissionLimits) else await limits(tenant)
        try:
            queue = self._admit(tenant, whole)
            if not queue.waiting and self._has_place(queue):
                self._begin(queue)
            else:
                await self._wait(tenant, queue, deadline, since)
        except RateLimited:
            self._refused(tenant, "limit")
            raise
        except Overloaded:
            self._refused(tenant, "full")
            raise
        started = self._clock()
        try:
            yield
        finally:
            seconds = self._clock() - started
            queue.mean_s += 0.1 * (seconds - queue.mean_s)
            self._end(queue)
            self._visited(tenant, seconds)

    def resize(self, running_max: int, waiting_max: int) -> None:
        """From now on so many run, and so many of each tenant wait. Who is inside stays, and so
        does who stands in line."""
        self._set(running_max, waiting_max)
        self._call_next()

    def _set(self, running_max: int, waiting_max: int) -> None:
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._kept = self._wanted_kept if running_max > self._wanted_kept else 0
        self._half = max(1, running_max // 2)

    def _has_place(self, queue: TenantQueue) -> bool:
        if not queue.running:
            return self.running < self._running_max
        if self.running >= self._running_max - self._kept:
            return False
        return queue.running < self._half or not self._shared(queue)

    def _shared(self, queue: TenantQueue) -> bool:
        """Whether somebody else asked lately."""
        since = self._clock() - LATELY_S
        return any(other is not queue and asked >= since for other, asked in self._asked)

    def _note(self, queue: TenantQueue, now: float) -> None:
        others = [one for one in self._asked if one[0] is not queue]
        self._asked = [(queue, now), *others[:1]]

    def _begin(self, queue: TenantQueue) -> None:
        self._turns += 1
        queue.called = self._turns
        self._active += not queue.running
        queue.running += 1
        self.running += 1

    def _end(self, queue: TenantQueue) -> None:
        queue.running -= 1
        self.running -= 1
        self._active -= not queue.running
        self._call_next()

    def _admit(self, tenant: str, whole: AdmissionLimits) -> TenantQueue:
        now, limits = self._clock(), self._share().of(whole)
        queue = self._tenants.get(tenant)
        if queue is None:
            self._forget(now)
            queue = self._tenants[tenant] = TenantQueue(
                limits, tokens=float(limits.burst), seen=now
            )
        elif not queue.limits.per_s:
            queue.tokens, queue.seen = float(limits.burst), now
        queue.limits = limits
        self._note(queue, now)
        present = queue.running + len(queue.waiting)
        if limits.at_once and present >= limits.at_once:
            raise RateLimited(
                f"this tenant has {present} requests open{self._here()},"
                f" the limit is {whole.at_once}",
                queue.mean_s,
            )
        if limits.per_s:
            burst = max(1, limits.burst)
            queue.tokens = min(burst, queue.tokens + (now - queue.seen) * limits.per_s)
            queue.seen = now
            if queue.tokens < 1:
                raise RateLimited(
                    f"this tenant may send {whole.per_s:g} requests a second",
                    (1 - queue.tokens) / limits.per_s,
                )
            queue.tokens -= 1
        self._refuse_long_line(queue)
        return queue

    def _refuse_long_line(self, queue: TenantQueue) -> None:
        ahead = len(queue.waiting)
        if not ahead and (self._waiting_max or self._has_place(queue)):
            return
        places = max(1.0, self._running_max / max(1, self._active))
        if self._shared(queue):
            places = min(places, self._half)
        expected_s = queue.mean_s * (ahead + 1) / places
        if ahead >= self._waiting_max or expected_s > self._wait_max_s:
            raise Overloaded(f"{ahead} requests of this tenant are already waiting", expected_s)

    def _here(self) -> str:
        size = self._share().world_size
        return "" if size == 1 else f" at one of {size} processes"

    def _forget(self, now: float) -> None:
        """Drops tenants with nothing here whose bucket is full: bounded memory under many."""
        if len(self._tenants) > 10_000:
            self._tenants = {
                name: queue
                for name, queue in self._tenants.items()
                if queue.running
                or queue.waiting
                or (
                    (per_s := queue.limits.per_s)
                    and (now - queue.seen) * per_s < queue.limits.burst
                )
            }

    async def _wait(
        self, tenant: str, queue: TenantQueue, deadline: float | None, since: float | None
    ) -> None:
        """Returns with a place. The turn's outcome says it: True called, False out of time."""
        now = self._clock()
        most = left = self._wait_max_s - (now - since if since is not None else 0.0)
        if deadline is not None:
            left = min(left, deadline - now)
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        queue.waiting[turn] = None
        self._lines[tenant] = queue
        self.waiting += 1
        timer = loop.call_later(max(0.0, left), self._expire, tenant, queue, turn)
        try:
            called = await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave_line(tenant, queue, turn)
            elif turn.result():  # called in the same moment: the place goes to the next
                self._end(queue)
            raise
        finally:
            timer.cancel()
        if not called:
            if left < most:
                raise DeadlineExceeded("waiting for its turn")
            raise Overloaded("too many requests were waiting", self._wait_max_s)

    def _expire(self, tenant: str, queue: TenantQueue, turn: asyncio.Future[bool]) -> None:
        if not turn.done():
            self._leave_line(tenant, queue, turn)
            turn.set_result(False)

    def _leave_line(self, tenant: str, queue: TenantQueue, turn: asyncio.Future[bool]) -> None:
        """Out of the line, if it still stands there."""
        if turn in queue.waiting:
            del queue.waiting[turn]
            self.waiting -= 1
            if not queue.waiting:
                self._lines.pop(tenant, None)

    def _call_next(self) -> None:
        while self._lines and self.running < self._running_max:
            tenant, queue = min(
                self._lines.items(), key=lambda line: (line[1].running, line[1].called)
            )
            if not self._has_place(queue):
                return
            turn = next(iter(queue.waiting))
            self._leave_line(tenant, queue, turn)
            if not turn.done():
                self._begin(queue)
                turn.set_result(True)
