"""The failover chain: who serves, how long a member may take, when it is left out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from models.breaker import FAILURES_TO_OPEN, FIRST_PAUSE_S, LONGEST_PAUSE_S, Breaker
from models.catalog import build_reranker
from models.chain import PROBE_EVERY_S, FailoverChain
from models.passthrough import Passthrough
from models.settings import RerankerSettings
from models.types import (
    BadOutput,
    DeadlineExceeded,
    DeviceLost,
    Load,
    Overloaded,
    RemoteError,
    RerankRequest,
    Scores,
    Unavailable,
)
from tests.models import virtual_time
from tests.models.tei_server import TeiServer

DOCUMENTS = ["a", "b", "c"]
QUESTION = RerankRequest("q", DOCUMENTS)


@dataclass
class Member:
    """Answers 0, 1, 2, ... unless told otherwise."""

    name: str = "first"
    reads_text: bool = True
    error: Exception | None = None
    start_error: Exception | None = None
    health_error: Exception | None = None
    takes_s: float = 0.0
    start_s: float = 0.0
    scores: Sequence[float] | None = None
    calls: int = 0
    starts: int = 0
    closed: bool = False
    deadlines: list[float | None] = field(default_factory=list)

    async def start(self) -> None:
        self.starts += 1
        await asyncio.sleep(self.start_s)
        if self.start_error:
            raise self.start_error

    async def check_health(self) -> None:
        if self.health_error:
            raise self.health_error

    async def close(self) -> None:
        self.closed = True

    def load(self) -> Load:
        return Load(queued_tokens=7)

    async def rerank(self, request: RerankRequest) -> Scores:
        self.calls += 1
        self.deadlines.append(request.deadline)
        await asyncio.sleep(self.takes_s)
        if self.error:
            raise self.error
        values = self.scores if self.scores is not None else range(len(request.documents))
        return Scores(np.array(values, np.float32), "logit", self.name, truncated=1)


def chain_of(*members: Member | Passthrough, **kwargs: float) -> FailoverChain:
    """On the running (virtual) loop's clock."""
    clock = asyncio.get_running_loop().time
    limits = [kwargs.get("timeout_s")] * len(members)
    return FailoverChain(members, limits, clock=clock)


@pytest.mark.unit
def test_the_first_member_serves_and_nothing_is_degraded() -> None:
    async def main() -> None:
        first, second = Member(), Member("second")
        chain = chain_of(first, second)
        await chain.start()
        answer = await chain.rerank(QUESTION)
        assert (answer.member, answer.degraded, answer.truncated) == ("first", False, 1)
        assert second.calls == 0
        assert (first.starts, second.starts) == (1, 1)
        assert chain.load().queued_tokens == 7
        await chain.close()
        assert first.closed
        assert second.closed

    virtual_time.run(main())


@pytest.mark.unit
@pytest.mark.parametrize(
    "broken",
    [
        Member(error=Unavailable("it", "down")),
        Member(error=RemoteError("it", "no", status=424)),
        Member(error=ZeroDivisionError()),
        Member(error=Overloaded("full")),
        Member(scores=[1.0, 2.0]),
        Member(scores=[1.0, 2.0, 3.0, 4.0]),
        Member(scores=[np.nan] * 3),
        Member(takes_s=1e6),
        Member(start_error=Unavailable("it", "no model")),
    ],
    ids=["down", "remote", "bug", "overloaded", "few", "many", "nan", "hang", "unstarted"],
)
def test_a_member_that_fails_is_replaced_in_time(broken: Member) -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        second = Member("second")
        chain = chain_of(broken, second, Passthrough("fused"), timeout_s=1.0)
        await chain.start()
        for _ in range(2 * FAILURES_TO_OPEN):
            start = clock()
            answer = await chain.rerank(replace(QUESTION, deadline=start + 2.0))
            assert (answer.member, answer.degraded) == ("second", True)
            assert clock() - start < 1.5
        opened = chain.open_circuits() == ["first"]
        assert opened == (not isinstance(broken.error, Overloaded))

    virtual_time.run(main())


@pytest.mark.unit
def test_some_scores_that_are_no_numbers_are_passed_on() -> None:
    async def main() -> None:
        answer = await chain_of(Member(scores=[np.nan, 1.0, 2.0])).rerank(QUESTION)
        assert answer.scores is not None
        assert np.isnan(answer.scores[0])
        assert not answer.degraded

    virtual_time.run(main())


@pytest.mark.unit
def test_the_fused_order_at_the_end() -> None:
    async def main() -> None:
        chain = chain_of(Member(error=Unavailable("it")), Passthrough("fused"))
        answer = await chain.rerank(QUESTION)
        assert (answer.scores, answer.member, answer.degraded) == (None, "fused", True)
        assert chain.reads_text

    virtual_time.run(main())


@pytest.mark.unit
def test_without_a_usable_member_the_last_error_is_raised() -> None:
    async def main() -> None:
        chain = chain_of(Member(error=Unavailable("one")), Member("second", scores=[1]))
        with pytest.raises(BadOutput, match="1 scores for 3 documents"):
            await chain.rerank(QUESTION)
        with pytest.raises(DeadlineExceeded):
            await chain.rerank(replace(QUESTION, deadline=asyncio.get_running_loop().time()))
        for _ in range(FAILURES_TO_OPEN - 1):
            with pytest.raises(BadOutput):
                await chain.rerank(QUESTION)
        with pytest.raises(Unavailable, match=r"left out for now.*1 scores"):
            await chain.rerank(QUESTION)

    virtual_time.run(main())


@pytest.mark.unit
def test_hanging_members_share_the_time_and_leave_some() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        chain = chain_of(Member(takes_s=99), Member("second", takes_s=99), Passthrough("fused"))
        answer = await chain.rerank(replace(QUESTION, deadline=1.0))
        assert answer.member == "fused"
        assert 0.6 < clock() <= 0.97

    virtual_time.run(main())


@pytest.mark.unit
def test_a_members_own_time_limit_holds_without_a_deadline() -> None:
    async def main() -> None:
        chain = chain_of(Member(takes_s=99), Passthrough("fused"), timeout_s=3.0)
        answer = await chain.rerank(QUESTION)
        assert answer.member == "fused"
        assert asyncio.get_running_loop().time() == 3.0

    virtual_time.run(main())


@pytest.mark.unit
def test_a_circuit_opens_tries_once_and_closes_by_itself() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        first = Member(error=Unavailable("it"), takes_s=0.1)
        chain = chain_of(first, Passthrough("fused"))
        for _ in range(FAILURES_TO_OPEN):
            await chain.rerank(QUESTION)
        assert first.calls == FAILURES_TO_OPEN
        start = clock()
        assert (await chain.rerank(QUESTION)).degraded
        assert clock() == start
        assert first.calls == FAILURES_TO_OPEN
        await asyncio.sleep(FIRST_PAUSE_S)
        # One trial among many at once, and it fails: the pause doubles.
        await asyncio.gather(*(chain.rerank(QUESTION) for _ in range(5)))
        assert first.calls == FAILURES_TO_OPEN + 1
        await asyncio.sleep(1.5 * FIRST_PAUSE_S)
        await chain.rerank(QUESTION)
        assert first.calls == FAILURES_TO_OPEN + 1
        first.error = None
        await asyncio.sleep(FIRST_PAUSE_S)
        assert not (await chain.rerank(QUESTION)).degraded
        assert not chain.open_circuits()

    virtual_time.run(main())


@pytest.mark.unit
def test_requests_without_time_do_not_open_a_circuit() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        chain = chain_of(Member(takes_s=0.5), Passthrough("fused"))
        for _ in range(10):
            assert (await chain.rerank(replace(QUESTION, deadline=clock() + 0.1))).degraded
        assert not chain.open_circuits()
        assert not (await chain.rerank(replace(QUESTION, deadline=clock() + 5))).degraded

    virtual_time.run(main())


@pytest.mark.unit
@pytest.mark.parametrize("left_s", [0.01, 0.1, 0.4, 0.49, 0.7])
def test_callers_in_a_hurry_do_not_take_the_member_from_others(left_s: float) -> None:
    """A member that needs half a second, a flood of callers that do not have it."""

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        first = Member(takes_s=0.5)
        chain = chain_of(first, Passthrough("fused"), timeout_s=30.0)
        await chain.start()
        for _ in range(40):
            hasty = [chain.rerank(replace(QUESTION, deadline=clock() + left_s)) for _ in range(4)]
            patient = chain.rerank(replace(QUESTION, deadline=clock() + 60))
            *_, answer = await asyncio.gather(*hasty, patient)
            assert answer.member == "first"
            assert not chain.open_circuits()
        # One probe a second at most, beside the 200 calls.
        assert first.calls <= 200 + clock() / PROBE_EVERY_S + 1

    virtual_time.run(main())


@pytest.mark.unit
def test_callers_that_hang_up_do_not_take_the_member_from_others() -> None:
    async def main() -> None:
        chain = chain_of(Member(takes_s=0.5), Passthrough("fused"))
        await chain.start()
        for _ in range(20):
            call = asyncio.create_task(chain.rerank(QUESTION))
            await asyncio.sleep(0.1)
            call.cancel()
        assert not chain.open_circuits()
        assert not (await chain.rerank(QUESTION)).degraded

    virtual_time.run(main())


@pytest.mark.unit
@pytest.mark.parametrize("status", [400, 413, 422])
def test_content_that_a_server_refuses_is_not_held_against_it(status: int) -> None:
    class Picky(Member):
        async def rerank(self, request: RerankRequest) -> Scores:
            if len(request.query) > 100:
                raise RemoteError("it", "too long", status=status)
            return await super().rerank(request)

    async def main() -> None:
        chain = chain_of(Picky(), Passthrough("fused"))
        await chain.start()
        for _ in range(3 * FAILURES_TO_OPEN):
            assert (await chain.rerank(RerankRequest("long " * 50, DOCUMENTS))).degraded
            assert not (await chain.rerank(QUESTION)).degraded

    virtual_time.run(main())


@pytest.mark.unit
def test_a_member_that_hangs_is_found_out_although_nobody_waits_for_its_limit() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        first = Member(takes_s=1e6)
        chain = chain_of(first, Passthrough("fused"), timeout_s=10.0)
        await chain.start()
        while not chain.open_circuits():
            assert clock() < 12
            await chain.rerank(replace(QUESTION, deadline=clock() + 2))
        asked = clock()
        assert (await chain.rerank(replace(QUESTION, deadline=clock() + 2))).degraded
        assert clock() == asked
        first.takes_s = 0.1
        await asyncio.sleep(FIRST_PAUSE_S)
        assert not (await chain.rerank(replace(QUESTION, deadline=clock() + 2))).degraded
        await chain.close()

    virtual_time.run(main())


@pytest.mark.unit
def test_trials_of_callers_in_a_hurry_do_not_keep_the_circuit_open() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        first = Member(error=Unavailable("it"))
        chain = chain_of(first, Passthrough("fused"), timeout_s=30.0)
        await chain.start()
        for _ in range(FAILURES_TO_OPEN):
            await chain.rerank(QUESTION)
        first.error, first.takes_s = None, 0.5
        await asyncio.sleep(FIRST_PAUSE_S)
        start = clock()
        # Every trial goes to somebody who does not wait for its answer.
        while chain.open_circuits():
            assert clock() < start + 2
            await chain.rerank(replace(QUESTION, deadline=clock() + 0.1))
        assert not (await chain.rerank(replace(QUESTION, deadline=clock() + 5))).degraded

    virtual_time.run(main())


@pytest.mark.unit
def test_a_queue_that_is_full_is_asked_again() -> None:
    async def main() -> None:
        first = Member(takes_s=0.5)
        chain = chain_of(first, Passthrough("fused"))
        await chain.start()
        first.error = Overloaded("full")
        for _ in range(3 * FAILURES_TO_OPEN):
            deadline = asyncio.get_running_loop().time() + 0.1
            await chain.rerank(replace(QUESTION, deadline=deadline))
            await chain.rerank(QUESTION)
        assert not chain.open_circuits()

    virtual_time.run(main())


@pytest.mark.unit
def test_a_cancelled_trial_lets_the_next_request_try() -> None:
    async def main() -> None:
        first = Member(error=Unavailable("it"))
        chain = chain_of(first, Passthrough("fused"))
        for _ in range(FAILURES_TO_OPEN):
            await chain.rerank(QUESTION)
        await asyncio.sleep(FIRST_PAUSE_S)
        first.takes_s, first.error = 5.0, None
        trial = asyncio.create_task(chain.rerank(QUESTION))
        await asyncio.sleep(1)
        trial.cancel()
        await asyncio.gather(trial, return_exceptions=True)
        assert not (await chain.rerank(QUESTION)).degraded

    virtual_time.run(main())


@pytest.mark.unit
def test_the_pause_is_bounded() -> None:
    now = 0.0
    breaker = Breaker(lambda: now)
    for _ in range(20):
        breaker.failed()
    assert breaker.retry_at == LONGEST_PAUSE_S


@pytest.mark.unit
def test_a_member_that_did_not_start_is_started_on_use(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        first = Member(start_error=Unavailable("model", "the hub cannot be reached"))
        chain = chain_of(first, Passthrough("fused"))
        with caplog.at_level(logging.WARNING):
            await chain.start()
        assert "the hub cannot be reached" in caplog.text
        assert (await chain.rerank(QUESTION)).degraded
        first.start_error = None
        answers = await asyncio.gather(*(chain.rerank(QUESTION) for _ in range(3)))
        assert not any(answer.degraded for answer in answers)
        assert first.starts == 3

    virtual_time.run(main())


@pytest.mark.unit
def test_a_slow_start_outlives_the_requests_that_wait_for_it() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        first = Member(start_s=5.0)
        chain = chain_of(first, Passthrough("fused"))
        while clock() < 5:
            await chain.rerank(replace(QUESTION, deadline=clock() + 1))
            await asyncio.sleep(0.5)
        await asyncio.sleep(LONGEST_PAUSE_S)
        assert not (await chain.rerank(QUESTION)).degraded
        assert first.starts == 1
        waiting = chain_of(Member(start_s=99))
        starting = asyncio.create_task(waiting.start())
        await asyncio.sleep(1)
        await waiting.close()
        await starting

    virtual_time.run(main())


@pytest.mark.unit
def test_health_fails_when_the_device_is_lost_or_nobody_is_left() -> None:
    async def main() -> None:
        first = Member(health_error=Unavailable("it", "down"))
        chain = chain_of(first, Passthrough("fused"))
        await chain.check_health()
        first.health_error = DeviceLost("it", "gone")
        with pytest.raises(DeviceLost):
            await chain.check_health()
        alone = chain_of(Member(health_error=Unavailable("it", "down")))
        with pytest.raises(Unavailable, match="down"):
            await alone.check_health()

    virtual_time.run(main())


@pytest.mark.unit
def test_the_catalog_makes_a_chain_only_where_one_is_needed() -> None:
    rrf = RerankerSettings(provider="rrf")
    tei = RerankerSettings(provider="tei", url="http://127.0.0.1:9", timeout_s=5)
    assert isinstance(build_reranker([rrf]), Passthrough)
    assert build_reranker([tei], fallback=False).name == "tei"
    chain = build_reranker([tei, rrf])
    assert isinstance(chain, FailoverChain)
    assert [member.name for member in chain.members] == ["tei", "rrf"]
    chain = build_reranker([tei])
    assert isinstance(chain, FailoverChain)
    assert [member.name for member in chain.members] == ["tei", "fused"]
    with pytest.raises(ValueError, match="at least one"):
        build_reranker([])


@pytest.mark.integration
async def test_a_real_server_is_killed_hangs_lies_and_recovers() -> None:
    server = TeiServer(max_client_batch_size=128).start()
    settings = RerankerSettings(provider="tei", url=server.url)
    chain = build_reranker([settings])
    assert isinstance(chain, FailoverChain)
    await chain.start()

    async def member(limit_s: float = 0.5) -> str:
        start = time.monotonic()
        answer = await chain.rerank(RerankRequest("red lamp", DOCUMENTS, deadline=start + limit_s))
        assert time.monotonic() - start < limit_s
        assert answer.degraded == (answer.member == "fused")
        return answer.member

    assert await member() == "tei"
    server.nan = True
    assert await member() == "fused"
    server.nan, server.short = False, True
    assert await member() == "fused"
    server.short = False
    assert await member() == "tei"
    server.hanging.set()
    assert await member() == "fused"
    server.hanging.clear()
    assert await member() == "tei"
    server.stop()
    for _ in range(FAILURES_TO_OPEN):
        assert await member() == "fused"
    assert chain.open_circuits() == ["tei"]
    with server:
        assert await member() == "fused"
        await asyncio.sleep(FIRST_PAUSE_S)
        assert await member() == "tei"
        await chain.close()
