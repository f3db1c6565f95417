"""The threads of an event loop, for long work that is not array work.

Texts are parsed, read and compared in them, in Python: each holds the interpreter while it runs.
Somebody's recall gives the interpreter back at every look at a socket, and by default waits up to
5 ms for it each time, so one import beside it made it ten times as long.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 6
SWITCH_S = 0.0002
"""While any of them works, whoever needs the interpreter has it after so long. Not always: array
work of eight recalls at a time takes a tenth more CPU time for it."""

_served: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


class YieldingThreads(ThreadPoolExecutor):
    """Threads that hand the interpreter over often while they work."""

    def __init__(self, threads: int = THREADS) -> None:
        super().__init__(threads, "long-work")
        self._lock = threading.Lock()
        self._working = 0
        self._before = 0.0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(self._work, fn, *args, **kwargs)

    def _work(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            if not self._working:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, SWITCH_S))
            self._working += 1
        try:
            return fn(*args, **kwargs)
        finally:
            with self._lock:
                self._working -= 1
                if not self._working:
                    sys.setswitchinterval(self._before)


def open_threads() -> None:
    """Gives the running loop these threads for `asyncio.to_thread`, once; they end with it."""
    loop = asyncio.get_running_loop()
    if loop not in _served:
        _served.add(loop)
        loop.set_default_executor(YieldingThreads())
