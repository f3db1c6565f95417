"""Attempts at a read: when the next replica is asked, and whose answer counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.exceptions import RayActorError
from ray.serve._private.common import RequestMetadata
from ray.serve.request_router import PendingRequest

from retrieval.errors import NotFound, Unavailable
from serve.cluster.attempts import HEDGE, LEAST_S, MOST_S, SECOND, Attempts
from tests.serve.test_bank_router import order_of, router_of
from tests.sim.admitting import VirtualLoop

pytestmark = pytest.mark.unit


class Replicas:
    """What each attempt does: seconds until its answer, and the answer."""

    def __init__(self, **does: tuple[float, Any]) -> None:
        self._does = does
        self.asked: list[str] = []
        self.cancelled: list[str] = []

    async def __call__(self, attempt: str) -> Any:
        name = {"": "first", SECOND: "second", HEDGE: "hedge"}[attempt]
        self.asked.append(name)
        seconds, answer = self._does[name]
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer


def _died() -> Unavailable:
    error = Unavailable("the retriever", "RayActorError")
    error.__cause__ = RayActorError()
    return error


def play(work: Callable[[asyncio.AbstractEventLoop], Any]) -> Any:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work(loop))
    finally:
        loop.close()


def _read(replicas: Replicas, attempts: Attempts | None = None, *, hedge: bool = False) -> Any:
    attempts = attempts or Attempts()

    async def work(loop: asyncio.AbstractEventLoop) -> tuple[Any, float]:
        begin = loop.time()
        answer = await attempts.read(replicas, replicas if hedge else None)
        spent = loop.time() - begin
        await asyncio.sleep(0)
        return answer, spent

    return play(work)


def _taught(seconds: float = 0.01, calls: int = 100) -> Attempts:
    attempts = Attempts()
    for _ in range(calls):
        attempts.took(seconds)
    return attempts


def test_one_answer_is_one_call() -> None:
    replicas = Replicas(first=(0.2, "a"))
    assert _read(replicas) == ("a", pytest.approx(0.2))
    assert replicas.asked == ["first"]


def test_the_next_is_asked_after_the_limit() -> None:
    replicas = Replicas(first=(1e6, "never"), second=(0.1, "b"))
    assert _read(replicas) == ("b", pytest.approx(MOST_S + 0.1))
    assert replicas.cancelled == ["first"]
    replicas = Replicas(first=(1e6, "never"), second=(0.1, "b"))
    assert _read(replicas, _taught()) == ("b", pytest.approx(LEAST_S + 0.1))


def test_a_slow_first_still_wins() -> None:
    """It loads the bank; the second would have to load it as well."""
    replicas = Replicas(first=(6.0, "a"), second=(6.0, "b"))
    assert _read(replicas) == ("a", pytest.approx(6.0))
    assert replicas.cancelled == ["second"]


def test_after_a_death_the_next_is_asked_at_once_and_once() -> None:
    replicas = Replicas(first=(0.1, _died()), second=(0.1, "b"))
    assert _read(replicas) == ("b", pytest.approx(0.2))
    with pytest.raises(Unavailable):
        _read(Replicas(first=(0.1, _died()), second=(0.1, _died())))


@pytest.mark.parametrize("error", [NotFound("no bank"), Unavailable("the database")])
def test_an_error_that_is_an_answer_is_final(error: Exception) -> None:
    replicas = Replicas(first=(0.1, error))
    with pytest.raises(type(error)):
        _read(replicas)
    assert replicas.asked == ["first"]


def test_limits_follow_what_calls_took() -> None:
    assert _taught(0.01).limit_s == LEAST_S
    assert _taught(0.5).limit_s == 2.0
    assert _taught(60.0).limit_s == MOST_S
    assert _taught(0.5).hedge_after_s == 0.5
    assert Attempts().limit_s == MOST_S


def test_a_hedge_is_rare_and_only_for_what_is_held() -> None:
    attempts = _taught(0.2, 100)
    plain = Replicas(first=(0.01, "a"))
    for _ in range(60):
        _read(plain, attempts, hedge=True)
    held = Replicas(first=(0.6, "a"), hedge=(0.01, "h"), second=(1.0, "b"))
    assert _read(held, attempts, hedge=True) == ("h", pytest.approx(0.21))
    assert held.cancelled == ["first"]
    cold = Replicas(first=(0.6, "a"), hedge=(0.01, None), second=(1.0, "b"))
    answers = [_read(cold, attempts, hedge=True)[0] for _ in range(50)]
    assert set(answers) == {"a"}
    assert cold.asked.count("hedge") <= 2  # of 111 calls, two in a hundred


def test_a_cancelled_caller_cancels_all() -> None:
    replicas = Replicas(first=(1e6, "a"), second=(1e6, "b"))

    async def work(_: asyncio.AbstractEventLoop) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10.0):
                await Attempts().read(replicas)
        await asyncio.sleep(0)

    play(work)
    assert sorted(replicas.cancelled) == ["first", "second"]


def _request(bank: str) -> PendingRequest:
    metadata = RequestMetadata(request_id="a", internal_request_id="b", session_id=bank)
    return PendingRequest(args=[], kwargs={}, metadata=metadata)


async def test_the_router_asks_another_and_leaves_the_silent_one_alone() -> None:
    router, replicas = router_of()
    order = order_of("t/b")
    by_name = {replica.replica_id.unique_id: replica for replica in replicas}

    async def names(bank: str) -> list[str]:
        ranks = await router.choose_replicas(replicas, _request(bank))
        return [replica.replica_id.unique_id for rank in ranks for replica in rank]

    assert await names("t/b") == order
    result = cast(Any, SimpleNamespace())
    router.on_request_routed(_request("t/b"), by_name[order[0]].replica_id, result)
    assert await names("t/b" + HEDGE) == [*order[1:], order[0]]
    assert await names("t/b") == order  # a hedge accuses nobody
    await names("t/b" + HEDGE)
    hedged = _request("t/b" + HEDGE)
    router.on_request_routed(hedged, by_name[order[1]].replica_id, result)  # nor is it the one
    assert await names("t/b" + SECOND) == [*order[1:], order[0]]
    assert await names("t/b") == [*order[1:], order[0]]
    other = next(f"t/{n}" for n in range(99) if order_of(f"t/{n}")[0] == order[0])
    assert (await names(other))[-1] == order[0]  # another bank's calls do not wait for it either
    for _ in range(300):  # three seconds of this clock
        await names("t/unrelated")
    assert await names("t/b") == order


def test_waits_for_one_that_is_gone_do_not_lengthen_the_limit() -> None:
    """Else those who wait longest while it is replaced would make all others wait as long."""
    attempts = _taught()

    async def work(loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(500):
            await attempts.read(Replicas(first=(60.0, "a"), second=(1 / 128, "b")))

    play(work)
    assert attempts.limit_s == LEAST_S
