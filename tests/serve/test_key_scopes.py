"""What a key may do, route by route; who tries wrong keys; how soon a revoked one ends."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute

from retrieval.errors import RateLimited
from retrieval.store import limits, tenants
from retrieval.store.database.pool import Pool
from serve import app, composition
from serve.admission.wrong_keys import WrongKeys
from serve.composition import Stages
from serve.http import routes, routing, scopes
from tests.serve.conftest import B, migrated, settings_for

LIVE = pytest.mark.asyncio(loop_scope="session")

EVERY = sorted(
    (method, route.path)
    for router in routes.ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in route.methods or ()
    if "{bank_id}" in route.path and routing.takes_tenant(route.dependant)
)


class Keyed:
    """An application that needs keys; `ask` asks as the client of a new address each time."""

    def __init__(self, api: Any, pool: Pool, services: Any) -> None:
        self.api, self.pool, self.services = api, pool, services

    def client(self, key: str, address: str = "192.0.2.1") -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.api, client=(address, 1))
        headers = {"authorization": f"Bearer {key}"}
        return httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def keyed(dsn: str) -> AsyncIterator[Keyed]:
    own = {"require_api_key": True, "wrong_keys_per_s": 0.5}
    settings = settings_for(dsn, worker={"worker_enabled": False}, limits=own)
    async with AsyncExitStack() as stack:
        await migrated(settings, stack)
        services = await composition.open_services(settings, Stages(), stack)
        yield Keyed(app.create(settings, services), services.pool, services)


def filled(path: str) -> str:
    one = "00000000-0000-4000-8000-000000000000"
    parts = [one if "{" in part else part for part in path.replace("{bank_id}", "own").split("/")]
    return "/".join(parts)


@pytest.mark.unit
def test_every_route_needs_one_scope_and_changes_never_read_alone() -> None:
    needs = {one: scopes.needed({one[0]}, one[1]) for one in EVERY}
    assert set(needs.values()) == {"read", "write", "admin"}
    for (method, path), scope in needs.items():
        if method in ("PUT", "PATCH", "DELETE"):
            assert scope in ("write", "admin"), path
        if method == "GET":
            assert scope == "read"
    assert needs["DELETE", f"{B}/{{bank_id}}"] == "admin"
    assert needs["PATCH", f"{B}/{{bank_id}}/config"] == "admin"
    assert needs["POST", f"{B}/{{bank_id}}/memories"] == "write"
    assert needs["POST", f"{B}/{{bank_id}}/memories/recall"] == "read"
    assert scopes.needed({"POST"}, f"/base{B}/{{bank_id}}/memories/recall") == "read"


@LIVE
@pytest.mark.integration
@pytest.mark.parametrize("scope", ["read", "write", "admin", "operator"])
async def test_scopes_by_routes(keyed: Keyed, scope: str) -> None:
    """403 on exactly those routes that need another scope, whatever else is wrong."""
    key = await tenants.create_key(keyed.pool, "scoped", scopes=(scope,))
    async with keyed.client(key) as http:
        found = {
            (method, path): (await http.request(method, filled(path))).status_code
            for method, path in EVERY
        }
        assert (await http.get(B)).status_code == (200 if scope == "read" else 403)
        answer = await http.get("/metrics")
        assert answer.status_code == (200 if scope == "operator" else 403)
    assert len(found) > 50
    wanted = {one for one in found if scopes.needed({one[0]}, one[1]) != scope}
    assert {one for one, status in found.items() if status == 403} == wanted


@LIVE
@pytest.mark.integration
async def test_a_key_that_reads_changes_nothing_and_says_why(keyed: Keyed) -> None:
    both = await tenants.create_key(keyed.pool, "reading")
    only = await tenants.create_key(keyed.pool, "reading", scopes=("read",))
    item = {"items": [{"content": "Ann keeps the lamp."}]}
    async with keyed.client(both) as writer, keyed.client(only) as reader:
        assert (await writer.post(f"{B}/shelf/memories", json=item)).status_code == 200
        refused = await reader.post(f"{B}/shelf/memories", json=item)
        assert refused.status_code == 403
        assert "needs the scope 'write', and has read" in refused.json()["detail"]
        found = await reader.post(f"{B}/shelf/memories/recall", json={"query": "lamp"})
        assert len(found.json()["results"]) == 1
        # A tool does what its route does, no more.
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "retain", "arguments": {"content": "Bo rows.", "bank_id": "shelf"}},
        }
        head = {"accept": "application/json, text/event-stream"}
        told = (await reader.post("/mcp", json=call, headers=head)).text
        assert "needs the scope" in told
        listed = await reader.get(f"{B}/shelf/memories/list")
        assert listed.json()["total"] == 1


@LIVE
@pytest.mark.integration
async def test_metrics_are_an_operators(keyed: Keyed) -> None:
    async with keyed.client("ff_wrong", "192.0.2.7") as http:
        assert (await http.get("/metrics")).status_code == 401


@LIVE
@pytest.mark.integration
async def test_one_who_guesses_keys_is_stopped_and_others_are_not(keyed: Keyed) -> None:
    known = await tenants.create_key(keyed.pool, "known")
    later = await tenants.create_key(keyed.pool, "later")
    async with keyed.client(known, "198.51.100.1") as http:
        assert (await http.get(B)).status_code == 200

    async def guess(number: int) -> int:
        async with keyed.client(f"ff_guess{number}", "198.51.100.1") as http:
            return (await http.get(B)).status_code

    found = [await guess(i) for i in range(130)]
    assert found[:100] == [401] * 100
    assert set(found[110:]) == {429}
    tenants._known[keyed.pool].wrong.clear()
    async with keyed.client(known, "198.51.100.1") as http:
        assert (await http.get(B)).status_code == 200, "a good one of the same address"
    async with keyed.client(later, "198.51.100.2") as http:
        assert (await http.get(B)).status_code == 200, "and of another"


@LIVE
@pytest.mark.integration
async def test_behind_our_proxy_the_address_is_the_clients(keyed: Keyed) -> None:
    """What a client writes into the header itself stands before the proxy's word."""

    async def guess(number: int, said: str) -> int:
        headers = {"x-forwarded-for": said}
        async with keyed.client(f"ff_proxied{number}", "127.0.0.1") as http:
            return (await http.get(B, headers=headers)).status_code

    found = [await guess(i, f"10.0.0.{i}, 203.0.113.5") for i in range(120)]
    assert found[-1] == 429
    assert await guess(500, "203.0.113.5, 203.0.113.6") == 401


@pytest.mark.unit
def test_a_bucket_fills_again_and_forgets() -> None:
    now = 0.0
    bucket = WrongKeys(1.0, burst=2, clock=lambda: now)
    for _ in range(2):
        bucket.check("a")
        bucket.wrong("a")
    with pytest.raises(RateLimited) as told:
        bucket.check("a")
    assert told.value.retry_after_s == 1.0
    bucket.check("b")
    now = 1.0
    bucket.check("a")
    now = 100.0
    for i in range(10_100):
        bucket.wrong(str(i))
    assert len(bucket._spent) <= 10_000


@LIVE
@pytest.mark.integration
async def test_a_tenants_reads_have_limits_of_their_own(keyed: Keyed) -> None:
    key = await tenants.create_key(keyed.pool, "lister")
    await limits.change(keyed.pool, "lister", {"reads_per_s": 0.001, "read_burst": 12})
    async with keyed.client(key) as http:
        found = [(await http.get(f"{B}/none/memories/list")).status_code for _ in range(14)]
        # Other servers on this database, if tests have any open, have their shares of the burst.
        assert found == sorted(found)
        assert (found[0], found[-1]) == (404, 429)
        asked = await http.post(f"{B}/none/memories/recall", json={"query": "x"})
        assert asked.status_code == 404, "recalls have theirs"


@LIVE
@pytest.mark.integration
async def test_a_revoked_key_ends_within_seconds_where_it_was_seen(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a process that did not revoke it: when what that one remembers is over."""
    key = await tenants.create_key(keyed.pool, "gone")
    assert tenants.CACHE_S <= 5
    async with keyed.client(key) as http:
        assert (await http.get(B)).status_code == 200
        await keyed.pool.execute("update api_keys set revoked_at = now() where tenant_id = 'gone'")
        assert (await http.get(B)).status_code == 200
        monkeypatch.setattr(tenants, "CACHE_S", 0.0)
        tenants._known[keyed.pool].good.clear()
        assert (await http.get(B)).status_code == 401


@LIVE
@pytest.mark.integration
async def test_errors_tell_nothing_of_the_server(keyed: Keyed, dsn: str) -> None:
    """No DSN, no stack, no SQL in what a broken server says."""
    key = await tenants.create_key(keyed.pool, "curious")

    class Broken:
        async def recall(self, *_: object) -> None:
            raise RuntimeError(f"cannot connect to {dsn} at File '/srv/x.py', line 7: select 1")

    broken = dataclasses.replace(keyed.services, recaller=Broken())
    api = app.create(keyed.services.settings, broken)
    transport = httpx.ASGITransport(api, raise_app_exceptions=False, client=("192.0.2.9", 1))
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://test", headers=headers
    ) as http:
        answer = await http.post(f"{B}/b/memories/recall", json={"query": "x"})
    assert answer.status_code == 500
    for part in (dsn, "select", "File", "Traceback", "line 7"):
        assert part not in answer.text
    await asyncio.sleep(0)
