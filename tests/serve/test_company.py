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
from retrieval.store import doors, limits, tenants
from retrieval.store.migrate import migrate
from retrieval.store.pool import Pool, PoolSettings, open_pool
from serve import composition
from serve.company import Company
from serve.door import Share
from tests.serve.conftest import settings_for

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    """A schema where nobody else is."""
    opened = await open_pool(PoolSettings(dsn, schema="company", min_size=1, max_size=6))
    await migrate(opened)
    yield opened
    await opened.execute("drop schema company cascade")
    await opened.close()


async def soon(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_they_come_and_go(pool: Pool) -> None:
    ours = [Company(pool, beat_s=0.05, fresh_s=1.0) for _ in range(3)]
    stacks = [AsyncExitStack() for _ in ours]
    assert ours[0].share() == Share()
    for company, stack in zip(ours, stacks, strict=True):
        await company.join(stack)
    assert ours[2].share().size == 3  # at once, for who comes
    await soon(lambda: all(company.share().size == 3 for company in ours))
    assert {company.share().place for company in ours} == {0, 1, 2}
    await stacks[1].aclose()
    left = [ours[0], ours[2]]
    await soon(lambda: all(company.share().size == 2 for company in left))
    assert {company.share().place for company in left} == {0, 1}
    for stack in stacks:
        await stack.aclose()
    assert await pool.fetchval("select count(*) from doors") == 0


async def test_one_that_died_is_missed(pool: Pool) -> None:
    async with AsyncExitStack() as stack:
        company = Company(pool, beat_s=0.05, fresh_s=0.5)
        assert await doors.present(pool, uuid4(), 0.5) == (0, 1)  # and never again
        await company.join(stack)
        assert company.share().size == 2
        await soon(lambda: company.share().size == 1)
    await doors.leave(pool, uuid4(), 0.0)
    assert await pool.fetchval("select count(*) from doors") == 0


async def test_a_database_that_is_away_changes_nothing(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        company = Company(pool, beat_s=0.02)
        await company.join(stack)
        other = Company(pool, beat_s=60)
        await other.join(stack)
        await soon(lambda: company.share().size == 2)
        calls = []

        async def gone(*_: object) -> tuple[int, int]:
            calls.append(1)
            raise OSError("away")

        monkeypatch.setattr(doors, "present", gone)
        await soon(lambda: len(calls) > 2)
        assert company.share().size == 2
        monkeypatch.undo()


async def test_who_was_not_heard_does_not_take_the_others_for_gone(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        companies = [Company(pool, beat_s=0.05, fresh_s=0.5) for _ in range(3)]
        for company in companies:
            await company.join(stack)
        await soon(lambda: all(company.share().size == 3 for company in companies))
        there, back = doors.present, asyncio.Event()

        async def slow(*given: Any) -> tuple[int, int]:
            await back.wait()
            return await there(*given)

        monkeypatch.setattr(doors, "present", slow)  # none of them gets through
        await asyncio.sleep(1.0)
        sizes = []
        back.set()
        for _ in range(100):
            await asyncio.sleep(0.005)
            sizes += [company.share().size for company in companies]
        assert set(sizes) == {3}
        monkeypatch.undo()


async def test_the_doors_of_two_processes_keep_a_tenants_limit(pool: Pool, dsn: str) -> None:
    settings = settings_for(dsn)
    await tenants.create_key(pool, "shared", "test")
    await limits.change(pool, "shared", {"recalls_at_once": 5, "recalls_per_s": 0.001,
                                         "recall_burst": 4, "writes_at_once": 1})  # fmt: skip
    async with AsyncExitStack() as stack:
        companies = [Company(pool, beat_s=0.05) for _ in range(2)]
        for company in companies:
            await company.join(stack)
        await soon(lambda: all(company.share().size == 2 for company in companies))
        recalls = [composition.recall_door(settings, pool, one.share) for one in companies]
        passed = 0
        for _ in range(5):
            for door in recalls:
                try:
                    async with door.enter("shared"):
                        passed += 1
                except RateLimited:
                    continue
        assert passed == 4
        for one in companies:  # one write at once each: never nothing
            async with composition.write_door(settings, pool, one.share).enter("shared"):
                pass
