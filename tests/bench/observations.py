"""What observations do to recalls: whether they find more, and what making them costs others.

    python -m tests.bench.observations [--set locomo] [--banks 2] [--questions 100]
    python -m tests.bench.observations --beside 50000 [--call-ms 500] [--hashed]

The first makes observations of a set's memories by the rules that stand in for a language model,
and asks each question of memories alone and of memories and observations; an observation in the
list stands for the memories that it was made of. The second asks a large bank at a steady pace
while nothing else runs and while its memories are consolidated by a model in process that takes so
long for each call; all in one process, which is the worst case. Both take turns, so that what else
the machine does meets both, and the ratios are the medians of those of the turns.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import numpy as np

from retrieval.consolidation import by_rules, queue, rounds
from retrieval.consolidation.deps import ConsolidationDeps
from retrieval.ingest.operations.worker import Worker
from retrieval.recall.engine import RecallEngine
from retrieval.settings import RecallSettings
from retrieval.settings.consolidation import ConsolidationSettings
from retrieval.types import FactType, Filters, Include, RecallQuery
from serve.opening.threads import open_threads
from tests.bench import report, sets, synthetic
from tests.retrieval.consolidation.world import Model, each
from tests.retrieval.llm.scripted import Said
from tests.retrieval.store.servers import HashEmbedder
from tests.support.system import System, system

DEPTHS = (5, 10, 20)
MEMORIES = (FactType.WORLD, FactType.EXPERIENCE)
SETTINGS = ConsolidationSettings(consolidation_debounce_s=0.0)
PAUSE_S = 0.1
"""Between two recalls beside a consolidation."""


TURNS = 6
"""How often a bank is asked in quiet and beside a consolidation."""


class Patient(Model):
    """A model that takes its time, and makes one observation of each fact; it answers while its
    gate is open."""

    def __init__(self, call_s: float) -> None:
        super().__init__()
        self.call_s, self.rule, self.calls = call_s, each, 0
        self.gate = asyncio.Event()

    async def chat(
        self, operation: str, messages: Sequence[Mapping[str, Any]], **more: Any
    ) -> Said:
        await asyncio.sleep(self.call_s)
        await self.gate.wait()
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


PREFERRED = "observations preferred"
KINDS: Mapping[str, tuple[FactType, ...]] = {
    "before there were any": tuple(FactType),
    "memories alone": MEMORIES,
    "with observations": tuple(FactType),
    PREFERRED: tuple(FactType),
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
                        prefer_observations=label == PREFERRED,
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


async def asked_steadily(run: System, engine: RecallEngine, texts: Sequence[str]) -> list[float]:
    """Seconds of each recall."""
    spent = []
    for text in texts:
        begin = time.perf_counter()
        await engine.recall(query(run, "bench", text, datetime.now(UTC)))
        spent.append(time.perf_counter() - begin)
        await asyncio.sleep(PAUSE_S)
    return spent


async def beside(size: int, questions: int, call_s: float, hashed: bool) -> None:
    each_turn = questions // TURNS
    bank = synthetic.bank("bench", size, 2 * questions + 20)
    texts = iter([one.text for one in bank.questions])
    turns: dict[str, list[list[float]]] = {"quiet": [], "consolidating": []}
    open_threads()  # as a server has them
    async with system(embedder=HashEmbedder(384) if hashed else None) as run:
        await run.import_bank("bench", bank.memories)
        engine, model = run.engine(), Patient(call_s)
        await asked_steadily(run, engine, list(islice(texts, 20)))
        work = asyncio.create_task(consolidate(run, "bench", model=model))
        for _ in range(TURNS):
            for label, spent in turns.items():
                if label == "quiet":
                    model.gate.clear()
                else:
                    model.gate.set()
                await asyncio.sleep(2 * call_s)
                asked = await asked_steadily(run, engine, list(islice(texts, each_turn)))
                assert not work.done(), "all is consolidated: give it more memories"
                spent.append(asked)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    measures = {"p50 ms": 50, "p95 ms": 95}
    at = {
        label: {name: np.percentile(spent, part, axis=1) * 1e3 for name, part in measures.items()}
        for label, spent in turns.items()
    }
    rows = {
        label: {name: float(np.median(values)) for name, values in found.items()}
        | {"recalls": float(TURNS * each_turn)}
        for label, found in at.items()
    }
    rows["ratio"] = {
        name: float(np.median(at["consolidating"][name] / at["quiet"][name])) for name in measures
    }
    report.table(f"{size:,} memories, {model.calls} calls", [*measures, "recalls"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench observations", description=__doc__)
    parser.add_argument("--set", default="locomo", dest="name")
    parser.add_argument("--banks", type=int, default=0, help="0 = all")
    parser.add_argument("--questions", type=int, default=0, help="about so many a bank; 0 = all")
    parser.add_argument("--beside", type=int, default=0, help="memories of a large bank")
    parser.add_argument("--call-ms", type=float, default=500, help="what a call of the model takes")
    parser.add_argument(
        "--hashed", action="store_true", help="words are hashed instead of embedded: much sooner"
    )
    given = parser.parse_args(arguments)
    if given.beside:
        call_s = given.call_ms / 1000
        work = beside(given.beside, given.questions or 300, call_s, given.hashed)
    else:
        work = worth(given.name, given.banks, given.questions)
    asyncio.run(work)


if __name__ == "__main__":
    main()
