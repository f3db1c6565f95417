"""Refusals beyond a rate are held back, those of other askers are not."""

from __future__ import annotations

import asyncio

import pytest

from serve.http import brake
from serve.http.brake import Brake

pytestmark = pytest.mark.unit


async def test_beyond_the_rate_and_for_that_asker_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "HOLD_S", 3600.0)
    now = [1000.0]
    held = Brake(10, clock=lambda: now[0])

    async def refused(asker: str) -> asyncio.Task[None]:
        task = asyncio.create_task(held.hold(asker))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return task

    first = [await refused("loud") for _ in range(15)]
    assert [task.done() for task in first] == [True] * 10 + [False] * 5
    assert (await refused("quiet")).done()
    now[0] += 0.25  # the rate lets three more through
    second = [await refused("loud") for _ in range(5)]
    assert [task.done() for task in second] == [True] * 3 + [False] * 2
    for task in first + second:
        task.cancel()


async def test_off() -> None:
    free = Brake(0)
    async with asyncio.timeout(1):
        for _ in range(1000):
            await free.hold("anybody")
