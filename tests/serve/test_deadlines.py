"""A request whose time is over, part by part: 504 says where, and what was finished."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from retrieval.errors import Unavailable
from retrieval.protocols import RerankRequest
from serve import app, composition
from serve.composition import Stages
from serve.local import sample
from serve.settings import Settings
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration
URL = f"{B}/{sample.BANK}/memories/recall"


class Slow:
    """Stands for an embedder (of the vectors that are stored) or a reranker; takes its time, or
    fails."""

    name, reads_text, dimension = "slow", True, 384

    def __init__(self, live: Live, error: Exception | None = None) -> None:
        self.model_id, self._error = live.services.models["embedder"], error
        self.asked, self.cancelled = asyncio.Event(), asyncio.Event()

    async def _wait(self) -> None:
        self.asked.set()
        if self._error is not None:
            raise self._error
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def embed_queries(self, texts: Sequence[str], **_: Any) -> Any:
        await self._wait()

    async def embed_passages(self, texts: Sequence[str], **_: Any) -> Any:
        await self._wait()

    async def rerank(self, request: RerankRequest) -> Any:
        await self._wait()


@asynccontextmanager
async def client(settings: Settings, **stages: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application with these stages in the place of its own."""
    async with AsyncExitStack() as stack:
        services = await composition.open_services(settings, Stages(**stages), stack)
        transport = httpx.ASGITransport(app.create(settings, services))
        yield await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://test")
        )


async def ask(live: Live, seconds: float = 60.0, **stages: Any) -> httpx.Response:
    async with client(live.services.settings, **stages) as http:
        headers = {"x-request-timeout-s": str(seconds)}
        return await http.post(URL, json={"query": "the flood"}, headers=headers)


async def test_a_slow_embedder(live: Live) -> None:
    slow = Slow(live)
    answer = await ask(live, 1.5, embedder=slow)
    said = answer.json()
    assert answer.status_code == 504
    assert said["stage"] == "generate_query_embedding"
    assert 0 < said["finished"]["backend_acquisition"] < 1.5
    assert "during generate_query_embedding; finished before: backend_acq" in said["detail"]
    assert slow.cancelled.is_set()


async def test_the_setting_bounds_what_a_request_asks_for(live: Live) -> None:
    slow = Slow(live)
    recall = replace(live.services.settings.recall, recall_timeout_s=0.3)
    settings = live.services.settings.model_copy(update={"recall": recall})
    async with client(settings, embedder=slow) as http:
        for headers in ({}, {"x-request-timeout-s": "1000"}):
            async with asyncio.timeout(5):
                answer = await http.post(URL, json={"query": "the flood"}, headers=headers)
            assert answer.status_code == 504
        for wrong in ("0", "-1", "nan", "inf", "soon"):
            answer = await http.post(
                URL, json={"query": "the flood"}, headers={"x-request-timeout-s": wrong}
            )
            assert answer.status_code == 422, wrong
            assert "x-request-timeout-s" in answer.text.lower()


async def test_a_slow_reranker_that_ignores_its_deadline(live: Live) -> None:
    slow = Slow(live)
    answer = await ask(live, 0.5, reranker=slow)
    assert (answer.status_code, answer.json()["degraded"]) == (200, ["rerank"])
    assert slow.cancelled.is_set()


async def test_a_client_that_goes_away_stops_the_work(live: Live) -> None:
    slow = Slow(live)
    async with client(live.services.settings, embedder=slow) as http:
        task = asyncio.create_task(http.post(URL, json={"query": "the flood"}))
        async with asyncio.timeout(30):
            await slow.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(1):
            await slow.cancelled.wait()


@pytest.mark.parametrize("part", ["embedder", "reranker"])
async def test_an_expected_failure_is_one_quiet_line(
    live: Live, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    gone = Slow(live, Unavailable("the model", "its server is gone"))
    caplog.set_level(logging.INFO)
    answer = await ask(live, 60.0, **{part: gone})
    assert answer.status_code == 200
    assert {"embedder": "semantic", "reranker": "rerank"}[part] in answer.json()["degraded"]
    (record,) = [r for r in caplog.records if "its server is gone" in r.getMessage()]
    assert (record.levelname, record.exc_info) == ("WARNING", None)
