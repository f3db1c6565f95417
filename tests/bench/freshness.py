"""What writes to a bank cost its recalls.

    fourfold bench freshness [--size 5000] [--writes-per-s 4] [--batch 10] [--seconds 40]

Whole recalls (embedding included, no cross-encoder), one after the other in this process, while
another process imports: nothing; into another bank; into the bank that is asked. The writer draws
vectors instead of embedding, as if its model ran on a device of its own. The three take turns every
three seconds, so that they see the same machine. `p95 over quiet` of the last is what
writers cost readers, all told; `p95 over other` is the part that is due to fresh reads, and not to
two processes sharing cores, disk and database.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.ingest.context import WriteContext
from retrieval.ingest.importing import import_memories
from retrieval.store import tenants
from retrieval.store.database.pool import PoolSettings, open_pool
from retrieval.types import Floats, Include, RecallQuery
from tests.bench import report, synthetic
from tests.support.system import System, system

TURN_S = 3.0
SETTLE_S = 0.3
QUIET, OTHER, OWN = "no writes", "writes to another bank", "writes to the bank asked"
TURNS = (QUIET, OTHER, OWN)
COLUMNS = ("recalls", "p50 ms", "p95 ms", "p99 ms", "CPU-ms", "p95 over quiet", "p95 over other")


class Drawn:
    """An embedder that costs nothing, with the name of another: unit vectors drawn at random."""

    def __init__(self, model_id: str, dimension: int) -> None:
        self.model_id = model_id
        self.dimension = dimension
        self._random = np.random.default_rng(3)

    async def embed_queries(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        vectors = self._random.standard_normal((len(texts), self.dimension), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    embed_passages = embed_queries


async def _write(
    dsn: str, model: tuple[str, int], per_s: float, batch: int, turn: Synchronized[int]
) -> None:
    """Imports at a steady rate into the bank whose turn it is, until turn -1."""
    async with AsyncExitStack() as stack:
        pool = await open_pool(PoolSettings(dsn))
        stack.push_async_callback(pool.close)
        embedder = Drawn(*model)
        residency = Residency(pool, ResidencySettings())
        stack.push_async_callback(residency.close)
        deps = WriteContext(pool, embedder, residency)
        memories = itertools.cycle(synthetic.bank("more", 5_000, 0, seed=9).memories)
        for number in itertools.count():
            begin = time.monotonic()
            if turn.value < 0:
                return
            if TURNS[turn.value] != QUIET:
                name = "own" if TURNS[turn.value] == OWN else "other"
                items = [
                    {**memory, "key": f"w{number}-{i}", "document_id": f"w{number}"}
                    for i, memory in enumerate(itertools.islice(memories, batch))
                ]
                await import_memories(deps, tenants.DEFAULT_TENANT, name, items)
            await asyncio.sleep(max(0.0, 1 / per_s - (time.monotonic() - begin)))


def _writer(
    dsn: str, model: tuple[str, int], per_s: float, batch: int, turn: Synchronized[int]
) -> None:
    asyncio.run(_write(dsn, model, per_s, batch, turn))


async def measure(
    run: System, texts: Sequence[str], seconds: float, turn: Synchronized[int]
) -> dict[str, dict[str, float]]:
    engine = run.engine()
    asked = itertools.cycle(texts)
    walls: dict[str, list[float]] = {name: [] for name in TURNS}
    cpus = dict.fromkeys(TURNS, 0.0)

    async def recall() -> None:
        query = RecallQuery(
            tenant=run.tenant,
            bank_id="own",
            text=next(asked),
            now=datetime.now(UTC),
            include=Include(entities=None),
        )
        result = await engine.recall(query)
        assert result.body["results"]
        assert not result.degraded

    for _ in range(30):
        await recall()
    for _ in range(max(1, round(seconds / TURN_S / len(TURNS)))):
        for number, name in enumerate(TURNS):
            turn.value = number
            await asyncio.sleep(SETTLE_S)
            end, cpu = time.perf_counter() + TURN_S, time.process_time()
            while (begin := time.perf_counter()) < end:
                await recall()
                walls[name].append(time.perf_counter() - begin)
            cpus[name] += time.process_time() - cpu
    turn.value = -1
    rows: dict[str, dict[str, float]] = {}
    for name, times in walls.items():
        p50, p95, p99 = (1e3 * float(np.percentile(times, p)) for p in (50, 95, 99))
        spent = 1e3 * cpus[name] / len(times)
        rows[name] = dict(zip(COLUMNS, (float(len(times)), p50, p95, p99, spent), strict=False))
    for row in rows.values():
        row["p95 over quiet"] = row["p95 ms"] / rows[QUIET]["p95 ms"]
    rows[OWN]["p95 over other"] = rows[OWN]["p95 ms"] / rows[OTHER]["p95 ms"]
    return rows


async def bench(size: int, per_s: float, batch: int, seconds: float) -> dict[str, Any]:
    made = synthetic.bank("own", size, 300)
    async with system() as run:
        await run.import_bank("own", made.memories)
        await run.import_bank("other", made.memories[: size // 10])
        spawn = multiprocessing.get_context("spawn")
        turn = spawn.Value("i", 0)
        model = run.embedder.model_id, run.embedder.dimension
        writer = spawn.Process(target=_writer, args=(run.dsn, model, per_s, batch, turn))
        writer.start()
        try:
            rows = await measure(run, [q.text for q in made.questions], seconds, turn)
            await asyncio.to_thread(writer.join, 30)
        finally:
            writer.kill()
        metrics = run.residency.metrics()
    deltas = {
        "deltas": float(metrics.deltas),
        "versions": float(metrics.delta_versions),
        "ms each": 1e3 * metrics.delta_seconds / max(1, metrics.deltas),
    }
    return {"memories": size, "writes_per_s": per_s, "batch": batch, "rows": rows, "deltas": deltas}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench freshness", description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=5_000)
    parser.add_argument("--writes-per-s", type=float, default=4.0)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    found = asyncio.run(bench(given.size, given.writes_per_s, given.batch, given.seconds))
    title = (
        f"{given.size:,} memories, {given.writes_per_s:g} writes of {given.batch} memories a second"
    )
    report.table(title, COLUMNS, found["rows"])
    report.table("deltas", ("deltas", "versions", "ms each"), {"reader": found["deltas"]})
    if given.json:
        given.json.write_text(json.dumps({**report.machine(), **found}, indent=1))


if __name__ == "__main__":
    main()
