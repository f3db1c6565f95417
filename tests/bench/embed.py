"""What embedding a query costs on CPU: `python -m tests.bench.embed`.

In one run and on the same weights (the packaged MiniLM-L6): SentenceTransformer.encode with its
defaults against ours through the whole path (tokenising, batcher, owner thread), without the cache
of recent queries. One query at a time, and eight callers at once; passages in bulk. CPU-ms of the
process per text, one thread; rounds alternate, medians count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch

from models.local.device import cpu_computes_bf16
from models.local.encoder import LocalEncoder
from models.local.weights import find
from models.settings import Compute, EmbedderSettings
from models.types import Floats
from tests.bench import report
from tests.bench.rerank import texts

CALLERS = 8
GOALS = {"one query": 6.0, "eight at once": 2.0}
COLUMNS = ("one query", "eight at once", "bulk passages")

Work = Callable[[list[str]], Awaitable[Floats]]


async def cpu_ms(work: Awaitable[Any], count: int) -> float:
    start = time.process_time()
    await work
    return (time.process_time() - start) / count * 1e3


async def one_by_one(embed: Work, queries: list[str]) -> None:
    for query in queries:
        await embed([query])


async def at_once(embed: Work, queries: list[str]) -> None:
    for start in range(0, len(queries), CALLERS):
        await asyncio.gather(*(embed([query]) for query in queries[start : start + CALLERS]))


async def bench(count: int, passages: int, rounds: int) -> dict[str, Any]:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(find("packaged").path), device="cpu")
    _, queries = texts(count, 10.0, seed=1)
    _, bulk = texts(passages, 27.0, seed=2)

    async def encode(batch: list[str]) -> Floats:
        return np.asarray(theirs.encode(batch, show_progress_bar=False), np.float32)

    paths: dict[str, tuple[Work, Work]] = {"sentence-transformers": (encode, encode)}
    ours: dict[str, LocalEncoder] = {}
    for name in ("bf16", "fp32"):
        if name == "bf16" and not cpu_computes_bf16():
            continue
        compute = Compute(device="cpu", precision=name, threads=1)
        settings = EmbedderSettings(model="packaged", cached_queries=0, compute=compute)
        ours[name] = LocalEncoder(settings)
        await ours[name].start()
        paths[name] = (ours[name].embed_queries, ours[name].embed_passages)
    torch.set_num_threads(1)
    figures: dict[str, dict[str, list[float]]] = {
        name: {column: [] for column in COLUMNS} for name in paths
    }
    for round_ in range(rounds + 1):
        for name, (query, passage) in paths.items():
            found = {
                "one query": await cpu_ms(one_by_one(query, queries), count),
                "eight at once": await cpu_ms(at_once(query, queries), count),
                "bulk passages": await cpu_ms(passage(bulk), passages),
            }
            if round_:
                for column, value in found.items():
                    figures[name][column].append(value)
    exact = await encode(bulk)
    rows: dict[str, dict[str, float]] = {}
    for name, (_, passage) in paths.items():
        rows[name] = {column: median(values) for column, values in figures[name].items()}
        rows[name]["ratio"] = rows["sentence-transformers"]["one query"] / rows[name]["one query"]
        rows[name]["min cosine"] = float((await passage(bulk) * exact).sum(1).min())
    for encoder in ours.values():
        await encoder.close()
    return {"queries": count, "passages": passages, "rounds": rounds, "paths": rows}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench embed", description=__doc__.split("\n")[0])
    parser.add_argument("--queries", type=int, default=64)
    parser.add_argument("--passages", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = asyncio.run(bench(given.queries, given.passages, given.rounds))
    rows = found["paths"]
    columns = (*COLUMNS, "ratio", "min cosine")
    report.table("CPU-ms per text, one thread", columns, {**rows, "goal": GOALS})
    print(json.dumps(record := {**report.machine(), **found}))
    if given.json:
        given.json.write_text(json.dumps(record, indent=1))
    best = rows["bf16" if "bf16" in rows else "fp32"]
    missed = [column for column, goal in GOALS.items() if best[column] > goal]
    sys.exit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
