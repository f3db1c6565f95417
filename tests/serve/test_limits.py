"""Keys, per-tenant limits and saturation, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from retrieval.recall.engine import RecallResult
from retrieval.store import limits, tenants
from retrieval.types import RecallQuery
from serve import app
from serve.admission.controller import AdmissionController, AdmissionLimits
from serve.http.services import Services
from serve.opening import admission
from tests.serve.conftest import B, Live, settings_for

pytestmark = pytest.mark.integration
RECALL = f"{B}/any/memories/recall"


class Held:
    """A recaller that answers when it is told to."""

    def __init__(self) -> None:
        self.go, self.arrived = asyncio.Event(), asyncio.Event()
        self.asked: list[str] = []

    async def recall(self, query: RecallQuery) -> RecallResult:
        self.asked.append(query.tenant)
        self.arrived.set()
        await self.go.wait()
        return RecallResult({"results": []})


@asynccontextmanager
async def served(
    live: Live,
    recaller: Any,
    controller: AdmissionController,
    writes: AdmissionController | None = None,
    **limits: Any,
) -> AsyncIterator[httpx.AsyncClient]:
    dsn = live.services.settings.database.database_url
    assert dsn is not None
    settings = settings_for(dsn.get_secret_value(), limits=limits)
    services = Services(
        settings,
        live.services.pool,
        recaller,
        live.services.writer,
        live.services.reflector,
        controller,
        writes or AdmissionController(4, 4),
        explainer=live.services.explainer,
    )
    async with AsyncExitStack() as stack:
        transport = httpx.ASGITransport(app.create(settings, services))
        yield await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://test")
        )


async def ask(http: httpx.AsyncClient, key: str | None = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return await http.post(RECALL, json={"query": "x"}, headers=headers)


async def test_keys(live: Live) -> None:
    pool = live.services.pool
    key = await tenants.create_key(pool, "keyed", "test")
    recaller = Held()
    recaller.go.set()
    async with served(live, recaller, AdmissionController(4, 4), require_api_key=True) as http:
        for wrong in (None, "ff_wrong"):
            refused = await ask(http, wrong)
            assert refused.status_code == 401
            assert refused.json()["detail"]
        assert (await ask(http, key)).status_code == 200
        bare = await http.post(RECALL, json={"query": "x"}, headers={"Authorization": key})
        assert bare.status_code == 200
        assert recaller.asked == ["keyed", "keyed"]
        assert (await http.get("/health")).status_code == 200
        await tenants.revoke_key(pool, key)
        assert (await ask(http, key)).status_code == 401


async def test_a_tenant_does_not_see_anothers_bank(live: Live) -> None:
    key = await tenants.create_key(live.services.pool, "stranger", "test")
    async with served(
        live, live.services.recaller, AdmissionController(4, 4), require_api_key=True
    ) as http:
        headers = {"Authorization": f"Bearer {key}"}
        for path in ("memories/list", "profile", "stats", "documents"):
            answer = await http.get(f"{B}/sample/{path}", headers=headers)
            assert answer.status_code == 404
        answer = await http.post(
            f"{B}/sample/memories/recall", json={"query": "flood"}, headers=headers
        )
        assert answer.status_code == 404
        assert (await http.get(B, headers=headers)).json()["banks"] == []


async def test_a_full_line_is_503_and_a_tenants_limit_429(live: Live) -> None:
    recaller, controller = Held(), AdmissionController(1, 1)
    async with served(live, recaller, controller) as http:
        waiting = [asyncio.create_task(ask(http)) for _ in range(2)]
        while not (controller.running and controller.waiting):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        refused = await ask(http)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        recaller.go.set()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}

    recaller = Held()
    async with served(
        live, recaller, AdmissionController(4, 4, limits=AdmissionLimits(at_once=1))
    ) as http:
        first = asyncio.create_task(ask(http))
        await recaller.arrived.wait()
        refused = await ask(http)
        assert refused.status_code == 429
        assert "retry-after" in refused.headers
        recaller.go.set()
        assert (await first).status_code == 200


async def test_a_tenants_own_limits_are_in_the_database(live: Live) -> None:
    """Set while it serves, by the command line's calls; another tenant feels nothing of it."""
    pool, settings = live.services.pool, live.services.settings
    key = await tenants.create_key(pool, "bounded", "test")
    other = await tenants.create_key(pool, "unbounded", "test")
    recaller = Held()
    recaller.go.set()
    controller = admission.recall_admission(settings, pool)
    async with served(
        live,
        recaller,
        controller,
        admission.write_admission(settings, pool),
        require_api_key=True,
    ) as http:
        assert (await ask(http, key)).status_code == 200
        own = {"recalls_per_s": 0.001, "recall_burst": 2, "max_items": 1, "max_body_bytes": 300}
        own |= {"writes_per_s": 0.01, "write_burst": 1}
        await limits.change(pool, "bounded", own)
        statuses = [(await ask(http, key)).status_code for _ in range(4)]
        assert statuses == [200, 200, 429, 429]
        refused = await ask(http, key)
        assert int(refused.headers["retry-after"]) > 500
        assert "0.001 requests a second" in refused.json()["detail"]
        assert {(await ask(http, other)).status_code for _ in range(4)} == {200}

        headers = {"Authorization": f"Bearer {key}"}

        async def keep(*texts: str) -> httpx.Response:
            memories = [{"key": text, "text": text} for text in texts]
            return await http.post(
                f"{B}/b/memories/import", json={"memories": memories}, headers=headers
            )

        many = await keep("one", "two")
        assert (many.status_code, "at most 1" in many.json()["detail"]) == (413, True)
        large = await keep("x" * 300)
        assert (large.status_code, "300 bytes" in large.json()["detail"]) == (413, True)
        assert (await http.get(f"{B}/b/stats", headers=headers)).status_code == 404
        assert (await keep("one")).status_code == 200
        assert (await keep("two")).status_code == 429
        assert (await http.get(f"{B}/b/stats", headers=headers)).json()["total_nodes"] == 1

        await limits.change(pool, "bounded", dict.fromkeys(own))
        assert {(await ask(http, key)).status_code for _ in range(4)} == {200}
    assert controller.running == 0


async def test_a_client_that_goes_away_gives_its_place_back(live: Live) -> None:
    recaller = Held()
    controller = AdmissionController(1, 1)
    async with served(live, recaller, controller) as http:
        task = asyncio.create_task(ask(http))
        await recaller.arrived.wait()
        assert controller.running == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert controller.running == 0
