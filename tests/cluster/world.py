"""What tests do to a cluster: start it, load it, hurt it, and count what its clients saw."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from retrieval.store.database.embedded import EmbeddedPostgres
from serve.local import loopback
from serve.local.environment import SHARED
from serve.settings import parse
from tests.serve.server import ROOT, free_port, until

BASE = "/v1/default/banks"
MARK = "FOURFOLD_TEST_MARK"
TRIES = 3
"""A client's attempts: the first answer, and two retries after 503 or a broken connection."""
START_S = 420.0


class World:
    """A cluster, its database and its HTTP address; ended with everything that it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._mark = uuid.uuid4().hex
        self._postgres = EmbeddedPostgres(folder / "postgres")
        self._ground: subprocess.Popen[str] | None = None
        self._short = Path(tempfile.mkdtemp(prefix="ffc-"))  # Ray's sockets have short names only
        self.raylets: dict[str, int] = {}
        self.gone: set[str] = set()
        """Nodes that were killed."""
        self.operator: dict[str, str] = {}
        """Headers of whoever may read /metrics."""

    @property
    def postgres(self) -> EmbeddedPostgres:
        return self._postgres

    def start(
        self,
        nodes: dict[str, tuple[str, int]],
        tree: dict[str, Any],
        more: Mapping[str, str] | None = None,
    ) -> World:
        """`nodes`: role and CPUs by name; `more`: variables of all processes."""
        import asyncio

        from serve.opening.database import bring_up_to_date

        self._postgres.start()
        database = {"database": {"database_url": self._postgres.dsn}}
        asyncio.run(bring_up_to_date(parse(database, {})))
        metrics = self.folder / "metrics"
        metrics.mkdir()
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FOURFOLD_", "HINDSIGHT_", "RAY_", "PROMETHEUS_"))
        }
        env = {
            **inherited,
            # All but the token: the raylets that the tests start ask nobody for one.
            **{name: value for name, value in SHARED.items() if name != "RAY_AUTH_MODE"},
            **loopback.ENVIRONMENT,
            "FOURFOLD_DATABASE_URL": self._postgres.dsn,
            "PROMETHEUS_MULTIPROC_DIR": str(metrics),
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
            MARK: self._mark,
            **(more or {}),
        }
        self.log = self.folder / "ground.log"
        with self.log.open("w") as log:
            self._ground = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.ground", str(self._short)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                cwd=self.folder,  # which Ray puts before the paths that a stage may have of its own
                text=True,
            )
        for name, (role, cpus) in nodes.items():
            self.raylets = self.tell("add", name=name, role=role, cpus=cpus)
        self.tell("connect", port=self.port)
        self.tell("deploy", tree=tree)
        return self

    def tell(self, do: str, **named: Any) -> dict[str, Any]:
        """One command to the ground; its answer."""
        assert self._ground is not None
        assert self._ground.stdin is not None
        assert self._ground.stdout is not None
        self._ground.stdin.write(json.dumps({"do": do, **named}) + "\n")
        self._ground.stdin.flush()
        line = self._ground.stdout.readline()
        assert line, f"the ground ended:\n{self.log.read_text()[-3000:]}"
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, f"{answer}\n{self.log.read_text()[-3000:]}"
        return answer

    def replicas(self, stage: str) -> dict[int, str]:
        """The processes of a stage's replicas, and on which node each runs."""
        by_raylet = {pid: name for name, pid in self.raylets.items()}
        found = {}
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[:1] == [f"ray::ServeReplica:fourfold:{stage}"]:
                    found[process.pid] = by_raylet.get(process.ppid(), "head")
        return found

    def controller(self) -> int:
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                if "ServeController" in " ".join(process.cmdline()[:1]):
                    return process.pid
        raise AssertionError("there is no controller")

    def kill_node(self, name: str) -> None:
        """As a lost machine: raylet and workers, at once."""
        raylet = psutil.Process(self.raylets.pop(name))
        self.gone.add(name)
        for process in [*raylet.children(recursive=True), raylet]:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self._mark:
                    yield process

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's series with these labels, over all processes."""
        text = httpx.get(f"{self.url}/metrics", timeout=30, headers=self.operator).text
        total = 0.0
        for line in text.splitlines():
            if re.match(rf"{name}[{{ ]", line) and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def counters(self) -> dict[str, float]:
        """Every counter of the page, by name and labels, summed over processes."""
        text = httpx.get(f"{self.url}/metrics", timeout=60).text
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in text.splitlines())
            if re.match(r"fourfold_\w+_(total|count|sum|bucket)\b", name)
        }

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows of a statement on the database."""
        import asyncio

        import asyncpg

        async def ask() -> list[tuple[Any, ...]]:
            connection = await asyncpg.connect(self._postgres.dsn)
            try:
                return [tuple(row) for row in await connection.fetch(statement)]
            finally:
                await connection.close()

        return asyncio.run(ask())

    def end(self) -> None:
        import shutil

        if self._ground is not None:
            assert self._ground.stdin is not None
            self._ground.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._ground.wait(30)
            if self._ground.stdout is not None:
                self._ground.stdout.close()
        ours = list(self._processes())
        for process in ours:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)
                process.kill()
        psutil.wait_procs(ours, 10)
        if self._ground is not None:
            self._ground.wait(10)
        self._postgres.stop()
        shutil.rmtree(self._short, ignore_errors=True)


@dataclass
class Seen:
    """What clients saw: seconds of each call, first answers that were not 200, calls that failed
    after all tries, and parts that answers lacked."""

    seconds: list[float] = field(default_factory=list)
    hard: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    degraded: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def slowest(self) -> float:
        return max(self.seconds, default=0.0)


class Load:
    """Clients that recall from banks until `stop`; each bank knows one thing, and is asked it."""

    def __init__(
        self, url: str, banks: list[str], clients: int, per_s: float, key: str = ""
    ) -> None:
        self.seen = Seen()
        self._headers = bearer(key)
        self._url, self._banks = url, banks
        self._pause_s = clients / per_s
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        with client(self._url, self._headers) as http:
            turn = number
            while not self._stopping.wait(self._pause_s):
                turn += 1
                self._ask(http, self._banks[turn % len(self._banks)])

    def _ask(self, http: httpx.Client, bank: str) -> None:
        begin, said = time.monotonic(), ""
        for attempt in range(TRIES):
            try:
                answer = http.post(f"{BASE}/{bank}/memories/recall", json={"query": "a lantern?"})
                said = f"{answer.status_code} {answer.text[:200]}"
                if answer.status_code == 200:
                    body = answer.json()
                    if [r["text"] for r in body["results"]] != [sentence(bank)]:
                        self.seen.wrong.append(answer.text[:200])
                    self.seen.degraded += body.get("degraded", [])
                    break
            except httpx.TransportError as error:
                said = repr(error)
            if attempt == 0:
                self.seen.hard.append(said)
            time.sleep(0.2 * (attempt + 1))
        else:
            self.seen.failed.append(said)
        self.seen.seconds.append(time.monotonic() - begin)


def stage(role: str, **told: Any) -> dict[str, Any]:
    """A stage on the nodes of a role, two of it never on one node."""
    placed = {"max_per_node": 1, "labels": {"fourfold-role": role}}
    return {"placement": "deployment", **told, **placed}


def sentence(bank: str) -> str:
    return f"The {bank} keeps a lantern."


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def client(url: str, headers: Mapping[str, str]) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=70, trust_env=False, headers=headers)


def fill(url: str, banks: list[str], key: str = "") -> None:
    with client(url, bearer(key)) as http:
        for bank in banks:
            memories = [{"key": "k", "text": sentence(bank)}]
            done = http.post(f"{BASE}/{bank}/memories/import", json={"memories": memories})
            assert done.status_code == 200, done.text
            asked = http.post(f"{BASE}/{bank}/memories/recall", json={"query": "a lantern?"})
            assert asked.status_code == 200, asked.text


__all__ = [
    "BASE",
    "START_S",
    "Load",
    "Seen",
    "World",
    "bearer",
    "client",
    "fill",
    "stage",
    "until",
]
