"""API keys: what is stored of them, how they are found, how they end."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from retrieval.errors import InvalidInput, NotFound
from retrieval.store import tenants
from retrieval.store.database.pool import Pool
from retrieval.store.tenants import Access

pytestmark = pytest.mark.integration


def some() -> str:
    return f"tenant-{uuid4().hex[:8]}"


def forget(pool: Pool) -> None:
    """As another process, which has not seen the key."""
    tenants._known.pop(pool, None)


async def test_a_key_has_a_public_part_and_a_secret_that_is_not_stored(pool: Pool) -> None:
    tenant = some()
    key = await tenants.create_key(pool, tenant, "laptop")
    match = re.fullmatch(r"ff_([a-z0-9]{8})_([A-Za-z0-9_-]{43})", key)
    assert match is not None
    row = await pool.fetchrow("select * from api_keys where tenant_id = $1", tenant)
    assert row["public_id"] == match[1]
    assert match[2] not in repr(dict(row))
    assert await tenants.access(pool, key) == Access(tenant, frozenset({"read", "write", "admin"}))
    (shown,) = await tenants.list_keys(pool, tenant)
    assert (shown.key_id, shown.label) == (match[1], "laptop")


async def test_the_right_public_part_with_another_secret_gives_nothing(pool: Pool) -> None:
    key = await tenants.create_key(pool, some())
    other = await tenants.create_key(pool, some())
    assert await tenants.access(pool, key[:12] + other[12:]) is None
    assert await tenants.access(pool, key[:-1] + ("A" if key[-1] != "A" else "B")) is None
    for wrong in (
        "ff_",
        "ff__",
        key[:12],
        key + "x",
        key.upper(),
        f" {key}",
        "\ud800",
        "x" * 100_000,
    ):
        assert await tenants.access(pool, wrong) is None


async def test_hashes_are_compared_in_constant_time(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await tenants.create_key(pool, some())
    compared = []
    inner = hmac.compare_digest

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return inner(first, second)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert await tenants.access(pool, key[:12] + "z" * 43) is None
    assert await tenants.access(pool, key) is not None
    assert len(compared) == 2
    assert compared[1][0] == hashlib.sha256(key.encode()).digest()


async def test_a_key_of_an_earlier_version_goes_on(pool: Pool) -> None:
    tenant, key = some(), "ff_" + "b" * 43
    await pool.execute("insert into tenants (tenant_id) values ($1)", tenant)
    await pool.execute(
        "insert into api_keys (key_hash, tenant_id) values ($1, $2)",
        hashlib.sha256(key.encode()).digest(),
        tenant,
    )
    found = await tenants.access(pool, key)
    assert found == Access(tenant, frozenset({"read", "write", "admin"}))
    (shown,) = await tenants.list_keys(pool, tenant)
    await tenants.revoke_key(pool, shown.key_id)
    assert await tenants.access(pool, key) is None


async def test_two_keys_are_valid_while_one_takes_the_others_place(pool: Pool) -> None:
    tenant = some()
    old, new = [await tenants.create_key(pool, tenant) for _ in range(2)]
    of_tenant = Access(tenant, frozenset({"read", "write", "admin"}))
    assert await tenants.access(pool, old) == await tenants.access(pool, new) == of_tenant
    await tenants.revoke_key(pool, old[3:11])
    assert await tenants.access(pool, old) is None
    assert await tenants.access(pool, new) == of_tenant
    with pytest.raises(NotFound):
        await tenants.revoke_key(pool, "zzzzzzzz")


async def test_a_key_ends_to_the_moment(pool: Pool) -> None:
    ends = datetime.now(UTC) + timedelta(seconds=0.5)
    key = await tenants.create_key(pool, some(), expires_at=ends)
    assert await tenants.access(pool, key) is not None  # and kept for 5 s, were it not for its end
    async with asyncio.timeout(4):
        while await tenants.access(pool, key) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert datetime.now(UTC) >= ends


async def test_last_use_is_kept_now_and_then(pool: Pool) -> None:
    tenant = some()
    key = await tenants.create_key(pool, tenant)

    async def used() -> str | None:
        await asyncio.gather(*tenants._known[pool].noting)
        return (await tenants.list_keys(pool, tenant))[0].last_used_at

    await tenants.access(pool, key)
    first = await used()
    assert first is not None
    forget(pool)
    await tenants.access(pool, key)
    assert await used() == first, "not with every look"
    await pool.execute(
        "update api_keys set last_used_at = now() - interval '2 minutes' where tenant_id = $1",
        tenant,
    )
    forget(pool)
    await tenants.access(pool, key)
    assert (await used() or "") > first


async def test_wrong_keys_push_no_good_one_out(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "_CACHE_SIZE", 10)
    key = await tenants.create_key(pool, some())
    await tenants.access(pool, key)
    for i in range(50):
        assert await tenants.access(pool, f"ff_wrong{i}") is None
    asked = []

    async def look(*_: object) -> None:
        asked.append(1)

    monkeypatch.setattr(tenants, "read", look)
    assert await tenants.access(pool, key) is not None
    assert not asked, "it is known still"
    assert tenants.remembered(pool, key)
    assert not tenants.remembered(pool, "ff_wrong49")


@pytest.mark.parametrize("scopes", [(), ("root",), ("read", "root")])
async def test_only_scopes_that_there_are(pool: Pool, scopes: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput, match="scopes are one or more of read"):
        await tenants.create_key(pool, some(), scopes=scopes)


async def test_no_key_that_is_over_before_it_begins(pool: Pool) -> None:
    with pytest.raises(InvalidInput, match="in the future"):
        await tenants.create_key(pool, some(), expires_at=datetime.now(UTC))
