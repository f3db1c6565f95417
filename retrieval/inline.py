"""Short array work on the event loop, a little of it in each of the loop's passes.

A search of a small bank costs less than the way to a thread and back. But many that become ready in
the same pass would run one after the other while everybody else waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Args = TypeVarTuple("Args")

PASS_S = 0.004
"""After so much of it, what else is ready runs first."""


class Inline:
    """Runs functions on the event loop, first come, first served. For one loop."""

    def __init__(self, pass_s: float = PASS_S) -> None:
        self._pass_s = pass_s
        self._turn = asyncio.Lock()
        self._spent = 0.0

    async def run(self, function: Callable[[Unpack[Args]], T], *args: *Args) -> T:
        """The function's result, once this pass of the loop has time for it. A caller who is
        cancelled while waiting leaves the line."""
        async with self._turn:
            if self._spent >= self._pass_s:
                await asyncio.sleep(0)  # the renewal stands before us in the loop's queue
            if not self._spent:
                asyncio.get_running_loop().call_soon(self._renew)
            begin = time.perf_counter()
            try:
                return function(*args)
            finally:
                self._spent += time.perf_counter() - begin

    def _renew(self) -> None:
        self._spent = 0.0
