"""How fast banks come into memory, stay fresh, and leave.

    fourfold bench residency [--load 50000] [--soak-banks 2000] [--soak-s 60] [--json FILE]

Loads and deltas come from an embedded Postgres, whose CPU time counts in `bulk_cpu_*`. Bulk loads
are medians of a replica at work; `bulk_first_*` is the first, in a process whose memory is new. The
soak reads from packed segments in this process (a database of 2,000 banks would measure the disk):
Zipf-distributed recalls over banks of 300 to 5,000 memories with room for a tenth of them.
What writes cost recalls is measured by `bench freshness`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import faiss
import numpy as np
import psutil
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from retrieval.bank.cache import ResidencySettings
from retrieval.bank.loader import kinds
from retrieval.bank.residency import Residency
from retrieval.bank.resident import ResidentBank
from retrieval.store import banks
from retrieval.store.database.embedded import EmbeddedPostgres
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from retrieval.store.heads import BankHead
from retrieval.store.segments import delta as deltas
from retrieval.store.segments.delta import Delta, EntityChange
from retrieval.types import FactType, Floats
from tests.bench import packs
from tests.bench.processes import cpu_seconds, spent

Report = dict[str, float]


def recall(bank: ResidentBank, query: Floats) -> int:
    """The vector part of a recall: a stand-in whose cost follows the bank's size."""
    scan = bank.vectors.scan(query)
    return sum(len(scan.top(300, None, t)) for t in FactType)


def query() -> Floats:
    vector = np.random.default_rng(5).standard_normal(packs.DIMENSION).astype(np.float32)
    return cast(Floats, vector / np.linalg.norm(vector))


async def from_postgres(size: int) -> Report:
    """Bulk load, cold banks of 5,000, and deltas."""
    report: Report = {}
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedPostgres(Path(folder))
        pool = await open_pool(PoolSettings(await asyncio.to_thread(server.start)))
        try:
            await migrate(pool)
            report |= await _bulk(pool, size)
            report |= await _cold(pool)
            report |= await _fresh(pool, size)
        finally:
            await pool.close()
            await asyncio.to_thread(server.stop)
    return report


async def _bulk(pool: Pool, size: int) -> Report:
    head = await banks.ensure(pool, "default", "large")
    await packs.store(pool, head.bank, 0, size, size // 5)
    head = await banks.head(pool, "default", "large")
    fetched, walls, cpus = [], [], []
    residency = Residency(pool, ResidencySettings())
    for _ in range(9):
        start = time.perf_counter()
        delta = await deltas.load(
            pool, head, have_generation=-1, have_version=-1, have_ordinal=0, kinds=kinds(head)
        )
        fetched.append(time.perf_counter() - start)
        del delta
        start, before = time.perf_counter(), cpu_seconds(os.getpid())
        bank = await residency.open(head)
        walls.append(time.perf_counter() - start)
        cpus.append(spent(before, cpu_seconds(os.getpid())))
        held = dict(bank.nbytes)
        del bank
        residency.evict(head.bank)
    await residency.close()
    vectors = 4 * size * packs.DIMENSION / 1e6
    every = sum(held.values()) / 1e6
    wall, cpu = statistics.median(walls[1:]), statistics.median(cpus[1:])
    return {
        "bulk_memories": size,
        "bulk_first_wall_ms": walls[0] * 1e3,
        "bulk_first_cpu_ms": cpus[0] * 1e3,
        "bulk_wall_ms": wall * 1e3,
        "bulk_cpu_ms": cpu * 1e3,
        "bulk_vector_mb_s": vectors / wall,
        "bulk_cpu_ms_per_vector_mb": cpu * 1e3 / vectors,
        "bulk_all_mb_per_cpu_s": every / cpu,
        "bulk_over_fetch_alone": wall / statistics.median(fetched),
        "bytes_per_memory": every * 1e6 / size,
    }


async def _cold(pool: Pool, count: int = 12, size: int = 5_000) -> Report:
    heads = []
    for number in range(count):
        head = await banks.ensure(pool, "default", f"cold-{number}")
        await packs.store(pool, head.bank, 0, size, size // 5)
        heads.append(await banks.head(pool, "default", f"cold-{number}"))
    residency = Residency(pool, ResidencySettings())
    asked = query()
    cold: list[float] = []
    warm: list[float] = []
    cpus: list[float] = []
    for times in (cold, warm):
        for head in heads:
            start, cpu = time.perf_counter(), time.process_time()
            recall(await residency.open(head), asked)
            times.append((time.perf_counter() - start) * 1e3)
            cpus.append((time.process_time() - cpu) * 1e3)
    await residency.close()
    return {
        "cold_5000_ms": statistics.median(cold),
        "cold_5000_max_ms": max(cold),
        "cold_5000_cpu_ms": statistics.median(cpus[:count]),
        "warm_5000_ms": statistics.median(warm),
    }


async def _fresh(pool: Pool, size: int, rounds: int = 40) -> Report:
    """Deltas of 100 memories."""
    residency = Residency(pool, ResidencySettings())
    head = await banks.head(pool, "default", "large")
    await residency.open(head)
    walls, cpus = [], []
    for number in range(rounds):
        await packs.store(pool, head.bank, size + 100 * number, 100, size // 5)
        head = await banks.head(pool, "default", "large")
        start, cpu = time.perf_counter(), time.process_time()
        await residency.open(head)
        walls.append((time.perf_counter() - start) * 1e3)
        cpus.append((time.process_time() - cpu) * 1e3)
    await residency.close()
    return {
        "delta_100_wall_ms": statistics.median(walls),
        "delta_100_cpu_ms": statistics.median(cpus),
        "delta_100_cpu_p95_ms": float(np.percentile(cpus, 95)),
    }


class Packed:
    """Many banks out of a few packed ones, behind the signature of `deltas.load`."""

    def __init__(self, count: int, distinct: int = 24) -> None:
        chance = np.random.default_rng(1)
        sizes = chance.integers(300, 5_001, distinct)
        self._made: list[tuple[Mapping[str, bytes], list[EntityChange]]] = [
            (packs.packed(0, int(n), int(n) // 5, seed), packs.entity_rows(int(n) // 5))
            for seed, n in enumerate(sizes)
        ]
        self.heads = [
            BankHead(
                number,
                "default",
                f"bank-{number}",
                1,
                0,
                int(sizes[number % distinct]),
                packs.VECTORS,
                packs.ANALYSER,
            )
            for number in range(count)
        ]

    async def load(
        self,
        pool: Pool,
        head: BankHead,
        *,
        have_generation: int,
        have_version: int,
        have_ordinal: int,
        kinds: Sequence[str],
        span: tuple[int, int] | None = None,
    ) -> Delta:
        await asyncio.sleep(0.005)  # a database's answer
        packed, entities = self._made[head.bank % len(self._made)]
        return Delta(
            head=head,
            full=True,
            # Bytes of their own, as from a socket.
            segments={
                kind: [(0, head.next_ordinal, bytes(bytearray(payload)))]
                for kind, payload in packed.items()
            },
            tombstones=np.empty(0, np.int32),
            died_at=np.empty(0, np.int64),
            entities=entities,
            tags=[],
        )


async def soak(count: int, seconds: float, concurrency: int = 8) -> Report:
    """Zipf-distributed recalls over `count` banks with room for a tenth of them."""
    source = Packed(count)
    probe = Residency(cast(Pool, None), ResidencySettings(), load=source.load)
    sizes = [sum((await probe.open(h)).nbytes.values()) for h in source.heads[:24]]
    await probe.close()
    budget = int(statistics.mean(sizes) * count / 10)
    residency = Residency(
        cast(Pool, None), ResidencySettings(budget_bytes=budget), load=source.load
    )
    chance = np.random.default_rng(2)
    weights = 1 / np.arange(1, count + 1)
    order = chance.permutation(count)
    asked = query()
    warm: list[float] = []
    cold: list[float] = []
    memory: list[float] = []
    searches = ThreadPoolExecutor(2)
    loop = asyncio.get_running_loop()
    process = psutil.Process()
    end = time.perf_counter() + seconds

    async def caller() -> None:
        while time.perf_counter() < end:
            rank = chance.choice(count, p=weights / weights.sum())
            head = source.heads[order[rank]]
            times = warm if residency.held(head.bank) is not None else cold
            start = time.perf_counter()
            bank = await residency.open(head)
            await loop.run_in_executor(searches, recall, bank, asked)
            times.append((time.perf_counter() - start) * 1e3)
            assert bank.head.bank == head.bank

    async def watch() -> None:
        while time.perf_counter() < end:
            memory.append(process.memory_info().rss / 1e6)
            await asyncio.sleep(seconds / 100)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch())
        for _ in range(concurrency):
            tasks.create_task(caller())
    metrics = residency.metrics()
    await residency.close()
    searches.shutdown()
    settled, last = memory[len(memory) // 2 : 3 * len(memory) // 4], memory[-len(memory) // 4 :]
    return {
        "soak_banks": count,
        "soak_recalls": len(warm) + len(cold),
        "soak_hit_rate": metrics.hits / max(1, metrics.hits + metrics.misses),
        "soak_evictions": metrics.evictions,
        "soak_resident": metrics.resident_banks,
        "soak_budget_mb": budget / 1e6,
        "soak_held_mb": metrics.resident_bytes / 1e6,
        "soak_rss_mb": statistics.mean(last),
        "soak_growth": statistics.mean(last) / statistics.mean(settled) - 1,
        "soak_warm_p50_ms": float(np.percentile(warm, 50)),
        "soak_warm_p99_ms": float(np.percentile(warm, 99)),
        "soak_cold_p50_ms": float(np.percentile(cold, 50)),
        "soak_cold_p99_ms": float(np.percentile(cold, 99)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("bench residency", description=__doc__)
    parser.add_argument("--load", type=int, default=50_000, help="0: no database")
    parser.add_argument("--soak-banks", type=int, default=2_000)
    parser.add_argument("--soak-s", type=float, default=60.0, help="0: no soak")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    faiss.omp_set_num_threads(1)
    threadpool_limits(1)
    report: Report = {}
    if given.load:
        report |= asyncio.run(from_postgres(given.load))
    if given.soak_s:
        report |= asyncio.run(soak(given.soak_banks, given.soak_s))
    for name, value in report.items():
        print(f"{name:26} {value:14,.3f}")
    if given.json is not None:
        given.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
