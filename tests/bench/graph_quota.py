"""What survives a reranker that reads each memory by itself: `python -m tests.bench.graph_quota`.

No cross-encoder comes with the installation. The packaged embedding model stands in for one: a
candidate's score is the cosine of the question and of what the reranker is given to read. Per set
(one bank of each): the recall of its answers as that reader leaves them (the baseline), with the
path of graph-found memories in front, and with places kept for them (`graph_quota`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from models.types import Scores
from retrieval.protocols import Embedder, RerankRequest
from retrieval.settings import RecallSettings
from retrieval.types import Floats, Include, RecallQuery
from tests.bench import report, sets
from tests.support.system import System, system

CAP = 60
"""Candidates that the reader reads."""

VARIANTS: dict[str, dict[str, Any]] = {
    "read alone": {},
    "with paths": {"rerank_graph_paths": True},
    "1 place kept": {"graph_quota": 1},
    "2 places kept": {"graph_quota": 2},
    "3 places kept": {"graph_quota": 3},
    "paths, 2 places": {"rerank_graph_paths": True, "graph_quota": 2},
}
COLUMNS = ("R@5", "R@10", "R@20", "all@5", "lifted")


@dataclass(slots=True)
class Reader:
    """The embedding model as a reranker; remembers the vectors of what it has read."""

    embedder: Embedder
    reads_text: bool = True
    vectors: dict[str, Floats] = field(default_factory=dict)

    async def rerank(self, request: RerankRequest) -> Scores:
        unread = [text for text in dict.fromkeys(request.documents) if text not in self.vectors]
        if unread:
            made = await self.embedder.embed_passages(unread)
            self.vectors.update(zip(unread, made, strict=True))
        (asked,) = await self.embedder.embed_queries([request.query])
        scores = np.array([self.vectors[text] @ asked for text in request.documents], np.float32)
        return Scores(np.clip(scores, 0.0, 1.0), "probability", "embedding")


async def measure(run: System, name: str, questions: int) -> dict[str, dict[str, float]]:
    (bank, *_) = sets.load(name).banks
    keys = {id: key for key, id in (await run.import_bank(bank.name, bank.memories)).items()}
    reader = Reader(run.embedder)
    base = replace(RecallSettings(), reranker_max_candidates=CAP, fusion="convex")
    rows: dict[str, dict[str, float]] = {}
    for variant, changes in VARIANTS.items():
        engine = run.engine(replace(base, **changes), reader)
        scores = []
        for question in bank.questions[:questions]:
            query = RecallQuery(
                run.tenant,
                bank.name,
                question.text,
                question.now or datetime.now(UTC),
                include=Include(entities=None),
                max_tokens=10**6,
                limit=20,
                explain=True,
            )
            results = (await engine.recall(query)).body["results"]
            found = [keys[result["id"]] for result in results]
            gold = set(question.gold)
            recall = [len(gold & set(found[:k])) / len(gold) for k in (5, 10, 20)]
            lifted = sum("lifted" in result["explain"] for result in results)
            scores.append([*recall, gold <= set(found[:5]), lifted])
        rows[variant] = dict(zip(COLUMNS, np.mean(scores, axis=0).tolist(), strict=True))
    return rows


async def bench(names: Sequence[str], questions: int) -> dict[str, Any]:
    async with system() as run:
        return {name: await measure(run, name, questions) for name in names}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench graph_quota", description=__doc__.split("\n")[0])
    parser.add_argument("--set", action="append", dest="sets", choices=tuple(sets.LOADERS))
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    found = asyncio.run(bench(given.sets or ["musique", "hotpotqa"], given.questions))
    for name, rows in found.items():
        report.table(f"{name}: {CAP} candidates, read by an embedding model", COLUMNS, rows)
    if given.json:
        given.json.write_text(json.dumps({**report.machine(), **found}, indent=1))


if __name__ == "__main__":
    main()
