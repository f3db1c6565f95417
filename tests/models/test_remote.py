"""Hosted rerankers, embeddings and chat: request and answer shapes, over a mocked transport."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from models.catalog import REMOTE_EMBEDDERS, build_embedder, build_reranker
from models.remote.hosted import HostedReranker, OpenAIEmbedder
from models.settings import (
    EMBEDDER_PROVIDERS,
    RERANKER_PROVIDERS,
    EmbedderSettings,
    ModelSettingsError,
    RerankerSettings,
)
from models.types import BadOutput, Floats, Overloaded, RemoteError, RerankRequest, Unavailable
from tests.models.embed_server import KEY, EmbedServer, vector

pytestmark = pytest.mark.unit

Handler = Callable[[httpx.Request], httpx.Response]
DOCUMENTS = [f"document {i}" for i in range(7)]


def over(answer: Handler) -> tuple[httpx.MockTransport, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer(request)

    return httpx.MockTransport(handle), seen


def ranked(request: httpx.Request) -> httpx.Response:
    """As these services do: best first, by the number in the text."""
    documents = json.loads(request.content)["documents"]
    scores = [{"index": i, "relevance_score": int(d[-1]) / 10} for i, d in enumerate(documents)]
    return httpx.Response(200, json={"results": scores[::-1], "usage": {}})


@pytest.mark.parametrize(
    ("provider", "url", "address", "model"),
    [
        ("cohere", "", "https://api.cohere.com/v2/rerank", "rerank-english-v3.0"),
        ("cohere", "https://x.test/v1/", "https://x.test/v1/rerank", "rerank-english-v3.0"),
        ("cohere", "https://x.test/rerank", "https://x.test/rerank", "rerank-english-v3.0"),
        ("jina", "", "https://api.jina.ai/v1/rerank", "jina-reranker-v2-base-multilingual"),
        ("vllm", "http://x.test:8000", "http://x.test:8000/rerank", None),
        ("openrouter", "", "https://openrouter.ai/api/v1/rerank", "cohere/rerank-v3.5"),
        ("litellm", "http://x.test", "http://x.test/rerank", "cohere/rerank-english-v3.0"),
    ],
)
async def test_rerank_request_and_answer(
    provider: str, url: str, address: str, model: str | None
) -> None:
    transport, seen = over(ranked)
    settings = RerankerSettings(
        provider=provider, url=url, api_key="k", batch_size=3, send_bank_as_header=True
    )
    client = HostedReranker(settings, transport)
    await client.start()
    answer = await client.rerank(RerankRequest("q", DOCUMENTS, bank="b1"))
    await client.close()
    assert answer.scores is not None
    np.testing.assert_allclose(answer.scores, np.arange(7) / 10, rtol=1e-6)
    assert answer.member == provider
    assert answer.scale == ("probability" if provider == "cohere" else "unknown")
    assert [len(json.loads(r.content)["documents"]) for r in seen] == [3, 3, 1]
    assert {str(request.url) for request in seen} == {address}
    body = json.loads(seen[0].content)
    assert (body.get("model"), body["query"], body["top_n"]) == (model, "q", 3)
    assert seen[0].headers["Authorization"] == "Bearer k"
    assert seen[0].headers["X-Hindsight-Bank-Id"] == "b1"


@pytest.mark.parametrize(
    "body",
    [
        {"results": []},
        {"results": [{"index": 0, "relevance_score": 1}] * 2},
        {"results": [{"index": 1, "relevance_score": 1}]},
        {"scores": [1]},
        [1],
    ],
)
async def test_incomplete_answers_are_errors(body: Any) -> None:
    transport, _ = over(lambda _: httpx.Response(200, json=body))
    client = HostedReranker(RerankerSettings(provider="jina"), transport)
    await client.start()
    with pytest.raises(BadOutput):
        await client.rerank(RerankRequest("q", ["one"]))
    await client.close()


async def test_a_null_score_is_not_a_number() -> None:
    results = [{"index": 1, "relevance_score": None}, {"index": 0, "relevance_score": 0.5}]
    transport, _ = over(lambda _: httpx.Response(200, json={"results": results}))
    client = HostedReranker(RerankerSettings(provider="jina"), transport)
    await client.start()
    answer = await client.rerank(RerankRequest("q", ["one", "two"]))
    await client.close()
    assert answer.scores is not None
    np.testing.assert_array_equal(answer.scores, [0.5, np.nan])


async def test_no_json_is_an_error_and_unsent_headers_stay_unsent() -> None:
    transport, seen = over(lambda _: httpx.Response(200, text="<html>"))
    client = HostedReranker(RerankerSettings(provider="jina"), transport)
    with pytest.raises(Unavailable, match="not started"):
        await client.rerank(RerankRequest("q", ["one"]))
    await client.start()
    await client.check_health()
    with pytest.raises(BadOutput, match="not JSON"):
        await client.rerank(RerankRequest("q", ["one"], bank="b1"))
    await client.close()
    with pytest.raises(Unavailable):
        await client.check_health()
    assert "X-Hindsight-Bank-Id" not in seen[0].headers
    assert "Authorization" not in seen[0].headers


async def test_retries_end_before_the_deadline() -> None:
    transport, seen = over(lambda _: httpx.Response(503, json={"detail": "loading"}))
    client = HostedReranker(RerankerSettings(provider="jina"), transport)
    await client.start()
    start = time.monotonic()
    with pytest.raises(Overloaded, match="loading"):
        await client.rerank(RerankRequest("q", ["one"], deadline=start + 0.3))
    assert time.monotonic() - start < 0.3
    assert 1 < len(seen) < 5
    await client.close()


def embeddings(request: httpx.Request) -> httpx.Response:
    texts = json.loads(request.content)["input"]
    data = [{"index": i, "embedding": [3.0, float(len(t))]} for i, t in enumerate(texts)]
    return httpx.Response(200, json={"data": data[::-1]})


async def test_openai_embeddings() -> None:
    transport, seen = over(embeddings)
    settings = EmbedderSettings(
        provider="openai", api_key="k", batch_size=2, dimensions=2, passage_prefix="p:"
    )
    client = OpenAIEmbedder(settings, transport)
    assert client.dimension == 0
    await client.start()
    await client.check_health()
    assert (client.dimension, client.model_id) == (2, "text-embedding-3-small")
    rows = await client.embed_passages(["a", "bb", "ccc"])
    queries = await client.embed_queries(["bb"])
    assert (await client.embed_queries([])).shape == (0, 2)
    await client.close()
    expected = np.array([[3.0, 3.0], [3.0, 4.0], [3.0, 5.0]])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    np.testing.assert_allclose(queries[0], np.array([3, 2]) / 13**0.5, rtol=1e-6)
    body = json.loads(seen[1].content)
    assert str(seen[1].url) == "https://api.openai.com/v1/embeddings"
    assert (body["model"], body["input"], body["dimensions"]) == (
        "text-embedding-3-small",
        ["p:a", "p:bb"],
        2,
    )


@pytest.mark.parametrize(
    "row", [[None, 1.0], [0.0, 0.0], [float("nan"), 1.0], "text", [[1.0], [2.0]]]
)
async def test_vectors_that_are_none_are_errors(row: Any) -> None:
    body = json.dumps({"data": [{"index": 0, "embedding": row}]})
    transport, _ = over(lambda _: httpx.Response(200, text=body))
    client = OpenAIEmbedder(EmbedderSettings(provider="openai"), transport)
    with pytest.raises(BadOutput):
        await client.start()


def unit_length(rows: list[list[float]]) -> Floats:
    found = np.array(rows, np.float32)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("provider", "query", "passage"),
    [
        ("cohere", "search_query", "search_document"),
        ("zeroentropy", "query", "document"),
        ("openai", "", ""),
    ],
)
async def test_hosted_embedders(provider: str, query: str, passage: str) -> None:
    texts = [f"text {at}" for at in range(250)]
    with EmbedServer(provider) as server:
        settings = EmbedderSettings(
            provider=provider, url=server.url, api_key=KEY, dimensions=12, batch_size=100
        )
        client = build_embedder(settings)
        server.failures = [429, 503]
        await client.start()
        assert client.dimension == 12
        first = len(server.bodies)
        rows = await client.embed_passages(texts)
        asked = await client.embed_queries(["text 0", ""])
        assert (await client.embed_passages([])).shape == (0, 12)
        await client.close()
        calls = len(server.bodies) - first
    np.testing.assert_allclose(
        rows, unit_length([vector(t, passage, 12) for t in texts]), rtol=1e-5
    )
    np.testing.assert_allclose(
        asked, unit_length([vector(t, query, 12) for t in ("text 0", "")]), rtol=1e-5
    )
    assert calls == 4


@pytest.mark.parametrize("provider", ["cohere", "zeroentropy", "openai"])
async def test_what_goes_wrong_at_hosted_embedders(provider: str) -> None:
    with EmbedServer(provider) as server:
        wrong = build_embedder(EmbedderSettings(provider=provider, url=server.url, api_key="no"))
        with pytest.raises(RemoteError, match="401 invalid api token"):
            await wrong.start()
        await wrong.close()
        elsewhere = build_embedder(
            EmbedderSettings(provider=provider, url=f"{server.url}/x", api_key=KEY)
        )
        with pytest.raises(RemoteError, match="no route"):
            await elsewhere.start()
        await elsewhere.close()
        right = build_embedder(EmbedderSettings(provider=provider, url=server.url, api_key=KEY))
        await right.start()
        server.failures = [400]
        with pytest.raises(RemoteError, match="later"):
            await right.embed_queries(["one"])
        server.failures = [503] * 100
        with pytest.raises(Overloaded):
            await right.embed_queries(["one"], deadline=time.monotonic() + 2)
        server.failures = []
        assert (await right.embed_queries(["one"])).shape == (1, right.dimension)
        await right.close()


@pytest.mark.parametrize("provider", ["cohere", "zeroentropy", "openai"])
@pytest.mark.parametrize("body", [{}, [], None, {"data": []}, {"embeddings": []}, {"results": {}}])
async def test_answers_without_vectors(provider: str, body: Any) -> None:
    transport, _ = over(lambda _: httpx.Response(200, json=body))
    kind = REMOTE_EMBEDDERS.get(provider, OpenAIEmbedder)
    client = kind(EmbedderSettings(provider=provider), transport)
    with pytest.raises(BadOutput):
        await client.start()


async def test_vectors_of_another_length_than_before_are_an_error() -> None:
    sizes = iter((3, 2))

    def answer(request: httpx.Request) -> httpx.Response:
        count, size = len(json.loads(request.content)["input"]), next(sizes)
        data = [{"index": i, "embedding": [1.0] * size} for i in range(count)]
        return httpx.Response(200, json={"data": data})

    transport, _ = over(answer)
    client = OpenAIEmbedder(EmbedderSettings(provider="openai"), transport)
    await client.start()
    with pytest.raises(BadOutput, match="2 numbers where it had 3"):
        await client.embed_queries(["one"])
    await client.close()


async def test_texts_are_bounded_before_they_are_sent() -> None:
    transport, seen = over(embeddings)
    client = OpenAIEmbedder(EmbedderSettings(provider="openai"), transport)
    await client.start()
    await client.embed_passages(["x" * 5_000_000] * 4)
    await client.close()
    assert len(seen) == 3
    assert max(len(request.content) for request in seen) < 1_600_000
    transport, seen = over(ranked)
    reranker = HostedReranker(RerankerSettings(provider="cohere", max_tokens_per_doc=10), transport)
    await reranker.start()
    await reranker.rerank(RerankRequest("q" * 1_000_000, ["1" * 1_000_000] * 3))
    await reranker.close()
    assert len(seen[0].content) < 5000


@pytest.mark.parametrize("provider", EMBEDDER_PROVIDERS)
def test_every_embedder_that_can_be_named_can_be_built(provider: str) -> None:
    build_embedder(EmbedderSettings(provider=provider, url="http://127.0.0.1:9"))


@pytest.mark.parametrize("provider", RERANKER_PROVIDERS)
def test_every_reranker_that_can_be_named_can_be_built(provider: str) -> None:
    build_reranker([RerankerSettings(provider=provider, url="http://127.0.0.1:9")])


@pytest.mark.parametrize(
    "provider", ["google", "onnx", "litellm-sdk", "openai-codex", "Cohere", ""]
)
def test_providers_that_are_not_there_are_told_with_those_that_are(provider: str) -> None:
    with pytest.raises(ModelSettingsError, match="choose one of local, tei, openai"):
        EmbedderSettings(provider=provider)
    with pytest.raises(ModelSettingsError, match="choose one of local, tei, cohere"):
        RerankerSettings(provider=provider)
