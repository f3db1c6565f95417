"""Admission: bounds, fairness, rates, and places given back whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest

from retrieval.errors import DeadlineExceeded, Overloaded, RateLimited
from serve.admission.controller import AdmissionController, AdmissionLimits, LimitShare

pytestmark = pytest.mark.unit


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def inside(controller: AdmissionController, *tenants: str) -> AsyncIterator[asyncio.Event]:
    """Keeps one place per tenant until the block ends."""
    leave = asyncio.Event()

    async def stay(tenant: str) -> None:
        async with controller.enter(tenant):
            await leave.wait()

    tasks = [asyncio.create_task(stay(tenant)) for tenant in tenants]
    await asyncio.sleep(0)
    yield leave
    leave.set()
    await asyncio.gather(*tasks)


async def test_bounds_what_runs_and_refuses_when_a_line_is_full() -> None:
    controller = AdmissionController(2, 1)
    async with inside(controller, "a", "a"):
        assert (controller.running, controller.waiting) == (1, 1)  # a place is kept for others
        with pytest.raises(Overloaded) as refused:
            async with controller.enter("a"):
                pass
        assert refused.value.retry_after_s > 0
        async with controller.enter("b"):
            assert controller.running == 2
    assert (controller.running, controller.waiting) == (0, 0)


async def test_a_single_place_is_kept_for_nobody() -> None:
    controller = AdmissionController(1, 1)
    async with controller.enter("a"):
        assert controller.running == 1


async def test_a_flood_waits_behind_itself() -> None:
    controller = AdmissionController(2, 100)
    order: list[str] = []

    async def visit(tenant: str) -> None:
        async with controller.enter(tenant):
            order.append(tenant)
            await asyncio.sleep(0)

    async with inside(controller, "flood", "other"):
        flood = [asyncio.create_task(visit("flood")) for _ in range(20)]
        await asyncio.sleep(0)
        quiet = asyncio.create_task(visit("quiet"))
        await asyncio.sleep(0)
    await asyncio.gather(*flood, quiet)
    assert order.index("quiet") == 0


async def test_a_full_line_of_one_tenant_refuses_no_other() -> None:
    controller = AdmissionController(32, 256)
    leave = asyncio.Event()

    async def stay(tenant: str) -> None:
        async with controller.enter(tenant):
            await leave.wait()

    flood = [asyncio.create_task(stay("loud")) for _ in range(400)]
    await asyncio.sleep(0)
    assert (controller.running, controller.waiting) == (31, 256)
    async with asyncio.timeout(1), controller.enter("quiet"):
        assert controller.running == 32
    more = [asyncio.create_task(stay(f"quiet {i}")) for i in range(10)]
    await asyncio.sleep(0)
    assert controller.waiting == 256 + 9  # each of them in a line of its own, none refused
    leave.set()
    done = await asyncio.gather(*flood, *more, return_exceptions=True)
    assert [type(one) for one in done].count(Overloaded) == 400 - 31 - 256
    assert (controller.running, controller.waiting) == (0, 0)


async def test_slow_visits_of_one_tenant_do_not_lengthen_the_line_of_another() -> None:
    clock = Clock()
    controller = AdmissionController(2, 10, wait_max_s=5.0, clock=clock)
    for _ in range(50):
        async with controller.enter("slow"):
            clock.now += 60
    async with controller.enter("quick"):
        pass
    async with inside(controller, "slow", "slow", "other"):
        with pytest.raises(Overloaded):  # its own line would take minutes
            async with controller.enter("slow"):
                pass
        waiting = [asyncio.create_task(controller.enter("quick").__aenter__()) for _ in range(2)]
        await asyncio.sleep(0)
        assert controller.waiting == 3  # nobody of them was refused
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_who_shares_the_places_has_at_most_half_of_them() -> None:
    clock = Clock()
    controller = AdmissionController(6, 100, clock=clock)
    async with AsyncExitStack() as stack:
        for _ in range(5):  # alone: all but the kept place
            await stack.enter_async_context(controller.enter("loud"))
        await stack.enter_async_context(controller.enter("quiet"))
    assert controller.running == 0
    begun: list[str] = []
    ends = [asyncio.Event() for _ in range(8)]

    async def visit(end: asyncio.Event) -> None:
        async with controller.enter("loud"):
            begun.append("loud")
            await end.wait()

    visits = [asyncio.create_task(visit(end)) for end in ends]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(begun) == 3  # the quiet one asked a moment ago
    ends[0].set()
    await visits[0]
    await asyncio.sleep(0)
    assert (len(begun), controller.running) == (4, 3)
    clock.now += 1.5  # and now it is long ago
    ends[1].set()
    await visits[1]
    await asyncio.sleep(0)
    assert controller.running == 5
    for end in ends:
        end.set()
    await asyncio.gather(*visits)
    assert (controller.running, controller.waiting) == (0, 0)


async def test_equals_take_turns() -> None:
    controller = AdmissionController(1, 100)
    order: list[str] = []

    async def visit(tenant: str) -> None:
        async with controller.enter(tenant):
            order.append(tenant)

    async with inside(controller, "x"):
        tasks = [asyncio.create_task(visit(tenant)) for tenant in "aaabbbccc"]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == list("abcabcabc")


async def test_a_wait_that_ends_as_a_place_becomes_free() -> None:
    """In one round of a busy loop: the end of a visit and the end of a wait, in both orders."""
    for order in ("leave first", "expire first"):
        for _ in range(20):
            controller = AdmissionController(1, 10, wait_max_s=0.02)
            leave = asyncio.Event()

            async def stay(controller: AdmissionController, leave: asyncio.Event) -> None:
                async with controller.enter("a"):
                    await leave.wait()

            async def visit(controller: AdmissionController) -> None:
                async with controller.enter("a"):
                    pass

            first = asyncio.create_task(stay(controller, leave))
            await asyncio.sleep(0)
            second = asyncio.create_task(visit(controller))
            await asyncio.sleep(0)
            if order == "leave first":
                leave.set()
            else:
                asyncio.get_running_loop().call_later(0.019, leave.set)
                await asyncio.sleep(0.015)
            time.sleep(0.03)  # noqa: ASYNC251 - the wait is over before the loop looks again
            await asyncio.gather(first, second, return_exceptions=True)
            outcome = second.exception()
            assert outcome is None or isinstance(outcome, Overloaded), repr(outcome)
            assert (controller.running, controller.waiting) == (0, 0)


async def test_a_tenants_own_limit() -> None:
    controller = AdmissionController(8, 8, limits=AdmissionLimits(at_once=2))
    async with inside(controller, "a", "a"):
        with pytest.raises(RateLimited):
            async with controller.enter("a"):
                pass
        async with controller.enter("b"):
            assert controller.running == 3


async def test_rate_says_when_to_come_back() -> None:
    clock = Clock()
    controller = AdmissionController(8, 8, limits=AdmissionLimits(per_s=2.0, burst=2), clock=clock)
    for _ in range(2):
        async with controller.enter("a"):
            pass
    with pytest.raises(RateLimited) as refused:
        async with controller.enter("a"):
            pass
    assert refused.value.retry_after_s == pytest.approx(0.5)
    clock.now += 0.5
    async with controller.enter("a"):
        pass


async def test_tenants_with_limits_of_their_own() -> None:
    clock = Clock()
    of = {"slow": AdmissionLimits(per_s=0.5, burst=1), "narrow": AdmissionLimits(at_once=1)}

    async def limits(tenant: str) -> AdmissionLimits:
        return of.get(tenant, AdmissionLimits())

    controller = AdmissionController(8, 8, limits=limits, clock=clock)
    for _ in range(50):
        async with controller.enter("free"):
            pass
    async with controller.enter("slow"):
        pass
    with pytest.raises(RateLimited) as refused:
        await controller.enter("slow").__aenter__()
    assert refused.value.retry_after_s == pytest.approx(2.0)
    async with inside(controller, "narrow"):
        with pytest.raises(RateLimited, match="the limit is 1"):
            await controller.enter("narrow").__aenter__()
    of["slow"] = AdmissionLimits()  # changed while it serves
    for _ in range(50):
        async with controller.enter("slow"):
            pass
    of["slow"] = AdmissionLimits(per_s=1.0, burst=3)
    for _ in range(3):
        async with controller.enter("slow"):
            pass
    with pytest.raises(RateLimited):
        await controller.enter("slow").__aenter__()
    assert controller.running == 0


async def test_many_tenants_are_forgotten_again() -> None:
    clock = Clock()
    controller = AdmissionController(8, 8, limits=AdmissionLimits(per_s=1.0, burst=2), clock=clock)
    for i in range(10_002):
        clock.now += 0.001
        async with controller.enter(f"t{i}"):
            pass
    assert len(controller._tenants) < 3_000


async def test_cancelled_and_expired_waits_give_their_place_back() -> None:
    clock = Clock()
    controller = AdmissionController(1, 4, clock=clock)
    async with inside(controller, "a"):
        with pytest.raises(DeadlineExceeded):
            async with controller.enter("b", deadline=0.01):
                pass
        waiter = asyncio.create_task(controller.enter("b").__aenter__())
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert controller.waiting == 0
    assert controller.running == 0
    async with controller.enter("c"):
        assert controller.running == 1


async def test_a_wait_elsewhere_shortens_the_wait_in_line() -> None:
    controller = AdmissionController(1, 4, wait_max_s=60.0)
    async with inside(controller, "a"):
        with pytest.raises(Overloaded) as refused:
            async with controller.enter("b", since=time.monotonic() - 60.0):
                pass
        assert refused.value.retry_after_s == 60.0
        with pytest.raises(DeadlineExceeded):
            async with controller.enter("b", time.monotonic(), since=time.monotonic() - 59.0):
                pass
    async with controller.enter("b", since=time.monotonic() - 61.0):
        assert controller.running == 1  # a free place is no wait


async def test_cancelled_in_the_moment_it_was_called() -> None:
    controller = AdmissionController(1, 4)
    async with inside(controller, "a") as leave:
        waiter = asyncio.create_task(controller.enter("b").__aenter__())
        await asyncio.sleep(0)
        leave.set()
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
    assert (controller.running, controller.waiting) == (0, 0)


def test_shares_add_up() -> None:
    for world_size in range(1, 9):
        for whole in range(world_size, 40):
            parts = [LimitShare(rank, world_size).count(whole) for rank in range(world_size)]
            assert sum(parts) == whole
            assert max(parts) - min(parts) <= 1
        assert {LimitShare(rank, world_size).count(0) for rank in range(world_size)} == {
            0
        }  # no limit stays none
        assert {LimitShare(rank, world_size).count(1) for rank in range(world_size)} == {
            1
        }  # but never nobody
    assert LimitShare(2, 4).of(AdmissionLimits(at_once=7, per_s=10.0, burst=2)) == AdmissionLimits(
        2, 2.5, 1
    )
    assert LimitShare().of(AdmissionLimits(3, 0.5, 4)) == AdmissionLimits(3, 0.5, 4)


async def test_a_controller_keeps_its_share_of_a_tenants_limit() -> None:
    shares = [LimitShare(0, 2)]
    controller = AdmissionController(
        8, 8, limits=AdmissionLimits(at_once=3), share=lambda: shares[0]
    )
    async with inside(controller, "a", "a"):
        with pytest.raises(RateLimited, match=r"2 requests open at one of 2 processes.* is 3$"):
            async with controller.enter("a"):
                pass
        shares[0] = LimitShare(0, 1)  # the other one went
        async with controller.enter("a"):
            assert controller.running == 3
        shares[0] = LimitShare(2, 3)
        with pytest.raises(RateLimited):
            async with controller.enter("a"):
                pass


async def test_two_controllers_keep_one_rate() -> None:
    clock = Clock()
    limits = AdmissionLimits(per_s=4, burst=4)
    shares = [partial(LimitShare, rank, 2) for rank in (0, 1)]
    controllers = [
        AdmissionController(8, 8, limits=limits, share=share, clock=clock) for share in shares
    ]
    said = set()

    async def passed(rounds: int, step_s: float) -> int:
        count = 0
        for _ in range(rounds):
            clock.now += step_s
            for controller in controllers:
                try:
                    async with controller.enter("a"):
                        count += 1
                except RateLimited as refused:
                    said.add(str(refused))
        return count

    assert await passed(10, 0.0) == 4  # the burst, once
    clock.now += 1000
    assert await passed(10, 0.0) == 4
    assert await passed(400, 0.0625) == 100  # 25 s
    assert said == {"this tenant may send 4 requests a second"}
