"""What the graph arm costs where one entity is everywhere: `python -m tests.bench.graph`.

A bank of 100,000 memories, built as arrays without a database: one entity in half of them, 20,000
others Zipf-distributed, eight semantic links a memory, some causes, sessions of 25. Every second
question names the hub. In one run, per recall at budget mid: CPU-ms of the whole array search with
the graph arm, with the same arm undamped (plain link expansion of one hop, the baseline), and
without; and the arm's own time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.loader import next_snapshot
from retrieval.bank.probe import Probe
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.keyword.analyser import IndexedText
from retrieval.keyword.analysers import analyser_for
from retrieval.ranking.budgets import graph_hops, recall_budget, reranker_cap
from retrieval.ranking.shortlist import Question
from retrieval.recall import search
from retrieval.settings import RecallSettings, RetainSettings
from retrieval.store.heads import BankHead
from retrieval.store.segments.delta import Delta, EntityChange
from retrieval.store.segments.format import pack
from retrieval.types import NO_TIME, Arm, Budget, Floats, LinkType, RecallQuery
from tests.bench import report, synthetic
from tests.bench.sets import Bank

DIMENSION = 384
HUB = "Orion"
ENTITIES = 20_000
LINKS = 8
GOAL_MS = 5.0


def made(size: int, data: Bank, seed: int = 11) -> tuple[Delta, Floats]:
    """What the bank is loaded from, with the vectors of its memories."""
    random = np.random.default_rng(seed)
    vectors = _vectors(random, size)
    analyser = analyser_for(RetainSettings())
    head = BankHead(1, "default", data.name, 1, 0, size, f"made:{DIMENSION}", analyser.version)
    documents = [IndexedText(memory["text"], None, None) for memory in data.memories]
    names = [HUB, *(f"Entity {number}" for number in range(1, ENTITIES))]
    segments: Mapping[str, Mapping[str, NDArray[Any]]] = {
        "columns": _columns(random, size),
        "links": _links(random, size),
        f"vectors:made:{DIMENSION}": {"vectors": vectors},
        f"postings:{analyser.version}": analyser.weigh(documents),
    }
    everything = Delta(
        head=head,
        full=True,
        segments={kind: [(0, size, pack(arrays))] for kind, arrays in segments.items()},
        tombstones=np.empty(0, np.int32),
        died_at=np.empty(0, np.int64),
        entities=[
            EntityChange(number, number.to_bytes(16), name, None)
            for number, name in enumerate(names)
        ],
        tags=[],
    )
    return everything, vectors


def _vectors(random: np.random.Generator, size: int) -> Floats:
    """Unit vectors around a thousand centres."""
    centres = random.standard_normal((1000, DIMENSION), np.float32)
    vectors = centres[random.integers(0, 1000, size)]
    vectors += random.standard_normal((size, DIMENSION), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def _columns(random: np.random.Generator, size: int) -> dict[str, NDArray[Any]]:
    """Half of the memories mention the hub (entity 0); each mentions one to three others."""
    others = 1 + (ENTITIES - 2) * random.random((size, 3)) ** 4  # few are common, most are rare
    mentioned = np.column_stack([np.zeros(size), np.sort(others.astype(np.int32), axis=1)])
    kept = np.column_stack(
        [random.random(size) < 0.5, np.ones(size, bool), random.random((size, 2)) < 0.5]
    )
    kept[:, 2:] &= np.diff(mentioned[:, 1:], axis=1) > 0
    day = 86_400_000_000
    start = 1_672_531_200_000_000 + (np.arange(size) // synthetic.SESSION) * day // 8
    none = np.full(size, NO_TIME, np.int64)
    return {
        "id": np.arange(size, dtype=">u8").repeat(2).view(np.uint8).reshape(size, 16),
        "fact_type": np.zeros(size, np.uint8),
        "created_at": start,
        "updated_at": start,
        "occurred_start": start,
        "occurred_end": none,
        "mentioned_at": start,
        "document": (np.arange(size) // synthetic.SESSION).astype(np.int32),
        "position": (np.arange(size) % synthetic.SESSION).astype(np.int32),
        "proof": np.full(size, -1, np.int32),
        "tokens": np.full(size, 30, np.int32),
        "subject": mentioned[:, 1].astype(np.int32),
        "flags": np.zeros(size, np.uint8),
        "tag_ptr": np.zeros(size + 1, np.int32),
        "tag": np.empty(0, np.int32),
        "entity_ptr": np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int32),
        "entity": mentioned[kept].astype(np.int32),
        "source_ptr": np.zeros(size + 1, np.int32),
        "source": np.empty((0, 16), np.uint8),
    }


def _links(random: np.random.Generator, size: int) -> dict[str, NDArray[Any]]:
    count = size * LINKS
    source = random.integers(1, size, count)
    causal = random.random(count) < 0.02
    return {
        "source": source.astype(np.int32),
        "target": (source * random.random(count)).astype(np.int32),
        "type": np.where(causal, LinkType.CAUSES, LinkType.SEMANTIC).astype(np.uint8),
        "weight": (0.7 + 0.3 * random.random(count)).astype(np.float32),
    }


def bench(size: int, questions: int, repeats: int) -> dict[str, Any]:
    data = synthetic.bank("hub", size, questions)
    everything, vectors = made(size, data)
    bank = next_snapshot(None, everything, FlatBackend())
    random = np.random.default_rng(3)
    settings = RecallSettings()
    variants = {
        "graph arm": settings,
        "undamped, one hop": replace(settings, graph_hub_damping=False),
        "no graph arm": replace(settings, enable_graph_retrieval=False),
    }
    cpu: dict[str, list[float]] = {name: [] for name in variants}
    own: dict[str, list[float]] = {name: [] for name in variants}
    for number, question in enumerate(data.questions):
        near = asked_near(vectors[int(next(iter(question.gold))[1:])], random)
        text = f"{question.text} of {HUB}" if number % 2 else question.text
        for name, chosen in variants.items():
            plan = plan_of(text, near, chosen)
            costs, arms = [], []
            for _ in range(repeats):
                begin = time.process_time()
                shortlist = search.searched(bank, plan).shortlist
                costs.append(time.process_time() - begin)
                arms.append(
                    max((p.seconds for p in shortlist.arms if p.arm is Arm.GRAPH), default=0)
                )
            cpu[name].append(1000 * float(np.median(costs)))
            own[name].append(1000 * float(np.median(arms)))
    base = np.array(cpu["no graph arm"])
    return {
        "memories": size,
        "questions": questions,
        "goal_ms": GOAL_MS,
        "variants": {
            name: {
                "search CPU-ms": float(np.median(cpu[name])),
                "arm CPU-ms": float(np.median(np.array(cpu[name]) - base)),
                "arm p95": float(np.percentile(np.array(cpu[name]) - base, 95)),
                "arm wall ms": float(np.median(own[name])),
            }
            for name in variants
        },
    }


def asked_near(vector: Floats, random: np.random.Generator) -> Floats:
    """A question's vector, close to that of the memory which answers it."""
    near = vector + 0.3 * random.standard_normal(DIMENSION, np.float32)
    near /= np.linalg.norm(near)
    return near


def plan_of(text: str, vector: Floats, settings: RecallSettings) -> search.SearchPlan:
    """A recall at budget mid."""
    now = datetime(2025, 1, 1, tzinfo=UTC)
    query = RecallQuery("default", "hub", text, now, trace=True)
    return search.SearchPlan(
        query=query,
        settings=settings,
        question=Question(text),
        asked=Probe(vector, analyser_for(RetainSettings()).query(text)),
        budget=recall_budget(settings, Budget.MID, query.max_tokens),
        cap=reranker_cap(settings, Budget.MID),
        hops=graph_hops(settings, Budget.MID),
        metadata=None,
        semantic_floor=0.3,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench graph", description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    found = bench(given.size, given.questions, given.repeats)
    columns = ("search CPU-ms", "arm CPU-ms", "arm p95", "arm wall ms")
    report.table(
        f"{given.size:,} memories, '{HUB}' in half of them, budget mid, goal {GOAL_MS} CPU-ms",
        columns,
        found["variants"],
    )
    if given.json:
        given.json.write_text(json.dumps({**report.machine(), **found}, indent=1))


if __name__ == "__main__":
    main()
