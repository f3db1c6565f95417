"""What the inspector's pages cost a server: `python -m tests.bench.inspector [--size 50000]`.

A made-up bank in this process, over the application without Ray and HTTP. For every endpoint that
the pages ask: CPU-ms of this process and of PostgreSQL, the median wall time, and the bytes of the
answer (gzipped where the page would have it so), beside the limit that it has to keep at a million
memories (explain: three recalls). Vectors are of hashed words: no endpoint looks at their meaning.

`stats, every row` is the baseline: the same figures counted from every row and every segment of
links, as statistics were once made.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import psutil

from retrieval.store.database.pool import Pool
from retrieval.store.segments.format import unpack
from retrieval.types import FactType, LinkType
from serve import app, composition
from serve.composition import Stages
from serve.settings import parse
from tests.bench import processes, report, synthetic
from tests.bench.guard import guarded
from tests.retrieval.store.servers import HashEmbedder
from tests.support.system import IMPORT_BATCH, System, system

BANK = "inspected"
COLUMNS = ("CPU ms", "of them PostgreSQL", "wall ms", "kB", "limit ms")
LIMITS_MS: Mapping[str, float] = {
    "overview": 50.0, "timeline": 30.0, "links": 30.0, "neighbours": 50.0,
}  # fmt: skip
"""CPU of one answer in a bank of a million memories."""

Ask = Callable[[], Awaitable[bytes]]


async def fill(run: System, size: int, seed: int) -> list[str]:
    """The bank, unless it is there; questions for it."""
    bank = synthetic.bank(BANK, size, 40, seed)
    stored = await run.pool.fetchval(
        "select count(*) from memory_units join banks using (bank) where bank_id = $1", BANK
    )
    if stored < len(bank.memories):
        await run.import_bank(BANK, bank.memories[stored:], batch=2 * IMPORT_BATCH)
    return [question.text for question in bank.questions]


async def spent(ask: Ask, rounds: int, postgres: int) -> dict[str, float]:
    """Figures of one answer, over `rounds` of them behind a first one."""
    size = len(gzip.compress(await ask(), 6))
    own, walls = psutil.Process(), []
    before, begin = processes.cpu_seconds(postgres), sum(own.cpu_times()[:2])
    for _ in range(rounds):
        at = time.perf_counter()
        await ask()
        walls.append(time.perf_counter() - at)
    here = 1000 * (sum(own.cpu_times()[:2]) - begin) / rounds
    there = 1000 * processes.spent(before, processes.cpu_seconds(postgres)) / rounds
    return {
        "CPU ms": here + there,
        "of them PostgreSQL": there,
        "wall ms": 1000 * median(walls),
        "kB": size / 1000,
    }


async def every_row(pool: Pool) -> bytes:
    """The baseline: statistics from every row and every link segment of the bank."""
    head = await pool.fetchrow("select bank, next_ordinal from banks where bank_id = $1", BANK)
    assert head is not None
    rows = await pool.fetch(
        "select ordinal, fact_type from memory_units where bank = $1 and ordinal is not null",
        head["bank"],
    )
    await pool.fetch(
        "select fact_type, count(*), max(consolidated_at),"
        " count(*) filter (where consolidated_at is null and consolidation_failed_at is null),"
        " count(*) filter (where consolidation_failed_at is not null) from memory_units"
        " where bank = $1 and ordinal is not null group by fact_type",
        head["bank"],
    )
    types = np.full(head["next_ordinal"], 255, np.uint8)
    types[[row[0] for row in rows]] = [row[1] for row in rows]
    counts = np.zeros((len(FactType), len(LinkType)), np.int64)
    for row in await pool.fetch(
        "select payload from segments where bank = $1 and kind = 'links'", head["bank"]
    ):
        arrays = unpack(row["payload"])
        source, target = types[arrays["source"]], types[arrays["target"]]
        live = (source != 255) & (target != 255)
        np.add.at(counts, (source[live], arrays["type"][live]), 1)
    return counts.tobytes()


async def measure(
    http: httpx.AsyncClient, run: System, questions: list[str], rounds: int
) -> dict[str, dict[str, float]]:
    base = f"/v1/default/banks/{BANK}"

    def get(path: str, *statuses: int) -> Ask:
        async def ask() -> bytes:
            answer = await http.get(f"{base}/{path}")
            assert answer.status_code in (200, *statuses), answer.text
            return answer.content

        return ask

    def post(path: str, **body: Any) -> Ask:
        left = iter(questions * (2 + rounds))

        async def ask() -> bytes:
            asked = {"query": next(left), "budget": "mid", **body}
            answer = await http.post(f"{base}/memories/{path}", json=asked)
            assert answer.status_code == 200, answer.text
            return answer.content

        return ask

    listed = json.loads(await get("memories/list?limit=1&count=upto")())
    named = json.loads(await get("entities?limit=1&count=upto")())
    memory, entity = listed["items"][0]["id"], named["items"][0]["id"]
    asked = {
        "recall": post("recall"),
        "explain": post("recall/explain"),
        "explain, why": post("recall/explain", why=[memory]),
        "explain, checked": post("recall/explain", why=[memory], check=True, lists=0),
        "overview": get("overview"),
        "timeline": get("timeline?buckets=100"),
        "links": get(f"memories/{memory}/links?limit=60"),
        "neighbours": get(f"entities/{entity}/neighbours?limit=60"),
        "graph": get("entities/graph?limit=150"),
        "memories": get("memories/list?limit=100&count=upto"),
        "memories, by words": get("memories/list?limit=100&count=upto&q=kiln", 504),
        "entities": get("entities?limit=50&count=upto"),
        "documents": get("documents?limit=50&count=upto"),
        "changes": get("changes?limit=50"),
        "stats": get("stats"),
    }
    found: dict[str, dict[str, float]] = {}
    for name, ask in asked.items():
        found[name] = await spent(ask, rounds, run.postgres)
        if name in LIMITS_MS:
            found[name]["limit ms"] = LIMITS_MS[name]
        elif name.startswith("explain"):
            times = 5 if name == "explain, checked" else 3
            found[name]["limit ms"] = times * found["recall"]["CPU ms"]
    found["stats, every row"] = await spent(
        lambda: every_row(run.pool), max(2, rounds // 5), run.postgres
    )
    return found


async def main(size: int, rounds: int, seed: int, data: Path) -> dict[str, dict[str, float]]:
    embedder = HashEmbedder(128)
    async with AsyncExitStack() as stack:
        run = await stack.enter_async_context(system(data, embedder=embedder))
        questions = await fill(run, size, seed)
        tree: dict[str, dict[str, Any]] = {
            "database": {"database_url": run.dsn},
            "rerankers": {"members": [{"provider": "rrf"}]},
            "server": {"allowed_hosts": ["test"]},
            "worker": {"worker_enabled": False},
        }
        settings = parse(tree, {})
        services = await composition.open_services(settings, Stages(embedder=embedder), stack)
        http = await stack.enter_async_context(
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app.create(settings, services)),
                base_url="http://test",
                timeout=600,
            )
        )
        return await measure(http, run, questions, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--data", type=Path, help="keeps the bank for the next time")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with guarded() as folder:
        figures = asyncio.run(main(given.size, given.rounds, given.seed, given.data or folder))
    report.table(f"A bank of {given.size:,} memories", COLUMNS, figures)
    if given.json:
        given.json.write_text(json.dumps({"machine": report.machine(), "figures": figures}))
