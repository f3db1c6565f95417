"""Bodies: bounded in size, time and memory; compressed ones; the key first."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest
from starlette.responses import Response
from starlette.types import Message

from retrieval.errors import Overloaded
from retrieval.store import tenants
from serve import app
from serve.http import bodies
from serve.http.bodies import SMALL_BYTES, Bodies, BodyMemory
from tests.serve.conftest import B, Live

JSON = {"content-type": "application/json"}
RECALL = f"{B}/sample/memories/recall"
QUESTION = orjson.dumps({"query": "Why did the harvest festival move?"})


@pytest.mark.unit
def test_a_tenant_holds_as_much_as_is_left() -> None:
    memory = BodyMemory(64 << 20)
    with memory.holding("loud") as first, memory.holding("loud") as second:
        first.reach(SMALL_BYTES)  # small ones are not counted
        assert memory.held == 0
        first.reach(16 << 20)
        second.reach(16 << 20)
        with memory.holding("loud") as third, pytest.raises(Overloaded):
            third.reach(16 << 20)
        with memory.holding("quiet") as other:
            other.reach(16 << 20)
            assert memory.held == 48 << 20
    assert memory.held == 0
    assert not memory._by_tenant


async def post(live: Live, content: bytes, **headers: str) -> httpx.Response:
    return await live.http.post(RECALL, content=content, headers={**JSON, **headers})


@pytest.mark.integration
@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(QUESTION)),
        ("x-gzip", gzip.compress(QUESTION)),
        ("GZip", gzip.compress(QUESTION)),
        ("deflate", zlib.compress(QUESTION)),
        ("deflate", zlib.compressobj(wbits=-15).compress(QUESTION)),
        ("identity", QUESTION),
    ],
)
async def test_compressed_bodies(live: Live, encoding: str, packed: bytes) -> None:
    if encoding == "deflate" and packed[:1] != b"\x78":
        raw = zlib.compressobj(wbits=-15)
        packed = raw.compress(QUESTION) + raw.flush()
    answer = await post(live, packed, **{"content-encoding": encoding})
    assert answer.status_code == 200, answer.text
    assert answer.json()["results"]


@pytest.mark.integration
async def test_bodies_that_are_not_what_they_say(live: Live) -> None:
    whole = gzip.compress(QUESTION)
    for broken in (b"no gzip", whole[:-9], whole + b"more", whole + whole, whole[:20]):
        answer = await post(live, broken, **{"content-encoding": "gzip"})
        assert answer.status_code == 400, broken
        assert "content-encoding" in answer.json()["detail"]
    for other in ("br", "zstd", "gzip, gzip", "deflate, gzip"):
        answer = await post(live, whole, **{"content-encoding": other})
        assert answer.status_code == 415
        assert answer.headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.integration
async def test_a_bomb_is_too_large(live: Live) -> None:
    bomb = gzip.compress(b'{"query":"' + b"x" * (64 << 20) + b'"}')
    assert len(bomb) < 1 << 17
    for url in (RECALL, f"{B}/sample/memories"):
        answer = await live.http.post(
            url, content=bomb, headers={**JSON, "content-encoding": "gzip"}
        )
        assert answer.status_code == 413


async def _chunks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * 65_536


@pytest.mark.integration
async def test_sizes_of_routes_and_of_bodies_that_say_none(live: Live) -> None:
    large = live.services.settings.server.max_small_body_bytes + 1
    assert (await post(live, b"x" * large)).status_code == 413
    assert (await live.http.post(RECALL, content=_chunks(40), headers=JSON)).status_code == 413
    small = await live.http.post(f"{B}/x/memories", content=b"[" * large, headers=JSON)
    assert small.status_code == 422
    for method, path in (("GET", f"{B}"), ("DELETE", f"{B}/never-heard-of")):
        refused = await live.http.request(method, path, content=b"x" * (SMALL_BYTES + 1))
        assert refused.status_code == 413
        assert (await live.http.request(method, path, content=_chunks(1))).status_code == 411


@asynccontextmanager
async def raw(api: Any, *messages: dict[str, Any], **headers: str) -> AsyncIterator[list[Any]]:
    """A request whose messages come as they are given, and then no more."""
    sent: list[Any] = []
    left = list(messages)

    async def receive() -> dict[str, Any]:
        if left:
            return left.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": RECALL, "raw_path": RECALL.encode(), "query_string": b"",
        "root_path": "", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in
                    {"host": "localhost", "content_type": "application/json", **headers}.items()],
    }  # fmt: skip
    await api(scope, receive, send)
    yield sent


PART = {"type": "http.request", "body": b"{", "more_body": True}


@pytest.mark.integration
async def test_a_body_that_does_not_come(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "GRACE_S", 0.05)
    async with asyncio.timeout(5), raw(live.api, PART, content_length="1000") as sent:
        assert sent[0]["status"] == 408
        assert (b"connection", b"close") in sent[0]["headers"]


@pytest.mark.integration
async def test_nothing_is_read_without_a_key(live: Live) -> None:
    settings = live.services.settings
    limits = settings.limits.model_copy(update={"require_api_key": True})
    keyed = settings.model_copy(update={"limits": limits})
    api = app.create(keyed, replace(live.services, settings=keyed))
    async with asyncio.timeout(5):
        async with raw(api, content_length=str(10 << 20)) as sent:  # and no byte of it comes
            assert sent[0]["status"] == 401
        key = await tenants.create_key(live.services.pool, "large", "test")
        async with raw(api, content_length=str(10 << 20), authorization=f"Bearer {key}") as sent:
            assert sent[0]["status"] == 413


@pytest.mark.integration
async def test_too_many_large_bodies_at_once(live: Live) -> None:
    before = live.api.state.bodies
    live.api.state.bodies = replace(before, memory=BodyMemory(200_000))
    try:
        body = b'{"items": [' + b" " * 150_000
        answer = await live.http.post(f"{B}/x/memories", content=body * 2, headers=JSON)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        fits = await live.http.post(f"{B}/x/memories", content=body, headers=JSON)
        assert fits.status_code == 422
        assert live.api.state.bodies.memory.held == 0
    finally:
        live.api.state.bodies = before


@pytest.mark.integration
async def test_problems_are_bounded_and_named(live: Live) -> None:
    many: dict[str, Any] = {"items": [{}] * 9_000}
    answer = await live.http.post(f"{B}/x/memories", json=many)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", "items", 0, "content"]
    metadata: dict[str, Any] = {f"k{i}": [] for i in range(5_000)}
    answer = await live.http.post(
        f"{B}/x/memories", json={"items": [{"content": "c", "metadata": metadata}]}
    )
    assert answer.status_code == 413
    assert len(answer.content) < 50_000
    for content in (b"{", b"[]", b"5", b'{"a": 1} x'):
        answer = await post(live, content)
        (problem,) = answer.json()["detail"]
        assert (answer.status_code, problem["loc"][0]) == (422, "body")
        assert problem["msg"].count("the body") == 1, problem
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    answer = await live.http.post(RECALL, json={"query": "x", "tags": deep})
    assert (answer.status_code, "deeper" in answer.text) == (422, True)
    for path in ("documents", "memories/list", "entities", "tags", "observations/scopes"):
        for name in ("limit", "offset"):
            answer = await live.http.get(f"{B}/sample/{path}?{name}=2147483647")
            assert answer.status_code == 422
            assert answer.json()["detail"][0]["loc"] == ["query", name]


@pytest.mark.unit
async def test_large_answers_count_until_they_are_read() -> None:
    memory = BodyMemory(8 * SMALL_BYTES, "answers")
    counted = Bodies(1, 1, BodyMemory(1), memory).counted
    small = Response(b"x" * SMALL_BYTES)
    assert counted("a", small) is small
    large = counted("a", Response(b"x" * (3 * SMALL_BYTES + 1)))
    with pytest.raises(Overloaded, match="answers"):
        counted("a", Response(b"y" * (2 * SMALL_BYTES)))
    other = counted("b", Response(b"z" * (2 * SMALL_BYTES)))  # there is room for others
    sent: list[bytes] = []

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))
        if message.get("more_body"):
            assert memory.held

    async def gone(message: Message) -> None:
        raise OSError("the client is gone")

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    await large({"type": "http"}, receive, send)
    assert b"".join(sent) == large.body
    assert max(map(len, sent)) <= SMALL_BYTES
    with pytest.raises(OSError):
        await other({"type": "http"}, receive, gone)
    assert memory.held == 0
    whole = counted("a", Response(b"x" * (20 * SMALL_BYTES)))  # one may be of any size
    await whole({"type": "http"}, receive, send)
    assert memory.held == 0
