"""The TEI clients against a real HTTP server that keeps TEI's contract."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import numpy as np
import pytest

from models.remote import tei
from models.remote.tei import Permits, TeiEmbedder, TeiReranker
from models.settings import EmbedderSettings, RerankerSettings
from models.types import (
    BadOutput,
    DeadlineExceeded,
    Overloaded,
    RemoteError,
    RerankRequest,
    Unavailable,
    WrongModel,
)
from tests.models.tei_server import DIMENSION, Reply, TeiServer, Version, logit, sigmoid, vector

pytestmark = pytest.mark.integration

QUERY = "where is the red lamp"
DOCUMENTS = [f"note {i} the red lamp stands in room {i}" if i % 3 else f"{i}" for i in range(100)]


@asynccontextmanager
async def reranker(server: TeiServer, **settings: Any) -> AsyncIterator[TeiReranker]:
    client = TeiReranker(RerankerSettings(provider="tei", url=server.url, **settings))
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def embedder(server: TeiServer, **settings: Any) -> AsyncIterator[TeiEmbedder]:
    client = TeiEmbedder(EmbedderSettings(provider="tei", url=server.url, **settings))
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def expected(query: str = QUERY) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array([sigmoid(logit(query, d)) for d in DOCUMENTS], np.float32)


@pytest.mark.parametrize("version", ["1.8", "1.9"])
async def test_splits_to_the_servers_limit_and_restores_the_order(version: Version) -> None:
    with TeiServer(version=version, max_client_batch_size=32) as server:
        async with reranker(server) as client:
            answer = await client.rerank(RerankRequest(QUERY, DOCUMENTS))
        assert answer.scores is not None
        np.testing.assert_allclose(answer.scores, expected(), rtol=1e-6)
        assert (answer.member, answer.scale) == ("tei", "unknown")
        assert server.largest_batch == 32


async def test_raw_scores_are_logits() -> None:
    with TeiServer() as server:
        async with reranker(server, raw_scores=True) as client:
            answer = await client.rerank(RerankRequest(QUERY, DOCUMENTS[:5]))
        assert answer.scores is not None
        assert answer.scale == "logit"
        np.testing.assert_allclose(answer.scores, [logit(QUERY, d) for d in DOCUMENTS[:5]])


async def test_never_more_texts_in_flight_than_permits() -> None:
    with TeiServer(max_client_batch_size=16, max_concurrent_requests=40) as server:
        server.delay_s = 0.01
        async with reranker(server) as client:
            answers = await asyncio.gather(
                *(client.rerank(RerankRequest(QUERY, DOCUMENTS)) for _ in range(5))
            )
        assert all(a.scores is not None and len(a.scores) == 100 for a in answers)
        assert server.refused == 0
        assert server.most_texts <= 40


async def test_small_payloads_for_a_small_payload_limit() -> None:
    with TeiServer(max_client_batch_size=512) as server:
        async with reranker(server, batch_size=512) as client:
            long = ["word " * 5000 + str(i) for i in range(120)]
            answer = await client.rerank(RerankRequest("word", long))
        assert answer.scores is not None
        assert len(answer.scores) == 120
        assert 1 < len(server.requests) < 10


async def test_a_long_text_never_fails_a_batch() -> None:
    with TeiServer(version="1.8", auto_truncate=False) as server:
        async with reranker(server) as client:
            answer = await client.rerank(
                RerankRequest(QUERY, ["lamp " * 2000, "lone \ud800 surrogate"])
            )
        assert answer.scores is not None
        assert np.isfinite(answer.scores).all()


@pytest.mark.parametrize("status", [429, 503])
async def test_retries_what_may_pass(status: int) -> None:
    body = {"error": "Model is overloaded", "error_type": "Overloaded"}
    with TeiServer() as server:
        async with reranker(server) as client:
            server.scripted.extend([Reply(status, body), Reply(status, body)])
            answer = await client.rerank(RerankRequest(QUERY, DOCUMENTS[:3]))
        assert answer.scores is not None
        assert len(server.requests) == 3


async def test_waits_for_retry_after_and_gives_up_before_the_deadline() -> None:
    with TeiServer() as server:
        async with reranker(server) as client:
            server.scripted.append(Reply(429, {"error": "later"}, {"Retry-After": "0.4"}))
            start = time.monotonic()
            await client.rerank(RerankRequest(QUERY, DOCUMENTS[:3]))
            assert time.monotonic() - start >= 0.4
            server.scripted.append(Reply(429, {"error": "much later"}, {"Retry-After": "60"}))
            start = time.monotonic()
            with pytest.raises(Overloaded, match="much later") as caught:
                await client.rerank(RerankRequest(QUERY, DOCUMENTS[:3], deadline=start + 2))
            assert time.monotonic() - start < 1
            assert caught.value.retry_after_s == 60


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, "", "Unauthorized"),
        (413, "Failed to buffer the request body", "Failed to buffer"),
        (422, {"error": "batch size 99 > maximum", "error_type": "Validation"}, "maximum"),
        (424, {"error": "model is not a reranker", "error_type": "Backend"}, "not a reranker"),
        (500, {"message": "boom", "code": 500, "type": "x"}, "boom"),
    ],
)
async def test_other_statuses_are_final_and_keep_the_message(
    status: int, body: Any, words: str
) -> None:
    with TeiServer() as server:
        async with reranker(server) as client:
            server.scripted.append(Reply(status, body))
            with pytest.raises(RemoteError, match=words) as caught:
                await client.rerank(RerankRequest(QUERY, ["one"]))
        assert caught.value.status == status
        assert len(server.requests) == 1


async def test_a_failing_text_is_isolated() -> None:
    with TeiServer() as server:
        server.bad_text = "poison"
        documents = [*DOCUMENTS[:20], "poison", *DOCUMENTS[20:40]]
        async with reranker(server) as client:
            answer = await client.rerank(RerankRequest(QUERY, documents))
        assert answer.scores is not None
        assert np.flatnonzero(np.isnan(answer.scores)).tolist() == [20]
        others = np.delete(answer.scores, 20)
        np.testing.assert_allclose(others, expected()[:40], rtol=1e-6)


async def test_a_failing_server_is_not_bisected_to_the_end() -> None:
    with TeiServer(max_client_batch_size=128) as server:
        server.bad_text = "note"
        async with reranker(server) as client:
            with pytest.raises(RemoteError, match="the batch failed"):
                await client.rerank(RerankRequest(QUERY, [f"note {i}" for i in range(128)]))
        assert len(server.requests) < 30


async def test_too_few_scores_is_an_error() -> None:
    with TeiServer() as server:
        server.short = True
        async with reranker(server) as client:
            with pytest.raises(BadOutput):
                await client.rerank(RerankRequest(QUERY, DOCUMENTS[:5]))


async def test_a_hanging_server_ends_at_the_deadline() -> None:
    with TeiServer() as server:
        async with reranker(server) as client:
            server.hanging.set()
            start = time.monotonic()
            with pytest.raises(DeadlineExceeded):
                await client.rerank(RerankRequest(QUERY, DOCUMENTS[:5], deadline=start + 0.2))
            assert time.monotonic() - start < 1


async def test_a_killed_server_is_unavailable_and_comes_back() -> None:
    server = TeiServer().start()
    async with reranker(server) as client:
        await client.rerank(RerankRequest(QUERY, DOCUMENTS[:5]))
        server.stop()
        with pytest.raises(Unavailable):
            await client.rerank(RerankRequest(QUERY, DOCUMENTS[:5]))
        with pytest.raises(Unavailable):
            await client.check_health()
        with server:
            await client.check_health()
            answer = await client.rerank(RerankRequest(QUERY, DOCUMENTS[:5]))
            assert answer.scores is not None


async def test_api_key_and_bank_are_sent() -> None:
    with TeiServer(api_key="secret") as server:
        async with reranker(server, api_key="secret", send_bank_as_header=True) as client:
            await client.rerank(RerankRequest(QUERY, DOCUMENTS[:2], bank="b1"))
        assert server.headers[-1]["X-Hindsight-Bank-Id"] == "b1"
        with pytest.raises(RemoteError, match="401"):
            async with reranker(server):
                pass


async def test_refuses_another_kind_of_model() -> None:
    with TeiServer(kind="classifier") as server:
        with pytest.raises(WrongModel, match="classifier"):
            async with reranker(server):
                pass
        with pytest.raises(WrongModel):
            async with embedder(server):
                pass


async def test_embeddings_in_order_with_prefixes() -> None:
    with TeiServer(kind="embedding", max_client_batch_size=8) as server:
        async with embedder(server, query_prefix="query: ", max_input_tokens=4) as client:
            assert client.dimension == 16
            assert client.model_id == "stand-in/embedding"
            rows = await client.embed_passages([f"text {i}" for i in range(20)])
            np.testing.assert_allclose(rows, [vector(f"text {i}") for i in range(20)], atol=1e-6)
            query = await client.embed_queries(["one two three four five six"])
            np.testing.assert_allclose(query[0], vector("query: one two three four"), atol=1e-6)
            assert (await client.embed_passages([])).shape == (0, 16)


async def test_null_vectors_are_an_error() -> None:
    with TeiServer(kind="embedding") as server:
        async with embedder(server) as client:
            server.nulls = True
            with pytest.raises(BadOutput):
                await client.embed_queries(["x"])


async def test_a_refused_passage_is_named() -> None:
    with TeiServer(kind="embedding") as server:
        server.bad_text = "poison"
        async with embedder(server) as client:
            with pytest.raises(RemoteError, match="text 3 was refused"):
                await client.embed_passages(["a", "b", "c", "poison", "e"])


async def test_permits_are_fair_and_survive_cancellation() -> None:
    permits = Permits(4)
    order: list[str] = []

    async def work(name: str, count: int) -> None:
        async with permits.hold(count):
            order.append(name)
            await asyncio.sleep(0)

    first = asyncio.create_task(work("first", 3))
    await asyncio.sleep(0)
    big = asyncio.create_task(work("big", 99))
    gone = asyncio.create_task(work("gone", 1))
    small = asyncio.create_task(work("small", 1))
    gone.cancel()
    await asyncio.gather(first, big, small)
    assert order == ["first", "big", "small"]
    assert permits.used == 0


async def test_the_permits_are_those_of_all_processes_together() -> None:
    """Ten clients, as of ten processes, that know how many they are."""
    with TeiServer(max_client_batch_size=16, max_concurrent_requests=40) as server:
        server.delay_s = 0.01
        async with AsyncExitStack() as stack:
            clients = []
            for _ in range(10):
                own = RerankerSettings(provider="tei", url=server.url)
                client = TeiReranker(own, part=lambda all_of_it: all_of_it // 10)
                await client.start()
                stack.push_async_callback(client.close)
                clients.append(client)
            answers = await asyncio.gather(
                *(c.rerank(RerankRequest(QUERY, DOCUMENTS)) for c in clients)
            )
        for answer in answers:
            assert answer.scores is not None
            np.testing.assert_allclose(answer.scores, expected(), rtol=1e-6)
        assert server.refused == 0
        assert server.largest_batch == 4
        assert server.most_texts <= 40


async def test_a_part_that_shrinks_stops_nobody() -> None:
    part = 8
    permits = Permits(8, lambda _: part)
    done: list[int] = []

    async def work(count: int) -> None:
        async with permits.hold(count):
            await asyncio.sleep(0)
            done.append(count)

    waiting = [asyncio.create_task(work(8)) for _ in range(3)]
    await asyncio.sleep(0)
    part = 2  # three more processes came: two of these wait for more than there is now
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting)
    assert done == [8, 8, 8]
    assert (permits.used, permits.total) == (0, 2)


async def test_a_server_with_other_limits_is_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tei, "RERANKER_AGE_S", 0.0)
    with TeiServer(max_client_batch_size=32) as server:
        async with reranker(server) as client:
            await client.rerank(RerankRequest(QUERY, DOCUMENTS))
            server.max_client_batch_size = server.max_concurrent_requests = 8
            server.largest_batch = 0
            answer = await client.rerank(RerankRequest(QUERY, DOCUMENTS))
        assert answer.scores is not None
        assert (server.refused, server.largest_batch) == (0, 8)


async def test_an_embedder_that_is_another_model_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started anew with another model of equal dimension: no vector goes by the former's name."""
    with TeiServer(kind="embedding") as server:
        async with embedder(server) as client:
            await client.embed_passages(["a"])
            assert client.model_id == "stand-in/embedding"
            server.model_id = "another"
            with pytest.raises(Unavailable, match="it serves another now"):
                await client.embed_passages(["b"])
            await client.embed_passages(["b"])
            assert (client.model_id, client.dimension) == ("another", DIMENSION)

            server.model_id = "third"
            monkeypatch.setattr(tei, "EMBEDDER_AGE_S", 0.0)
            await client.embed_queries(["c"])
            assert client.model_id == "third"


async def test_a_name_that_the_settings_give_is_of_the_model_that_was_there() -> None:
    with TeiServer(kind="embedding") as server:
        async with embedder(server, model="ours") as client:
            assert client.model_id == "ours"
            server.model_id = "another"
            with pytest.raises(Unavailable):
                await client.embed_passages(["b"])
            assert client.model_id == "another"
