"""The probe sees what holds a loop, and nothing else."""

import asyncio
import time

import pytest

from tests.hold import longest_hold

pytestmark = pytest.mark.unit


def spin(seconds: float) -> None:
    begin = time.thread_time()
    while time.thread_time() - begin < seconds:
        pass


async def test_work_on_the_loop_is_seen() -> None:
    async with longest_hold() as held:
        await asyncio.sleep(0.01)
        spin(0.05)
        await asyncio.sleep(0.01)
    assert held.longest > 0.045


async def test_work_at_the_very_end_is_seen() -> None:
    async with longest_hold() as held:
        await asyncio.sleep(0.01)
        spin(0.05)
    assert held.longest > 0.045


async def test_a_call_that_blocks_is_seen() -> None:
    async with longest_hold() as held:
        time.sleep(0.05)  # noqa: ASYNC251
    assert held.longest > 0.045


async def test_work_in_a_thread_that_lets_go_is_not() -> None:
    async with longest_hold() as held:
        await asyncio.to_thread(time.sleep, 0.1)
    assert held.longest < 0.09
    assert len(held.all) > 10
