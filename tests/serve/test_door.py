"""The door: bounds, fairness, rates, and places given back whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from retrieval.errors import DeadlineExceeded, Overloaded, RateLimited
from serve.door import Door

pytestmark = pytest.mark.unit


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def inside(door: Door, *tenants: str) -> AsyncIterator[asyncio.Event]:
    """Keeps one place per tenant until the block ends."""
    leave = asyncio.Event()

    async def stay(tenant: str) -> None:
        async with door.enter(tenant):
            await leave.wait()

    tasks = [asyncio.create_task(stay(tenant)) for tenant in tenants]
    await asyncio.sleep(0)
    yield leave
    leave.set()
    await asyncio.gather(*tasks)


async def test_bounds_what_runs_and_refuses_when_the_line_is_full() -> None:
    door = Door(2, 1)
    async with inside(door, "a", "a", "a"):
        assert (door.running, door.waiting) == (2, 1)
        with pytest.raises(Overloaded) as refused:
            async with door.enter("b"):
                pass
        assert refused.value.retry_after_s > 0
    assert (door.running, door.waiting) == (0, 0)


async def test_a_flood_waits_behind_itself() -> None:
    door = Door(2, 100)
    order: list[str] = []

    async def visit(tenant: str) -> None:
        async with door.enter(tenant):
            order.append(tenant)
            await asyncio.sleep(0)

    async with inside(door, "flood", "flood"):
        flood = [asyncio.create_task(visit("flood")) for _ in range(20)]
        await asyncio.sleep(0)
        quiet = asyncio.create_task(visit("quiet"))
        await asyncio.sleep(0)
    await asyncio.gather(*flood, quiet)
    assert order.index("quiet") == 0


async def test_a_tenants_own_limit() -> None:
    door = Door(8, 8, tenant_max=2)
    async with inside(door, "a", "a"):
        with pytest.raises(RateLimited):
            async with door.enter("a"):
                pass
        async with door.enter("b"):
            assert door.running == 3


async def test_rate_says_when_to_come_back() -> None:
    clock = Clock()
    door = Door(8, 8, rate_per_s=2.0, burst=2, clock=clock)
    for _ in range(2):
        async with door.enter("a"):
            pass
    with pytest.raises(RateLimited) as refused:
        async with door.enter("a"):
            pass
    assert refused.value.retry_after_s == pytest.approx(0.5)
    clock.now += 0.5
    async with door.enter("a"):
        pass


async def test_cancelled_and_expired_waits_give_their_place_back() -> None:
    clock = Clock()
    door = Door(1, 4, clock=clock)
    async with inside(door, "a"):
        with pytest.raises(DeadlineExceeded):
            async with door.enter("b", deadline=0.01):
                pass
        waiter = asyncio.create_task(door.enter("b").__aenter__())
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert door.waiting == 0
    assert door.running == 0
    async with door.enter("c"):
        assert door.running == 1


async def test_cancelled_in_the_moment_it_was_called() -> None:
    door = Door(1, 4)
    async with inside(door, "a") as leave:
        waiter = asyncio.create_task(door.enter("b").__aenter__())
        await asyncio.sleep(0)
        leave.set()
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
    assert (door.running, door.waiting) == (0, 0)
