"""The application beside `live` that serves the fused order, which `live` does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import httpx
import pytest_asyncio

from models.passthrough import Passthrough
from retrieval.recall.engine import RecallEngine
from retrieval.recall.explaining import Explainer
from serve import app
from tests.serve.conftest import Live


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fused(live: Live) -> AsyncIterator[Live]:
    """`live` with no reranker at all: its own engine, the same bank."""
    services = live.services
    assert services.explainer is not None
    retriever = services.explainer.retriever
    engine = RecallEngine(services.pool, retriever, Passthrough("fused"), services.settings.recall)
    own = replace(services, recaller=engine, explainer=Explainer(services.pool, retriever, engine))
    api = app.create(services.settings, own)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            httpx.AsyncClient(
                transport=httpx.ASGITransport(api), base_url="http://test", timeout=60
            )
        )
        yield Live(own, http, api)
