"""What a memory costs to store: `python -m tests.retrieval.ingest.bench_import`.

CPU of this process and of the Postgres processes, per memory, without embedding (vectors come from
a table), on the real residency. The baseline of the same run is the least one can do: the same rows
by COPY into the same table, and the same analyser and token counts.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import numpy as np

from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.ingest.context import WriteContext
from retrieval.ingest.importing import import_memories
from retrieval.keyword.analyser import IndexedText
from retrieval.keyword.analysers import analyser_for
from retrieval.settings import RetainSettings
from retrieval.store.database.pool import Pool
from retrieval.text import tokens
from retrieval.types import Floats
from tests.retrieval.store.servers import database, server

DIMENSION = 384
WORDS = (Path(__file__).parents[3] / "docs/architecture.md").read_text().split()


class Table:
    """Vectors by row number: random directions, the same for the same call."""

    model_id = "table"
    dimension = DIMENSION

    async def embed_queries(self, texts: Sequence[str], **_: object) -> Floats:
        return self._rows(len(texts))

    async def embed_passages(self, texts: Sequence[str], **_: object) -> Floats:
        return self._rows(len(texts))

    def _rows(self, n: int) -> Floats:
        rows = np.random.default_rng(n).standard_normal((n, DIMENSION), np.float32)
        found: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return found


def postgres_cpu() -> float:
    """CPU seconds of the server's processes so far, those that ended included."""
    pid, tick, total = server().pid, os.sysconf("SC_CLK_TCK"), 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            own, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if own == pid:
            total += sum(map(int, rest[11:15]))
        elif int(rest[1]) == pid:
            total += sum(map(int, rest[11:13]))
    return total / tick


def items(n: int, rng: random.Random) -> list[dict[str, object]]:
    return [
        {
            "key": uuid4().hex,
            "text": " ".join(rng.choices(WORDS, k=30)),
            "entities": rng.sample(
                ["Ann", "Bo", "Cy", "Dee", f"Person {rng.randint(0, 200)}"], k=2
            ),
            "occurred_start": f"2024-{rng.randint(1, 12):02}-03T10:00:00Z",
            "document_id": f"session {rng.randint(0, 20)}",
            "tags": ["chat"],
            "metadata": {"turn": i},
        }
        for i in range(n)
    ]


async def baseline(pool: Pool, batch: list[dict[str, object]]) -> None:
    """The same texts analysed, counted and copied into a bare table, nothing else."""
    texts = [str(item["text"]) for item in batch]
    analyser_for(RetainSettings()).weigh([IndexedText(text) for text in texts])
    counts = tokens.counts(texts).tolist()
    async with pool.acquire() as connection, connection.transaction():
        await connection.copy_records_to_table(
            "bare", records=[(uuid4(), t, n) for t, n in zip(texts, counts, strict=True)]
        )


async def main() -> None:
    rng = random.Random(7)
    async with database() as pool:
        await pool.execute("create table bare (id uuid primary key, text text, tokens int)")
        residency = Residency(pool, ResidencySettings(budget_bytes=2 << 30))
        deps = WriteContext(pool, Table(), residency)
        print(
            f"{'batch':>6} {'python ms':>10} {'postgres ms':>12} {'sum':>6} {'bare':>6}"
            f" {'ratio':>6} {'memories/s':>11}"
        )
        for size, rounds in ((1, 40), (10, 20), (100, 10), (1000, 5)):
            bank = f"bench-{size}"
            await import_memories(deps, "default", bank, items(size, rng))
            lines = []
            for _ in range(rounds):
                batch = items(size, rng)
                spent = []
                for work in (baseline(pool, batch), import_memories(deps, "default", bank, batch)):
                    begin = time.process_time(), postgres_cpu(), time.perf_counter()
                    await work
                    end = time.process_time(), postgres_cpu(), time.perf_counter()
                    spent.append([(b - a) * 1000 / size for a, b in zip(begin, end, strict=True)])
                lines.append((*spent[1], sum(spent[0][:2])))
            python, _, wall, bare = (
                statistics.median(column) for column in zip(*lines, strict=True)
            )
            postgres = statistics.mean(line[1] for line in lines)  # the clock ticks coarsely
            bare = statistics.mean(line[3] for line in lines)
            total = python + postgres
            print(
                f"{size:6} {python:10.3f} {postgres:12.3f} {total:6.3f} {bare:6.3f}"
                f" {total / bare:6.1f} {1000 / wall:11.0f}"
            )


if __name__ == "__main__":
    asyncio.run(main())
