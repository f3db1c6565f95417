"""Clients of huggingface/text-embeddings-inference: a reranker and an embedder.

The server's own limits are read from /info: requests are split to its batch size and to
`PAYLOAD_BYTES`, and never more texts are in flight than it has permits (it counts texts, not
requests, and refuses at once). Answers come sorted by score and are put back in order. Texts are
cut by the server (`truncate`). Where a request is refused as a whole because of its content (413,
422, 424), it is halved until the text at fault stands alone.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np

from models.local.text import CHARS_PER_TOKEN
from models.remote.answers import bank_header, in_order, unit_rows
from models.remote.http import JsonClient, all_of, bounds
from models.remote.prefixed import PrefixedEmbedder
from models.settings import REMOTE_LIMIT_S, EmbedderSettings, RerankerSettings
from models.types import (
    BadOutput,
    Floats,
    Load,
    RemoteError,
    RerankRequest,
    Scores,
    Unavailable,
    WrongModel,
)

RERANK_BATCH = 128
EMBED_BATCH = 32
HEALTH_S = 2.0
RERANKER_AGE_S, EMBEDDER_AGE_S = 10.0, 1.0
"""How old what /info said may be. Scores of another model are only another order; vectors of
another model are noise."""
CONTENT_STATUS = (413, 422, 424)
MOST_BAD_TEXTS = 4
"""More texts at fault in one call mean that the server is at fault."""


Part = Callable[[int], int]
"""What falls to this process of what a server lets all of them have at once; at least 1."""


def whole(total: int) -> int:
    """The part of a process that is alone."""
    return total


class Permits:
    """A semaphore that counts texts, first come first served. Use from one event loop.

    `whole` may be changed, and the part of this process may change, at any time: what is held is
    held to its end.
    """

    def __init__(self, whole: int, part: Part = whole) -> None:
        self.whole = whole
        self._part = part
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def total(self) -> int:
        return max(1, self._part(self.whole))

    @asynccontextmanager
    async def hold(self, count: int) -> AsyncIterator[None]:
        """Waits until `count` (at most all) are free."""
        count = min(count, self.total)
        if self._waiting or self.used + count > self.total:
            turn = asyncio.get_running_loop().create_future()
            entry = (count, turn)
            self._waiting.append(entry)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self.used -= count
                else:
                    self._waiting.remove(entry)
                self._serve()
                raise
        else:
            self.used += count
        try:
            yield
        finally:
            self.used -= count
            self._serve()

    def _serve(self) -> None:
        total = self.total  # less than some wait for, where others came: nothing is left to them
        while self._waiting and (self.used + self._waiting[0][0] <= total or not self.used):
            count, turn = self._waiting.popleft()
            if not turn.cancelled():
                self.used += count
                turn.set_result(None)


class TeiServer:
    """The connection that both clients use, and what the server says about itself."""

    def __init__(
        self,
        part: str,
        url: str,
        *,
        api_key: str,
        timeout_s: float,
        batch_size: int,
        max_concurrent: int,
        transport: httpx.AsyncBaseTransport | None = None,
        share: Part = whole,
    ) -> None:
        self.client = JsonClient(
            part,
            url,
            api_key=api_key,
            timeout_s=timeout_s,
            max_connections=max_concurrent,
            transport=transport,
        )
        self._wished = batch_size
        self._calls = asyncio.Semaphore(max_concurrent)
        self._most = batch_size
        self.permits = Permits(batch_size, share)
        self.model_id = ""
        self._kind = ""
        self._learnt_at = 0.0
        self._chars = 0
        self.started = False

    async def start(self, kind: str) -> None:
        """Reads /info. `kind` is the model type that the caller needs; WrongModel for another."""
        if self.started:
            return
        self.client.open()
        self._kind = kind
        try:
            self._learn(await self.client.get("/info"))
        except BaseException:
            await self.client.close()
            raise
        self.started = True

    def _learn(self, info: Any) -> None:
        if not isinstance(info, dict) or "max_client_batch_size" not in info:
            raise WrongModel(f"{self.client.part}: {info!r} at /info is not what TEI answers")
        kinds = info.get("model_type") or {}
        if isinstance(kinds, dict) and kinds and self._kind not in {str(k).lower() for k in kinds}:
            raise WrongModel(f"{self.client.part} serves {', '.join(kinds)}, not {self._kind}")
        self.model_id = str(info.get("model_id") or "")
        self._most = max(1, min(self._wished, int(info["max_client_batch_size"])))
        self.permits.whole = max(1, int(info.get("max_concurrent_requests") or 512))
        self._learnt_at = time.monotonic()
        self._chars = int(info.get("max_input_length") or 512) * CHARS_PER_TOKEN

    @property
    def batch_size(self) -> int:
        """Texts of one request: no more than this process may have in flight."""
        return min(self._most, self.permits.total)

    async def learn_again(self, age_s: float) -> None:
        """Reads /info unless it is younger: a server that was started anew may be another."""
        if self.started and time.monotonic() - self._learnt_at >= age_s:
            self._learnt_at = time.monotonic()  # one asks for all
            self._learn(await self.client.get("/info", deadline=time.monotonic() + HEALTH_S))

    async def check_health(self) -> None:
        if not self.started:
            raise Unavailable(self.client.part, "it is not started")
        await self.client.get("/health", deadline=time.monotonic() + HEALTH_S)

    async def close(self) -> None:
        self.started = False
        await self.client.close()

    def load(self) -> Load:
        return Load(queued_tokens=0, running_batches=0, queued_calls=self.permits.used)

    def cut(self, text: str) -> str:
        """The server cuts by tokens, but a text must first get there."""
        return text[: self._chars]

    async def in_parts(
        self, texts: Sequence[str], ask: Callable[[Sequence[str]], Any]
    ) -> list[Any]:
        """`ask` for every part of `texts` at the same time; one answer per text, in order. An
        answer is a RemoteError for a text that alone was refused."""
        if not self.started:
            raise Unavailable(self.client.part, "it is not started")
        short = [self.cut(text) for text in texts]
        bad: list[int] = []

        async def part(start: int, stop: int) -> list[Any]:
            try:
                async with self._calls, self.permits.hold(stop - start):
                    answers = await ask(short[start:stop])
            except RemoteError as error:
                if error.status not in CONTENT_STATUS:
                    raise
                if stop - start == 1:
                    bad.append(start)
                    if len(bad) > MOST_BAD_TEXTS:
                        raise
                    return [error]
                middle = (start + stop) // 2
                return [*await part(start, middle), *await part(middle, stop)]
            if len(answers) != stop - start:
                counts = f"{len(answers)} answers for {stop - start} texts"
                raise BadOutput(f"{self.client.part}: {counts}")
            return list(answers)

        parts = [part(*bounds) for bounds in bounds(short, self.batch_size)]
        return [answer for answers in await all_of(parts) for answer in answers]


class TeiReranker:
    """/rerank of a TEI server. A document that the server refuses alone gets the score NaN."""

    name = "tei"
    reads_text = True

    def __init__(
        self,
        settings: RerankerSettings,
        transport: httpx.AsyncBaseTransport | None = None,
        part: Part = whole,
    ) -> None:
        self._settings = settings
        self._server = TeiServer(
            f"reranker {settings.url}",
            settings.url,
            api_key=settings.api_key,
            timeout_s=settings.limit_s or REMOTE_LIMIT_S,
            batch_size=settings.batch_size or RERANK_BATCH,
            max_concurrent=settings.max_concurrent or 8,
            transport=transport,
            share=part,
        )

    @property
    def model_id(self) -> str:
        return self._server.model_id or self._settings.url

    async def start(self) -> None:
        await self._server.start("reranker")

    async def check_health(self) -> None:
        await self._server.check_health()

    async def close(self) -> None:
        await self._server.close()

    def load(self) -> Load:
        return self._server.load()

    async def rerank(self, request: RerankRequest) -> Scores:
        """Raises Overloaded, DeadlineExceeded, Unavailable, RemoteError, BadOutput."""
        headers = bank_header(request.bank) if self._settings.send_bank_as_header else {}

        async def ask(texts: Sequence[str]) -> list[float]:
            body = {
                "query": self._server.cut(request.query),
                "texts": texts,
                "truncate": True,
                "raw_scores": self._settings.raw_scores,
            }
            answer = await self._server.client.post(
                "/rerank", body, headers=headers, deadline=request.deadline
            )
            return in_order(answer, "score", len(texts), self._server.client.part)

        await self._server.learn_again(RERANKER_AGE_S)
        answers = await self._server.in_parts(request.documents, ask)
        refused = [answer for answer in answers if isinstance(answer, RemoteError)]
        if refused and len(refused) == len(answers):
            raise refused[0]
        scores = [math.nan if isinstance(answer, RemoteError) else answer for answer in answers]
        # Without raw_scores most models answer probabilities, but not all: the values decide.
        scale = "logit" if self._settings.raw_scores else "unknown"
        return Scores(np.array(scores, np.float32), scale, self.name)


class TeiEmbedder(PrefixedEmbedder):
    """/embed of a TEI server; vectors have length 1."""

    def __init__(
        self,
        settings: EmbedderSettings,
        transport: httpx.AsyncBaseTransport | None = None,
        part: Part = whole,
    ) -> None:
        super().__init__(settings)
        self._first = ""
        self._server = TeiServer(
            f"embedder {settings.url}",
            settings.url,
            api_key=settings.api_key,
            timeout_s=settings.timeout_s,
            batch_size=settings.batch_size or EMBED_BATCH,
            max_concurrent=settings.max_concurrent,
            transport=transport,
            share=part,
        )

    @property
    def model_id(self) -> str:
        server = self._server
        if server.model_id != self._first:  # whatever the settings call the one before
            return server.model_id
        return self._settings.model or server.model_id

    async def start(self) -> None:
        await self._server.start("embedding")
        self._first = self._first or self._server.model_id
        await self._learn_dimension(self._server.close)

    async def check_health(self) -> None:
        await self._server.check_health()

    async def close(self) -> None:
        await self._server.close()

    def load(self) -> Load:
        return self._server.load()

    async def _embed(
        self, texts: Sequence[str], deadline: float | None, *, passages: bool
    ) -> Floats:
        if not texts:
            return np.empty((0, self._dimension), np.float32)

        async def ask(part: Sequence[str]) -> list[Any]:
            body: dict[str, Any] = {"inputs": part, "truncate": True, "normalize": True}
            if self._settings.dimensions:
                body["dimensions"] = self._settings.dimensions
            answer = await self._server.client.post("/embed", body, deadline=deadline)
            if not isinstance(answer, list):
                raise BadOutput(f"{self._server.client.part}: /embed did not answer a list")
            return answer

        await self._server.learn_again(EMBEDDER_AGE_S)
        before = self._server.model_id
        answers = await self._server.in_parts(texts, ask)
        if passages:  # stored under the model's name: it must have been that one to the end
            await self._server.learn_again(0.0)
        if self._server.model_id != before:
            self._dimension = 0  # learnt anew
            raise Unavailable(
                self._server.client.part,
                f"it serves {self._server.model_id} now, not {before}: repeat it",
            )
        for index, answer in enumerate(answers):
            if isinstance(answer, RemoteError):
                raise RemoteError(
                    answer.part, f"text {index} was refused: {answer}", status=answer.status
                )
        rows = unit_rows(answers, self._server.client.part)
        self._dimension = self._dimension or rows.shape[1]
        return rows
