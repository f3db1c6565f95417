"""How long a recall takes and what it costs: `python -m tests.bench.latency`.

For each bank size: starts the server as `make serve` does, imports a made-up bank over HTTP, and
asks questions from 1 and from 8 clients. Reports p50/p95/p99, recalls per second, and CPU-ms per
recall of the server's processes and of Postgres. Then the same bank and questions in this
process, without Serve and HTTP: CPU-ms per recall, and wall time by stage.

No cross-encoder: the order is the fused one. Reference lines are another server's published
figures for the same kind of machine (docs/architecture.md).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson

from retrieval.settings import RecallSettings
from retrieval.types import Include, RecallQuery
from tests.bench import processes, report, synthetic
from tests.bench.harness import IMPORT_BATCH, system
from tests.bench.sets import Bank

START_TIMEOUT_S = 180.0
COLUMNS = ("p50 ms", "p95 ms", "p99 ms", "recalls/s", "CPU-ms server", "CPU-ms Postgres")
PEER = {
    600: {
        1: {"p50 ms": 101.0, "CPU-ms server": 74.0, "CPU-ms Postgres": 58.0},
        8: {"recalls/s": 10.3},
    },
    50_000: {1: {"p50 ms": 144.0, "CPU-ms server": 67.0, "CPU-ms Postgres": 144.0}},
}
"""Hindsight 1.1.0 without a cross-encoder on two cores, by bank size and clients."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that was started for a measurement: its address and its processes."""

    url: str
    pid: int

    def cpu(self) -> tuple[dict[int, float], dict[int, float]]:
        """CPU seconds so far: of the server's processes, and of Postgres."""
        everything = processes.cpu_seconds(self.pid)
        database: dict[int, float] = {}
        for postgres in processes.find(self.pid, "postgres"):
            database |= processes.cpu_seconds(postgres)
        return {pid: s for pid, s in everything.items() if pid not in database}, database


@contextmanager
def serving(data: Path, config: str) -> Iterator[Running]:
    """The server as `make serve` starts it, on a free port; stopped by Ctrl-C."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "serve.cli", "serve", "--port", str(port)]
    command += ["--data", str(data), "--config", config]
    env = {**os.environ, "FOURFOLD_SAMPLE_BANK": "false"}
    data.mkdir(parents=True, exist_ok=True)
    with (data / "bench.log").open("ab") as log:
        child = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, child, data / "bench.log")
            yield Running(url, child.pid)
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


def fill(url: str, bank: Bank) -> float | None:
    """Imports a bank over HTTP; memories per second, None where it is there already."""
    begin = time.perf_counter()
    with httpx.Client(base_url=url, timeout=600) as client:
        stats = client.get(f"/v1/default/banks/{bank.name}/stats")
        if stats.status_code == 200 and stats.json()["total_nodes"] == len(bank.memories):
            return None
        for start in range(0, len(bank.memories), IMPORT_BATCH):
            part = bank.memories[start : start + IMPORT_BATCH]
            path = f"/v1/default/banks/{bank.name}/memories/import"
            client.post(path, json={"memories": part}).raise_for_status()
    return len(bank.memories) / (time.perf_counter() - begin)


def measure(server: Running, bank: Bank, clients: int, requests: int) -> dict[str, float]:
    """Asks `requests` questions from so many clients at once, each on its own connection."""
    texts = [question.text for question in bank.questions]
    path = f"/v1/default/banks/{bank.name}/memories/recall"
    local = threading.local()

    def ask(number: int) -> float:
        client = getattr(local, "client", None)
        if client is None:
            client = local.client = httpx.Client(base_url=server.url, timeout=120)
        body = {"query": texts[number % len(texts)], "include": {"entities": None}}
        begin = time.perf_counter()
        answer = client.post(path, json=body)
        waited = time.perf_counter() - begin
        answer.raise_for_status()
        if not answer.json()["results"]:
            raise RuntimeError("a recall came back empty")
        return waited

    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(ask, range(max(10, clients * 2))))  # connections, caches, first loads
        begin, (server_before, database_before) = time.perf_counter(), server.cpu()
        waits = np.array(list(threads.map(ask, range(1000, 1000 + requests))))
        wall, (server_after, database_after) = time.perf_counter() - begin, server.cpu()
    return {
        **_percentiles(waits),
        "recalls/s": requests / wall,
        "CPU-ms server": 1000 * processes.spent(server_before, server_after) / requests,
        "CPU-ms Postgres": 1000 * processes.spent(database_before, database_after) / requests,
    }


async def in_process(data: Path, bank: Bank, requests: int) -> dict[str, Any]:
    """The same without Serve and HTTP, one recall at a time: cost, and wall ms by stage.

    `data` is the database's folder, with the bank in it.
    """
    async with system(data) as run:
        engine = run.engine(RecallSettings())
        texts = [question.text for question in bank.questions]

        async def ask(number: int) -> tuple[dict[str, float], int]:
            query = RecallQuery(
                tenant=run.tenant,
                bank_id=bank.name,
                text=texts[number % len(texts)],
                now=datetime.now(UTC),
                include=Include(entities=None),
            )
            result = await engine.recall(query)
            begin = time.perf_counter()
            orjson.dumps(result.body, option=orjson.OPT_SERIALIZE_NUMPY)
            serialised = time.perf_counter() - begin
            return {**result.seconds, "serialise": serialised}, len(result.body["results"])

        for number in range(10):
            await ask(number)
        database = processes.cpu_seconds(run.postgres)
        begin = time.process_time()
        waits, stages, results = [], [], []
        for number in range(1000, 1000 + requests):
            started = time.perf_counter()
            seconds, count = await ask(number)
            waits.append(time.perf_counter() - started)
            stages.append(seconds)
            results.append(count)
        spent = time.process_time() - begin
        postgres = processes.spent(database, processes.cpu_seconds(run.postgres))
        names = dict.fromkeys(name for row in stages for name in row)
        return {
            **_percentiles(np.array(waits)),
            "recalls/s": requests / sum(waits),
            "CPU-ms server": 1000 * spent / requests,
            "CPU-ms Postgres": 1000 * postgres / requests,
            "results": float(np.mean(results)),
            "stages_ms": {
                name: 1000 * float(np.mean([row.get(name, 0.0) for row in stages]))
                for name in names
            },
        }


def _percentiles(seconds: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    return {f"p{p} ms": 1000 * float(np.percentile(seconds, p)) for p in (50, 95, 99)}


def bench(
    sizes: Sequence[int], clients: Sequence[int], requests: int, config: str, data: Path
) -> list[dict[str, Any]]:
    reports = []
    for size in sizes:
        bank = synthetic.bank(f"bench-{size}", size, 2 * requests)
        found: dict[str, Any] = {"memories": size, "requests": requests}
        folder = data / str(size)
        with serving(folder, config) as server:
            found["import_per_s"] = fill(server.url, bank)
            found["http"] = {n: measure(server, bank, n, requests) for n in clients}
        found["in_process"] = asyncio.run(in_process(folder / "postgres", bank, requests))
        reports.append(found)
        print_report(found)
    return reports


def print_report(found: dict[str, Any]) -> None:
    size = found["memories"]
    rows: dict[str, dict[str, float]] = {}
    for clients, row in found["http"].items():
        rows[f"HTTP, {clients} client(s)"] = row
        if reference := PEER.get(size, {}).get(clients):
            rows[f"  Hindsight 1.1.0, {clients} client(s)"] = reference
    rows["in process, 1 caller"] = found["in_process"]
    if found["import_per_s"] is not None:
        print(f"\nimport over HTTP: {found['import_per_s']:.0f} memories/s")
    report.table(f"{size:,} memories, {found['requests']} recalls", COLUMNS, rows)
    stages = found["in_process"]["stages_ms"]
    shown = {name: {"ms": ms} for name, ms in sorted(stages.items(), key=lambda s: -s[1])}
    report.table("in process, wall ms by stage (stages overlap and nest)", ("ms",), shown)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench latency", description=__doc__.split("\n")[0])
    parser.add_argument("--size", action="append", type=int, dest="sizes")
    parser.add_argument("--clients", action="append", type=int)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--config", default="configs/local.yaml")
    parser.add_argument("--data", type=Path, help="keep the banks here")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fourfold-") as folder:
        Path(folder).chmod(0o755)
        reports = bench(
            given.sizes or [600, 50_000],
            given.clients or [1, 8],
            given.requests,
            given.config,
            given.data or Path(folder),
        )
    if given.json:
        given.json.write_text(json.dumps({**report.machine(), "reports": reports}, indent=1))


if __name__ == "__main__":
    main()
