"""How long the steps of a request took, and what to say when its time is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from retrieval.errors import DeadlineExceeded


class TimedStep(NamedTuple):
    """A step that has ended: when it began, on the clock `time.perf_counter`, and how long it
    took."""

    name: str
    start: float
    seconds: float


class Stopwatch:
    """Seconds per finished step, in the order in which they ended. For one request.

    `running` may be set to the part of a stage that runs; a stage that ends names it then.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.spans: list[TimedStep] = []
        self.running: str | None = None

    def ended(self, name: str, begin: float) -> None:
        """Notes a step that began at `begin` and ends now."""
        spent = time.perf_counter() - begin
        self.seconds[name] = self.seconds.get(name, 0.0) + spent
        self.spans.append(TimedStep(name, begin, spent))

    def mark(self, name: str, begin: float) -> None:
        """As `ended`, for a part of a step that is counted already: only where it lay is noted."""
        self.spans.append(TimedStep(name, begin, time.perf_counter() - begin))

    def step(self, name: str) -> _Step:
        """Times a block; a block that raises is not counted as finished."""
        return _Step(self, name)

    def stage(self, name: str, deadline: float | None) -> _Stage:
        """Times a block that may wait, until `deadline` on the `time.monotonic()` clock.

        Past it the block is cancelled and DeadlineExceeded raised, with what was finished before.
        The same error from inside is raised on with the steps of this watch added.
        """
        return _Stage(self, name, deadline)


def passed(moment: float) -> Callable[[], bool]:
    """Asks whether a moment of `time.perf_counter()` is over."""
    return lambda: time.perf_counter() > moment


class _Step:
    def __init__(self, watch: Stopwatch, name: str) -> None:
        self._watch, self._name = watch, name

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._watch.ended(self._name, self._begin)


class _Stage:
    def __init__(self, watch: Stopwatch, name: str, deadline: float | None) -> None:
        self._watch, self._name = watch, name
        self._step = _Step(watch, name)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        self._timeout = asyncio.timeout(left)

    async def __aenter__(self) -> None:
        self._step.__enter__()
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._step.__exit__(kind)
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            if self._timeout.expired():
                stage = self._watch.running or self._name
                raise DeadlineExceeded(stage, self._watch.seconds) from late
            raise
        if isinstance(error, DeadlineExceeded):
            error.add(self._watch.seconds)
