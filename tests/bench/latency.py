"""How long a recall takes and what it costs: `python -m tests.bench.latency`.

For each bank size: a made-up bank (a small one imported over HTTP, a large one by the write path
in this process), the server as `make serve` starts it, and questions from 1 and from 8 clients:
p50/p95/p99, recalls per second, and CPU-ms per recall of the server's processes and of Postgres;
the clients' own CPU time is shown beside it, not in it. No question is asked twice of one server,
so none is answered from the cache of query vectors. Then the same bank in this process, without
Serve and HTTP: CPU-ms per recall by stage (tests/bench/stages.py). Without a cross-encoder the
order is the fused one.

`--rerank` asks the smallest bank once more through a cross-encoder on CPU: six layers in
MiniLM's shape under a random head (its scores mean nothing, its cost is that of the real one), in
the precision that is the default and in int8.

Reference lines are another server's figures on two cores of the same kind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# As the server sets it, and before torch and FAISS are imported.
os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}

import uvloop

from tests.bench import report, stages, synthetic
from tests.bench.guard import guarded
from tests.bench.serving import IDLE_S, SERVER, SPENT, Clients, Running, fill, serving
from tests.bench.sets import Bank
from tests.support.system import IMPORT_BATCH, System, system

LARGE = 5_000
"""Banks above this size are imported without HTTP, to save time."""
ANSWERING = ("replica", "PostgreSQL")
"""Processes that work for a recall; the others serve, watch and keep. Both ways of counting are
shown."""
WARM_UP = 20
"""Questions before each round: connections, first loads."""
RERANKS = 24
PRECISIONS = ("auto", "int8")
STAGE_ROUNDS = 2

COLUMNS = ("p50 ms", "p95 ms", "p99 ms", "recalls/s", "results", "kB", *SPENT)
PEER = {
    (600, False, 1): {"p50 ms": 101.0, SERVER: 74.0, "CPU-ms Postgres": 58.0},
    (600, False, 8): {"recalls/s": 10.3},
    (50_000, False, 1): {"p50 ms": 144.0, SERVER: 67.0, "CPU-ms Postgres": 144.0},
    (600, True, 1): {"p50 ms": 4_400.0, SERVER: 8_150.0},
    (600, True, 8): {"recalls/s": 0.27},
}
"""Hindsight 1.1.0 on two cores, by bank size, with MiniLM-L6 as cross-encoder or without any, and
clients."""


class Questions:
    """A bank's questions, each given out once."""

    def __init__(self, bank: Bank) -> None:
        self._left = [question.text for question in bank.questions]

    def take(self, count: int) -> list[str]:
        taken, self._left = self._left[:count], self._left[count:]
        if len(taken) < count:
            raise ValueError(f"{count - len(taken)} questions too few")
        return taken


async def import_here(data: Path, bank: Bank) -> None:
    """Imports a bank by the write path in this process, unless it is there."""
    batches = iter(range(0, len(bank.memories), IMPORT_BATCH))

    async def work(run: System) -> None:
        for start in batches:  # shared: one embeds while the other writes
            await run.import_bank(bank.name, bank.memories[start : start + IMPORT_BATCH])

    async with system(data, threads=os.cpu_count() or 1) as run:
        stored = await run.pool.fetchval(
            "select count(*) from memory_units join banks using (bank)"
            " where bank_id = $1 and ordinal is not null",
            bank.name,
        )
        if stored != len(bank.memories):
            await asyncio.gather(work(run), work(run))


def measure(
    server: Running, bank_id: str, questions: Questions, clients: Sequence[int], requests: int
) -> dict[int, dict[str, float]]:
    found = {}
    for count in clients:
        asking = Clients(server, bank_id, count)
        asking.ask(questions.take(min(WARM_UP, requests)))
        found[count] = asking.ask(questions.take(requests))
    return found


def bills(
    server: Running, bank_id: str, questions: Questions, requests: int
) -> dict[str, dict[str, float]]:
    """CPU-ms by kind of process: of a recall, of a request that asks for nothing (HAProxy, uvicorn,
    Serve and FastAPI alone), and of a second in which nobody asks."""
    asking = Clients(server, bank_id, 1)
    texts = questions.take(requests)

    def rest() -> int:
        time.sleep(IDLE_S)
        return 0

    def recall() -> int:
        asking.ask(texts)
        return len(texts)

    found = {
        "recall": server.bill(recall),
        "empty request": server.bill(lambda: asking.empty(requests)),
        "a second of rest": server.bill(rest),
    }
    kinds = sorted(found["recall"], key=lambda kind: -found["recall"][kind])
    return {kind: {name: bill.get(kind, 0.0) for name, bill in found.items()} for kind in kinds}


async def in_process(data: Path, bank_id: str, questions: Questions, requests: int) -> Any:
    async with system(data) as run:
        engine = run.engine()
        for text in questions.take(WARM_UP):
            await engine.recall(stages.question(run, bank_id, text))
        rounds = [questions.take(requests) for _ in range(STAGE_ROUNDS)]
        return await stages.by_stage(run, bank_id, rounds)


def bench(
    size: int, clients: Sequence[int], requests: int, config: str, data: Path
) -> dict[str, Any]:
    """One size: over HTTP, then by stage."""
    rounds = (len(clients) + 1) * (requests + WARM_UP) + STAGE_ROUNDS * requests + WARM_UP
    bank = synthetic.bank(f"bench-{size}", size, rounds)
    questions = Questions(bank)
    found: dict[str, Any] = {"memories": size, "requests": requests, "reranked": ""}
    if size > LARGE:
        asyncio.run(import_here(data / "postgres", bank))
    with serving(data, config) as server:
        found["import_per_s"] = fill(server, bank, IMPORT_BATCH)
        found["idle_cpu_ms_per_s"] = server.idle()
        found["http"] = measure(server, bank.name, questions, clients, requests)
        found["bill"] = bills(server, bank.name, questions, requests)
    found["stages"] = uvloop.run(in_process(data / "postgres", bank.name, questions, requests))
    if 1 in found["http"]:
        served = found["http"][1][SERVER]
        found["stages"]["Serve and HTTP"] = served - found["stages"]["recall"]
    return found


def bench_rerank(
    size: int, clients: Sequence[int], config: str, data: Path, precision: str
) -> dict[str, Any]:
    """One size through a cross-encoder of this precision, over HTTP."""
    from tests.models.weights import make_cross_encoder

    bank = synthetic.bank(f"bench-{size}", size, 2 * RERANKS * len(clients))
    questions = Questions(bank)
    model = make_cross_encoder(data / "cross-encoder")
    env = {
        "FOURFOLD_RERANKER_PROVIDER": "local",
        "FOURFOLD_RERANKER_LOCAL_MODEL": str(model),
        "FOURFOLD_RERANKER_LOCAL_PRECISION": precision,
    }
    found: dict[str, Any] = {"memories": size, "requests": RERANKS, "reranked": precision}
    with serving(data, config, env) as server:
        fill(server, bank, IMPORT_BATCH)
        found["http"] = measure(server, bank.name, questions, clients, RERANKS)
    return found


def print_report(found: dict[str, Any]) -> None:
    size, reranked = found["memories"], found["reranked"]
    rows: dict[str, dict[str, float]] = {}
    for clients, row in found["http"].items():
        rows[f"{clients} client(s)"] = row
        if reference := PEER.get((size, bool(reranked), clients)):
            rows[f"  Hindsight, {clients}"] = reference
    with_model = f", cross-encoder in {reranked}" if reranked else ""
    title = f"{size:,} memories{with_model}; {found['requests']} questions a round, none twice"
    report.table(f"\n{title}; CPU-ms a recall: server, Postgres, client", COLUMNS, rows)
    if (speed := found.get("import_per_s")) is not None:
        print(f"import over HTTP: {speed:.0f} memories/s")
    if (idle := found.get("idle_cpu_ms_per_s")) is not None:
        print(f"the server while nobody asks (part of the above): {idle:.1f} CPU-ms a second")
    if bill := found.get("bill"):
        columns = tuple(next(iter(bill.values())))
        whole = {name: sum(row[name] for row in bill.values()) for name in columns}
        ours = {n: sum(bill.get(k, {}).get(n, 0.0) for k in ANSWERING) for n in columns}
        rows = {**bill, "all processes": whole, f"{' and '.join(ANSWERING)} only": ours}
        report.table("\nthe bill by process, CPU-ms, one client", columns, rows)
    if found.get("stages"):
        shown = {name: {"CPU-ms": ms} for name, ms in found["stages"].items()}
        report.table("\none recall by stage, one thread", ("CPU-ms",), shown)
        if bill:
            parts = stages.whole_bill(found["stages"], bill)
            rows = {name: {"CPU-ms": ms} for name, ms in parts.items()}
            report.table("\none recall from socket to socket", ("CPU-ms",), rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench latency", description=__doc__.split("\n")[0])
    parser.add_argument("--size", action="append", type=int, dest="sizes")
    parser.add_argument("--clients", action="append", type=int)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--rerank", action="store_true", help="with a cross-encoder, too")
    parser.add_argument("--config", default="configs/local.yaml")
    parser.add_argument("--data", type=Path, help="keep the banks here")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    sizes, clients = given.sizes or [600, 50_000], given.clients or [1, 8]
    reports = []
    with guarded() as folder:
        kept = given.data or folder
        for size in sizes:
            reports.append(bench(size, clients, given.requests, given.config, kept / str(size)))
            print_report(reports[-1])
        for precision in PRECISIONS if given.rerank else ():
            size = min(sizes)
            data = kept / str(size)
            reports.append(bench_rerank(size, clients, given.config, data, precision))
            print_report(reports[-1])
    if given.json:
        given.json.write_text(json.dumps({**report.machine(), "reports": reports}, indent=1))


if __name__ == "__main__":
    main()
