"""HAProxy is killed, and its configuration replaced, while clients ask: nobody's request is lost.

With the times of a pod: on one machine, requests that a replaced HAProxy has are cut after 5 s.

That Ray starts a killed one again is Ray's, and not tried here: the test does it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from serve.local import haproxy
from serve.local.environment import POD
from tests.serve.server import ROOT, free_port, until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        haproxy.available() is None, reason="Ray ships no HAProxy for this platform"
    ),
]

CLIENTS = 8
PAUSES_S = (0.5, 1.0)
"""A client's before its first and second retry."""


class Proxy:
    """HAProxy before replicas at these ports."""

    def __init__(self, folder: Path, replicas: list[int]) -> None:
        self.port = free_port()
        own = haproxy.environment(str(haproxy.available()), folder / "h")
        env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.proxy", str(folder), str(self.port),
             *map(str, replicas)],
            env={**env, **own, **POD, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        self.pid = self.tell("start")

    def tell(self, *words: object) -> int:
        """One command; the process id of the HAProxy that serves from then on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, Path(self._log.name).read_text()[-3000:]
        self.pid = int(line)
        return self.pid

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()
        self._log.close()


class Replica:
    """Answers each request; those for /held only once `release` is set."""

    def __init__(self) -> None:
        self.port = 0
        self.answered = 0
        self.held = asyncio.Event()
        self.release = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if head.startswith(b"GET /held"):
                    self.held.set()
                    await self.release.wait()
                self.answered += not head.startswith(b"GET /-/")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsuccess")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@dataclass
class Seen:
    answered: int = 0
    hard: list[str] = field(default_factory=list)
    """First answers that were not 200."""
    failed: list[str] = field(default_factory=list)
    """What was still not 200 after two retries."""


@asynccontextmanager
async def replicas(count: int) -> AsyncIterator[list[Replica]]:
    made = [Replica() for _ in range(count)]
    async with AsyncExitStack() as stack:
        for one in made:
            listener = await asyncio.start_server(one.serve, "127.0.0.1", 0)
            stack.callback(listener.close)
            one.port = listener.sockets[0].getsockname()[1]
        yield made


@asynccontextmanager
async def load(url: str) -> AsyncIterator[Seen]:
    """Clients that ask without a pause, each over connections that it keeps."""
    seen, stopping = Seen(), asyncio.Event()

    async def ask(http: httpx.AsyncClient) -> None:
        for pause in (*PAUSES_S, None):
            try:
                answer = await http.get("/recall")
                if answer.status_code == 200:
                    seen.answered += 1
                    return
                said = f"{answer.status_code} {answer.text[:100]}"
            except httpx.TransportError as error:
                said = repr(error)
            if pause is None:
                seen.failed.append(said)
                return
            if pause == PAUSES_S[0]:
                seen.hard.append(said)
            await asyncio.sleep(pause)

    async def client() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=20, trust_env=False) as http:
            while not stopping.is_set():
                await ask(http)

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(client())
        try:
            yield seen
        finally:
            stopping.set()


async def more(seen: Seen, count: int) -> None:
    wanted = seen.answered + count
    async with asyncio.timeout(60):
        while seen.answered < wanted:
            assert not seen.failed, seen.failed[:3]
            await asyncio.sleep(0.01)


@asynccontextmanager
async def proxied(folder: Path, there: list[Replica]) -> AsyncIterator[Proxy]:
    proxy = await asyncio.to_thread(Proxy, folder, [one.port for one in there])
    try:
        yield proxy
    finally:
        await asyncio.to_thread(proxy.end)


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name, as sockets need."""
    import shutil
    import tempfile

    made = Path(tempfile.mkdtemp(prefix="ffp-"))
    yield made
    shutil.rmtree(made)


async def test_a_reload_under_load_loses_nothing(folder: Path) -> None:
    """Five, each with one replica more or less; a request that runs meanwhile is answered by the
    replica that is not in the list any more."""
    async with replicas(3) as there, proxied(folder, there[:2]) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
            long = asyncio.create_task(http.get("/held"))
            waits = [asyncio.create_task(one.held.wait()) for one in there[:2]]
            await asyncio.wait(waits, timeout=20, return_when=asyncio.FIRST_COMPLETED)
            (holder,) = [one for one in there if one.held.is_set()]
            for wait in waits:
                wait.cancel()
            others = [one for one in there if one is not holder]
            async with load(url) as seen:
                await more(seen, 50)
                first = proxy.pid
                for now in (there, others, others[:1], others, others):
                    before = proxy.pid
                    ports = [one.port for one in now]
                    assert await asyncio.to_thread(proxy.tell, "reload", *ports) != before
                    await more(seen, 50)
                without = holder.answered
                await more(seen, 50)
            assert psutil.pid_exists(first), "it has a request that is not answered"
            holder.release.set()
            assert (await long).text == "success"
        print(
            f"\nreload: {seen.answered} answered, {len(seen.hard)} hard, {len(seen.failed)} failed"
        )
        assert not seen.failed
        assert not seen.hard
        assert holder.answered == without + 1, "one that left is asked nothing more"
        await asyncio.to_thread(until, lambda: _ended(first))


async def test_a_killed_haproxy_is_one_retry(folder: Path) -> None:
    async with replicas(2) as there, proxied(folder, there) as proxy:
        async with load(f"http://127.0.0.1:{proxy.port}") as seen:
            await more(seen, 50)
            before = proxy.pid
            os.kill(before, signal.SIGKILL)
            assert await asyncio.to_thread(proxy.tell, "start") != before
            await more(seen, 100)
        print(f"\nkill: {seen.answered} answered, {len(seen.hard)} hard, {len(seen.failed)} failed")
        assert not seen.failed
        assert seen.hard, "it was not killed under load"
        assert len(seen.hard) <= CLIENTS
        assert all(one.answered for one in there)


def _ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
