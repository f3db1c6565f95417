"""JSON over HTTP to a model server: deadlines, retries, one kind of error.

Only 429, 503 and failed connections are tried again, with growing, jittered pauses, never before
the server's Retry-After and never past the caller's deadline. Every other status is final and
keeps the server's message.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import httpx
import orjson

from models import outward
from models.types import (
    BadOutput,
    DeadlineExceeded,
    ModelError,
    Overloaded,
    RemoteError,
    Unavailable,
)

R = TypeVar("R")

RETRIED = (429, 503)
ATTEMPTS = 6
CONNECT_ATTEMPTS = 2
"""A refused connection is tried once more: a restart takes longer than a caller can wait."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
CONNECT_S = 5.0
MESSAGE_CHARS = 300
PAYLOAD_BYTES = 1_500_000
"""Of one request. TEI takes 2,000,000 by default, and does not tell its setting."""


class JsonClient:
    """One server. `part` names it in errors. Use from one event loop, between open and close."""

    def __init__(
        self,
        part: str,
        base_url: str,
        *,
        api_key: str = "",
        timeout_s: float,
        max_connections: int = 32,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.part = part
        self._base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._transport = transport
        self._clock = clock
        self._jitter = jitter
        self._client: httpx.AsyncClient | None = None

    def open(self) -> None:
        if self._client is None:
            self._client = httpx.AsyncClient(
                headers=self._headers,
                timeout=httpx.Timeout(self._timeout_s, connect=min(CONNECT_S, self._timeout_s)),
                limits=httpx.Limits(
                    max_connections=self._max_connections,
                    max_keepalive_connections=self._max_connections,
                ),
                transport=self._transport,
            )

    @property
    def is_open(self) -> bool:
        return self._client is not None

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def get(self, path: str, *, deadline: float | None = None) -> Any:
        return await self._call("GET", path, None, {}, deadline)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        deadline: float | None = None,
    ) -> Any:
        """The decoded JSON answer (None for an empty one). Raises Overloaded (429, 503 to the
        end), Unavailable (no connection), DeadlineExceeded, RemoteError, BadOutput (no JSON)."""
        return await self._call("POST", path, body, headers or {}, deadline)

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        deadline: float | None,
    ) -> Any:
        client = self._client
        if client is None:
            raise Unavailable(self.part, "it is not started")
        content = (
            None if body is None else json.dumps(body, ensure_ascii=False).encode(errors="replace")
        )
        end = min(math.inf if deadline is None else deadline, self._clock() + self._timeout_s)
        pause = FIRST_PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with asyncio.timeout(max(0.0, end - self._clock())):
                    response = await client.request(
                        method,
                        self._base_url + path,
                        content=content,
                        headers={
                            "Content-Type": "application/json",
                            **outward.headers.get(),
                            **headers,
                        },
                    )
                if response.is_success:
                    return self._decoded(response)
                attempts, wait_s = ATTEMPTS, _retry_after(response)
                error: ModelError = self._error(response, wait_s)
                if response.status_code not in RETRIED:
                    raise error
            except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as late:
                raise DeadlineExceeded(self.part) from late
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.RemoteProtocolError) as broken:
                attempts, wait_s = CONNECT_ATTEMPTS, 0.0
                error = Unavailable(self.part, _reason(broken))
            except httpx.HTTPError as broken:
                raise Unavailable(self.part, _reason(broken)) from broken
            # Half of the pause is random, so that clients that failed together return apart.
            wait_s = max(wait_s, pause * (0.5 + 0.5 * self._jitter()))
            pause = min(2 * pause, LONGEST_PAUSE_S)
            if attempt >= attempts or self._clock() + wait_s >= end:
                raise error
            await asyncio.sleep(wait_s)
        raise AssertionError("the last attempt returns or raises")

    def _decoded(self, response: httpx.Response) -> Any:
        if not response.content:
            return None
        try:
            return _loads(response.content)
        except ValueError as error:
            raise BadOutput(
                f"{self.part}: the answer is not JSON: {response.text[:80]!r}"
            ) from error

    def _error(self, response: httpx.Response, wait_s: float) -> Overloaded | RemoteError:
        message = f"{response.status_code} {_message(response)}"
        if response.status_code in RETRIED:
            return Overloaded(f"{self.part}: {message}", max(wait_s, 1.0))
        return RemoteError(self.part, message, status=response.status_code)


async def all_of(calls: Sequence[Coroutine[Any, Any, R]]) -> list[R]:
    """Runs them at the same time; the first error cancels the others and is raised as it is."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def bounds(texts: Sequence[str], batch_size: int) -> Iterator[tuple[int, int]]:
    """Cuts into parts of at most `batch_size` texts and `PAYLOAD_BYTES`, one text at least."""
    start, size = 0, 0
    for index, text in enumerate(texts):
        # JSON may escape a character; three bytes each is more than text needs on average.
        cost = len(text.encode(errors="replace")) + 8
        if index > start and (index - start == batch_size or size + cost > PAYLOAD_BYTES):
            yield start, index
            start, size = index, 0
        size += cost
    if start < len(texts):
        yield start, len(texts)


def _loads(content: bytes) -> Any:
    """A batch of vectors is some megabytes: orjson holds the loop a fifth as long. It takes no NaN
    and no lone surrogates."""
    try:
        return orjson.loads(content)
    except ValueError:
        return json.loads(content)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _message(response: httpx.Response) -> str:
    """The sentence in an error body, whichever of the usual shapes it has."""
    try:
        body = response.json()
    except ValueError:
        return response.text[:MESSAGE_CHARS].strip() or response.reason_phrase
    found = body
    for _ in range(2):
        if isinstance(found, dict):
            found = next((found[k] for k in ("error", "message", "detail") if k in found), found)
    return str(found)[:MESSAGE_CHARS]


def _retry_after(response: httpx.Response) -> float:
    """Seconds, from the header's number form; 0 without one."""
    try:
        return max(0.0, float(response.headers.get("Retry-After", "0")))
    except ValueError:
        return 0.0
