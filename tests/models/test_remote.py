"""Hosted rerankers, embeddings and chat: request and answer shapes, over a mocked transport."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from models.remote import OpenAIEmbedder, RemoteReranker
from models.settings import EmbedderSettings, RerankerSettings
from models.types import BadOutput, Overloaded, Unavailable

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
    client = RemoteReranker(settings, transport)
    await client.start()
    answer = await client.rerank("q", DOCUMENTS, bank="b1")
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
    client = RemoteReranker(RerankerSettings(provider="jina"), transport)
    await client.start()
    with pytest.raises(BadOutput):
        await client.rerank("q", ["one"])
    await client.close()


async def test_a_null_score_is_not_a_number() -> None:
    results = [{"index": 1, "relevance_score": None}, {"index": 0, "relevance_score": 0.5}]
    transport, _ = over(lambda _: httpx.Response(200, json={"results": results}))
    client = RemoteReranker(RerankerSettings(provider="jina"), transport)
    await client.start()
    answer = await client.rerank("q", ["one", "two"])
    await client.close()
    assert answer.scores is not None
    np.testing.assert_array_equal(answer.scores, [0.5, np.nan])


async def test_no_json_is_an_error_and_unsent_headers_stay_unsent() -> None:
    transport, seen = over(lambda _: httpx.Response(200, text="<html>"))
    client = RemoteReranker(RerankerSettings(provider="jina"), transport)
    with pytest.raises(Unavailable, match="not started"):
        await client.rerank("q", ["one"])
    await client.start()
    await client.check_health()
    with pytest.raises(BadOutput, match="not JSON"):
        await client.rerank("q", ["one"], bank="b1")
    await client.close()
    with pytest.raises(Unavailable):
        await client.check_health()
    assert "X-Hindsight-Bank-Id" not in seen[0].headers
    assert "Authorization" not in seen[0].headers


async def test_retries_end_before_the_deadline() -> None:
    transport, seen = over(lambda _: httpx.Response(503, json={"detail": "loading"}))
    client = RemoteReranker(RerankerSettings(provider="jina"), transport)
    await client.start()
    start = time.monotonic()
    with pytest.raises(Overloaded, match="loading"):
        await client.rerank("q", ["one"], deadline=start + 0.3)
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
