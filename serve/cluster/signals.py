"""What a replica reports of itself: to the autoscaler, and to whoever asks whether it is well."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from serve import metrics
from serve.cluster import autoscaling

if TYPE_CHECKING:
    from models.types import Load

LOOK_S = 0.5
"""How often an event loop is looked at: some 50 microseconds of CPU a second."""

FORGET = 0.98
"""The longest call shrinks by this at every report, so that it is forgotten in minutes."""

CHARACTERS_A_TOKEN = 4.0


class LoopGauge:
    """How busy and how late the event loop is on which `run` was started."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._cpu_s, self._at = 0.0, 0.0
        self.lag_s = 0.0
        """How late the loop was when it was last looked at."""
        self.busy = 0.0
        """Share of CPU time of the loop's thread, a mean over a few seconds."""

    async def run(self) -> None:
        """Measures until it is cancelled."""
        self._cpu_s, self._at = time.thread_time(), self._clock()
        while True:
            begin = self._clock()
            await asyncio.sleep(LOOK_S)
            self.look(max(0.0, self._clock() - begin - LOOK_S))

    def look(self, lag_s: float) -> None:
        cpu_s, now = time.thread_time(), self._clock()
        share = (cpu_s - self._cpu_s) / max(1e-9, now - self._at)
        self._cpu_s, self._at = cpu_s, now
        self.busy += 0.2 * (min(1.0, share) - self.busy)
        self.lag_s = lag_s
        metrics.LOOP_LAG.observe(lag_s)


class LineGauge:
    """For how long somebody has been standing in line, without a break."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def seconds(self, waiting: int) -> float:
        if not waiting:
            self._since = None
            return 0.0
        now = self._clock()
        self._since = now if self._since is None else self._since
        return now - self._since


class ModelSignals:
    """Figures of one model's replica for `autoscaling.WorkPolicy`."""

    def __init__(
        self, load: Callable[[], Load], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._clock = clock
        self._at = clock()
        self._seen = 0
        self._calls = self._characters = 0
        self._longest = 0.0

    def called(self, texts: Sequence[str]) -> None:
        """Notes the size of a call; its tokens are not known here, so they are estimated."""
        size = sum(map(len, texts))
        self._calls += 1
        self._characters += size
        self._longest = max(self._longest, size)

    def report(self) -> dict[str, float]:
        load, now = self._load(), self._clock()
        came = load.tokens + load.queued_tokens
        arriving = max(0, came - self._seen) / max(1e-9, now - self._at)
        self._seen, self._at = came, now
        worth = came / self._characters if self._characters else 1.0 / CHARACTERS_A_TOKEN
        self._longest *= FORGET
        return {
            autoscaling.QUEUED: float(load.queued_tokens),
            autoscaling.ARRIVING: arriving,
            autoscaling.SPEED: load.tokens_per_s,
            autoscaling.CALL: came / self._calls if self._calls else 1.0,
            autoscaling.LONGEST: self._longest * worth,
        }


class BankSignals:
    """Figures of one holder of banks for `autoscaling.BanksPolicy`."""

    KEPT_S = 600.0
    """For how long bytes that had to go for want of room count as wanted."""

    def __init__(self, cache: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._cache = cache
        self._clock = clock
        self._evicted: list[tuple[float, int]] = []

    def report(self, loop: LoopGauge) -> dict[str, float]:
        """`cache` is a `retrieval.bank.cache.SnapshotCache`. Bytes that were missed are taken to be
        evictions of banks of mean size."""
        now, held = self._clock(), self._cache.metrics()
        self._evicted = [one for one in self._evicted if now - one[0] < self.KEPT_S]
        if not self._evicted or held.evictions != self._evicted[-1][1]:
            self._evicted.append((now, held.evictions))
        lately = self._evicted[-1][1] - self._evicted[0][1]
        mean = held.resident_bytes / max(1, held.resident_banks)
        return {
            autoscaling.BUSY: loop.busy,
            autoscaling.WANTED: held.resident_bytes + lately * mean,
            autoscaling.BUDGET: float(self._cache.budget_bytes),
        }
