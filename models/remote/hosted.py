"""Clients of hosted and self-hosted servers: /rerank in its common shape, and embeddings in three.

Cohere, Jina, vLLM and the services that copy them take {model, query, documents, top_n} and answer
{results: [{index, relevance_score}]}. They differ in address, and in what their scores mean.
Embeddings: OpenAI's /embeddings, which most others copy; Cohere's /embed and ZeroEntropy's
/models/embed, which are told whether a text is a question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from models.local.text import CHARS_PER_TOKEN
from models.remote.answers import bank_header, in_order, unit_rows
from models.remote.http import JsonClient, all_of, bounds
from models.remote.prefixed import PrefixedEmbedder
from models.settings import REMOTE_LIMIT_S, EmbedderSettings, RerankerSettings
from models.types import BadOutput, Floats, Load, RerankRequest, Scores, Unavailable

EMBED_BATCH = 100
COHERE_BATCH = 96
"""The most that Cohere takes."""
RERANK_TOKENS = 8_192
"""More of a document than any of these services reads."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service's default address and model, and the scale that its scores are documented in."""

    url: str
    model: str
    scale: str = "unknown"


RERANK_SERVICES = {
    "cohere": Service("https://api.cohere.com/v2/rerank", "rerank-english-v3.0", "probability"),
    "jina": Service("https://api.jina.ai/v1/rerank", "jina-reranker-v2-base-multilingual"),
    "vllm": Service("", ""),
    "litellm": Service("", "cohere/rerank-english-v3.0"),
    "openrouter": Service("https://openrouter.ai/api/v1/rerank", "cohere/rerank-v3.5"),
    "siliconflow": Service("https://api.siliconflow.com/v1/rerank", "BAAI/bge-reranker-v2-m3"),
    "alibaba": Service(
        "https://dashscope-intl.aliyuncs.com/compatible-api/v1/reranks", "qwen3-rerank"
    ),
    "zeroentropy": Service("https://api.zeroentropy.dev/v1/models/rerank", "zerank-2"),
}

EMBED_SERVICES = {
    "openai": Service("https://api.openai.com/v1", "text-embedding-3-small"),
    "openrouter": Service("https://openrouter.ai/api/v1", "perplexity/pplx-embed-v1-0.6b"),
    "requesty": Service("https://router.requesty.ai/v1", "openai/text-embedding-3-small"),
    "litellm": Service("", "text-embedding-3-small"),
    "cohere": Service("https://api.cohere.com/v2", "embed-english-v3.0"),
    "zeroentropy": Service("https://api.zeroentropy.dev/v1", "zembed-1"),
}


class HostedReranker:
    """A /rerank endpoint. `url` is the server's base, or the endpoint itself."""

    reads_text = True

    def __init__(
        self, settings: RerankerSettings, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        service = RERANK_SERVICES[settings.provider]
        self._settings = settings
        self._scale = service.scale
        self.name = settings.provider
        self.model_id = settings.model or service.model
        url = (settings.url or service.url).rstrip("/")
        if not url.endswith(("/rerank", "/reranks")):
            url += "/rerank"
        self._part = f"reranker {self.name}"
        self._calls = asyncio.Semaphore(settings.max_concurrent or 8)
        self._client = JsonClient(
            self._part,
            url,
            api_key=settings.api_key,
            timeout_s=settings.limit_s or REMOTE_LIMIT_S,
            max_connections=settings.max_concurrent or 8,
            transport=transport,
        )

    async def start(self) -> None:
        self._client.open()

    async def check_health(self) -> None:
        if not self._client.is_open:
            raise Unavailable(self._part, "it is not started")

    async def close(self) -> None:
        await self._client.close()

    def load(self) -> Load:
        return Load()

    async def rerank(self, request: RerankRequest) -> Scores:
        """Raises Overloaded, DeadlineExceeded, Unavailable, RemoteError, BadOutput."""
        headers = bank_header(request.bank) if self._settings.send_bank_as_header else {}
        size = self._settings.batch_size or max(1, len(request.documents))
        chars = (self._settings.max_tokens_per_doc or RERANK_TOKENS) * CHARS_PER_TOKEN
        query, documents = request.query[:chars], [text[:chars] for text in request.documents]

        async def ask(part: Sequence[str]) -> list[float]:
            body: dict[str, Any] = {"query": query, "documents": part, "top_n": len(part)}
            if self.model_id:
                body["model"] = self.model_id
            if self._settings.max_tokens_per_doc:
                body["max_tokens_per_doc"] = self._settings.max_tokens_per_doc
            async with self._calls:
                answer = await self._client.post(
                    "", body, headers=headers, deadline=request.deadline
                )
            results = answer.get("results") if isinstance(answer, dict) else None
            if results is None:
                raise BadOutput(f"{self._part}: the answer has no results")
            return in_order(results, "relevance_score", len(part), self._part)

        parts = [documents[start:stop] for start, stop in bounds(documents, size)]
        scores = [score for part in await all_of([ask(part) for part in parts]) for score in part]
        return Scores(np.array(scores, np.float32), self._scale, self.name)


class OpenAIEmbedder(PrefixedEmbedder):
    """An OpenAI-compatible /embeddings endpoint; vectors have length 1."""

    path = "/embeddings"
    batch = EMBED_BATCH
    batch_limit = 1 << 20

    def __init__(
        self, settings: EmbedderSettings, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        service = EMBED_SERVICES[settings.provider]
        super().__init__(settings)
        self._model = settings.model or service.model
        self._part = f"embedder {settings.provider}"
        self._calls = asyncio.Semaphore(settings.max_concurrent)
        self._client = JsonClient(
            self._part,
            settings.url or service.url,
            api_key=settings.api_key,
            timeout_s=settings.timeout_s,
            max_connections=settings.max_concurrent,
            transport=transport,
        )

    @property
    def model_id(self) -> str:
        return self._model

    async def start(self) -> None:
        """Asks for one vector, to learn the dimension."""
        self._client.open()
        await self._learn_dimension(self._client.close)

    async def check_health(self) -> None:
        if not self._dimension or not self._client.is_open:
            raise Unavailable(self._part, "it is not started")

    async def close(self) -> None:
        await self._client.close()

    def load(self) -> Load:
        return Load()

    async def _embed(
        self, texts: Sequence[str], deadline: float | None, *, passages: bool
    ) -> Floats:
        if not texts:
            return np.empty((0, self._dimension), np.float32)

        async def ask(part: Sequence[str]) -> list[Any]:
            body = self._body(part, passages)
            async with self._calls:
                answer = await self._client.post(self.path, body, deadline=deadline)
            try:
                found = self._vectors(answer, len(part))
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise BadOutput(f"{self._part}: the answer lacks vectors") from error
            if len(found) != len(part):
                counts = f"{len(found)} vectors for {len(part)} texts"
                raise BadOutput(f"{self._part}: the answer lacks vectors: {counts}")
            return found

        size = min(self._settings.batch_size or self.batch, self.batch_limit)
        parts = [texts[start:stop] for start, stop in bounds(texts, size)]
        vectors = [row for part in await all_of([ask(part) for part in parts]) for row in part]
        return unit_rows(vectors, self._part)

    def _body(self, part: Sequence[str], passages: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._model, "input": part, "encoding_format": "float"}
        if self._settings.dimensions:
            body["dimensions"] = self._settings.dimensions
        return body

    def _vectors(self, answer: Any, count: int) -> list[Any]:
        """In the order of the texts. May raise what indexing raises."""
        found = {int(item["index"]): item["embedding"] for item in answer["data"]}
        return [found[index] for index in range(count)]


class CohereEmbedder(OpenAIEmbedder):
    """Cohere's /v2/embed, or a server that speaks it."""

    path = "/embed"
    batch = batch_limit = COHERE_BATCH

    def _body(self, part: Sequence[str], passages: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "texts": part,
            "input_type": "search_document" if passages else "search_query",
            "embedding_types": ["float"],
            "truncate": "END",
        }
        if self._settings.dimensions:
            body["output_dimension"] = self._settings.dimensions
        return body

    def _vectors(self, answer: Any, count: int) -> list[Any]:
        return list(answer["embeddings"]["float"])


class ZeroEntropyEmbedder(OpenAIEmbedder):
    """ZeroEntropy's /v1/models/embed."""

    path = "/models/embed"

    def _body(self, part: Sequence[str], passages: bool) -> dict[str, Any]:
        kind = "document" if passages else "query"
        return {**super()._body(part, passages), "input_type": kind}

    def _vectors(self, answer: Any, count: int) -> list[Any]:
        return [item["embedding"] for item in answer["results"]]
