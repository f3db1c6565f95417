"""What observations do to recalls: whether they find more, and what making them costs others.

    python -m tests.bench.observations [--set locomo] [--banks 2] [--questions 100]
    python -m tests.bench.observations --beside 50000 [--call-ms 500]

The first makes observations of a set's memories by the rules that stand in for a language model,
and asks each question of memories alone and of memories and observations; an observation in the
list stands for the memories that it was made of. The second asks a large bank at a steady pace
while nothing else runs, then while its memories are consolidated by a model in process that takes
so long for each call; all in one process, which is the worst case. It says how much longer recalls
take by the clock, so it needs a machine of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from retrieval.consolidation import by_rules, queue, rounds
from retrieval.consolidation.deps import ConsolidationDeps
from retrieval.ingest.operations.worker import Worker
from retrieval.recall.engine import RecallEngine
from retrieval.settings import RecallSettings
from retrieval.settings.consolidation import ConsolidationSettings
from retrieval.types import FactType, Filters, Include, RecallQuery
from tests.bench import report, sets, synthetic
from tests.retrieval.consolidation.world import Model, each
from tests.retrieval.llm.scripted import Said
from tests.support.system import System, system

DEPTHS = (5, 10, 20)
MEMORIES = (FactType.WORLD, FactType.EXPERIENCE)
SETTINGS = ConsolidationSettings(consolidation_debounce_s=0.0)
PAUSE_S = 0.1
"""Between two recalls beside a consolidation."""


class Patient(Model):
    """A model that takes its time, and makes one observation of each fact."""

    def __init__(self, call_s: float) -> None:
        super().__init__()
        self.call_s, self.rule, self.calls = call_s, each, 0

    async def chat(
        self, operation: str, messages: Sequence[Mapping[str, Any]], **more: Any
    ) -> Said:
        await asyncio.sleep(self.call_s)
        self.calls += 1
        self.asked.clear()
        return await super().chat(operation, messages, **more)


async def consolidate(run: System, bank_id: str, **decides: Any) -> None:
    """Does all rounds that a bank needs."""
    deps = ConsolidationDeps(run.ingest, run.residency, SETTINGS, **decides)
    worker = Worker(run.ingest, handlers={queue.TYPE: rounds.handler(deps)})
    await queue.submit(run.pool, run.tenant, bank_id, SETTINGS)
    while await worker.step():
        pass


def query(run: System, bank_id: str, text: str, now: datetime, **more: Any) -> RecallQuery:
    return RecallQuery(run.tenant, bank_id, text, now, include=Include(entities=None), **more)


async def found(engine: RecallEngine, asked: RecallQuery, made_of: Mapping[str, Any]) -> list[Any]:
    """For each result, best first, the ids of the memories that it stands for."""
    answer = await engine.recall(asked)
    return [made_of.get(str(row["id"]), {str(row["id"])}) for row in answer.body["results"]]


KINDS: Mapping[str, tuple[FactType, ...]] = {
    "before there were any": tuple(FactType),
    "memories alone": MEMORIES,
    "with observations": tuple(FactType),
}
"""What is asked of, in this order."""


async def worth(name: str, banks: int, questions: int) -> None:
    data = sets.load(name)
    reached: dict[str, list[list[float]]] = {label: [] for label in KINDS}
    made = 0
    async with system() as run:
        engine = run.engine(RecallSettings(recall_max_query_tokens=0))
        for bank in data.banks[: banks or None]:
            ids = await run.import_bank(bank.name, bank.memories)
            step = max(1, len(bank.questions) // questions) if questions else 1
            made_of: dict[str, set[str]] = {}
            for label, types in KINDS.items():
                if types == MEMORIES:
                    await consolidate(run, bank.name, rules=by_rules.decide)
                    made_of = await sources(run, bank.name)
                    made += len(made_of)
                for question in bank.questions[::step]:
                    asked = query(
                        run, bank.name, question.text, question.now or datetime.now(UTC),
                        filters=Filters(types=types), max_tokens=10**6, limit=max(DEPTHS),
                    )  # fmt: skip
                    ranked = await found(engine, asked, made_of)
                    gold = {ids[key] for key in question.gold}
                    reached[label].append(
                        [len(gold & set().union(*ranked[:k])) / len(gold) for k in DEPTHS]
                    )
    columns = [f"R@{k}" for k in DEPTHS]
    rows = {
        label: dict(zip(columns, np.mean(values, axis=0).tolist(), strict=True))
        for label, values in reached.items()
    }
    asked_of = len(reached["memories alone"])
    report.table(f"{name}: {made} observations, {asked_of} questions", columns, rows)


async def sources(run: System, bank_id: str) -> dict[str, set[str]]:
    """Of each observation, the memories that it was made of."""
    rows = await run.pool.fetch(
        "select id, source_ids from memory_units join banks using (bank)"
        " where bank_id = $1 and fact_type = $2",
        bank_id,
        FactType.OBSERVATION,
    )
    return {str(row["id"]): {str(source) for source in row["source_ids"]} for row in rows}


async def asked_steadily(
    run: System, engine: RecallEngine, texts: Sequence[str], until: asyncio.Event
) -> list[float]:
    """Seconds of each recall."""
    spent = []
    for text in texts:
        begin = time.perf_counter()
        await engine.recall(query(run, "bench", text, datetime.now(UTC)))
        spent.append(time.perf_counter() - begin)
        if until.is_set():
            break
        await asyncio.sleep(PAUSE_S)
    return spent


async def beside(size: int, questions: int, call_s: float) -> None:
    bank = synthetic.bank("bench", size, 2 * questions + 20)
    texts = [one.text for one in bank.questions]
    async with system() as run:
        await run.import_bank("bench", bank.memories)
        engine = run.engine()
        over = asyncio.Event()
        await asked_steadily(run, engine, texts[:20], over)
        quiet = await asked_steadily(run, engine, texts[20 : 20 + questions], over)
        model = Patient(call_s)
        work = asyncio.create_task(consolidate(run, "bench", model=model))
        work.add_done_callback(lambda _: over.set())
        busy = await asked_steadily(run, engine, texts[20 + questions :], over)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    rows = {
        label: {"p50 ms": float(np.median(spent)) * 1e3, "p95 ms": np.percentile(spent, 95) * 1e3,
                "recalls": float(len(spent))}
        for label, spent in (("quiet", quiet), ("consolidating", busy))
    }  # fmt: skip
    rows["ratio"] = {k: rows["consolidating"][k] / rows["quiet"][k] for k in ("p50 ms", "p95 ms")}
    report.table(f"{size:,} memories, {model.calls} calls", ["p50 ms", "p95 ms", "recalls"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench observations", description=__doc__)
    parser.add_argument("--set", default="locomo", dest="name")
    parser.add_argument("--banks", type=int, default=0, help="0 = all")
    parser.add_argument("--questions", type=int, default=0, help="about so many a bank; 0 = all")
    parser.add_argument("--beside", type=int, default=0, help="memories of a large bank")
    parser.add_argument("--call-ms", type=float, default=500, help="what a call of the model takes")
    given = parser.parse_args(arguments)
    if given.beside:
        work = beside(given.beside, given.questions or 300, given.call_ms / 1000)
    else:
        work = worth(given.name, given.banks, given.questions)
    asyncio.run(work)


if __name__ == "__main__":
    main()
