"""The batcher under simulated load: `python -m tests.bench.batcher`.

Open-loop Poisson arrivals of single items on a device that takes 15 ms + 0.2 ms per item, at most
32 per batch, on virtual time. In the same run, the baseline: batches sealed by a timer (10 ms, as
ray.serve's @serve.batch does by default) while the device works them off one by one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from pathlib import Path

from models.batching.lanes import LaneLimits
from models.types import Priority
from tests.bench import report
from tests.models import virtual_time
from tests.models.load_simulation import Device, Outcome, Stream, simulate

BATCH = 32
WAIT_S = 0.010
LIMITS = LaneLimits(batch_tokens=BATCH, bulk_batch_tokens=8, queued_tokens=256)
COLUMNS = ("offered/s", "served/s", "p50 ms", "p99 ms", "refused/s", "refused within ms")


async def timer_batching(stream: Stream, seconds: float) -> Outcome:
    """Batches sealed by size or timer, whether or not the device is free."""
    loop = asyncio.get_running_loop()
    device, outcome = Device(), Outcome()
    waiting: list[float] = []
    running: set[asyncio.Task[None]] = set()
    timer: asyncio.TimerHandle | None = None

    async def work(arrivals: list[float]) -> None:
        await device.run(range(len(arrivals)))
        # Only what is answered while load is offered counts as throughput.
        outcome.served_s.extend(loop.time() - a for a in arrivals if loop.time() <= seconds)

    def seal() -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
            timer = None
        if waiting:
            running.add(loop.create_task(work(waiting[:])))
            waiting.clear()

    chance = random.Random(stream.seed)
    while loop.time() < seconds:
        await asyncio.sleep(chance.expovariate(stream.rate))
        waiting.append(loop.time())
        if len(waiting) == BATCH:
            seal()
        elif timer is None:
            timer = loop.call_later(WAIT_S, seal)
    seal()
    await asyncio.gather(*running)
    return outcome


def row(outcome: Outcome, offered: float, seconds: float) -> dict[str, float]:
    return {
        "offered/s": offered,
        "served/s": len(outcome.served_s) / seconds,
        "p50 ms": outcome.percentile(0.5) * 1e3,
        "p99 ms": outcome.percentile(0.99) * 1e3,
        "refused/s": len(outcome.refused_s) / seconds,
        "refused within ms": max(outcome.refused_s, default=0.0) * 1e3,
    }


def bench(seconds: float) -> tuple[dict[str, dict[str, float]], dict[str, float], list[str]]:
    """Rows of throughput, rows of p99 shifts, and what was missed."""
    capacity = Device().capacity(BATCH)
    rows: dict[str, dict[str, float]] = {}
    for rate in (300.0, 800.0, 1200.0):
        stream = Stream("a", rate)
        timed = virtual_time.run(timer_batching(stream, seconds))
        rows[f"timer {rate:.0f}/s"] = row(timed, rate, seconds)
        rows[f"pull {rate:.0f}/s"] = row(simulate([stream], LIMITS, seconds)["a"], rate, seconds)
    twice = Stream("a", 2 * capacity, deadline_s=0.25)
    rows["pull 2x capacity"] = row(simulate([twice], LIMITS, seconds)["a"], 2 * capacity, seconds)
    quiet = Stream("b", 100, seed=1)
    loads = {
        "flood of another tenant": Stream("a", 2 * capacity, seed=2),
        "big calls of another tenant": Stream("a", 10, items=100, seed=2),
        "bulk work": Stream("a", 5, items=200, priority=Priority.BULK, seed=2),
    }
    calm = simulate([quiet], LIMITS, seconds)["b"].percentile(0.99)
    shifts = {
        name: (simulate([quiet, load], LIMITS, seconds)["b"].percentile(0.99) - calm) * 1e3
        for name, load in loads.items()
    }
    batch_ms = (Device().fixed_s + BATCH * Device().item_s) * 1e3
    checks = {
        "800/s: at least 785/s": rows["pull 800/s"]["served/s"] >= 785,
        "800/s: p99 within 60 ms": rows["pull 800/s"]["p99 ms"] <= 60,
        "2x: at least 90 % of capacity": rows["pull 2x capacity"]["served/s"] >= 0.9 * capacity,
        "2x: refused at once": rows["pull 2x capacity"]["refused within ms"] < 1,
        "a shift is less than a batch": max(shifts.values()) < batch_ms,
    }
    return rows, shifts, [name for name, held in checks.items() if not held]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench batcher", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of simulated time")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows, shifts, missed = bench(given.seconds)
    report.table("15 ms + 0.2 ms per item, at most 32 per batch", COLUMNS, rows)
    shown = {name: {"ms": value} for name, value in shifts.items()}
    report.table("How far p99 of a quiet tenant moves under", ("ms",), shown)
    record = {**report.machine(), "rows": rows, "p99 shift ms": shifts, "missed": missed}
    print(json.dumps(record))
    if given.json:
        given.json.write_text(json.dumps(record, indent=1))
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
