"""What the temporal arm costs where the window holds everything: `python -m tests.bench.temporal`.

Banks of 660,000 memories, built as arrays without a database: spread over two years, all on one
day, and none in the window. Per recall at budget mid, after the similarities are known (the other
arms need them in any case): CPU-ms of the arm over all three fact types, and, as the baseline, of
taking the most similar 60 in the window by sorting every memory in it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.arms import temporal
from retrieval.bank.filters import WindowBounds
from retrieval.bank.loader import next_snapshot
from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors.flat import FlatBackend, Scan
from retrieval.store.heads import BankHead
from retrieval.store.segments.delta import Delta
from retrieval.store.segments.format import pack
from retrieval.types import NO_TIME, FactType, Floats, Ints, Longs
from tests.bench import report

DAY_US = 86_400_000_000
START = 1_672_531_200_000_000  # 2023-01-01
SIZE = 660_000
DIMENSION = 64
BUDGET = 300


def bank_of(dates: Longs, vectors: Floats) -> ResidentBank:
    """A bank of memories with these event dates; one in ten is an experience, no links."""
    size = len(dates)
    none, zero = np.full(size, NO_TIME, np.int64), np.zeros(size + 1, np.int32)
    columns = {
        "id": np.arange(size, dtype=">u8").repeat(2).view(np.uint8).reshape(size, 16),
        "fact_type": (np.arange(size) % 10 == 9).astype(np.uint8),
        "created_at": dates,
        "updated_at": dates,
        "occurred_start": dates,
        "occurred_end": none,
        "mentioned_at": none,
        "document": np.full(size, -1, np.int32),
        "position": np.zeros(size, np.int32),
        "proof": np.full(size, -1, np.int32),
        "tokens": np.full(size, 30, np.int32),
        "subject": np.full(size, -1, np.int32),
        "flags": np.zeros(size, np.uint8),
        "tag_ptr": zero,
        "tag": np.empty(0, np.int32),
        "entity_ptr": zero,
        "entity": np.empty(0, np.int32),
        "source_ptr": zero,
        "source": np.empty((0, 16), np.uint8),
    }
    segments = {
        "columns": columns,
        f"vectors:made:{vectors.shape[1]}": {"vectors": vectors},
        "postings:made": {
            "term": np.empty(0, np.uint64),
            "ptr": np.zeros(1, np.int32),
            "document": np.empty(0, np.int32),
            "tf": np.empty(0, np.float32),
            "length": np.zeros(size, np.float32),
        },
        "links": {
            "source": np.empty(0, np.int32),
            "target": np.empty(0, np.int32),
            "type": np.empty(0, np.uint8),
            "weight": np.empty(0, np.float32),
        },
    }
    head = BankHead(1, "default", "made", 1, 0, size, f"made:{vectors.shape[1]}", "made")
    delta = Delta(
        head=head,
        full=True,
        segments={kind: [(0, size, pack(arrays))] for kind, arrays in segments.items()},
        tombstones=np.empty(0, np.int32),
        died_at=np.empty(0, np.int64),
        entities=[],
        tags=[],
    )
    return next_snapshot(None, delta, FlatBackend())


def vectors_of(size: int, dimension: int, seed: int = 5) -> Floats:
    """Unit vectors, the first coordinate leaning towards one side."""
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((size, dimension), np.float32)
    vectors[:, 0] += 1.0
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def arm(bank: ResidentBank, scan: Scan, window: WindowBounds) -> list[temporal.TemporalHits]:
    inside = temporal.touching(bank, bank.live, window)
    return [
        temporal.search(
            bank, scan, bank.live, inside, kind, window, limit=BUDGET, min_similarity=0.1
        )
        for kind in FactType
    ]


def sorting(bank: ResidentBank, scan: Scan, window: WindowBounds) -> list[Ints]:
    """The pool alone, by sorting everything in the window, best first."""
    inside = temporal.touching(bank, bank.live, window)
    pools = []
    for kind in FactType:
        found = np.flatnonzero(inside & (bank.columns.fact_type == kind)).astype(np.int32)
        similarity = scan.at(found)
        order = np.argsort(-similarity, kind="stable")[: temporal.POOL]
        pools.append(found[order[similarity[order] >= 0.1]])
    return pools


def _cpu_ms(call: Callable[[], object], repeats: int) -> float:
    costs = []
    for _ in range(repeats):
        begin = time.process_time()
        call()
        costs.append(time.process_time() - begin)
    return 1000 * float(np.median(costs))


def bench(size: int, repeats: int) -> dict[str, Any]:
    random = np.random.default_rng(3)
    vectors = vectors_of(size, DIMENSION)
    everything = (START, START + 730 * DAY_US)
    spread = np.sort(random.integers(*everything, size))
    cases = {
        "all in the window": (spread, everything),
        "open at one side": (spread, (START, None)),
        "all on one day": (
            START + random.integers(0, DAY_US, size),
            (START, START + DAY_US - 1),
        ),
        "all at one instant": (np.full(size, START), (START, START + DAY_US - 1)),
        "none in the window": (spread, (START - 30 * DAY_US, START - DAY_US)),
    }
    rows: dict[str, dict[str, float]] = {}
    for name, (dates, sides) in cases.items():
        window = WindowBounds(*sides, *sides)
        bank = bank_of(dates, vectors)
        scan = bank.vectors.scan(np.eye(DIMENSION, dtype=np.float32)[0])
        scan.moments(None)
        ours = _cpu_ms(partial(arm, bank, scan, window), repeats)
        sorted_ = _cpu_ms(partial(sorting, bank, scan, window), repeats)
        found = sum(len(part) for part in arm(bank, scan, window))
        rows[name] = {
            "arm CPU-ms": ours,
            "sorting CPU-ms": sorted_,
            "ratio": sorted_ / ours,
            "found": found,
        }
    return {"memories": size, "rows": rows}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench temporal", description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    found = bench(given.size, given.repeats)
    columns = ("arm CPU-ms", "sorting CPU-ms", "ratio", "found")
    report.table(f"{given.size:,} memories, three fact types, budget mid", columns, found["rows"])
    if given.json:
        given.json.write_text(json.dumps({**report.machine(), **found}, indent=1))


if __name__ == "__main__":
    main()
