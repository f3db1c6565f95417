"""An application of its own for hostile requests: real parts, nothing in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from serve import app, composition
from serve.composition import Stages
from serve.local import sample
from tests.serve.conftest import Live, dsn, migrated, settings_for

__all__ = ["dsn"]

BANK = "hostile"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def hostile(dsn: str) -> AsyncIterator[Live]:
    settings = settings_for(dsn, worker={"worker_enabled": False})
    async with AsyncExitStack() as stack:
        await migrated(settings, stack)
        services = await composition.open_services(settings, Stages(), stack)
        api = app.create(settings, services)
        transport = httpx.ASGITransport(api, raise_app_exceptions=True)
        http = await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://test", timeout=120)
        )
        found = Live(services, http, api)
        await found.import_memories(BANK, *({**m, "links": []} for m in sample.memories()[:60]))
        await found.recall(BANK, "who keeps the harbour log")
        yield found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share the application run on its loop."""
    here = Path(__file__).parent
    for item in items:
        shares = "hostile" in getattr(item, "fixturenames", ())
        ours = here in item.path.parents and shares
        if ours and asyncio.iscoroutinefunction(getattr(item, "function", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
