"""The door: bounds, fairness, rates, and places given back whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from retrieval.errors import DeadlineExceeded, Overloaded, RateLimited
from serve.door import Door, Limits, Share

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
    door = Door(8, 8, limits=Limits(at_once=2))
    async with inside(door, "a", "a"):
        with pytest.raises(RateLimited):
            async with door.enter("a"):
                pass
        async with door.enter("b"):
            assert door.running == 3


async def test_rate_says_when_to_come_back() -> None:
    clock = Clock()
    door = Door(8, 8, limits=Limits(per_s=2.0, burst=2), clock=clock)
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


async def test_tenants_with_limits_of_their_own() -> None:
    clock = Clock()
    of = {"slow": Limits(per_s=0.5, burst=1), "narrow": Limits(at_once=1)}

    async def limits(tenant: str) -> Limits:
        return of.get(tenant, Limits())

    door = Door(8, 8, limits=limits, clock=clock)
    for _ in range(50):
        async with door.enter("free"):
            pass
    async with door.enter("slow"):
        pass
    with pytest.raises(RateLimited) as refused:
        await door.enter("slow").__aenter__()
    assert refused.value.retry_after_s == pytest.approx(2.0)
    async with inside(door, "narrow"):
        with pytest.raises(RateLimited, match="the limit is 1"):
            await door.enter("narrow").__aenter__()
    of["slow"] = Limits()  # changed while it serves
    for _ in range(50):
        async with door.enter("slow"):
            pass
    of["slow"] = Limits(per_s=1.0, burst=3)
    for _ in range(3):
        async with door.enter("slow"):
            pass
    with pytest.raises(RateLimited):
        await door.enter("slow").__aenter__()
    assert door.running == 0


async def test_many_tenants_are_forgotten_again() -> None:
    clock = Clock()
    door = Door(8, 8, limits=Limits(per_s=1.0, burst=2), clock=clock)
    for i in range(10_002):
        clock.now += 0.001
        async with door.enter(f"t{i}"):
            pass
    assert len(door._guests) < 3_000


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


def test_shares_add_up() -> None:
    for size in range(1, 9):
        for whole in range(size, 40):
            parts = [Share(place, size).count(whole) for place in range(size)]
            assert sum(parts) == whole
            assert max(parts) - min(parts) <= 1
        assert {Share(place, size).count(0) for place in range(size)} == {0}  # no limit stays none
        assert {Share(place, size).count(1) for place in range(size)} == {1}  # but never nobody
    assert Share(2, 4).of(Limits(at_once=7, per_s=10.0, burst=2)) == Limits(2, 2.5, 1)
    assert Share().of(Limits(3, 0.5, 4)) == Limits(3, 0.5, 4)


async def test_a_door_keeps_its_share_of_a_tenants_limit() -> None:
    shares = [Share(0, 2)]
    door = Door(8, 8, limits=Limits(at_once=3), share=lambda: shares[0])
    async with inside(door, "a", "a"):
        with pytest.raises(RateLimited, match=r"2 requests open at one of 2 processes.* is 3$"):
            async with door.enter("a"):
                pass
        shares[0] = Share(0, 1)  # the other one went
        async with door.enter("a"):
            assert door.running == 3
        shares[0] = Share(2, 3)
        with pytest.raises(RateLimited):
            async with door.enter("a"):
                pass


async def test_two_doors_keep_one_rate() -> None:
    clock = Clock()
    limits = Limits(per_s=4, burst=4)
    shares = [partial(Share, place, 2) for place in (0, 1)]
    doors = [Door(8, 8, limits=limits, share=share, clock=clock) for share in shares]
    said = set()

    async def passed(rounds: int, step_s: float) -> int:
        count = 0
        for _ in range(rounds):
            clock.now += step_s
            for door in doors:
                try:
                    async with door.enter("a"):
                        count += 1
                except RateLimited as refused:
                    said.add(str(refused))
        return count

    assert await passed(10, 0.0) == 4  # the burst, once
    clock.now += 1000
    assert await passed(10, 0.0) == 4
    assert await passed(400, 0.0625) == 100  # 25 s
    assert said == {"this tenant may send 4 requests a second"}
