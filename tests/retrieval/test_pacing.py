"""Turns at the event loop."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest

from retrieval.pacing import BREATH, Pace, unhurried

pytestmark = pytest.mark.unit


async def test_one_piece_a_pass_and_tenant_after_tenant() -> None:
    pace, done = Pace(), []

    async def work(tenant: str) -> None:
        await pace.turn(tenant)
        done.append(tenant)

    tasks = [asyncio.create_task(work(tenant)) for tenant in "aaaaab"]
    counts = []
    for _ in range(8 * BREATH):
        await asyncio.sleep(0)
        counts.append(len(done))
    await asyncio.gather(*tasks)
    starts = [at for at, (a, b) in enumerate(zip([0, *counts], counts, strict=False)) if b > a]
    assert len(starts) == 6  # never two in a pass
    assert min(b - a for a, b in pairwise(starts)) >= BREATH
    assert done.index("b") <= 2  # not behind all of a's
    assert len(done) == 6


async def test_alone_nobody_waits() -> None:
    pace = Pace()
    for _ in range(3):
        turn = pace.turn("a")
        with pytest.raises(StopIteration):
            turn.send(None)
        await asyncio.sleep(0)


async def test_who_went_away_is_passed_over() -> None:
    pace = Pace()
    await pace.turn("a")
    waiting = [asyncio.create_task(pace.turn("a")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    async with asyncio.timeout(1):
        await asyncio.gather(*waiting, return_exceptions=True)
        await pace.turn("a")
    assert waiting[1].cancelled()


async def test_work_in_pieces_rests_as_long_as_it_ran() -> None:
    def work(seconds: float) -> float:
        time.sleep(seconds)
        return time.monotonic()

    ended = await unhurried(work, 0.05)
    assert time.monotonic() - ended >= 0.05

    def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await unhurried(broken)
