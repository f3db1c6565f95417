"""Calls of our own routes from inside the process: a tool does what its route does, no more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlencode

import orjson
from starlette.responses import Response
from starlette.types import Message, Scope

from serve.http.auditing import TRANSPORT
from serve.http.services import SCOPES, TENANT


@dataclass(frozen=True, slots=True)
class Route:
    """A route of the HTTP API: its method, and its address with the names of ids in braces."""

    method: str
    path: str

    def call(self, ids: Mapping[str, str], content: Mapping[str, Any]) -> RouteRequest:
        """`content` is the body where the method has one, else the query."""
        path = self.path.format_map({name: quote(id, safe="") for name, id in ids.items()})
        if self.method in ("GET", "DELETE"):
            return RouteRequest(self.method, path, query=content)
        return RouteRequest(self.method, path, body=content)


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """One request to a route. `path` is encoded, and without the server's base path."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """What a route answered."""

    status: int
    content: Any
    retry_after_s: int | None = None
    """After how many seconds to come back, where it says so."""


async def answer(call: RouteRequest, outer: Scope, tenant: str, base: str) -> RouteResponse:
    """Runs `call` for `tenant` in the application that serves `outer`.

    Cancelling it cancels the route.
    """
    body = b"" if call.body is None else orjson.dumps(call.body)
    raw = (base + call.path).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    if body:
        headers.append((b"content-type", b"application/json"))
    scope = {
        "type": "http",
        "asgi": outer["asgi"],
        "http_version": "1.1",
        "scheme": outer.get("scheme", "http"),
        "client": outer.get("client"),
        "server": outer.get("server"),
        "method": call.method,
        "root_path": "",
        "path": unquote(raw.decode()),
        "raw_path": raw,
        "query_string": _query(call.query),
        "headers": headers,
        TENANT: tenant,
        TRANSPORT: "mcp",
        SCOPES: outer[SCOPES],
    }
    left = [body]
    answered = Collected()

    async def receive() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await asyncio.Future()  # the client's going away cancels the call as a whole

    await outer["app"](scope, receive, answered)
    return read(answered.response())


def read(response: Response) -> RouteResponse:
    """What a response of ours says."""
    wait = response.headers.get("retry-after")
    content = orjson.loads(response.body) if response.body else {}
    return RouteResponse(response.status_code, content, None if wait is None else int(wait))


class Collected:
    """Stands for the client of an ASGI application, and keeps what it is sent."""

    def __init__(self) -> None:
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], list(message["headers"])
        elif message["type"] == "http.response.body":
            self._parts.append(message.get("body", b""))

    def response(self) -> Response:
        found = Response(b"".join(self._parts), self._status)
        found.raw_headers = self._headers
        return found


def _query(values: Mapping[str, Any]) -> bytes:
    pairs = [
        (name, str(one).lower() if isinstance(one, bool) else one)
        for name, value in values.items()
        for one in (value if isinstance(value, list | tuple) else (value,))
    ]
    return urlencode(pairs).encode()
