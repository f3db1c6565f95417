"""Refusals beyond a rate wait for their time, those of other askers do not."""

from __future__ import annotations

import asyncio

import pytest

from serve.http.brake import HOLD_MAX_S, Brake

pytestmark = pytest.mark.unit


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each refusal that was held waits."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        if round(seconds, 6):
            found.append(round(seconds, 6))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return found


async def test_beyond_the_rate_one_after_another(waits: list[float]) -> None:
    now = [1000.0]
    held = Brake(10, clock=lambda: now[0])
    for _ in range(15):
        await held.hold("loud")
    assert waits == [0.1, 0.2, 0.3, 0.4]
    await held.hold("quiet")
    assert len(waits) == 4
    now[0] += 3.0
    for _ in range(11):
        await held.hold("loud")
    assert len(waits) == 4  # a second's worth may come at once


async def test_nobody_waits_for_long(waits: list[float]) -> None:
    held = Brake(10, clock=lambda: 1000.0)
    for _ in range(500):
        await held.hold("loud")
    assert max(waits) == HOLD_MAX_S
    assert len(waits) == 489


async def test_who_has_waited_in_line_has_waited(waits: list[float]) -> None:
    held = Brake(10, clock=lambda: 1000.0)
    for _ in range(500):
        await held.hold("loud", 1000.0 - HOLD_MAX_S + 0.5)
    assert max(waits) == 0.5
    await held.hold("loud", 1000.0 - 2 * HOLD_MAX_S)
    assert len(waits) == 489


async def test_off() -> None:
    free = Brake(0)
    async with asyncio.timeout(1):
        for _ in range(1000):
            await free.hold("anybody")
