"""Two tenants on a real server: whatever one of them does, the other is answered.

The witness asks for /health/live and recalls from a small bank of its own, all the time; the loud
one crowds the server in another way in each test.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import orjson
import pytest

from tests.serve.server import ROOT, Server

pytestmark = [pytest.mark.serve, pytest.mark.timeout(280)]

LONGEST_S = 5.0
"""No answer takes longer, on a small machine with other work."""
SECONDS = 5.0
BANKS = "/v1/default/banks"


@dataclass(slots=True)
class Crowded:
    server: Server
    loud: str
    quiet: str
    health: list[tuple[int, float]] = field(default_factory=list)
    recalls: list[tuple[int, float]] = field(default_factory=list)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """The witness asks as long as the block runs, and is refused nothing."""
        stop = asyncio.Event()
        headers = {"authorization": f"Bearer {self.quiet}"}
        async with httpx.AsyncClient(
            base_url=self.server.url, headers=headers, timeout=60, trust_env=False
        ) as http:

            async def ask(method: str, path: str, kept: list[tuple[int, float]]) -> None:
                body = {"query": "who keeps the harbour log"} if method == "POST" else None
                while not stop.is_set():
                    begin = time.monotonic()
                    answer = await http.request(method, path, json=body)
                    kept.append((answer.status_code, time.monotonic() - begin))
                    await asyncio.sleep(0.1)

            self.health.clear()
            self.recalls.clear()
            tasks = [
                asyncio.create_task(ask("GET", "/health/live", self.health)),
                asyncio.create_task(ask("POST", f"{BANKS}/witness/memories/recall", self.recalls)),
            ]
            try:
                yield
            finally:
                stop.set()
                await asyncio.gather(*tasks)
        for what, kept in (("health", self.health), ("recalls", self.recalls)):
            assert Counter(status for status, _ in kept) == {200: len(kept)}, what
            assert max(spent for _, spent in kept) < LONGEST_S, (what, sorted(kept)[-5:])
        assert self.health
        assert self.recalls

    def request(self, method: str, path: str, body: object = None) -> bytes:
        content = b"" if body is None else orjson.dumps(body)
        return (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Authorization: Bearer {self.loud}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        ).encode() + content

    async def crowd(self, request: bytes, connections: int) -> Counter[int]:
        """So many connections send the request again and again."""
        seen: Counter[int] = Counter()
        stop_at = time.monotonic() + SECONDS

        async def go() -> None:
            while time.monotonic() < stop_at:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
                writer.write(request)
                head = await reader.readline()
                seen[int(head.split()[1]) if head else 0] += 1
                writer.close()

        await asyncio.gather(*(go() for _ in range(connections)))
        return seen

    async def half_sent(self, start: bytes, connections: int, wait_s: float) -> list[bytes]:
        """Connections on which this comes and no more; what they hear within `wait_s`."""
        opened = [
            await asyncio.open_connection("127.0.0.1", self.server.port) for _ in range(connections)
        ]
        for _, writer in opened:
            writer.write(start)

        async def heard(reader: asyncio.StreamReader) -> bytes:
            try:
                async with asyncio.timeout(wait_s):
                    return await reader.read(500)
            except TimeoutError:
                return b"still open"

        found = await asyncio.gather(*(heard(reader) for reader, _ in opened))
        for _, writer in opened:
            writer.close()
        return list(found)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowded]:
    server = Server(
        tmp_path_factory.mktemp("crowds") / "data",
        FOURFOLD_REQUIRE_API_KEY="true",
        FOURFOLD_SAMPLE_BANK="false",
    )
    try:
        server.start()
        loud, quiet = (key_of(server, tenant) for tenant in ("loud", "quiet"))
        found = Crowded(server, loud, quiet)
        extra = {"note": "and on " * 100}
        for key, bank, count in ((quiet, "witness", 20), (loud, "shelf", 2_000)):
            memories = [
                {"text": f"Ann saw ship {i} near the harbour.", "metadata": extra}
                for i in range(count)
            ]
            done = httpx.post(
                f"{server.url}{BANKS}/{bank}/memories/import",
                json={"memories": memories},
                headers={"authorization": f"Bearer {key}"},
                timeout=120,
            )
            assert done.status_code == 200, done.text
        yield found
    finally:
        server.kill()


def key_of(server: Server, tenant: str) -> str:
    command = [sys.executable, "-m", "serve.cli.main", "keys", "create"]
    command += ["--tenant", tenant, "--data", str(server.data)]
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.check_output(command, cwd=ROOT, env=env, text=True).strip()


async def test_recalls(crowded: Crowded) -> None:
    body = {"query": "which ship did Ann see", "budget": "high"}
    async with crowded.watched():
        seen = await crowded.crowd(
            crowded.request("POST", f"{BANKS}/shelf/memories/recall", body), 300
        )
    assert set(seen) <= {200, 503}
    assert seen[200]


async def test_writes(crowded: Crowded) -> None:
    memories = [
        {"text": f"list {i}", "entities": [f"n{i}x{j}" for j in range(40)]} for i in range(3)
    ]
    request = crowded.request("POST", f"{BANKS}/lists/memories/import", {"memories": memories})
    async with crowded.watched():
        seen = await crowded.crowd(request, 40)
    assert set(seen) <= {200, 503}
    assert seen[200]


async def test_lists(crowded: Crowded) -> None:
    request = crowded.request("GET", f"{BANKS}/shelf/memories/list?q=zzzq&limit=1")
    async with crowded.watched():
        seen = await crowded.crowd(request, 100)
    assert set(seen) <= {200, 503}
    assert seen[200]


async def test_pages(crowded: Crowded) -> None:
    request = crowded.request("GET", f"{BANKS}/shelf/memories/list?limit=2000000000")
    async with crowded.watched():
        seen = await crowded.crowd(request, 40)
    assert set(seen) == {422}
    assert seen[422] < 60 * SECONDS + 100  # and no faster


async def test_bodies_that_never_come_without_a_key(crowded: Crowded) -> None:
    start = (
        f"POST {BANKS}/nobody/memories/recall HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    ).encode()
    async with crowded.watched():
        heard = await crowded.half_sent(start, 500, 14.0)
    assert {answer[:12] for answer in heard} == {b"HTTP/1.1 408"}
    assert orjson.loads(heard[0].partition(b"\r\n\r\n")[2])["detail"]


async def test_half_sent_heads(crowded: Crowded) -> None:
    async with crowded.watched():
        heard = await crowded.half_sent(b"GET /health HTTP/1.1\r\nHost: a\r\nX-A: ", 2_000, 14.0)
    assert {answer[:12] for answer in heard} == {b"HTTP/1.1 408"}


async def test_large_bodies_without_a_key(crowded: Crowded) -> None:
    body = b'{"a":[' + b",".join([b"{}"] * 5_000_000) + b"]}"
    process = crowded.server.named("ServeReplica:fourfold:Recall")[0]
    before = process.memory_info().rss
    async with (
        crowded.watched(),
        httpx.AsyncClient(base_url=crowded.server.url, timeout=60, trust_env=False) as http,
    ):
        path = f"{BANKS}/nobody/memories/recall"

        async def send() -> int:
            try:
                return (await http.post(path, content=body)).status_code
            except httpx.TransportError:  # told before it had sent all, and cut off
                return 401

        statuses = await asyncio.gather(*(send() for _ in range(6)))
    assert set(statuses) == {401}
    assert process.memory_info().rss - before < 256 * 2**20
