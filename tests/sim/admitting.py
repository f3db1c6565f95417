"""One process's controller in virtual time: tenants at their usual rate, and one that floods."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np

from retrieval.errors import Overloaded, RateLimited
from serve.admission.controller import AdmissionController, LimitShare

TENANTS = 20
SERVICE_S = 0.04
PLACES = 8


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop on which time is what is due next: nothing ever waits."""

    _now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Admitted:
    p99_s: float
    """From arrival to end, of the usual tenants."""
    refused: int
    """Of the usual tenants."""


def run(flood: float, seconds: float = 60.0, processes: int = 1) -> Admitted:
    """The usual tenants together use half of the places; another sends `flood` times one's rate."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(_run(loop, flood, seconds, processes))
    finally:
        loop.close()


async def _run(loop: VirtualLoop, flood: float, seconds: float, processes: int) -> Admitted:
    controller = AdmissionController(
        PLACES, 256, clock=loop.time, share=lambda: LimitShare(0, processes)
    )
    rng = np.random.default_rng(4)
    rate = 0.5 * PLACES / SERVICE_S / TENANTS
    took: list[float] = []
    refused = 0

    async def one(tenant: str) -> None:
        nonlocal refused
        begin = loop.time()
        try:
            async with controller.enter(tenant, begin + 5.0):
                await asyncio.sleep(SERVICE_S)
        except (Overloaded, RateLimited):
            refused += tenant != "flood"
            return
        if tenant != "flood":
            took.append(loop.time() - begin)

    async def arrivals(tenant: str, per_s: float) -> list[asyncio.Task[Any]]:
        tasks = []
        while loop.time() < seconds:
            await asyncio.sleep(float(rng.exponential(1.0 / per_s)))
            tasks.append(asyncio.ensure_future(one(tenant)))
        return tasks

    sending = [arrivals(f"tenant-{number}", rate) for number in range(TENANTS)]
    if flood:
        sending.append(arrivals("flood", flood * rate))
    for tasks in await asyncio.gather(*sending):
        await asyncio.gather(*tasks)
    return Admitted(float(np.quantile(took, 0.99)), refused)
