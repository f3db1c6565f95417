"""The batcher's rules, one by one, and its invariants under random traffic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.batching.batcher import Batcher
from models.batching.lanes import LaneLimits
from models.types import BadOutput, DeadlineExceeded, Overloaded, Priority, Unavailable
from tests.models import virtual_time

pytestmark = pytest.mark.unit

BATCH_S = 1.0


@dataclass
class Machine:
    """Takes one second per batch, answers item * 10, remembers what it saw."""

    batches: list[list[int]] = field(default_factory=list)
    fails: Callable[[Sequence[int]], Exception | None] = lambda _: None
    running: int = 0
    most: int = 0

    async def run(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(BATCH_S)
        finally:
            self.running -= 1
        if error := self.fails(items):
            raise error
        return [item * 10 for item in items]


def on_virtual_time(
    scenario: Callable[[Batcher[int, int], Machine], Awaitable[None]], limits: LaneLimits
) -> Machine:
    machine = Machine()

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        batcher: Batcher[int, int] = Batcher(machine.run, limits, clock=clock)
        await scenario(batcher, machine)
        await batcher.close()
        assert batcher.load().queued_tokens == 0
        assert batcher.load().queued_calls == 0

    virtual_time.run(main())
    return machine


def test_idle_means_at_once_and_calls_of_one_moment_share_a_batch() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        first = await asyncio.gather(*(batcher.submit([i], [1]) for i in range(4)))
        assert first == [[0], [10], [20], [30]]
        assert asyncio.get_running_loop().time() == BATCH_S

    machine = on_virtual_time(scenario, LaneLimits(batch_tokens=8))
    assert machine.batches == [[0, 1, 2, 3]]


def test_what_arrives_while_the_device_is_busy_becomes_the_next_batch() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        calls = [asyncio.create_task(batcher.submit([0], [1]))]
        for i in range(1, 4):
            await asyncio.sleep(BATCH_S / 5)
            calls.append(asyncio.create_task(batcher.submit([i], [1])))
        await asyncio.gather(*calls)
        assert asyncio.get_running_loop().time() == 2 * BATCH_S

    assert on_virtual_time(scenario, LaneLimits(batch_tokens=8)).batches == [[0], [1, 2, 3]]


def test_longest_first_inside_a_call_and_results_in_the_callers_order() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        assert await batcher.submit([1, 2, 3, 4], [3, 9, 1, 5]) == [10, 20, 30, 40]

    machine = on_virtual_time(scenario, LaneLimits(batch_tokens=10))
    assert machine.batches == [[2], [4, 1, 3]]


def test_a_padded_batch_counts_items_times_longest() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        await batcher.submit(range(6), [5, 4, 4, 2, 2, 1])

    machine = on_virtual_time(scenario, LaneLimits(batch_tokens=10, padded=True))
    assert machine.batches == [[0, 1], [2, 3], [4, 5]]


def test_an_item_above_the_budget_runs_alone() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        await batcher.submit([1, 2], [50, 3])

    assert on_virtual_time(scenario, LaneLimits(batch_tokens=10)).batches == [[1], [2]]


def test_at_most_so_many_items_per_batch() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        await batcher.submit(range(7), [1] * 7)

    machine = on_virtual_time(scenario, LaneLimits(batch_tokens=100, batch_items=3))
    assert [len(batch) for batch in machine.batches] == [3, 3, 1]


@pytest.mark.parametrize("tenants", [("a", "a", "a"), ("a", "b", "c")])
def test_the_earliest_deadline_first_between_callers(tenants: Sequence[str]) -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        await asyncio.gather(
            batcher.submit([0], [4]),
            batcher.submit([1], [4], tenant=tenants[0], deadline=300),
            batcher.submit([2], [4], tenant=tenants[1], deadline=100),
            batcher.submit([3], [4], tenant=tenants[2], deadline=200),
        )

    machine = on_virtual_time(scenario, LaneLimits(batch_tokens=4))
    assert [i for batch in machine.batches for i in batch if i] == [2, 3, 1]


def test_bulk_leaves_a_place_for_queries() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        bulk = asyncio.create_task(batcher.submit(range(6), [1] * 6, priority=Priority.BULK))
        await asyncio.sleep(BATCH_S / 2)
        assert machine.batches == [[0, 1, 2]]
        begin = asyncio.get_running_loop().time()
        await batcher.submit([9], [1])
        assert asyncio.get_running_loop().time() - begin == BATCH_S
        await bulk

    limits = LaneLimits(bulk_batch_tokens=3, ahead=1, reserved=1)
    assert on_virtual_time(scenario, limits).most == 2


def test_bulk_waits_for_queries_and_comes_in_small_batches() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        async def late_query() -> None:
            await asyncio.sleep(BATCH_S / 2)
            await batcher.submit([100], [1])

        await asyncio.gather(
            batcher.submit(range(6), [1] * 6, priority=Priority.BULK), late_query()
        )

    machine = on_virtual_time(scenario, LaneLimits(batch_tokens=8, bulk_batch_tokens=3))
    assert machine.batches == [[0, 1, 2], [100], [3, 4, 5]]


def test_tenants_share_every_batch() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        flood = [batcher.submit(range(16), [1] * 16, tenant="a") for _ in range(4)]
        await asyncio.gather(*flood, batcher.submit([99], [1], tenant="b"))

    machine = on_virtual_time(scenario, LaneLimits(batch_tokens=16))
    assert 99 in machine.batches[0]


def test_cancelled_work_never_reaches_the_device() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        first = asyncio.create_task(batcher.submit([1], [1]))
        await asyncio.sleep(BATCH_S / 2)
        gone = asyncio.create_task(batcher.submit([2], [1]))
        stays = asyncio.create_task(batcher.submit([3], [1]))
        await asyncio.sleep(0)
        gone.cancel()
        assert await stays == [30]
        await first
        assert batcher.load().cancelled == 1

    assert on_virtual_time(scenario, LaneLimits()).batches == [[1], [3]]


def test_expired_work_is_told_on_time_and_never_reaches_the_device() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        clock = asyncio.get_running_loop().time
        first = asyncio.create_task(batcher.submit([1], [1]))
        await asyncio.sleep(BATCH_S / 4)
        with pytest.raises(DeadlineExceeded):
            await batcher.submit([2], [1], deadline=clock() + BATCH_S / 4)
        assert clock() == BATCH_S / 2
        with pytest.raises(DeadlineExceeded):
            await batcher.submit([3], [1], deadline=clock())
        await first
        assert batcher.load().expired == 2

    assert on_virtual_time(scenario, LaneLimits()).batches == [[1]]


def test_a_failing_batch_fails_only_its_callers() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        machine.fails = lambda items: ValueError("bad") if 13 in items else None
        bad = asyncio.create_task(batcher.submit([13, 14], [4, 4]))
        await asyncio.sleep(BATCH_S / 2)
        good = asyncio.create_task(batcher.submit([1], [4]))
        with pytest.raises(ValueError, match="bad"):
            await bad
        assert await good == [10]

    machine = on_virtual_time(scenario, LaneLimits(batch_tokens=4))
    # The rest of the failed call is dropped.
    assert machine.batches == [[13], [1]]


def test_too_few_results_fail_the_batch() -> None:
    async def short(items: Sequence[int]) -> list[int]:
        return list(items)[1:]

    async def main() -> None:
        batcher: Batcher[int, int] = Batcher(short, LaneLimits())
        with pytest.raises(BadOutput, match="1 results for 2 items"):
            await batcher.submit([1, 2], [1, 1])
        await batcher.close()

    asyncio.run(main())


def test_the_queue_is_bounded_in_tokens_and_no_tenant_takes_it_all() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        running = asyncio.create_task(batcher.submit([0], [4]))
        await asyncio.sleep(BATCH_S / 2)
        waiting = [asyncio.create_task(batcher.submit([1], [10], tenant="a")) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="full") as caught:
            await batcher.submit([1], [10], tenant="a")
        assert caught.value.retry_after_s > 0
        assert batcher.load().queued_tokens == 50
        other = asyncio.create_task(batcher.submit([2], [10], tenant="b"))
        await asyncio.gather(running, *waiting, other)
        assert batcher.load().refused == 1

    on_virtual_time(scenario, LaneLimits(batch_tokens=10, queued_tokens=100))


def test_work_that_would_start_too_late_is_refused_at_once() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        clock = asyncio.get_running_loop().time
        await batcher.submit([0], [4])
        calls = [asyncio.create_task(batcher.submit([1], [4])) for _ in range(10)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="time left"):
            await batcher.submit([2], [4], deadline=clock() + 3 * BATCH_S)
        await asyncio.gather(*calls, batcher.submit([2], [4], deadline=clock() + 30 * BATCH_S))

    on_virtual_time(scenario, LaneLimits(batch_tokens=4))


def test_ahead_hands_over_the_next_batch_while_one_runs() -> None:
    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        await batcher.submit(range(6), [1] * 6)

    for ahead in (0, 1):
        machine = on_virtual_time(scenario, LaneLimits(batch_tokens=2, ahead=ahead))
        assert machine.most == 1 + ahead


def test_close_finishes_what_was_accepted_and_refuses_the_rest() -> None:
    async def main() -> None:
        machine = Machine()
        clock = asyncio.get_running_loop().time
        batcher: Batcher[int, int] = Batcher(machine.run, LaneLimits(batch_tokens=1), clock=clock)
        calls = [asyncio.create_task(batcher.submit([i], [1])) for i in range(4)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(batcher.close(drain_s=2.5 * BATCH_S))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="closed"):
            await batcher.submit([9], [1])
        await closing
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert answers[:2] == [[0], [10]]
        assert all(isinstance(answer, Unavailable) for answer in answers[2:])

    virtual_time.run(main())


@dataclass(frozen=True)
class Plan:
    """One random caller."""

    arrives: float
    lengths: tuple[int, ...]
    tenant: str
    bulk: bool
    deadline_s: float | None
    cancel_s: float | None


plans = st.builds(
    Plan,
    arrives=st.floats(0, 6),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8).map(tuple),
    tenant=st.sampled_from("abc"),
    bulk=st.booleans(),
    deadline_s=st.none() | st.floats(0.01, 8),
    cancel_s=st.none() | st.floats(0.01, 8),
)


@settings(max_examples=100, deadline=None)
@given(
    callers=st.lists(plans, min_size=1, max_size=12),
    padded=st.booleans(),
    ahead=st.integers(0, 1),
    queued=st.sampled_from([40, 1000]),
    failing=st.booleans(),
)
def test_nothing_is_lost_repeated_or_swapped(
    callers: list[Plan], padded: bool, ahead: int, queued: int, failing: bool
) -> None:
    budget, most = 16, 5
    limits = LaneLimits(budget, 8, most, queued, padded, ahead)
    lengths: dict[int, int] = {}
    taken_after: dict[int, float] = {}
    outcomes: dict[int, object] = {}
    began: dict[int, float] = {}

    async def scenario(batcher: Batcher[int, int], machine: Machine) -> None:
        clock = asyncio.get_running_loop().time
        if failing:
            machine.fails = lambda items: ValueError("bad") if min(items) % 7 == 3 else None
        run = machine.run

        async def watched(items: Sequence[int]) -> list[int]:
            began.update(dict.fromkeys(items, clock()))
            return await run(items)

        batcher._run = watched

        async def call(number: int, plan: Plan) -> None:
            await asyncio.sleep(plan.arrives)
            items = [number * 100 + i for i in range(len(plan.lengths))]
            lengths.update(zip(items, plan.lengths, strict=True))
            deadline = None if plan.deadline_s is None else clock() + plan.deadline_s
            work = asyncio.ensure_future(
                batcher.submit(
                    items,
                    plan.lengths,
                    tenant=plan.tenant,
                    priority=Priority.BULK if plan.bulk else Priority.QUERY,
                    deadline=deadline,
                )
            )
            if plan.cancel_s is not None:
                asyncio.get_running_loop().call_later(plan.cancel_s, work.cancel)
            try:
                outcomes[number] = await work
                assert outcomes[number] == [item * 10 for item in items]
            except (Overloaded, DeadlineExceeded, ValueError, asyncio.CancelledError) as error:
                outcomes[number] = error
            taken_after[number] = clock()

        await asyncio.gather(*(call(i, plan) for i, plan in enumerate(callers)))

    machine = on_virtual_time(scenario, limits)
    ran = [item for batch in machine.batches for item in batch]
    assert len(ran) == len(set(ran))
    assert len(outcomes) == len(callers)
    assert machine.most <= 1 + ahead
    for batch in machine.batches:
        sizes = [lengths[item] for item in batch]
        cost = len(sizes) * max(sizes) if padded else sum(sizes)
        assert len(batch) == 1 or (cost <= budget and len(batch) <= most)
    for number, plan in enumerate(callers):
        items = [number * 100 + i for i in range(len(plan.lengths))]
        if isinstance(outcomes[number], list):
            assert set(items) <= set(ran)
        if isinstance(outcomes[number], Overloaded):
            assert not set(items) & set(ran)
        # Nothing of a call begins after its caller was told the end.
        assert all(began[item] <= taken_after[number] for item in items if item in began)
