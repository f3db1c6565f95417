"""Processes that share limits: who is counted, and what each has, on a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from retrieval.errors import RateLimited
from retrieval.store import heartbeats, limits, tenants
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from serve.admission import membership
from serve.admission.controller import LimitShare
from serve.admission.membership import Membership
from serve.opening import admission
from tests.serve.conftest import settings_for

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    """A schema where nobody else is."""
    opened = await open_pool(PoolSettings(dsn, schema="membership", min_size=1, max_size=6))
    await migrate(opened)
    yield opened
    await opened.execute("drop schema membership cascade")
    await opened.close()


async def soon(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_they_come_and_go(pool: Pool) -> None:
    ours = [Membership(pool, beat_s=0.05, fresh_s=1.0) for _ in range(3)]
    stacks = [AsyncExitStack() for _ in ours]
    assert ours[0].share() == LimitShare()
    for member, stack in zip(ours, stacks, strict=True):
        await member.join(stack)
    assert ours[2].share().world_size == 3  # at once, for who comes
    await soon(lambda: all(member.share().world_size == 3 for member in ours))
    assert {member.share().rank for member in ours} == {0, 1, 2}
    await stacks[1].aclose()
    left = [ours[0], ours[2]]
    await soon(lambda: all(member.share().world_size == 2 for member in left))
    assert {member.share().rank for member in left} == {0, 1}
    for stack in stacks:
        await stack.aclose()
    assert await pool.fetchval("select count(*) from ingress_heartbeats") == 0


async def test_one_that_died_is_missed(pool: Pool) -> None:
    async with AsyncExitStack() as stack:
        member = Membership(pool, beat_s=0.05, fresh_s=0.5)
        assert await heartbeats.beat(pool, uuid4(), 0.5) == (0, 1)  # and never again
        await member.join(stack)
        assert member.share().world_size == 2
        await soon(lambda: member.share().world_size == 1)
    await heartbeats.leave(pool, uuid4(), 0.0)
    assert await pool.fetchval("select count(*) from ingress_heartbeats") == 0


async def test_roles_are_counted_apart(pool: Pool) -> None:
    async with AsyncExitStack() as stack:
        ingresses = [Membership(pool, beat_s=0.05) for _ in range(2)]
        keeper = Membership(pool, beat_s=0.05, role="ingest")
        for member in (*ingresses, keeper):
            await member.join(stack)
        await soon(lambda: all(member.share().world_size == 2 for member in ingresses))
        assert keeper.place() == (0, 1)
        assert sorted(member.part(9) for member in ingresses) == [4, 5]
        assert keeper.part(9) == 9


async def test_a_large_membership_counts_itself_less_often(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as not to read more than COUNTED_AT_ONCE rows in BEAT_S each."""
    monkeypatch.setattr(membership, "COUNTED_AT_ONCE", 2)
    async with AsyncExitStack() as stack:
        members = [Membership(pool, beat_s=0.05, fresh_s=1.0) for _ in range(8)]
        for member in members:
            await member.join(stack)
        await soon(lambda: all(member.share().world_size == 8 for member in members))
        beats = ticks = 0
        there = heartbeats.beat

        async def counted(*given: Any) -> tuple[int, int]:
            nonlocal beats, ticks
            if given[3] == "alone":
                ticks += 1
            else:
                beats += 1
                assert given[2] == 4.0, "and each says that it will be silent for longer"
            return await there(*given)

        monkeypatch.setattr(heartbeats, "beat", counted)
        alone = Membership(pool, beat_s=0.05, fresh_s=1.0, role="alone")
        await alone.join(stack)
        await soon(lambda: ticks >= 20)
        assert 0 < beats <= 8 * 8  # each a fourth as often; without, 160
        assert {member.share().world_size for member in members} == {8}
        monkeypatch.undo()


async def test_a_program_from_before_is_counted(pool: Pool) -> None:
    async with AsyncExitStack() as stack:
        await pool.execute("insert into ingress_heartbeats (id, seen) values ($1, now())", uuid4())
        member = Membership(pool, beat_s=0.05)
        await member.join(stack)
        assert member.share().world_size == 2


async def test_a_database_that_is_away_changes_nothing(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        member = Membership(pool, beat_s=0.02)
        await member.join(stack)
        other = Membership(pool, beat_s=60)
        await other.join(stack)
        await soon(lambda: member.share().world_size == 2)
        calls = []

        async def gone(*_: object) -> tuple[int, int]:
            calls.append(1)
            raise OSError("away")

        monkeypatch.setattr(heartbeats, "beat", gone)
        await soon(lambda: len(calls) > 2)
        assert member.share().world_size == 2
        monkeypatch.undo()


async def test_who_was_not_heard_does_not_take_the_others_for_gone(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        members = [Membership(pool, beat_s=0.05, fresh_s=0.5) for _ in range(3)]
        for member in members:
            await member.join(stack)
        await soon(lambda: all(member.share().world_size == 3 for member in members))
        there, back = heartbeats.beat, asyncio.Event()

        async def slow(*given: Any) -> tuple[int, int]:
            await back.wait()
            return await there(*given)

        monkeypatch.setattr(heartbeats, "beat", slow)  # none of them gets through
        while await pool.fetchval(  # noqa: ASYNC110
            "select count(*) from ingress_heartbeats"
            " where fresh_until > now() - interval '0.1 second'"
        ):
            await asyncio.sleep(0.02)
        sizes = []
        back.set()
        for _ in range(100):
            await asyncio.sleep(0.005)
            sizes += [member.share().world_size for member in members]
        assert set(sizes) == {3}
        monkeypatch.undo()


async def test_two_processes_keep_a_tenants_limit(pool: Pool, dsn: str) -> None:
    settings = settings_for(dsn)
    await tenants.create_key(pool, "shared", "test")
    await limits.change(pool, "shared", {"recalls_at_once": 5, "recalls_per_s": 0.001,
                                         "recall_burst": 4, "writes_at_once": 1})  # fmt: skip
    async with AsyncExitStack() as stack:
        members = [Membership(pool, beat_s=0.05) for _ in range(2)]
        for member in members:
            await member.join(stack)
        await soon(lambda: all(member.share().world_size == 2 for member in members))
        recalls = [admission.recall_admission(settings, pool, one.share) for one in members]
        passed = 0
        for _ in range(5):
            for controller in recalls:
                try:
                    async with controller.enter("shared"):
                        passed += 1
                except RateLimited:
                    continue
        assert passed == 4
        for one in members:  # one write at once each: never nothing
            async with admission.write_admission(settings, pool, one.share).enter("shared"):
                pass
