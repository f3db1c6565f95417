"""The pull batcher: callers' items become device batches the moment the device is free.

No timer seals a batch. While the device runs, arrivals collect; when it frees, the next batch is
taken from everything that waits (`lanes.py` says in which order). Idle means immediate dispatch,
busy means that batches grow by themselves.

BULK is taken only while no QUERY waits, in batches of its own size, so bulk work delays a query
by at most one small batch. Work that would start after its deadline is refused at once.
Cancelled and expired work never reaches the device. A batch that fails, fails only its callers.

Everything here runs on one event loop and nothing blocks it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic

from models.batching.lanes import Lane, LaneLimits, QueuedCall, R, Slice, T
from models.batching.stats import BatcherStats
from models.types import (
    BadOutput,
    DeadlineExceeded,
    Load,
    Observe,
    Overloaded,
    Priority,
    Unavailable,
    ignore,
)

DAY_S = 86_400.0


class Batcher(Generic[T, R]):
    """Bounded, fair, deadline-aware access to one device.

    `run(items)` answers one result per item, in order; it is called at most 1 + `ahead` times at
    once. `run_bulk` is called instead for batches of BULK, where it is given. `clock` is
    monotonic, in seconds; deadlines are absolute on it. `observe` receives queue_s (arrival to
    first item taken) per call, and batch_tokens, batch_items, batch_s.
    """

    def __init__(
        self,
        run: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        limits: LaneLimits,
        *,
        name: str = "model",
        clock: Callable[[], float] = time.monotonic,
        observe: Observe = ignore,
        run_bulk: Callable[[Sequence[T]], Awaitable[Sequence[R]]] | None = None,
    ) -> None:
        self._run = run
        self._run_bulk = run_bulk
        self._limits = limits
        self._name = name
        self._clock = clock
        self._observe = observe
        self._lanes: dict[Priority, Lane[T, R]] = {
            Priority.QUERY: Lane(limits, limits.batch_tokens),
            Priority.BULK: Lane(limits, limits.bulk_batch_tokens),
        }
        self._running: dict[asyncio.Task[None], float] = {}
        self._woken = False
        self._closed = False
        self._calls: set[QueuedCall[T, R]] = set()
        self._stats = BatcherStats()

    async def submit(
        self,
        items: Sequence[T],
        lengths: Sequence[int],
        *,
        tenant: str = "",
        priority: Priority = Priority.QUERY,
        deadline: float | None = None,
    ) -> list[R]:
        """One result per item, in the order of `items`; `lengths` are their tokens, >= 1.

        Raises Overloaded, DeadlineExceeded, Unavailable (closed), or what `run` raised. If the
        await is cancelled, items that still wait are dropped.
        """
        if not items:
            return []
        loop = asyncio.get_running_loop()
        arrived = self._clock()
        limit = math.inf if deadline is None else deadline
        call: QueuedCall[T, R] = QueuedCall(items, lengths, tenant, limit, loop.create_future())
        lane = self._lanes[priority]
        self._admit(lane, call, arrived)
        # Without a deadline, a day: longer than any call.
        timer = loop.call_later(min(limit - arrived, DAY_S), self._expire, call)
        self._calls.add(call)
        self._wake(loop)
        try:
            return await call.future
        except asyncio.CancelledError:
            self._stats.cancelled += 1
            raise
        finally:
            self._calls.discard(call)
            timer.cancel()
            if call.started is not None:
                self._observe("queue_s", call.started - arrived)
            lane.discard(call)

    def load(self) -> Load:
        now = self._clock()
        queued = sum(lane.queued for lane in self._lanes.values())
        ages = [now - start for start in self._running.values()]
        return self._stats.load(queued, len(self._calls), ages)

    async def close(self, drain_s: float = 30.0) -> None:
        """Refuses new calls, lets the accepted ones finish for `drain_s`, then fails the rest."""
        self._closed = True
        if self._calls:
            await asyncio.wait([call.future for call in self._calls], timeout=drain_s)
        for call in self._calls:
            if not call.future.done():
                call.future.set_exception(Unavailable(self._name, "it is closed"))
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _admit(self, lane: Lane[T, R], call: QueuedCall[T, R], now: float) -> None:
        if self._closed:
            raise Unavailable(self._name, "it is closed")
        if call.deadline <= now:
            self._stats.expired += 1
            raise DeadlineExceeded(self._name)
        wait = self._stats.batch_s * (lane.batches_before(call.tenant) + len(self._running))
        late = bool(lane.queued) and now + wait > call.deadline
        if late or not lane.offer(call):
            self._stats.refused += 1
            reason = "its queue is longer than the time left" if late else "its queue is full"
            raise Overloaded(f"{self._name} is overloaded: {reason}", max(wait, 0.1))

    def _expire(self, call: QueuedCall[T, R]) -> None:
        if not call.future.done():
            self._stats.expired += 1
            call.future.set_exception(DeadlineExceeded(self._name))

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        # One pass of the loop later, so that calls of the same moment share a batch.
        if not self._woken:
            self._woken = True
            loop.call_soon(self._pull)

    def _pull(self) -> None:
        self._woken = False
        while len(self._running) <= self._limits.ahead:
            now = self._clock()
            free = self._limits.ahead - len(self._running) >= self._limits.reserved
            priority, batch = Priority.QUERY, self._lanes[Priority.QUERY].take()
            if not batch and free:
                priority, batch = Priority.BULK, self._lanes[Priority.BULK].take()
            if not batch:
                return
            batch = [part for part in batch if not self._dead(part[0], now)]
            if batch:
                task = asyncio.get_running_loop().create_task(self._forward(batch, priority, now))
                self._running[task] = now
                task.add_done_callback(self._finished)

    def _dead(self, call: QueuedCall[T, R], now: float) -> bool:
        if call.deadline <= now:
            self._expire(call)
        return call.future.done()

    def _finished(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._pull()

    async def _forward(self, batch: list[Slice[T, R]], priority: Priority, start: float) -> None:
        for call, _ in batch:
            call.started = start if call.started is None else call.started
        items = [call.items[index] for call, picked in batch for index in picked]
        tokens = sum(call.lengths[index] for call, picked in batch for index in picked)
        try:
            bulk = self._run_bulk if priority is Priority.BULK else None
            results = await (bulk or self._run)(items)
            if len(results) != len(items):
                raise BadOutput(f"{self._name}: {len(results)} results for {len(items)} items")
        except Exception as error:
            self._stats.failed += 1
            for call, _ in batch:
                if not call.future.done():
                    call.future.set_exception(error)
            return
        seconds = self._clock() - start
        # Those that run side by side share the device.
        self._stats.add(seconds / len(self._running), len(items), tokens)
        self._observe("batch_s", seconds)
        self._observe("batch_tokens", tokens)
        self._observe("batch_items", len(items))
        answers = iter(results)
        for call, picked in batch:
            call.results.update(zip(picked, answers, strict=False))
            call.missing -= len(picked)
            if call.missing == 0 and not call.future.done():
                call.future.set_result([call.results[i] for i in range(len(call.items))])
