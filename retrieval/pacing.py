"""Turns at the event loop: short array work runs on it, but never two pieces in a row.

Thirty recalls that are ready at once would otherwise compute in one pass of the loop, and whatever
else is ready, somebody's health check or the first step of another tenant's recall, would wait for
all of them at every step. A connection waits longest: uvloop accepts one in a pass.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Args = TypeVarTuple("Args")

BREATH = 6
"""Passes of the loop between two pieces of work where others wait; some 5 us each when nothing else
is to do. Crowds of 400 connections are accepted within a second instead of eight."""


class Background:
    """One task that `run` makes, from `start` until `close`."""

    def __init__(self, name: str, run: Callable[[], Coroutine[None, None, None]]) -> None:
        self._name, self._run = name, run
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=self._name)

    async def close(self) -> None:
        """Cancels the task, and returns when it has ended."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def unhurried(work: Callable[[Unpack[Args]], T], *args: *Args) -> T:
    """What `work` returns, in a thread. Returns after twice its time: background work that is many
    such pieces takes half a core, and a recall beside it meets one of them."""
    begin = time.monotonic()
    done = await asyncio.to_thread(work, *args)
    await asyncio.sleep(time.monotonic() - begin)
    return done


class Pace:
    """Lets one piece of work run every few passes of the loop, tenant after tenant.

    Not thread-safe. Work that is alone does not wait.
    """

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        self._busy = False

    async def turn(self, tenant: str) -> None:
        """Returns when a piece of work of the tenant may run, at once where none did this pass."""
        loop = asyncio.get_running_loop()
        if not self._busy:
            self._busy = True
            loop.call_soon(self._next, 1)
            return
        mine: asyncio.Future[None] = loop.create_future()
        self._lines.setdefault(tenant, deque()).append(mine)
        await mine

    def _next(self, passes: int) -> None:
        loop = asyncio.get_running_loop()
        if self._lines and passes < BREATH:
            loop.call_soon(self._next, passes + 1)
            return
        while self._lines:
            tenant = next(iter(self._lines))
            line = self._lines.pop(tenant)
            mine = line.popleft()
            if line:
                self._lines[tenant] = line  # behind the others
            if not mine.done():
                mine.set_result(None)
                loop.call_soon(self._next, 0)
                return
        self._busy = False
