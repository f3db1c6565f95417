"""Who may see and change what in the inspector: scopes of keys, the operator's routes, and what a
tenant's activity says of refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from retrieval.store import tenants
from serve import app
from serve.admission.controller import AdmissionController, AdmissionLimits
from serve.http.activity import Activity
from serve.local import sample
from tests.serve.conftest import B, Live
from tests.serve.mcp_server import with_keys

pytestmark = pytest.mark.integration

ADMIN = ("/v1/admin/tenants", "/v1/admin/keys")


@asynccontextmanager
async def keyed(live: Live, operator: str | None = None, **parts: Any) -> AsyncIterator[Any]:
    """A way to ask, with a key, the application that requires keys."""
    settings = with_keys(live.services.settings)
    secret = None if operator is None else SecretStr(operator)
    server = settings.server.model_copy(update={"operator_api_key": secret})
    settings = settings.model_copy(update={"server": server})
    api = app.create(settings, replace(live.services, settings=settings, **parts))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(api), base_url="http://test", timeout=60
    ) as http:

        async def ask(method: str, path: str, key: str = "", **more: Any) -> httpx.Response:
            headers = {"authorization": f"Bearer {key}"} if key else {}
            return await http.request(method, path, headers=headers, **more)

        yield ask


async def test_whoami_tells_the_scopes_that_the_key_has(live: Live) -> None:
    pool = live.services.pool
    async with keyed(live, operator="own") as ask:
        for scopes in (("read",), ("read", "write"), ("operator",), tenants.SCOPES):
            key = await tenants.create_key(pool, "standing", scopes=scopes)
            found = (await ask("GET", "/v1/default/whoami", key)).json()
            assert found["scopes"] == list(scopes)
            assert (found["tenant"], found["key_id"]) == ("standing", tenants.key_id(key))
        found = (await ask("GET", "/v1/default/whoami", "own")).json()
        assert (found["tenant"], found["key_id"], found["scopes"]) == (None, None, ["operator"])
        for key in ("", "ff_wrong"):
            assert (await ask("GET", "/v1/default/whoami", key)).status_code == 401
    found = (await live.http.get("/v1/default/whoami")).json()
    assert found["scopes"] == list(tenants.SCOPES)


async def test_a_key_that_reads_may_have_a_recall_explained(live: Live) -> None:
    key = await tenants.create_key(live.services.pool, "default", scopes=("read",))
    body = {"query": sample.QUESTION, "check": True}
    async with keyed(live) as ask:
        answer = await ask("POST", f"{B}/{sample.BANK}/memories/recall/explain", key, json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["ranked"]


async def test_the_scope_operator_opens_the_routes_of_the_operator(live: Live) -> None:
    pool = live.services.pool
    may = await tenants.create_key(pool, "runs it", scopes=("operator",))
    may_not = await tenants.create_key(pool, "uses it")
    async with keyed(live) as ask:
        for path in ADMIN:
            assert (await ask("GET", path, may)).status_code == 200
            for key in (may_not, "ff_wrong", ""):
                assert (await ask("GET", path, key)).status_code == 404
        body = {"tenant": "new one", "label": "theirs", "scopes": ["read"], "days": 3}
        assert (await ask("POST", ADMIN[1], may_not, json=body)).status_code == 404
        made = (await ask("POST", ADMIN[1], may, json=body)).json()
        (own,) = [
            one for one in (await ask("GET", ADMIN[1], may)).json()
            if one["key_id"] == made["key_id"]
        ]  # fmt: skip
        assert (own["tenant"], own["label"], own["scopes"]) == ("new one", "theirs", ["read"])
        assert own["expires_at"] is not None
        assert made["key"] not in str(own)
        found = (await ask("GET", "/v1/default/whoami", made["key"])).json()
        assert found["scopes"] == ["read"]
        wrong: tuple[dict[str, Any], ...] = ({"scopes": ["all"]}, {"scopes": []}, {"days": 0})
        for bad in wrong:
            answer = await ask("POST", ADMIN[1], may, json={**body, **bad})
            assert answer.status_code in (400, 422)
            assert next(iter(bad)) in answer.text
        assert (await ask("DELETE", f"{ADMIN[1]}/{made['key_id']}", may)).status_code == 200
        assert (await ask("GET", "/v1/default/whoami", made["key"])).status_code == 401


async def test_refusals_at_the_door_are_counted_by_tenant(live: Live) -> None:
    pool = live.services.pool
    hers = await tenants.create_key(pool, "hasty")
    his = await tenants.create_key(pool, "calm")
    await tenants.create_key(pool, "hasty", scopes=("read",))
    few = AdmissionController(8, 8, limits=AdmissionLimits(per_s=0.001, burst=1))
    async with keyed(live, recall_admission=few, activity=Activity()) as ask:
        for key in (hers, his):
            assert (await ask("PUT", f"{B}/doors", key, json={})).status_code == 200
        path, body = f"{B}/doors/memories/recall", {"query": "lamp"}
        answers = [await ask("POST", path, hers, json=body) for _ in range(3)]
        answers.append(await ask("POST", f"{path}/explain", hers, json=body))
        assert [one.status_code for one in answers] == [200, 429, 429, 429]
        found = (await ask("GET", "/v1/default/activity", hers)).json()
        assert (found["recalls"], found["refused"]) == (1, 3)
        found = (await ask("GET", "/v1/default/activity", his)).json()
        assert (found["recalls"], found["refused"]) == (0, 0)
    full = AdmissionController(1, 0, kept=0)
    async with keyed(live, recall_admission=full, activity=Activity()) as ask, full.enter("hasty"):
        answer = await asyncio.wait_for(ask("POST", path, hers, json=body), 30)
        assert answer.status_code == 503
        found = (await ask("GET", "/v1/default/activity", hers)).json()
        assert (found["recalls"], found["refused"]) == (0, 1)
