"""Shared by the tests of serve/: the application over real parts in this process, without Ray."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

with warnings.catch_warnings():  # these modules warn while they are imported
    warnings.simplefilter("ignore")
    import bpe_openai  # noqa: F401
    import ray.serve
    import ray.serve.schema

from retrieval.store.database.embedded import EmbeddedPostgres
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Pool, open_pool, read
from serve import app, composition
from serve.composition import Stages
from serve.http.services import Services
from serve.local import sample
from serve.opening.database import pool_settings
from serve.settings import Settings, parse

__all__ = ["ray"]

B = "/v1/default/banks"


@pytest.fixture(scope="session")
def dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as postgres:
        yield postgres.dsn


def settings_for(dsn: str, **sections: dict[str, Any]) -> Settings:
    tree: dict[str, dict[str, Any]] = {
        "database": {"database_url": dsn, "db_pool_min_size": 1, "db_pool_max_size": 10},
        "rerankers": {"members": [{"provider": "rrf"}]},
        **sections,
        "server": {"allowed_hosts": ["test"], **sections.get("server", {})},
        "limits": {"refusals_per_s": 0, **sections.get("limits", {})},
    }
    return parse(tree, {})


async def migrated(settings: Settings, stack: AsyncExitStack) -> Pool:
    """The database of the settings, at the newest schema; closed with the stack."""
    pool = await open_pool(pool_settings(settings))
    stack.push_async_callback(pool.finish)
    await migrate(pool)
    return pool


class Live:
    """The application over real parts, and a client of it."""

    def __init__(self, services: Services, http: httpx.AsyncClient, api: Any) -> None:
        self.services, self.http, self.api = services, http, api

    async def import_memories(self, bank: str, *memories: dict[str, Any]) -> dict[str, Any]:
        answer = await self.http.post(f"{B}/{bank}/memories/import", json={"memories": memories})
        assert answer.status_code == 200, answer.text
        done: dict[str, Any] = answer.json()
        return done

    async def recall(self, bank: str, query: str, **body: Any) -> dict[str, Any]:
        answer = await self.http.post(f"{B}/{bank}/memories/recall", json={"query": query, **body})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def live(dsn: str) -> AsyncIterator[Live]:
    settings = settings_for(dsn)
    async with AsyncExitStack() as stack:
        await migrated(settings, stack)
        services = await composition.open_services(settings, Stages(), stack)
        api = app.create(settings, services)
        transport = httpx.ASGITransport(api, raise_app_exceptions=True)
        http = await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)
        )
        found = Live(services, http, api)
        await found.import_memories(sample.BANK, *sample.memories())
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def open_address(live: Live) -> AsyncIterator[Any]:
    """The application on a real socket, for clients of the Model Context Protocol."""
    from tests.serve.mcp_server import serving

    async with serving(live.services) as found:
        yield found


async def state(live: Live) -> list[Any]:
    """What every bank holds, once queued operations are done: an accepted one changes it later.
    Not the banks' versions: upkeep raises those."""

    async def busy(connection: Any) -> bool:
        waiting: bool = await connection.fetchval(
            "select exists (select from operations where status in ('pending', 'processing')"
            " and type not in ('consolidation', 'refresh_mental_model'))"  # nobody here does these
        )
        return waiting

    async with asyncio.timeout(30):
        while await read(live.services.pool, busy):  # noqa: ASYNC110 - another process's work
            await asyncio.sleep(0.05)

    async def look(connection: Any) -> list[Any]:
        found = await connection.fetchrow(
            "select (select array[count(*)::text, max(updated_at)::text] from memory_units),"
            " (select array[count(*)::text, max(updated_at)::text] from documents),"
            " (select count(*) from operations), (select count(*) from tags)"
        )
        rows = await connection.fetch(
            "select bank_id, name, mission, config::text, disposition::text from banks"
            " order by bank"
        )
        return [*found, *(tuple(row) for row in rows)]

    return await read(live.services.pool, look)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share the application run on its loop."""
    here = Path(__file__).parent
    for item in items:
        uses_live = "live" in getattr(item, "fixturenames", ())
        if here in item.path.parents and uses_live:
            function = getattr(item, "function", None)
            if asyncio.iscoroutinefunction(function):
                item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
