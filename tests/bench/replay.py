"""Questions with everything that ranking reads of their candidates, by the real engine.

What the fit and its tables are made from: asked once, kept in a folder, read again as often as
weights are tried.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock
from uuid import UUID

import numpy as np

from retrieval.ranking import leaders, scoring
from retrieval.ranking.score_fusion import Fused, fused_scores
from retrieval.ranking.shortlist import Shortlist
from retrieval.ranking.signals import CandidatePool, signals
from retrieval.recall import search
from retrieval.settings import RecallSettings
from retrieval.topk import places
from retrieval.types import Doubles, Floats, Include, Ints, RecallQuery, microseconds
from tests.bench import sets
from tests.support.system import System, system

NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""When a question was asked whose set does not say."""

RRF_K = 60


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and its n candidates.

    pool, values (n, SIGNALS), context (CONTEXT,): what the score is made from; support (n,): the
    place of what the walk came from, -1 for none. gain (n,) of each candidate; gold: the gains of
    all that answers the question, best first. document: the number of each candidate's document
    where answers are documents. boost (n,): what recency and time multiply.
    """

    name: str
    bank: str
    pool: CandidatePool
    values: Floats
    context: Doubles
    support: Ints
    gain: Doubles
    gold: tuple[float, ...]
    document: Ints | None
    boost: Doubles

    def served(self, score: Doubles, sharpness: float = 0.5) -> Ints:
        """The order that a recall serves where the fused scores are these."""
        fused = np.exp(sharpness * (score - score.max())) * self.boost
        order = np.argsort(-fused, kind="stable").astype(np.int32)
        return leaders.kept(order, leaders.first(self.pool.ranks))

    def arm(self, number: int) -> Ints:
        """The candidates that an arm listed, in its order."""
        ranks = self.pool.ranks[:, number]
        listed = np.flatnonzero(ranks)
        return listed[np.argsort(ranks[listed], kind="stable")].astype(np.int32)

    def reciprocal(self) -> Ints:
        """Reciprocal rank fusion of the semantic and the keyword arm."""
        ranks = self.pool.ranks[:, :2]
        both = np.where(ranks > 0, 1.0 / (RRF_K + np.maximum(ranks, 1)), 0.0).sum(axis=1)
        order = np.argsort(-both, kind="stable")
        kept: Ints = order[both[order] > 0].astype(np.int32)
        return kept


class Recorder:
    """Passes pools on to the fused score, and keeps the last one."""

    last: CandidatePool

    def __call__(self, pool: CandidatePool) -> Fused:
        self.last = pool
        return fused_scores(pool)


def asked(
    name: str, bank: sets.Bank, question: sets.Question, keys: Sequence[str], shortlist: Shortlist,
    pool: CandidatePool,
) -> Asked:  # fmt: skip
    """What a recall of this question ranked; `keys` are those of the shortlist's candidates."""
    values, context = signals(pool)
    facts = shortlist.facts
    recent = scoring.recency(
        facts.occurred_start,
        facts.occurred_end,
        facts.mentioned_at,
        microseconds(question.now or NOW),
    )
    near = np.where(np.isnan(shortlist.proximity), scoring.NEUTRAL, shortlist.proximity)
    document = None
    if question.by_document:
        of = {memory["key"]: str(memory.get("document_id")) for memory in bank.memories}
        keys = [of[key] for key in keys]
        document = np.unique(keys, return_inverse=True)[1].astype(np.int32)
    return Asked(
        name=name,
        bank=bank.name,
        pool=pool,
        values=values.astype(np.float32),
        context=context,
        support=places(pool.window[:, 0], pool.support).astype(np.int32),
        gain=np.array([question.gold.get(key, 0.0) for key in keys]),
        gold=tuple(sorted(question.gold.values(), reverse=True)),
        document=document,
        boost=scoring.steps(np.ones(len(pool)), recent, near, scoring.proof(facts.proof))[-1][1],
    )


async def _ask(run: System, data: sets.EvaluationSet) -> list[Asked]:
    # The collections hold queries longer than a server would take.
    retriever = run.retriever(RecallSettings(recall_max_query_tokens=0))
    recorder, found = Recorder(), []
    with mock.patch.object(search, "fused_scores", recorder):
        for bank in data.banks:
            ids = await run.import_bank(bank.name, bank.memories)
            key_of = {id: key for key, id in ids.items()}
            for question in bank.questions:
                query = RecallQuery(
                    tenant=run.tenant,
                    bank_id=bank.name,
                    text=question.text,
                    now=question.now or NOW,
                    include=Include(entities=None),
                )
                shortlist = await retriever.retrieve(query, texts=False)
                keys = [key_of[str(UUID(bytes=row.tobytes()))] for row in shortlist.facts.ids]
                found.append(asked(data.name, bank, question, keys, shortlist, recorder.last))
    return found


async def _ask_all(names: Sequence[str]) -> dict[str, list[Asked]]:
    async with system() as run:
        return {name: await _ask(run, sets.load(name)) for name in names}


def questions(names: Sequence[str], folder: Path) -> dict[str, list[Asked]]:
    """The questions of these sets; those that `folder` lacks are asked, and kept there."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not (folder / f"{name}.pickle").is_file()]
    for name, found in asyncio.run(_ask_all(missing)).items() if missing else ():
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(found, protocol=5))
    return {
        name: [_fresh(one) for one in pickle.loads((folder / f"{name}.pickle").read_bytes())]
        for name in names
    }


def _fresh(one: Asked) -> Asked:
    """With the signals of this commit, whenever it was asked."""
    values, context = signals(one.pool)
    return replace(one, values=values.astype(np.float32), context=context)
