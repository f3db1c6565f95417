"""How long a read waits for one replica before another is asked as well.

A replica that was stopped, or whose network is gone, says nothing: whoever waits for it waits until
it is replaced. So after a limit, which follows what calls took lately, the next in rank is asked,
and the first to answer wins: a replica that was only slow, say because it loads the bank, still
may. Before that, few calls are hedged: the next is asked for what it has in memory already.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from retrieval import errors

T = TypeVar("T")

REMEMBERED = 1000
"""Calls that the limits are made from."""
RENEWED = 50
"""Calls after which they are made anew."""
TIMES = 4.0
LEAST_S, MOST_S = 0.5, 5.0
"""The limit of an attempt: so many times the 99th of a hundred calls, within these bounds."""
HEDGED_SHARE = 0.02
"""Of all calls, at most."""
HEDGE_SAVED = 5.0
"""Hedges that may be saved up for a bad moment."""

SECOND, HEDGE = "\x1f2", "\x1fh"
"""Behind the key of a bank, these tell the router which attempt a call is. Ids of banks hold no
control characters."""

Ask = Callable[[str], Awaitable[T]]
"""Makes the call; its argument goes behind the bank's key."""


class Attempts:
    """The limits of one caller's reads of one stage."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=REMEMBERED)
        self._since = 0
        self._saved = 0.0
        self.limit_s = MOST_S
        self.hedge_after_s = math.inf

    def took(self, seconds: float) -> None:
        """Learns from a call that was answered."""
        self._took.append(seconds)
        self._since += 1
        if self._since >= RENEWED:
            self._since = 0
            ordered = sorted(self._took)
            self.limit_s = min(MOST_S, max(LEAST_S, TIMES * ordered[int(0.99 * len(ordered))]))
            self.hedge_after_s = ordered[int(0.95 * len(ordered))]

    async def read(
        self, ask: Ask[T], hedge: Callable[[str], Awaitable[T | None]] | None = None
    ) -> T:
        """The first answer; errors that are answers count, too.

        `hedge` asks for what a replica holds already; None from it is no answer. Where the first
        replica dies, or is not answered within the limit, the next is asked once. Cancelling
        cancels all of them.
        """
        loop = asyncio.get_running_loop()
        begin = loop.time()
        self._saved = min(HEDGE_SAVED, self._saved + HEDGED_SHARE)
        tasks: dict[asyncio.Task[T | None], float] = {_started(ask("")): begin}
        second: asyncio.Task[T | None] | None = None
        hedged = hedge is None
        failed: BaseException | None = None
        try:
            while True:
                spent = loop.time() - begin
                if not hedged and spent >= self.hedge_after_s and self._saved >= 1.0:
                    assert hedge is not None
                    hedged, self._saved = True, self._saved - 1.0
                    tasks[_started(hedge(HEDGE))] = begin
                if second is None and (failed is not None or spent >= self.limit_s):
                    second = _started(ask(SECOND))
                    tasks[second] = loop.time()
                if not tasks:
                    assert failed is not None
                    raise failed
                wait_s = math.inf if second is not None else self.limit_s - spent
                if not hedged and self._saved >= 1.0:
                    wait_s = min(wait_s, self.hedge_after_s - spent)
                done, _ = await asyncio.wait(
                    tasks,
                    timeout=None if wait_s == math.inf else max(0.0, wait_s),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    since = tasks.pop(task)
                    error = task.exception()
                    if error is None and (answer := task.result()) is not None:
                        # A second attempt's own time: what was waited for one that is gone says
                        # nothing of those that are there, and would lengthen the limit just then.
                        self.took(loop.time() - since)
                        return answer
                    if error is not None and not _of_the_replica(error):
                        raise error
                    failed = failed or error
        finally:
            for task in tasks:
                task.cancel()


def _started(call: Awaitable[T]) -> asyncio.Task[T]:
    """In a context of its own: Serve tells calls that wait for a replica apart by an id that all
    calls from the context of one request share, and would answer only one of these."""

    async def run() -> T:
        return await call

    running: Coroutine[Any, Any, T] = run()
    return asyncio.create_task(running, context=contextvars.Context())


def _of_the_replica(error: BaseException) -> bool:
    """Whether another replica may do better: this one died, could not be reached, or is of a
    release that does not understand the call."""
    from ray.exceptions import RayActorError, RaySystemError
    from ray.serve.exceptions import RayServeException

    causes = RayActorError | RaySystemError | RayServeException
    return isinstance(error, errors.Unavailable) and isinstance(error.__cause__, causes)
