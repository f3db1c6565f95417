"""A request whose time is over, part by part: 504 says where, and what was finished."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from models.types import Unavailable
from retrieval.recall.engine import RecallEngine
from serve import app
from serve.http.services import Services
from serve.local import sample
from tests.serve.conftest import B, Live

pytestmark = pytest.mark.integration
URL = f"{B}/{sample.BANK}/memories/recall"


class Slow:
    """Stands for an embedder or a reranker; takes its time, or fails."""

    reads_text = True

    def __init__(self, real: Any, error: Exception | None = None) -> None:
        self._real, self._error = real, error
        self.cancelled = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def embed_queries(self, texts: Sequence[str], **_: Any) -> Any:
        await self._wait()

    async def rerank(self, query: str, documents: Sequence[str], **_: Any) -> Any:
        await self._wait()


def engine(live: Live) -> Any:
    return live.services.recaller


def with_embedder(live: Live, embedder: Slow) -> RecallEngine:
    """The application's own engine, but for its embedder."""
    whole, own = engine(live), engine(live)._retriever
    retriever = type(own)(
        own._pool, own._residency, embedder, own._settings, own._executor, own._analysers
    )
    return RecallEngine(whole._pool, retriever, whole._reranker, whole._settings)


def with_reranker(live: Live, reranker: Slow) -> RecallEngine:
    whole = engine(live)
    return RecallEngine(whole._pool, whole._retriever, reranker, whole._settings)


async def ask(live: Live, recaller: Any, seconds: float = 60) -> httpx.Response:
    services: Services = replace(live.services, recaller=recaller)
    transport = httpx.ASGITransport(app.create(services.settings, services))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        headers = {"x-request-timeout-s": str(seconds)}
        return await http.post(URL, json={"query": "the flood"}, headers=headers)


async def test_a_slow_embedder(live: Live) -> None:
    slow = Slow(engine(live)._retriever._embedder)
    answer = await ask(live, with_embedder(live, slow), 0.5)
    said = answer.json()
    assert answer.status_code == 504
    assert said["stage"] == "generate_query_embedding"
    assert 0 < said["finished"]["backend_acquisition"] < 0.5
    assert "during generate_query_embedding; finished before: backend_acq" in said["detail"]
    assert slow.cancelled.is_set()


async def test_the_setting_bounds_what_a_request_asks_for(live: Live) -> None:
    slow = Slow(engine(live)._retriever._embedder)
    recall = replace(live.services.settings.recall, recall_timeout_s=0.3)
    settings = live.services.settings.model_copy(update={"recall": recall})
    services = replace(live.services, recaller=with_embedder(live, slow), settings=settings)
    transport = httpx.ASGITransport(app.create(settings, services))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
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
    slow = Slow(engine(live)._reranker)
    answer = await ask(live, with_reranker(live, slow), 0.5)
    assert (answer.status_code, answer.json()["degraded"]) == (200, ["rerank"])
    assert slow.cancelled.is_set()


async def test_a_client_that_goes_away_stops_the_work(live: Live) -> None:
    slow = Slow(engine(live)._retriever._embedder)
    task = asyncio.create_task(ask(live, with_embedder(live, slow)))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(1):
        await slow.cancelled.wait()


@pytest.mark.parametrize("part", ["embedder", "reranker"])
async def test_an_expected_failure_is_one_quiet_line(
    live: Live, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    gone = Slow(engine(live)._retriever._embedder, Unavailable("the model", "its server is gone"))
    make = {"embedder": with_embedder, "reranker": with_reranker}[part]
    caplog.set_level(logging.INFO)
    answer = await ask(live, make(live, gone))
    assert answer.status_code == 200
    assert {"embedder": "semantic", "reranker": "rerank"}[part] in answer.json()["degraded"]
    (record,) = [r for r in caplog.records if "its server is gone" in r.getMessage()]
    assert (record.levelname, record.exc_info) == ("WARNING", None)
