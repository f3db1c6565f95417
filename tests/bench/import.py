# ruff: noqa: N999 (the name of the command)
"""What a user's import gets of the encoder's own rate: `fourfold bench import`.

The same conversation turns four ways, in pieces, one piece of each after the other, so that a noisy
machine is noisy to all: embedded alone in this process, with as many threads as there are CPUs;
imported over HTTP by one client, a batch at a time, as `fourfold import` does; and by two clients
into banks of their own. What an import embeds is a turn with its month and names, a third more
tokens than its bare text, which is embedded too for comparison. Memories per second, the share of
the encoder's rate, and CPU-ms per memory by kind of process; the encoder's own CPU-ms is the floor.
While the server is measured the encoder here rests, and the other way round.

    fourfold bench import [--memories 2000] [--batch 200] [--config FILE] [--json FILE]

Turns are those of LoCoMo where the evaluation data is at hand, else made up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

# As the server sets it, and before torch is imported.
os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}

import httpx

from models.catalog import build_embedder
from models.settings import Compute, EmbedderSettings
from retrieval.ingest.importing import parse
from retrieval.ingest.write.enrich import embedding_text
from retrieval.settings import RetainSettings
from tests.bench import report, sets, synthetic
from tests.bench.guard import guarded
from tests.bench.serving import Running, serving
from tests.support.system import Memory

PIECES = 4
"""Each way is measured in so many pieces."""

TIMEOUT_S = 600.0

BARE, ENCODER = "encoder, bare texts", "encoder alone"


@dataclass(slots=True)
class Tally:
    """What one way has done so far. cpu_ms: by kind of process."""

    memories: int = 0
    seconds: float = 0.0
    cpu_ms: dict[str, float] = field(default_factory=dict)

    def add(self, memories: int, seconds: float, cpu_ms: dict[str, float]) -> None:
        self.memories += memories
        self.seconds += seconds
        for kind, spent in cpu_ms.items():
            self.cpu_ms[kind] = self.cpu_ms.get(kind, 0.0) + spent

    @property
    def rate(self) -> float:
        return self.memories / self.seconds

    def bill(self) -> dict[str, float]:
        """CPU-ms per memory by kind of process, dearest first."""
        each = {kind: spent / self.memories for kind, spent in self.cpu_ms.items()}
        return dict(sorted(each.items(), key=lambda kind: -kind[1]))


def turns(count: int) -> Sequence[Memory]:
    """So many turns with keys of their own; fewer where the data has no more."""
    try:
        banks = sets.load("locomo").banks
    except sets.DataMissing:
        return synthetic.bank("import", count, 0).memories
    every = [
        {**memory, "key": f"{bank.name} {memory['key']}"}
        for bank in banks
        for memory in bank.memories
    ]
    return every[:count]


def send(server: Running, bank: str, memories: Sequence[Memory], batch: int) -> None:
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S, trust_env=False) as client:
        for start in range(0, len(memories), batch):
            part = memories[start : start + batch]
            path = f"/v1/default/banks/{bank}/memories/import"
            client.post(path, json={"memories": part}).raise_for_status()


def measure(server: Running, memories: Sequence[Memory], batch: int) -> dict[str, Tally]:
    tallies = {name: Tally() for name in (BARE, ENCODER, "1 client", "2 clients")}
    compute = Compute(device="cpu", threads=os.cpu_count() or 1)
    runner = asyncio.Runner()
    embedder = build_embedder(EmbedderSettings(model="packaged", compute=compute))
    runner.run(embedder.start())

    def timed(name: str, count: int, work: Callable[[], None]) -> None:
        begin = time.perf_counter()

        def one() -> int:
            work()
            return 1

        bill = server.bill(one)
        tallies[name].add(count, time.perf_counter() - begin, bill)

    size = -(-len(memories) // PIECES)
    for number in range(PIECES):
        piece = memories[number * size : (number + 1) * size]
        facts, _ = parse(piece, RetainSettings(), datetime.now(UTC))
        ways = {
            BARE: [memory["text"] for memory in piece],
            ENCODER: [embedding_text(fact) for fact in facts],
        }
        for name, texts in ways.items():
            begin, cpu = time.perf_counter(), time.process_time()
            runner.run(embedder.embed_passages(texts))
            spent = 1000 * (time.process_time() - cpu)
            tallies[name].add(len(piece), time.perf_counter() - begin, {"encoder": spent})

        def alone(piece: Sequence[Memory] = piece) -> None:
            send(server, "import-1", piece, batch)

        def two(piece: Sequence[Memory] = piece) -> None:
            half = len(piece) // 2
            with ThreadPoolExecutor(2) as clients:
                parts = (piece[:half], piece[half:])
                banks = ("import-2", "import-3")
                list(clients.map(lambda bank, part: send(server, bank, part, batch), banks, parts))

        timed("1 client", len(piece), alone)
        timed("2 clients", len(piece), two)
    runner.run(embedder.close())
    runner.close()
    return tallies


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench import", description=__doc__.split("\n")[0])
    parser.add_argument("--memories", type=int, default=2_000)
    parser.add_argument("--batch", type=int, default=200, help="memories per request")
    parser.add_argument("--config", default="configs/local.yaml")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    memories = turns(given.memories)
    with guarded() as folder, serving(folder / "data", given.config) as server:
        send(server, "import-1", [{"key": "first", "text": "The first import loads things."}], 1)
        tallies = measure(server, memories, given.batch)
    own = tallies[ENCODER].rate
    rows = {
        name: {
            "memories/s": tally.rate,
            "of the encoder's": tally.rate / own,
            "CPU-ms": sum(tally.cpu_ms.values()) / tally.memories,
        }
        for name, tally in tallies.items()
    }
    title = f"\n{len(memories)} conversation turns, {given.batch} a request"
    report.table(title, ("memories/s", "of the encoder's", "CPU-ms"), rows)
    kinds = dict.fromkeys(kind for tally in tallies.values() for kind in tally.bill())
    bills = {
        kind: {name: tally.bill().get(kind, 0.0) for name, tally in tallies.items()}
        for kind in kinds
    }
    report.table("\nCPU-ms per memory by process", tuple(tallies), bills)
    if given.json:
        given.json.write_text(json.dumps({**report.machine(), "ways": rows, "bills": bills}))


if __name__ == "__main__":
    main()
