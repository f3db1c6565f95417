"""What it costs to split a bank over others: `python -m tests.bench.split [--size 400000]`.

A bank made as arrays without a database is searched whole, and as ranges that others hold, in one
run and one process, on one thread. CPU-ms per recall: of the whole search; of whoever holds the
bank where it is split; of each range. The critical path is the first of these plus the slowest
range, which is what a recall waits for where every range has a core of its own; what crosses
between processes is counted in bytes and pickled within the figures, the way itself is not in them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from retrieval.bank.loader import next_snapshot
from retrieval.bank.probe import Probe
from retrieval.bank.resident import ResidentBank
from retrieval.bank.shards.placement import shard_ranges
from retrieval.bank.shards.scatter import ScatterGather
from retrieval.bank.shards.shard import RangeReading, ResidentRange, next_range
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.ranking.shortlist import Shortlist
from retrieval.recall import search
from retrieval.settings import RecallSettings
from retrieval.store.heads import BankHead
from retrieval.store.segments import delta as deltas
from retrieval.store.segments.delta import Delta
from retrieval.types import Floats, Ints
from tests.bench import graph, report, synthetic

T = TypeVar("T")


class Timed:
    """`Ranges` in this process, with what each cost and what it sent."""

    def __init__(self, ranges: Sequence[ResidentRange]) -> None:
        self._ranges = ranges
        self.ms = np.zeros(len(ranges))
        self.sent = np.zeros(len(ranges), np.int64)

    async def read(
        self, head: BankHead, part: int, asked: Sequence[Probe], *, deadline: float | None = None
    ) -> Sequence[RangeReading]:
        answer, self.ms[part] = timed(lambda: pickle.dumps(self._ranges[part].read(head, asked)))
        self.sent[part] = len(answer)
        back: Sequence[RangeReading] = pickle.loads(answer)
        return back

    async def nearest(
        self,
        head: BankHead,
        part: int,
        vectors: Floats,
        types: NDArray[np.uint8],
        *,
        k: int,
        floor: float,
        deadline: float | None = None,
    ) -> tuple[Ints, Ints, Floats]:
        raise NotImplementedError("nothing is written here")

    async def rows(
        self, head: BankHead, part: int, ordinals: Ints, *, deadline: float | None = None
    ) -> Floats:
        raise NotImplementedError("nothing is grouped here")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result, and CPU milliseconds of this process."""
    begin = time.process_time()
    result = work()
    return result, 1000 * (time.process_time() - begin)


def divided(everything: Delta, rows: int) -> list[ResidentRange]:
    """The ranges of a bank."""
    made = []
    for first, end in shard_ranges(everything.head.next_ordinal, rows):
        segments = {
            kind: deltas.cut(kind, found, first, end)
            for kind, found in everything.segments.items()
            if kind != "links"
        }
        delta = replace(everything, segments=segments, entities=[], tags=[])
        made.append(next_range(None, delta, first, FlatBackend(surveyed_rows=10**9)))
    return made


async def bench(size: int, parts: int, questions: int, repeats: int) -> dict[str, Any]:
    data = synthetic.bank("split", size, questions)
    everything, vectors = graph.made(size, data)
    rows = -(-size // parts)
    whole = next_snapshot(None, everything, FlatBackend())
    frame = next_snapshot(None, everything, FlatBackend(), whole=False)
    ranges = divided(everything, rows)
    del everything
    there = Timed(ranges)
    index = ScatterGather(there, rows)
    random = np.random.default_rng(3)
    settings = RecallSettings()
    found: dict[str, list[float]] = {name: [] for name in ("whole", "holder", "slowest", "all")}
    for question in data.questions:
        near = graph.asked_near(vectors[int(next(iter(question.gold))[1:])], random)
        plan = graph.plan_of(question.text, near, settings)
        costs: dict[str, list[float]] = {name: [] for name in found}
        for _ in range(repeats):
            expected, ms = timed(lambda: search.searched(whole, plan).shortlist)  # noqa: B023
            costs["whole"].append(ms)
            ours, ms = await _split(frame, index, plan, settings)
            np.testing.assert_array_equal(ours.found.ordinals, expected.found.ordinals)
            costs["holder"].append(ms - float(there.ms.sum()))
            costs["slowest"].append(float(there.ms.max()))
            costs["all"].append(ms)
        for name, values in costs.items():
            found[name].append(float(np.median(values)))
    median = {name: float(np.median(values)) for name, values in found.items()}
    return {
        "memories": size,
        "ranges": len(ranges),
        "recall": {
            "whole": {"CPU-ms": median["whole"], "critical path": median["whole"]},
            "split": {
                "CPU-ms": median["all"],
                "critical path": median["holder"] + median["slowest"],
                "holder": median["holder"],
                "slowest range": median["slowest"],
                "bytes a memory": float(there.sent.sum()) / size,
            },
        },
        "memory": {
            "whole": {"bytes a memory": whole.host_nbytes / size},
            "split: holder": {"bytes a memory": frame.host_nbytes / size},
            "split: ranges": {"bytes a memory": sum(r.host_nbytes for r in ranges) / size},
        },
    }


async def _split(
    frame: ResidentBank, index: ScatterGather, plan: search.SearchPlan, settings: RecallSettings
) -> tuple[Shortlist, float]:
    begin = time.process_time()
    (reading,) = await index.readings(frame, [plan.asked], settings)
    shortlist = search.searched(frame, replace(plan, reading=reading)).shortlist
    return shortlist, 1000 * (time.process_time() - begin)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench split", description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=400_000)
    parser.add_argument("--ranges", type=int, default=4)
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    with threadpool_limits(1):
        found = asyncio.run(bench(given.size, given.ranges, given.questions, given.repeats))
    columns = (
        "CPU-ms",
        "critical path",
        "holder",
        "slowest range",
        "bytes a memory",
    )
    title = f"{given.size:,} memories, {found['ranges']} ranges, budget mid"
    report.table(title, columns, found["recall"])
    report.table("held in memory", ("bytes a memory",), found["memory"])
    if given.json:
        given.json.write_text(json.dumps({**report.machine(), **found}, indent=1))


if __name__ == "__main__":
    main()
