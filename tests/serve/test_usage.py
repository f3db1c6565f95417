"""Who did how much, on a real database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from retrieval.errors import RateLimited
from retrieval.lifecycle.erasure.running import erase_tenant
from retrieval.store import limits, tenants, usage
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from retrieval.store.usage import KEPT_DAYS, TenantUsage
from serve import metrics
from serve.cli.monitor import loudest
from serve.opening import admission, counting
from serve.opening.counting import OTHERS, Counting, keep
from tests.serve.conftest import settings_for

pytestmark = pytest.mark.integration


def this_minute() -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0)


@pytest_asyncio.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    opened = await open_pool(PoolSettings(dsn, schema="usage_of", min_size=1, max_size=4))
    await migrate(opened)
    yield opened
    await opened.execute("drop schema usage_of cascade")
    await opened.close()


async def test_what_processes_count_adds_up(pool: Pool) -> None:
    now = this_minute()
    await usage.add(pool, now, {"a": TenantUsage(1, 2, 3, 4, 5, 6.5), "b": TenantUsage(recalls=9)})
    await usage.add(
        pool, now, {"a": TenantUsage(recalls=1, busy_ms=0.5), "c": TenantUsage(refused=7)}
    )
    await usage.add(pool, now - timedelta(minutes=1), {"b": TenantUsage(recalls=1)})
    await usage.add(pool, now - timedelta(minutes=30), {"d": TenantUsage(busy_ms=1e6)})
    await usage.add(pool, now, {})
    found = await usage.loudest(pool)
    assert found == [
        ("a", TenantUsage(2, 2, 3, 4, 5, 7.0)),
        ("c", TenantUsage(refused=7)),
        ("b", TenantUsage(recalls=10)),
    ]
    assert (await usage.loudest(pool, 60.0, 1))[0][0] == "d"
    assert loudest(found)[3].split() == ["c", "0.0", "0", "0", "0", "7", "0"]
    assert loudest([]) == ["", "no tenant did anything in the last ten minutes"]


async def test_days_are_kept_and_nothing_of_a_tenant_that_is_erased(pool: Pool) -> None:
    now = this_minute()
    await usage.add(pool, now - timedelta(days=KEPT_DAYS + 1), {"a": TenantUsage(recalls=1)})
    await usage.add(pool, now - timedelta(days=KEPT_DAYS - 1), {"a": TenantUsage(recalls=1)})
    await usage.forget(pool)
    assert await pool.fetchval("select count(*) from usage") == 1
    await erase_tenant(pool, "a")
    assert await pool.fetchval("select count(*) from usage") == 0


async def test_admission_counts_visits_and_refusals(pool: Pool, dsn: str) -> None:
    await tenants.create_key(pool, "t", "test")
    await limits.change(pool, "t", {"recalls_at_once": 1})
    counted = Counting()
    before = _refused()
    async with AsyncExitStack() as stack:
        keep(pool, counted, lambda: True, stack)
        controller = admission.recall_admission(settings_for(dsn), pool, counting=counted)
        async with controller.enter("t"):
            with pytest.raises(RateLimited):
                async with controller.enter("t"):
                    pass
        async with controller.enter("u"):
            pass
    found = dict(await usage.loudest(pool))  # kept when the process ends
    assert (found["t"].recalls, found["t"].refused) == (1, 1)
    assert (found["u"].recalls, found["u"].refused) == (1, 0)
    assert found["t"].busy_ms > 0
    assert _refused() == before + 1


def _refused() -> float:
    labels = {"controller": "recall", "reason": "limit"}
    name = "fourfold_admission_refused_total"
    return metrics.registry.get_sample_value(name, labels) or 0.0


def test_very_many_tenants_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "TENANTS_MAX", 2)
    counted = Counting()
    for name in ("a", "b", "c", "d", "a"):
        counted.tenant(name).reads += 1
    assert {name: own.reads for name, own in counted.taken().items()} == {"a": 2, "b": 1, OTHERS: 2}
    assert counted.taken() == {}
