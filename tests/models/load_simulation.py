"""A batcher under simulated load: open-loop arrivals, a device with a cost model, virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from models.batching.batcher import Batcher
from models.batching.lanes import LaneLimits
from models.types import DeadlineExceeded, Overloaded, Priority
from tests.models import virtual_time


@dataclass(frozen=True)
class Stream:
    """Poisson arrivals of one tenant: `rate` calls a second of `items` items each."""

    tenant: str
    rate: float
    items: int = 1
    priority: Priority = Priority.QUERY
    deadline_s: float | None = None
    seed: int = 0


@dataclass
class Outcome:
    """Per call: seconds until the answer, or until the refusal."""

    served_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    late: int = 0

    def percentile(self, share: float) -> float:
        ranked = sorted(self.served_s)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


@dataclass
class Device:
    """`fixed_s` per batch and `item_s` per item; one batch at a time."""

    fixed_s: float = 0.015
    item_s: float = 0.0002
    batches: list[int] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, items: Sequence[int]) -> Sequence[int]:
        async with self.lock:
            self.batches.append(len(items))
            await asyncio.sleep(self.fixed_s + self.item_s * len(items))
            return items

    def capacity(self, batch_items: int) -> float:
        return batch_items / (self.fixed_s + self.item_s * batch_items)


def simulate(
    streams: Sequence[Stream], limits: LaneLimits, seconds: float, device: Device | None = None
) -> dict[str, Outcome]:
    """What became of every call that arrived in `seconds`, by tenant."""
    return virtual_time.run(_simulate(streams, limits, seconds, device or Device()))


async def _simulate(
    streams: Sequence[Stream], limits: LaneLimits, seconds: float, device: Device
) -> dict[str, Outcome]:
    clock = asyncio.get_running_loop().time
    batcher: Batcher[int, int] = Batcher(device.run, limits, clock=clock)
    outcomes = {stream.tenant: Outcome() for stream in streams}
    calls: set[asyncio.Task[None]] = set()

    async def call(stream: Stream) -> None:
        start = clock()
        deadline = None if stream.deadline_s is None else start + stream.deadline_s
        outcome = outcomes[stream.tenant]
        try:
            await batcher.submit(
                range(stream.items),
                [1] * stream.items,
                tenant=stream.tenant,
                priority=stream.priority,
                deadline=deadline,
            )
            outcome.served_s.append(clock() - start)
        except Overloaded:
            outcome.refused_s.append(clock() - start)
        except DeadlineExceeded:
            outcome.late += 1

    async def arrive(stream: Stream) -> None:
        chance = random.Random(stream.seed)
        while clock() < seconds:
            await asyncio.sleep(chance.expovariate(stream.rate))
            calls.add(asyncio.create_task(call(stream)))

    await asyncio.gather(*(arrive(stream) for stream in streams))
    await asyncio.gather(*calls)
    await batcher.close()
    return outcomes
