"""Pure work in a process of its own, for work that may kill whoever does it.

The process is started with the first piece of work and does one after the other. It has a limit of
time, memory and processor seconds, and dies with its parent.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, Final, TypeVar

from retrieval.ingest.background import behind_others

T = TypeVar("T")

LIMIT_S: Final = 120.0
MEMORY_BYTES: Final = 8 << 30
"""Of address space, which libraries reserve more of than they use."""

_LENGTH = struct.Struct("<Q")


class Died(Exception):
    """The process is gone, or was ended because it took too long."""


class Child:
    """One process, started when it is first needed; `close` ends it. One call at a time."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    async def __aenter__(self) -> Child:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    async def run(self, work: Callable[..., T], /, *args: Any) -> T:
        """The result of `work(*args)`, or what it raised; all of it has to survive pickling.

        Died if the process did not survive it. Cancelling ends the process.
        """
        exchanging = asyncio.create_task(asyncio.to_thread(self._exchange, work, args))
        try:
            async with asyncio.timeout(self._limit_s):
                good, result = await asyncio.shield(exchanging)
        except TimeoutError:
            self._kill()
            await asyncio.gather(exchanging, return_exceptions=True)
            raise Died(f"it took longer than {self._limit_s:g} s") from None
        except asyncio.CancelledError:
            self._kill()
            await asyncio.gather(exchanging, return_exceptions=True)
            raise
        if not good:
            raise result
        found: T = result
        return found

    def _kill(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def _exchange(self, work: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
        with self._lock:
            if self._process is None:
                self._process = _start(self._limit_s)
            process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _write(process.stdin, (work, args))
            answer: tuple[bool, Any] = _read(process.stdout)
        except (OSError, EOFError, ValueError):
            process.wait()
            raise Died(f"its process ended with {process.returncode}") from None
        return answer


def _start(limit_s: float) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(path for path in sys.path if path)
    call = f"from retrieval.ingest.operations.isolation import main; main({int(limit_s) + 5})"
    return subprocess.Popen(
        [sys.executable, "-c", call],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )


def _write(pipe: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    """The next value that was written by our own code at the other end."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


def main(cpu_s: int) -> None:
    """The process: does what it is told until its parent goes away."""
    behind_others()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    while True:
        used = resource.getrusage(resource.RUSAGE_SELF)
        most = int(used.ru_utime + used.ru_stime) + cpu_s
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
        try:
            work, args = _read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = True, work(*args)
        except Exception as error:
            answer = False, error
        _write(answers, answer)
