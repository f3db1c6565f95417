"""CPU time of a recall by stage, in this process, on the event loop that the server uses.

What runs in one go is timed inside whole recalls, by its thread's clock. What waits in between
(embedding, reading from the database) is timed by itself, by the process's clock, so that the
other threads' and the driver's work count. What the whole recall costs beyond that (tasks, thread
hops, gathering) is the rest. `python -m tests.bench.stages` asks a server first and prints beside
this what each kind of process spends on a recall, on a request that asks for nothing, and at rest.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np
import orjson

from retrieval import timex
from retrieval.bank.resident import ResidentBank
from retrieval.recall import search
from retrieval.recall.engine import RecallEngine
from retrieval.recall.search import Searched, SearchPlan
from retrieval.settings import RecallSettings
from retrieval.store import banks, memories
from retrieval.types import Include, Ints, RecallQuery
from serve.http.routing import BodyReader
from serve.http.wire.recall import RecallBody
from tests.support.system import System

T = TypeVar("T")
R = TypeVar("R")

CHECKS = 200

REST_SHOWN_MS = 1.0

ARMS = {
    "_senses": "similarities and BM25",
    "_semantic": "semantic arm",
    "_keyword": "keyword arm",
    "_temporal": "temporal arm",
    "_graph": "graph arm",
    "_merged": "fuse",
    "_fused": "fuse",
}
"""Functions of the search, and the stages that they are."""
PACK = ("combined_scoring", "token_filtering")


def question(run: System, bank_id: str, text: str) -> RecallQuery:
    return RecallQuery(
        tenant=run.tenant,
        bank_id=bank_id,
        text=text,
        now=datetime.now(UTC),
        include=Include(entities=None),
    )


async def cpu_ms(work: Callable[[T], Awaitable[R]], asked: Sequence[T]) -> tuple[float, list[R]]:
    """Mean CPU-ms of `work` over what is asked, one after the other, and its answers."""
    begin = time.process_time()
    answers = [await work(one) for one in asked]
    return 1000 * (time.process_time() - begin) / len(asked), answers


class _Watch:
    """Parts of a recall that are put aside while it runs."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(
            ("time expression", "search", "answer", "serialise", *ARMS.values()), 0.0
        )
        self.kept: list[tuple[int, Ints]] = []
        self._inside = False
        self._search, self._parse, self._answer = search.searched, timex.parse, RecallEngine._answer

    def installed(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(patch.object(search, "searched", self._run))
        stack.enter_context(patch.object(timex, "parse", self._read))
        stack.enter_context(patch.object(RecallEngine, "_answer", self._shown()))
        for name, stage in ARMS.items():
            stack.enter_context(patch.object(search, name, self._arm(name, stage)))
        return stack

    def _arm(self, name: str, stage: str) -> Callable[..., Any]:
        find = getattr(search, name)

        def timed(*arguments: Any) -> Any:
            if self._inside:  # a stage that another one calls is part of it
                return find(*arguments)
            self._inside, begin = True, time.thread_time()
            answer = find(*arguments)
            self.seconds[stage] += time.thread_time() - begin
            self._inside = False
            return answer

        return timed

    def _run(self, bank: ResidentBank, plan: SearchPlan) -> Searched:
        begin = time.thread_time()
        found = self._search(bank, plan)
        self.seconds["search"] += time.thread_time() - begin
        self.kept.append((found.shortlist.head.bank, found.shortlist.found.ordinals))
        return found

    def _read(self, *arguments: Any) -> timex.TimeExpression | None:
        begin = time.thread_time()
        answer = self._parse(*arguments)
        self.seconds["time expression"] += time.thread_time() - begin
        return answer

    def _shown(self) -> Callable[..., Awaitable[dict[str, Any]]]:
        watch = self

        async def shown(engine: RecallEngine, *arguments: Any) -> dict[str, Any]:
            begin = time.thread_time()
            body = await watch._answer(engine, *arguments)  # without entity names it never waits
            watch.seconds["answer"] += time.thread_time() - begin
            return body

        return shown


async def by_stage(run: System, bank_id: str, rounds: Sequence[Sequence[str]]) -> dict[str, float]:
    """CPU-ms per recall: `recall` of the whole, then the stages that it consists of.

    `rounds`: two lists of texts, no text twice: an embedding is remembered.
    """
    engine = run.engine(RecallSettings())
    texts, others = rounds

    async def whole(text: str) -> tuple[int, Mapping[str, float]]:
        answer = await engine.recall(question(run, bank_id, text))
        begin = time.thread_time()
        orjson.dumps(answer.body, option=orjson.OPT_SERIALIZE_NUMPY)
        watch.seconds["serialise"] += time.thread_time() - begin
        return len(answer.body["results"]), answer.seconds

    async def embed(text: str) -> object:
        return await run.embedder.embed_queries([text])

    async def head(_: str) -> object:
        return await banks.head(run.pool, run.tenant, bank_id)

    async def rows(kept: tuple[int, Any]) -> object:
        return await memories.rows(run.pool, *kept)

    watch = _Watch()
    gc.collect()
    gc.freeze()  # as Serve does when a replica is ready
    with watch.installed():
        whole_ms, answers = await cpu_ms(whole, texts)
    mean = {name: 1000 * seconds / len(texts) for name, seconds in watch.seconds.items()}
    results = int(np.median([count for count, _ in answers]))
    shown = [(bank, ordinals[:results]) for bank, ordinals in watch.kept]
    seconds = [row for _, row in answers]
    stages = dict.fromkeys(ARMS.values())
    ms = {
        "embed": (await cpu_ms(embed, others))[0],
        "bank version": (await cpu_ms(head, others))[0],
        "time expression": mean["time expression"],
        **{stage: mean[stage] for stage in stages},
        "rest of the search": mean["search"] - sum(mean[stage] for stage in stages),
        "rank and pack": _steps(seconds, PACK),
        "hydrate": (await cpu_ms(rows, shown))[0],
        "answer": mean["answer"],
        "serialise": mean["serialise"],
    }
    body = orjson.dumps({"query": texts[0], "include": {"entities": None}})
    return {
        "recall": whole_ms,
        **ms,
        "rest": whole_ms - sum(ms.values()),
        "body checked": _checking(body),
    }


def whole_bill(
    by_stage: Mapping[str, float], bill: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """One recall from socket to socket, CPU-ms, both ways of counting: stages in this process, the
    rest from the processes of a server. `bill`: by kind of process, for a recall, an empty request
    and a second of rest (tests/bench/latency.py).

    What stages do not account for in the replica is `cold`: caches that others emptied since the
    last recall, threads that wake up, answers that go out. It may be below nothing where the
    machine was busier while the stages were measured."""

    def spent(kind: str, name: str) -> float:
        return bill.get(kind, {}).get(name, 0.0)

    apart = ("recall", "body checked", "Serve and HTTP")
    stages = {name: ms for name, ms in by_stage.items() if name not in apart}
    inside = {
        "uvicorn, Serve, FastAPI": spent("replica", "empty request"),
        "validation": by_stage["body checked"],
        **stages,
    }
    replica = spent("replica", "recall")
    others = {kind: row["recall"] for kind, row in bill.items() if kind != "replica"}
    rest = {
        f"a second of rest: {kind}": row["a second of rest"]
        for kind, row in bill.items()
        if row["a second of rest"] >= REST_SHOWN_MS
    }
    return {
        **inside,
        "cold": replica - sum(inside.values()),
        "= replica only": replica,
        **others,
        "= all processes": replica + sum(others.values()),
        **rest,
    }


def _checking(body: bytes) -> float:
    """CPU-ms of reading a recall's body and making the engine's query of it: beside a recall."""
    reading, now = BodyReader(RecallBody), datetime.now(UTC)
    begin = time.thread_time()
    for _ in range(CHECKS):
        model, _ = reading(body)
        assert isinstance(model, RecallBody)
        model.to_query("", "bank", now=now, deadline=None)
    return 1000 * (time.thread_time() - begin) / CHECKS


def _steps(seconds: Sequence[Mapping[str, float]], names: Sequence[str]) -> float:
    """Median ms of steps that neither wait nor leave their thread: wall time is CPU time there."""
    return 1000 * float(np.median([sum(row.get(n, 0.0) for n in names) for row in seconds]))


def main(arguments: Sequence[str] | None = None) -> None:
    """The whole bill of a recall with one client: `bench latency` without a crowd."""
    from tests.bench import latency  # which reads this module

    given = sys.argv[1:] if arguments is None else arguments
    latency.main(["--clients", "1", *given])


if __name__ == "__main__":
    main()
