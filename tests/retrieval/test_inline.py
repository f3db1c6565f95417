"""Array work on the event loop leaves room for others in every pass."""

from __future__ import annotations

import asyncio
import time

import pytest

from retrieval.inline import Inline

pytestmark = pytest.mark.unit


def spin(seconds: float) -> float:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return seconds


async def passes(inline: Inline, works: list[float]) -> list[int]:
    """In which pass of the loop each of the works ran, all being ready in the first."""
    loop, number, ran = asyncio.get_running_loop(), 0, []

    def count() -> None:
        nonlocal number
        number += 1
        loop.call_soon(count)

    def work(seconds: float) -> float:
        ran.append(number)
        return spin(seconds)

    loop.call_soon(count)
    done = await asyncio.gather(*(inline.run(work, seconds) for seconds in works))
    assert done == works
    return ran


async def test_long_works_run_in_passes_of_their_own() -> None:
    ran = await passes(Inline(pass_s=0.002), [0.003] * 8)
    assert len(set(ran)) == 8


async def test_short_works_share_a_pass() -> None:
    ran = await passes(Inline(pass_s=10.0), [0.0] * 8)
    assert len(set(ran)) == 1


async def test_one_after_another_waits_for_nobody() -> None:
    inline = Inline(pass_s=0.001)
    for _ in range(3):
        assert await inline.run(spin, 0.002) == 0.002


async def test_an_error_is_the_callers_and_the_next_runs() -> None:
    inline = Inline(pass_s=0.0)

    def fails() -> None:
        raise LookupError

    found = await asyncio.gather(inline.run(fails), inline.run(spin, 0.0), return_exceptions=True)
    assert isinstance(found[0], LookupError)
    assert found[1] == 0.0


async def test_who_is_cancelled_leaves_the_line() -> None:
    inline = Inline(pass_s=0.001)
    first, second, third = (asyncio.ensure_future(inline.run(spin, 0.002)) for _ in range(3))
    await asyncio.sleep(0)
    second.cancel()
    assert await first == await third == 0.002
    assert second.cancelled()
