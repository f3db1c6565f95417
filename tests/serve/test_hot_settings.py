"""Settings that change while processes run, on a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.errors import InvalidInput, Overloaded, RateLimited
from retrieval.store import banks, hot_settings, tenants
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from serve.admission.controller import AdmissionController, LimitShare
from serve.cli.main import app
from serve.cluster import bank_router
from serve.cluster.evening import STAGE, Evener
from serve.opening import admission, hot
from serve.opening.banks import budgeted
from serve.opening.hot import HotSettings, checked
from tests.serve.conftest import settings_for

pytestmark = pytest.mark.integration

SCHEMA = "hot"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(hot, "LOOK_S", 0.02)
    yield
    bank_router.even_out(STAGE, {})


@pytest_asyncio.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    opened = await open_pool(PoolSettings(dsn, schema=SCHEMA, min_size=1, max_size=4))
    await migrate(opened)
    yield opened
    await opened.execute(f"drop schema {SCHEMA} cascade")
    await opened.close()


@pytest_asyncio.fixture
async def followed(pool: Pool) -> AsyncIterator[HotSettings]:
    async with AsyncExitStack() as stack:
        found = HotSettings(pool)
        await found.follow(stack)
        yield found


async def changed(followed: HotSettings, name: str, value: object) -> None:
    async with asyncio.timeout(30):
        while followed.value(name, None) != value:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def full(controller: AdmissionController, most: int) -> None:
    """`most` of a tenant are inside, and one more is not."""
    async with AsyncExitStack() as inside:
        for _ in range(most):
            await inside.enter_async_context(controller.enter(f"t{_}"))
        with pytest.raises(Overloaded):
            async with controller.enter("one more"):
                pass


async def test_a_door_follows(pool: Pool, followed: HotSettings, dsn: str) -> None:
    settings = settings_for(dsn, limits={"read_max_concurrent": 3, "read_queue_max": 0})
    controller = admission.read_admission(settings, pool, hot=followed)
    await full(controller, 3)
    await hot_settings.put(pool, "read_max_concurrent", 5)
    await changed(followed, "read_max_concurrent", 5)
    await full(controller, 5)
    await hot_settings.remove(pool, "read_max_concurrent")
    await changed(followed, "read_max_concurrent", None)
    await full(controller, 3)


async def test_who_stands_in_line_goes_in_when_there_is_more_room() -> None:
    controller = AdmissionController(1, 4)
    async with controller.enter("a"):
        waiting = asyncio.ensure_future(controller.enter("b").__aenter__())
        await asyncio.sleep(0)
        assert not waiting.done()
        controller.resize(2, 4)
        await waiting
        assert controller.running == 2


async def test_common_limits_of_tenants_follow(pool: Pool, followed: HotSettings, dsn: str) -> None:
    await tenants.create_key(pool, "t", "test")
    controller = admission.recall_admission(settings_for(dsn), pool, hot=followed)
    async with controller.enter("t"), controller.enter("t"):
        pass
    await hot_settings.put(pool, "tenant_max_concurrent", 1)
    await changed(followed, "tenant_max_concurrent", 1)
    async with controller.enter("t"):
        with pytest.raises(RateLimited):
            async with controller.enter("t"):
                pass


async def test_the_memory_for_banks_follows(pool: Pool, followed: HotSettings) -> None:
    residency = Residency(pool, ResidencySettings(budget_bytes=1000))
    try:
        budgeted(residency, followed)
        await hot_settings.put(pool, "bank_memory_bytes", 500)
        await changed(followed, "bank_memory_bytes", 500)
        assert residency.budget_bytes == 500
    finally:
        await residency.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("read_max_concurrent", 0),
        ("read_max_concurrent", "many"),
        ("tenant_requests_per_s", -1),
        ("database_url", "x"),
        (hot.SHARES, {}),
        ("bank_memory_bytes", None),
    ],
)
def test_what_cannot_be_is_said(name: str, value: object) -> None:
    with pytest.raises(InvalidInput) as told:
        checked(name, value)
    assert name in str(told.value)


async def test_a_stored_value_that_cannot_be_changes_nothing(
    pool: Pool, followed: HotSettings
) -> None:
    await hot_settings.put(pool, "read_max_concurrent", "nonsense")
    await hot_settings.put(pool, "read_queue_max", 9)
    await changed(followed, "read_queue_max", 9)
    assert followed.value("read_max_concurrent", 4) == 4


async def test_banks_are_evened_out_by_one_process(pool: Pool, followed: HotSettings) -> None:
    """Of two slots, one would hold the most; every router hears which share it takes."""
    for number in range(60):
        await banks.ensure(pool, "t", f"b{number}")
    await pool.execute("update banks set next_ordinal = 1000 * bank, vector_set = 'model:384'")
    slots, first = list(range(6)), LimitShare(0, 2)
    evener = Evener(pool, followed, lambda: slots, lambda: first, worth_bytes=1.0)
    async with AsyncExitStack() as stack:
        evener.start(stack)
        assert await evener.even()
        async with asyncio.timeout(30):
            while not bank_router._shares.get(STAGE):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        told = bank_router._shares[STAGE]
        assert set(told) == set(slots)
        assert min(told.values()) < 1.0
        assert not await evener.even()  # even enough: nothing moves
        small = Evener(pool, followed, lambda: slots, lambda: first)
        assert not await small.even()


def test_the_command(dsn: str, tmp_path: Path) -> None:
    schema = f"{SCHEMA}_cli"

    def run(*words: str) -> Result:
        env = {"FOURFOLD_DATABASE_URL": dsn, "FOURFOLD_DATABASE_SCHEMA": schema}
        return CliRunner().invoke(app, [*words, "--data", str(tmp_path)], env=env)

    assert run("migrate").exit_code == 0
    assert "in force" in run("hot", "set", "tenant_burst", "7").output
    assert "tenant_burst             7" in run("hot", "list").output
    wrong = run("hot", "set", "tenant_burst", "0")
    assert wrong.exit_code == 1
    assert "greater than" in wrong.output
    assert run("hot", "set", "port", "1").exit_code == 1
    assert run("hot", "unset", "tenant_burst").exit_code == 0
    assert run("hot", "unset", "tenant_burst").exit_code == 1
    assert "as started" in run("hot", "list").output
