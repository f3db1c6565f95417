"""Messages of the Model Context Protocol and uploads, with the worst that may stand in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from serve.mcp.tool import Tool
from serve.mcp.tools import reflection
from serve.mcp.tools.memory import Retain
from tests.hostile.catalogue import BODIES, TEXTS
from tests.hostile.conftest import BANK
from tests.hostile.test_routes import SHORT, Watched, json_bytes, nasty, watched
from tests.serve.conftest import B, Live

__all__ = ["watched"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-06-18",
}
URL = f"/mcp/{BANK}"
ASKED: tuple[type[Tool], ...] = (Retain, reflection.Reflect)
"""Others pass their arguments on to routes in the same way."""
LONG = 3 * 2**20
"""Bytes of a message, which may have four million."""


def message(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def send(watched: Watched, what: str, content: bytes) -> None:
    await watched.send(what, "POST", URL, content=content, headers=HEADERS)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("tool", ASKED, ids=lambda tool: tool.NAME)
async def test_arguments_of_tools(watched: Watched, tool: type[Tool]) -> None:
    name = tool.NAME
    for field in tool.model_fields:
        for what, value in nasty(SHORT):
            asked = message("tools/call", name=name, arguments={field: value})
            await send(watched, f"{name}.{field} = {what}", json_bytes(asked))


@pytest.mark.asyncio(loop_scope="session")
async def test_long_arguments(watched: Watched) -> None:
    for name, field in (("recall", "query"), ("retain", "content"), ("reflect", "query")):
        for what, text in TEXTS.items():
            long = text * (LONG // 2 // len(text.encode()))
            asked = message("tools/call", name=name, arguments={field: long})
            await send(watched, f"{name}.{field} = long {what}", json_bytes(asked))


@pytest.mark.asyncio(loop_scope="session")
async def test_messages(watched: Watched) -> None:
    for what, make in BODIES.items():
        for size in (1_000, 64_000, LONG):
            await send(watched, f"{what} of {size}", make(size))
    for what, value in nasty(SHORT):
        for field in ("jsonrpc", "id", "method", "params"):
            asked = {**message("tools/list"), field: value}
            await send(watched, f"{field} = {what}", json_bytes(asked))
    batch = [message("initialize", capabilities={}, protocolVersion="x")] * 2_000
    await send(watched, "a batch", json_bytes(batch))


def uploads() -> Iterator[tuple[str, bytes, str]]:
    """(what, body, content type) of multipart bodies that are wrong in some way."""
    line = b"--b\r\n"
    part = line + b'Content-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\nx\r\n'
    kind = "multipart/form-data; boundary=b"
    yield "nothing", b"", kind
    yield "no end", part, kind
    yield "many parts", part * 5_000 + b"--b--\r\n", kind
    yield "many headers", line + b"X: y\r\n" * 20_000 + b"\r\n--b--\r\n", kind
    yield "a long header", line + b"X: " + b"y" * 500_000 + b"\r\n\r\n--b--\r\n", kind
    yield "line ends", b"\r\n" * 200_000, kind
    yield "half boundaries", b"\r\n--" * 200_000, kind
    yield "a long boundary", part, "multipart/form-data; boundary=" + "b" * 7_000
    yield "a long name", part.replace(b"a.txt", b"a" * 200_000) + b"--b--\r\n", kind
    yield "a name that leads up", part.replace(b"a.txt", b"../../etc/passwd") + b"--b--\r\n", kind
    options = line + b'Content-Disposition: form-data; name="request"\r\n\r\n'
    for what, make in BODIES.items():
        yield f"options: {what}", part + options + make(60_000) + b"\r\n--b--\r\n", kind


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("place", ["files/retain", "transfer/import", "document-transfer"])
async def test_uploads(watched: Watched, place: str) -> None:
    for what, body, kind in uploads():
        sent = {"content": body, "headers": {"content-type": kind}}
        await watched.send(what, "POST", f"{B}/{BANK}/{place}", **sent)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_good_message_is_still_answered(hostile: Live) -> None:
    answer: httpx.Response = await hostile.http.post(
        URL,
        content=json_bytes(
            message("tools/call", name="recall", arguments={"query": "who keeps the harbour log"})
        ),
        headers=HEADERS,
    )
    assert answer.status_code == 200, answer.text
    assert "results" in json.dumps(answer.json())
