"""What a retain by a language model costs, and how tenants share one.

    fourfold bench retain [--characters 60000] [--operations 200] [--tenants 20] [--delay-s 0.5]

A conversation of LoCoMo where there is one, else a synthetic one, is retained by a scripted model
in this process: calls, tokens (cl100k, of what was sent and said) and their price; and our own CPU
time per chunk, without the model's, with an embedder that only hashes. Then async retains of many
tenants wait for a model of `--delay-s` behind a real account: calls in flight, and how long a small
tenant waits beside the others' backlog, against waiting alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from models.llm.account import Account
from models.llm.types import Turn
from retrieval.errors import NotFound
from retrieval.ingest.extract.by_model import ModelExtractor
from retrieval.ingest.operations.worker import Worker, submit
from retrieval.ingest.retain import retain
from retrieval.store import operation_views
from retrieval.store.database.pool import Pool
from retrieval.text.tokens import count
from tests.bench import report, sets
from tests.retrieval.llm.scripted import Said, Used
from tests.retrieval.store.servers import database, deps

PRICE_IN, PRICE_OUT = 0.25, 2.0
"""Dollars per million tokens: a small hosted model's."""
GOAL_CPU_MS, GOAL_WAIT = 15.0, 1.5


@dataclass
class Speaking:
    """Says every line again, behind a real account's turns."""

    account: Account
    delay_s: float = 0.0
    model_id: str = "scripted"
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    most_at_once: int = 0
    seconds: float = 0.0
    """Of this process, spent on being the model."""

    async def chat(
        self, operation: str, messages: Sequence[Mapping[str, Any]], **more: Any
    ) -> Said:
        turn = Turn[str(more["turn"]).upper()]
        async with self.account.turn(turn, more["tenant"]):
            self.most_at_once = max(self.most_at_once, self.account.running)
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
        began = time.process_time()
        sent = "\n".join(str(message["content"]) for message in messages)
        content = sent.split("Content:\n")[-1].split("\n", 1)[1].rsplit("\n</", 1)[0]
        lines = [line for line in content.splitlines() if line.strip()][:12]
        answer = json.dumps({"facts": [{"what": line[:300]} for line in lines]})
        self.calls += 1
        used = Used(count(sent), count(answer))
        self.tokens_in += used.input_tokens
        self.tokens_out += used.output_tokens
        self.seconds += time.process_time() - began
        return Said(answer, usage=used)


def conversation(characters: int) -> str:
    """Turns, a line each."""
    try:
        found = sets.load("locomo").banks[0].memories
        lines = [str(memory["text"]) for memory in found]
    except (OSError, LookupError, ValueError):
        lines = [f"Ann says that kiln {i} is warm, and Bo answers." for i in range(5_000)]
    return "\n".join(lines)[:characters]


async def cost(characters: int) -> dict[str, float]:
    model, text = Speaking(Account(32)), conversation(characters)
    async with database() as pool:
        ingest = deps(pool, extractor=ModelExtractor(model))
        await retain(ingest, "default", "warm", [{"content": text[:6_000]}])
        model = Speaking(Account(32))
        ingest = replace(ingest, extractor=ModelExtractor(model))
        began = time.process_time()
        await retain(ingest, "default", "own", [{"content": text, "document_id": "d"}])
        spent = time.process_time() - began - model.seconds
        calls = model.calls
        await retain(ingest, "default", "own", [{"content": text, "document_id": "d"}])
        twice = model.calls - calls
        await retain(ingest, "default", "own", [{"content": f"Hi.\n{text}", "document_id": "d"}])
    thousands = len(text) / 1000
    dollars = (model.tokens_in * PRICE_IN + model.tokens_out * PRICE_OUT) / 1e6
    return {
        "characters": len(text),
        "calls": calls,
        "calls, again": twice,
        "calls, line on top": model.calls - calls - twice,
        "tokens in / 1,000": model.tokens_in / thousands,
        "tokens out / 1,000": model.tokens_out / thousands,
        "$ / million chars": dollars / thousands * 1000,
        "CPU-ms / chunk": spent / calls * 1000,
    }


async def _wait(pool: Pool, tenant: str, ids: Mapping[str, float], waits: list[float]) -> None:
    """Notes how long each operation took, as it ends."""
    left = dict(ids)
    while left:
        for id, began in list(left.items()):
            with suppress(NotFound):
                found = await operation_views.get(pool, tenant, "b", id)
                if found["status"] == "completed":
                    waits.append(time.monotonic() - began)
                    del left[id]
        await asyncio.sleep(0.05)


async def _small(ingest: Any, rounds: int) -> list[float]:
    """One operation after the other of a tenant that sends little."""
    waits: list[float] = []
    for _ in range(rounds):
        item = {"content": f"Cy likes tea {uuid4()}."}
        answer = await submit(ingest, "small", "b", [item])
        id = answer["operation_id"]
        await _wait(ingest.pool, "small", {id: time.monotonic()}, waits)
    return waits


async def share(many: int, tenants: int, delay_s: float, limit: int) -> dict[str, float]:
    model = Speaking(Account(limit), delay_s)
    async with database(max_size=10) as pool:
        ingest = deps(pool, extractor=ModelExtractor(model, limit))
        worker = Worker(ingest, slots=limit, poll_s=0.1)
        await worker.start()
        try:
            alone = await _small(ingest, 8)
            began = time.monotonic()
            for i in range(many):
                item = {"content": f"Ann likes tea {i}. " * 3}
                await submit(ingest, f"t{i % tenants}", "b", [item])
            beside = await _small(ingest, 8)
            while await pool.fetchval(  # noqa: ASYNC110 - the database's state
                "select exists (select from operations where status in ('pending', 'processing'))"
            ):
                await asyncio.sleep(0.1)
            seconds = time.monotonic() - began
        finally:
            await worker.stop()
    p95 = [float(np.percentile(waits, 95)) for waits in (alone, beside)]
    return {
        "limit": limit,
        "most at once": model.most_at_once,
        "seconds": seconds,
        "p95 alone s": p95[0],
        "p95 beside s": p95[1],
        "ratio": p95[1] / p95[0],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="fourfold bench retain")
    parser.add_argument("--characters", type=int, default=60_000)
    parser.add_argument("--operations", type=int, default=200)
    parser.add_argument("--tenants", type=int, default=20)
    parser.add_argument("--delay-s", type=float, default=0.5)
    parser.add_argument("--limit", type=int, default=32)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    paid = asyncio.run(cost(given.characters))
    report.table("one conversation", tuple(paid), {"retain": paid})
    shared = asyncio.run(share(given.operations, given.tenants, given.delay_s, given.limit))
    report.table(f"{given.operations} operations", tuple(shared), {"tenants": shared})
    if given.json:
        given.json.write_text(json.dumps({**report.machine(), "cost": paid, "share": shared}))
    missed = [
        f"{name} is {value:.1f}, the goal is {goal:g}"
        for name, value, goal in (
            ("CPU-ms per chunk", paid["CPU-ms / chunk"], GOAL_CPU_MS),
            ("calls at once", shared["most at once"], shared["limit"]),
            ("wait beside others", shared["ratio"], GOAL_WAIT),
        )
        if value > goal
    ]
    if missed:
        raise SystemExit("; ".join(missed))


if __name__ == "__main__":
    main()
