"""What a request that ran out of time says of itself."""

from __future__ import annotations

import asyncio
import time

import pytest

from retrieval.errors import DeadlineExceeded
from retrieval.stopwatch import Stopwatch

pytestmark = pytest.mark.unit


async def test_a_late_stage_names_itself_and_what_was_finished() -> None:
    clock = Stopwatch()
    with clock.step("first"):
        pass
    async with clock.stage("second", time.monotonic() + 5):
        await asyncio.sleep(0)
    with pytest.raises(DeadlineExceeded) as late:
        async with clock.stage("third", time.monotonic() + 0.01):
            await asyncio.sleep(5)
    assert late.value.stage == "third"
    assert list(late.value.finished) == ["first", "second"]
    assert "during third; finished before: first 0 ms, second 0 ms" in str(late.value)


async def test_a_stage_may_say_which_part_of_it_ran() -> None:
    clock = Stopwatch()

    async def work() -> None:
        async with clock.stage("whole", time.monotonic() + 0.01):
            clock.seconds["part one"] = 0.25
            clock.running = "part two"
            await asyncio.sleep(5)

    with pytest.raises(DeadlineExceeded) as late:
        await work()
    assert (late.value.stage, dict(late.value.finished)) == ("part two", {"part one": 0.25})


async def test_the_inner_ones_word_comes_first() -> None:
    outer, inner = Stopwatch(), Stopwatch()
    with outer.step("before"):
        pass
    inner.seconds["inside"] = 1.0

    async def work() -> None:
        async with inner.stage("inner", time.monotonic() - 1):
            await asyncio.sleep(5)

    with pytest.raises(DeadlineExceeded) as late:
        async with outer.stage("outer", time.monotonic() + 5):
            await work()
    assert late.value.stage == "inner"
    assert list(late.value.finished) == ["before", "inside"]


async def test_other_errors_and_cancelling_pass() -> None:
    clock = Stopwatch()
    with pytest.raises(TimeoutError):
        async with clock.stage("own", None):
            raise TimeoutError
    task = asyncio.create_task(_forever(clock))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.seconds == {}


async def _forever(clock: Stopwatch) -> None:
    async with clock.stage("own", time.monotonic() + 60):
        await asyncio.sleep(60)


def test_an_error_made_without_steps() -> None:
    assert str(DeadlineExceeded("waiting")) == "the request ran out of time during waiting"
    assert not DeadlineExceeded("waiting").finished
