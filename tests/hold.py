"""How long an event loop was held: the longest time in which it could run nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

_PAUSE = 0.001
_SCHEDULE = Path("/proc/thread-self/schedstat")


@dataclass(slots=True)
class Held:
    """Seconds between two ticks of the loop, less the pause of a tick: `longest`, and `all` of
    them in order. Time in which the machine ran other programs instead of the loop is not
    counted where the system tells it (Linux); calls that block and threads that keep the
    interpreter lock are."""

    all: list[float] = field(default_factory=list)

    @property
    def longest(self) -> float:
        return max(self.all, default=0.0)


def _waited() -> float:
    """Seconds for which this thread could have run but another program did."""
    try:
        return int(_SCHEDULE.read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


async def _tick(held: Held) -> None:
    before, waited = time.perf_counter(), _waited()
    while True:
        try:
            await asyncio.sleep(_PAUSE)
        finally:  # what held the loop until the very end counts as well
            now, waited_now = time.perf_counter(), _waited()
            held.all.append(max(0.0, now - before - (waited_now - waited) - _PAUSE))
            before, waited = now, waited_now


@asynccontextmanager
async def longest_hold() -> AsyncIterator[Held]:
    """`async with longest_hold() as held:` measures the loop while the block runs."""
    held = Held()
    ticking = asyncio.create_task(_tick(held))
    await asyncio.sleep(2 * _PAUSE)
    held.all.clear()
    try:
        yield held
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
