"""A server for a measurement, and clients that ask it: each with a connection of its own."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson

from tests.bench import processes
from tests.bench.sets import Bank

SERVER, POSTGRES, CLIENT = SPENT = ("server", "Postgres", "client")
"""CPU-ms per recall."""

START_TIMEOUT_S = 180.0
IDLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Running:
    """A server that was started for a measurement: its address and its processes."""

    host: str
    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def cpu(self) -> tuple[dict[int, float], dict[int, float]]:
        """CPU seconds so far: of the server's processes, and of Postgres."""
        everything = processes.cpu_seconds(self.pid)
        database: dict[int, float] = {}
        for postgres in processes.find(self.pid, "postgres"):
            database |= processes.cpu_seconds(postgres)
        return {pid: s for pid, s in everything.items() if pid not in database}, database

    def bill(self, work: Callable[[], int]) -> dict[str, float]:
        """CPU-ms of every kind of process per request, while `work` sends requests and says how
        many; per second, where it sends none and so takes its time."""
        begin, before = time.perf_counter(), processes.by_kind(self.pid)
        count = work()
        divisor = count or time.perf_counter() - begin
        after = processes.by_kind(self.pid)
        return {
            kind: 1000 * processes.spent(before.get(kind, {}), now) / divisor
            for kind, now in after.items()
        }

    def idle(self) -> float:
        """CPU-ms per second that the server's processes take while nobody asks."""
        begin, (before, _) = time.perf_counter(), self.cpu()
        time.sleep(IDLE_S)
        wall, (after, _) = time.perf_counter() - begin, self.cpu()
        return 1000 * processes.spent(before, after) / wall


@contextmanager
def serving(data: Path, config: str, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """The server as `make serve` starts it, on a free port; stopped by Ctrl-C."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "serve.cli.main", "serve", "--port", str(port)]
    command += ["--data", str(data), "--config", config]
    whole = {**os.environ, "FOURFOLD_SAMPLE_BANK": "false", **(env or {})}
    data.mkdir(parents=True, exist_ok=True)
    with (data / "bench.log").open("ab") as log:
        child = subprocess.Popen(command, env=whole, stdout=log, stderr=log)
        try:
            server = Running("127.0.0.1", port, child.pid)
            _wait(server.url, child, data / "bench.log")
            yield server
        finally:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _wait(url: str, child: subprocess.Popen[bytes], log: Path) -> None:
    late = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < late:
        if child.poll() is not None:
            raise RuntimeError(f"the server ended: {log.read_text()[-2000:]}")
        try:
            if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")


def fill(server: Running, bank: Bank, batch: int) -> float | None:
    """Imports a bank over HTTP; memories per second, None where it is there already."""
    begin = time.perf_counter()
    with httpx.Client(base_url=server.url, timeout=600) as client:
        stats = client.get(f"/v1/default/banks/{bank.name}/stats")
        if stats.status_code == 200 and stats.json()["total_nodes"] == len(bank.memories):
            return None
        for start in range(0, len(bank.memories), batch):
            part = bank.memories[start : start + batch]
            path = f"/v1/default/banks/{bank.name}/memories/import"
            client.post(path, json={"memories": part}).raise_for_status()
    return len(bank.memories) / (time.perf_counter() - begin)


class Clients:
    """So many clients at once, in threads of this process: what they cost is not the server's."""

    def __init__(self, server: Running, bank_id: str, count: int) -> None:
        self._server = server
        self._path = f"/v1/default/banks/{bank_id}/memories/recall"
        self._local = threading.local()
        self._count = count

    def ask(self, texts: Sequence[str]) -> dict[str, float]:
        """Asks every text once. Answers are read and checked when the time is taken."""
        with ThreadPoolExecutor(self._count) as threads:
            own = time.process_time()
            begin, (server_before, database_before) = time.perf_counter(), self._server.cpu()
            asked = list(threads.map(self._one, texts))
            wall, (server_after, database_after) = time.perf_counter() - begin, self._server.cpu()
            own = time.process_time() - own
        bodies = [orjson.loads(body) for _, body in asked]
        waits = np.array([waited for waited, _ in asked])
        return {
            **percentiles(waits),
            "recalls/s": len(texts) / wall,
            "results": _results(bodies),
            "kB": sum(len(body) for _, body in asked) / len(texts) / 1000,
            SERVER: 1000 * processes.spent(server_before, server_after) / len(texts),
            POSTGRES: 1000 * processes.spent(database_before, database_after) / len(texts),
            CLIENT: 1000 * own / len(texts),
        }

    def empty(self, requests: int) -> int:
        """Sends requests that the application answers without any work; how many."""
        for _ in range(requests):
            client = self._connection()
            client.request("GET", "/health/live")
            client.getresponse().read()
        return requests

    def _connection(self) -> http.client.HTTPConnection:
        client: http.client.HTTPConnection | None = getattr(self._local, "client", None)
        if client is None:
            client = http.client.HTTPConnection(self._server.host, self._server.port, timeout=300)
            self._local.client = client
        return client

    def _one(self, text: str) -> tuple[float, bytes]:
        client = self._connection()
        body = orjson.dumps({"query": text, "include": {"entities": None}})
        begin = time.perf_counter()
        client.request("POST", self._path, body, {"content-type": "application/json"})
        answer = client.getresponse()
        content = answer.read()
        waited = time.perf_counter() - begin
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {content[:500]!r}")
        return waited, content


def _results(bodies: Sequence[Mapping[str, Any]]) -> float:
    """Results per answer, on average; an empty or degraded answer ends the measurement."""
    for body in bodies:
        if not body["results"] or "degraded" in body:
            raise RuntimeError(f"an answer is empty or lacks {body.get('degraded')}")
    return sum(len(body["results"]) for body in bodies) / len(bodies)


def percentiles(seconds: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    return {f"p{p} ms": 1000 * float(np.percentile(seconds, p)) for p in (50, 95, 99)}
