"""The pool, the migrations and the small tables, on a real database."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from retrieval.errors import DeadlineExceeded, InvalidInput, NotFound, Overloaded
from retrieval.settings import RecallSettings, RetainSettings
from retrieval.store import banks, limits, tenants
from retrieval.store.database import migrate
from retrieval.store.database.pool import Connection, Pool, PoolSettings, open_pool, read, write
from retrieval.store.limits import TenantLimits
from tests.retrieval.store.servers import server

pytestmark = pytest.mark.integration


async def test_many_replicas_migrate_at_once() -> None:
    schema = f"mig_{uuid4().hex[:8]}"
    pools = [
        await open_pool(PoolSettings(server().dsn, schema=schema, min_size=1, max_size=2))
        for _ in range(4)
    ]
    try:
        numbers = await asyncio.gather(*(migrate.migrate(pool) for pool in pools))
        assert set(numbers) == {migrate.known()[-1][0]}
        assert await pools[0].fetchval("select count(*) from tenants") == 1
        await pools[0].execute("insert into schema_migrations (number, name) values (9999, 'x')")
        with pytest.raises(migrate.SchemaTooNew, match="9999"):
            await migrate.migrate(pools[1])
    finally:
        await pools[0].execute(f"drop schema {schema} cascade")
        for pool in pools:
            await pool.close()


async def test_session_settings_outlive_a_release(pool: Pool) -> None:
    async with pool.acquire() as connection:
        await connection.execute("set local statement_timeout = 7")
        process = connection.get_server_pid()
    for _ in range(3):
        async with pool.acquire() as connection:
            if connection.get_server_pid() == process:
                assert await connection.fetchval("show statement_timeout") == "10min"
                assert await connection.fetchval("show timezone") == "UTC"


async def test_a_pooler_gets_its_settings_on_every_checkout() -> None:
    schema = f"pooled_{uuid4().hex[:8]}"
    settings = PoolSettings(
        server().dsn, schema=schema, min_size=1, max_size=1, statement_cache_size=0
    )
    pool = await open_pool(settings)
    try:
        for _ in range(2):
            async with pool.acquire() as connection:
                assert schema in await connection.fetchval("show search_path")
                await connection.execute("reset all")  # as another client may have done
    finally:
        await pool.close()


async def test_a_slow_query_is_a_deadline(pool: Pool) -> None:
    async def slow(connection: Connection) -> None:
        await connection.execute("set local statement_timeout = 50")
        await connection.execute("select pg_sleep(5)")

    with pytest.raises(DeadlineExceeded):
        await write(pool, slow)
    with pytest.raises(DeadlineExceeded):
        await read(pool, lambda c: c.fetchval("select pg_sleep(5)", timeout=0.05))


async def test_a_full_pool_says_so() -> None:
    settings = PoolSettings(server().dsn, min_size=1, max_size=1, acquire_timeout_s=0.1)
    pool = await open_pool(settings)
    try:
        async with pool.acquire():
            with pytest.raises(Overloaded):
                await read(pool, lambda c: c.fetchval("select 1"))
    finally:
        await pool.close()


async def test_a_lost_connection_is_tried_again(pool: Pool) -> None:
    tries = 0

    async def work(connection: Connection) -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            await connection.execute("select pg_terminate_backend(pg_backend_pid())")
        return int(await connection.fetchval("select 5"))

    assert await read(pool, work) == 5
    tries = 0
    assert await write(pool, work) == 5
    assert tries == 2


async def test_an_error_rolls_back(pool: Pool) -> None:
    async def work(connection: Connection) -> None:
        await connection.execute("insert into tenants (tenant_id) values ('rolled-back')")
        raise InvalidInput("no", "x")

    with pytest.raises(InvalidInput):
        await write(pool, work)
    assert not await pool.fetchval("select true from tenants where tenant_id = 'rolled-back'")


async def test_statement_errors_are_not_hidden(pool: Pool) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        await read(pool, lambda c: c.fetch("select * from nowhere"))


# Tenants


async def test_keys_lead_to_their_tenant(pool: Pool) -> None:
    tenant = f"t-{uuid4().hex[:6]}"
    key = await tenants.create_key(pool, tenant, "laptop")
    found = await tenants.access(pool, key)
    assert found is not None
    assert found.tenant == tenant
    assert await tenants.access(pool, "ff_unknown") is None
    assert await tenants.access(pool, None) is None
    (shown,) = await tenants.list_keys(pool, tenant)
    assert (shown.label, shown.revoked_at) == ("laptop", None)
    assert key not in str(await pool.fetch("select * from api_keys"))
    await tenants.revoke_key(pool, shown.key_id)
    assert await tenants.access(pool, key) is None
    assert (await tenants.list_keys(pool, tenant))[0].revoked_at is not None
    with pytest.raises(NotFound):
        await tenants.revoke_key(pool, "ff_unknown")


async def test_tenants_have_limits(pool: Pool) -> None:
    tenant = f"t-{uuid4().hex[:6]}"
    with pytest.raises(NotFound):
        await limits.change(pool, tenant, {"recalls_per_s": 5})
    await tenants.create_key(pool, tenant)
    assert await limits.of_tenant(pool, tenant) == TenantLimits()
    wanted = {"recalls_per_s": 5.5, "max_items": 10}
    assert await limits.change(pool, tenant, wanted) == wanted
    assert await limits.of_tenant(pool, tenant) == TenantLimits(recalls_per_s=5.5, max_items=10)
    changes = {"recalls_per_s": None, "writes_at_once": 0}
    assert await limits.change(pool, tenant, changes) == {"max_items": 10, "writes_at_once": 0}
    assert (tenant, 1, {"max_items": 10, "writes_at_once": 0}) in await limits.listed(pool)
    wrong: Any
    for wrong in (
        {"colour": 1},
        {"max_items": -1},
        {"max_items": 1.5},
        {"recalls_per_s": float("nan")},
        {"writes_at_once": True},
        {"write_burst": "5"},
    ):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            await limits.change(pool, tenant, {"recall_burst": 3, **wrong})
    assert (await limits.of_tenant(pool, tenant)).recall_burst is None


async def test_after_a_pause_no_request_goes_by_old_limits(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant, clock = f"t-{uuid4().hex[:6]}", [1000.0]
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    await tenants.create_key(pool, tenant)
    assert await limits.of_tenant(pool, tenant) == TenantLimits()
    await pool.execute(  # as another process does
        "update tenants set limits = $2 where tenant_id = $1", tenant, {"recalls_at_once": 3}
    )
    assert await limits.of_tenant(pool, tenant) == TenantLimits()
    clock[0] += 3600
    found = await asyncio.gather(*(limits.of_tenant(pool, tenant) for _ in range(4)))
    assert set(found) == {TenantLimits(recalls_at_once=3)}
    clock[0] += limits.CACHE_S + 1
    await pool.execute("update tenants set limits = '{}' where tenant_id = $1", tenant)
    found = await asyncio.gather(*(limits.of_tenant(pool, tenant) for _ in range(4)))
    assert found.count(TenantLimits()) == 1  # the others did not wait for it


async def test_limits_that_cannot_be_count_as_not_set(pool: Pool) -> None:
    tenant = f"t-{uuid4().hex[:6]}"
    await tenants.create_key(pool, tenant)
    await pool.execute(
        "update tenants set limits = $2 where tenant_id = $1", tenant, {"max_items": "x", "old": 1}
    )
    assert await limits.of_tenant(pool, tenant) == TenantLimits()
    with pytest.raises(InvalidInput):
        await tenants.create_key(pool, "a\nb")


# Banks


def bank_id() -> str:
    return f"bank-{uuid4().hex[:8]}"


async def test_life_of_a_bank(pool: Pool) -> None:
    bank = bank_id()
    for look in (
        banks.head(pool, "default", bank),
        banks.profile(pool, "default", bank),
        banks.patch(pool, "default", bank, {"name": "x"}),
        banks.delete(pool, "default", bank),
    ):
        with pytest.raises(NotFound, match=bank):
            await look
    made = await banks.put(
        pool,
        "default",
        bank,
        {
            "name": "Ann",
            "mission": "m1",
            "background": "b",
            "reflect_mission": "m2",
            "disposition": {"skepticism": 1, "empathy": 5},
            "disposition_empathy": 4,
            "retain_chunk_size": 500,
            "enable_reranking": False,
        },
    )
    assert made == {
        "bank_id": bank,
        "name": "Ann",
        "disposition": {"skepticism": 1, "literalism": 3, "empathy": 4},
        "mission": "m2",
        "background": "m2",
    }
    head = await banks.head(pool, "default", bank)
    assert head.config == {"retain_chunk_size": 500, "enable_reranking": False}
    patched = await banks.patch(pool, "default", bank, {"name": None, "mission": "m3"})
    assert (patched["name"], patched["mission"]) == ("Ann", "m3")
    listed = await banks.list_banks(pool, "default", q=bank)
    assert [b["bank_id"] for b in listed["banks"]] == [bank]
    assert (listed["total"], listed["banks"][0]["fact_count"]) == (1, 0)
    assert (await banks.delete(pool, "default", bank))["deleted_count"] == 0
    with pytest.raises(NotFound):
        await banks.head(pool, "default", bank)


async def test_tenants_do_not_share_banks(pool: Pool) -> None:
    bank = bank_id()
    await banks.put(pool, "a", bank, {"name": "of a"})
    with pytest.raises(NotFound):
        await banks.profile(pool, "b", bank)
    await banks.put(pool, "b", bank, {"name": "of b"})
    await banks.delete(pool, "b", bank)
    assert (await banks.profile(pool, "a", bank))["name"] == "of a"


@pytest.mark.parametrize("bad", ["", "  ", "a\x00b", "x" * 600])
async def test_bad_bank_ids(pool: Pool, bad: str) -> None:
    with pytest.raises(InvalidInput):
        await banks.ensure(pool, "default", bad)


async def test_settings_of_a_bank(pool: Pool) -> None:
    bank = bank_id()
    deployment = (RecallSettings(), RetainSettings())
    await banks.ensure(pool, "default", bank)
    found = await banks.patch_config(
        pool,
        "default",
        bank,
        {"HINDSIGHT_API_RECALL_BUDGET_FIXED_LOW": 50, "enable_graph_retrieval": False},
        *deployment,
    )
    assert found["overrides"] == {"recall_budget_fixed_low": 50, "enable_graph_retrieval": False}
    assert found["config"]["recall_budget_fixed_low"] == 50
    assert found["config"]["recall_budget_fixed_mid"] == 300
    found = await banks.patch_config(
        pool, "default", bank, {"enable_graph_retrieval": None}, *deployment
    )
    assert found["overrides"] == {"recall_budget_fixed_low": 50}
    for updates, field in (
        ({"recall_max_query_tokens": 3}, "recall_max_query_tokens"),
        ({"enable_reranking": "yes"}, "enable_reranking"),
        ({"recall_budget_fixed_low": True}, "recall_budget_fixed_low"),
        ({"recall_budget_adaptive_low": -1.0}, "recall_budget_adaptive_low"),
        ({"recall_budget_min": 300, "recall_budget_max": 200}, "recall_budget_min"),
        ({"disposition_empathy": 6}, "disposition_empathy"),
        ({"retain_extraction_mode": "loud"}, "retain_extraction_mode"),
        ({"llm_api_key": "secret"}, "llm_api_key"),
    ):
        with pytest.raises(InvalidInput) as caught:
            await banks.patch_config(pool, "default", bank, updates, *deployment)
        assert caught.value.field == field
    assert (await banks.config(pool, "default", bank, *deployment))["overrides"] == {
        "recall_budget_fixed_low": 50
    }
    assert (await banks.reset_config(pool, "default", bank, *deployment))["overrides"] == {}
