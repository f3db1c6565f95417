"""What a reflect costs beside its language model: `python -m tests.bench.reflect`.

A made-up bank in this process, one observation to fifty facts, and a model by script that answers
at once: with a citation in its first call (three searches), or after one more search of its own.
CPU-ms are those of this process, embedding of the question included, Postgres beside them. No
question is asked twice.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

# As the server sets it, and before torch and FAISS are imported.
os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}

import psutil
import uvloop

from retrieval.reflect.engine import ReflectEngine
from retrieval.reflect.query import ReflectQuery
from retrieval.reflect.stored import DatabaseReads
from retrieval.settings import ReflectSettings
from tests.bench import report, synthetic
from tests.retrieval.llm.scripted import Asked, Call, Said, Scripted
from tests.support.system import System, system

FACTS_AN_OBSERVATION = 50
WARM_UP = 20
COLUMNS = ("CPU-ms", "CPU-ms Postgres", "p50 ms", "tokens shown", "searches")


def quoted(asked: Asked) -> str:
    """The first two facts that were shown, each with its handle."""
    shown = re.findall(r'^\{"id":"[FO]\d+".*$', asked.user, re.MULTILINE)
    found = [json.loads(line) for line in shown[:2]]
    return "\n".join(f"{one['text']} [{one['id']}]" for one in found)


def search(text: str) -> Said:
    given = json.dumps({"query": f"{text} again", "max_chunk_tokens": 0})
    return Said("", (Call("c", "recall", given),))


async def measure(
    run: System, engine: ReflectEngine, texts: Sequence[str], *, searches: int
) -> dict[str, float]:
    """Means over the questions."""
    llm: Any = engine._llm
    postgres = psutil.Process(run.postgres)
    spent, shown, made = [], 0, 0
    gc.collect()
    gc.freeze()
    before, began = _cpu_s(postgres), time.process_time()
    for text in texts:
        llm.answers = [*(search(text) for _ in range(searches)), quoted, quoted]
        start = time.perf_counter()
        result = await engine.reflect(
            ReflectQuery(run.tenant, "bench", text, datetime.now(UTC), max_tokens=4096)
        )
        spent.append(time.perf_counter() - start)
        assert result.citations, result.text
        shown += sum(len(str(m.get("content") or "")) for m in llm.asked[-1].messages) // 4
        made += len(result.tool_calls)
        llm.asked.clear()
    count = len(texts)
    return {
        "CPU-ms": 1000 * (time.process_time() - began) / count,
        "CPU-ms Postgres": 1000 * (_cpu_s(postgres) - before) / count,
        "p50 ms": 1000 * sorted(spent)[count // 2],
        "tokens shown": shown / count,
        "searches": made / count,
    }


def _cpu_s(process: psutil.Process) -> float:
    """Seconds of a process and those below it."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


async def bench(size: int, questions: int) -> None:
    bank = synthetic.bank("bench", size, 2 * (questions + WARM_UP))
    memories = [
        {**dict(memory), "type": "observation"} if i % FACTS_AN_OBSERVATION == 0 else memory
        for i, memory in enumerate(bank.memories)
    ]
    async with system() as run:
        await run.import_bank("bench", memories)
        recalls = run.engine()
        engine = ReflectEngine(
            DatabaseReads(run.pool), Scripted(), recalls, recalls, ReflectSettings()
        )
        texts = [one.text for one in bank.questions]
        await measure(run, engine, texts[:WARM_UP], searches=0)
        rest = texts[WARM_UP:]
        rows = {
            "answers at once": await measure(run, engine, rest[:questions], searches=0),
            "searches once": await measure(
                run, engine, rest[questions : 2 * questions], searches=1
            ),
        }
    report.table(f"reflect in a bank of {size:,}", COLUMNS, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fourfold bench reflect", description=__doc__)
    parser.add_argument("--size", type=int, default=50_000, help="memories of the bank")
    parser.add_argument("--questions", type=int, default=50)
    options = parser.parse_args(arguments)
    uvloop.install()
    asyncio.run(bench(options.size, options.questions))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
