"""An application with keys on a real socket, and the public client of the protocol for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import httpx2
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from retrieval.recall.engine import RecallResult
from retrieval.types import RecallQuery
from serve import app
from serve.http.services import Services
from serve.local import sample
from serve.settings import Settings
from tests.serve.test_client import Server

TEXT = "Mira Okafor moved from Lagos to Oslo in March 2024 to build tidal turbines."
SAMPLE = f"/mcp/{sample.BANK}"
ERAS = ("legacy", "auto")
"""The protocol with a handshake, and without (2026)."""


@dataclass(frozen=True)
class Address:
    """Where it answers, and the services behind it."""

    url: str
    services: Services

    def client(
        self,
        path: str = "/mcp",
        key: str | None = None,
        era: str = "legacy",
        headers: dict[str, str] | None = None,
    ) -> AbstractAsyncContextManager[Client]:
        return connected(f"{self.url}{path}", key, era, headers or {})


@asynccontextmanager
async def connected(
    url: str, key: str | None, era: str, headers: dict[str, str]
) -> AsyncIterator[Client]:
    own = {**headers, **({"authorization": f"Bearer {key}"} if key else {})}
    async with (
        httpx2.AsyncClient(headers=own, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        yield client


@asynccontextmanager
async def serving(
    services: Services,
    change: Callable[[Settings], Settings] | None = None,
    *,
    port: int = 0,
    **parts: Any,
) -> AsyncIterator[Address]:
    """`services`, with `parts` in place of theirs, on a port of this machine; 0: a free one."""
    settings = services.settings if change is None else change(services.settings)
    own = replace(services, settings=settings, **parts)
    config = uvicorn.Config(
        app.create(settings, own),
        host="127.0.0.1",
        port=port,
        lifespan="off",
        ws="none",
        log_level="critical",
    )
    server = Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    bound = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Address(f"http://127.0.0.1:{bound}", own)
    finally:
        server.should_exit = True
        await running


def with_keys(settings: Settings) -> Settings:
    own = settings.limits.model_copy(update={"require_api_key": True})
    return settings.model_copy(update={"limits": own})


def with_mcp(**changes: Any) -> Callable[[Settings], Settings]:
    def change(settings: Settings) -> Settings:
        return Settings.model_validate(
            {**settings.model_dump(), "mcp": {**settings.mcp.model_dump(), **changes}}
        )

    return change


def said(result: CallToolResult) -> str:
    (block,) = result.content
    assert block.type == "text"
    return block.text


def done(result: CallToolResult) -> dict[str, Any]:
    """The structured content of a call that went well, which is the same as its text."""
    assert not result.is_error, said(result)
    assert json.loads(said(result)) == result.structured_content
    assert "null" not in said(result)
    found: dict[str, Any] = result.structured_content
    return found


def refused(result: CallToolResult) -> str:
    """The sentence of a call that did not."""
    assert result.is_error
    assert result.structured_content is None
    assert len(said(result)) > 10
    return said(result)


async def message(to: Address, content: Any, path: str = SAMPLE, **headers: str) -> httpx.Response:
    """A request of our own making."""
    own = {"content-type": "application/json", **headers}
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    async with httpx.AsyncClient(timeout=60) as http:
        return await http.post(to.url + path, content=body, headers=own)


def calling(name: str, arguments: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }


class Held:
    """A recaller that answers when it is told to, and notes who was cancelled."""

    def __init__(self) -> None:
        self.arrived, self.cancelled = asyncio.Event(), asyncio.Event()

    async def recall(self, query: RecallQuery) -> RecallResult:
        self.arrived.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return RecallResult({"results": []})
