"""The array half of a recall: four arms over one bank snapshot, fused and cut.

Pure: reads a snapshot, touches no socket. May run on any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from retrieval import filters
from retrieval.arms import graph, temporal
from retrieval.arms.semantic import Blind
from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors import Scan
from retrieval.keyword import bm25
from retrieval.keyword.analyser import Query
from retrieval.ranking import boosts, fusion, score_fusion
from retrieval.settings import RecallSettings
from retrieval.shortlist import ArmList, Facts, Path, Question, Shortlist
from retrieval.types import (
    NO_TIME,
    Arm,
    Bools,
    Doubles,
    FactType,
    Floats,
    Hits,
    Ints,
    RecallQuery,
    no_hits,
)

T = TypeVar("T")

GRAPH_SEEDS = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a search needs besides the bank; `vector` is None where embedding failed."""

    query: RecallQuery
    settings: RecallSettings
    question: Question
    terms: Query
    budget: int
    cap: int
    hops: int
    vector: Floats | None
    metadata: Ints | None


class _Lists:
    """The arms' answers per fact type, with how long each took."""

    def __init__(self) -> None:
        self.parts: list[tuple[Arm, FactType, Hits, float]] = []

    def timed(self, arm: Arm, kind: FactType, find: Callable[[], T], hits: Callable[[T], Hits]) -> T:
        begin = time.perf_counter()
        answer = find()
        self.parts.append((arm, kind, hits(answer), time.perf_counter() - begin))
        return answer


def run(bank: ResidentBank, plan: Plan) -> Shortlist:
    """Semantic, keyword, temporal and graph arms; reciprocal rank fusion; the cut."""
    query, settings, budget = plan.query, plan.settings, plan.budget
    types = query.filters.types
    seconds: dict[str, float] = {}
    begin = time.perf_counter()
    allowed = filters.allowed(bank, query.filters, plan.metadata)
    scan: Scan | Blind = Blind() if plan.vector is None else bank.vectors.scan(plan.vector)
    lists = _Lists()

    floor = query.min_scores.semantic
    floor = settings.semantic_min_similarity if floor is None else floor
    semantic = [
        lists.timed(
            Arm.SEMANTIC, t, lambda t=t: _above(scan.top(budget, allowed, t), floor), _same
        )
        for t in types
    ]
    matches = bm25.scores(
        bank.postings, plan.terms, bank.live, k1=settings.bm25_k1, b=settings.bm25_b
    )
    keyword = _keyword(bank, plan, matches, allowed, lists) if settings.enable_text_search else []
    timely = _temporal(bank, plan, scan, allowed, lists)
    expanded = _graph(bank, plan, scan, matches, allowed, lists)

    cap = settings.recall_max_candidates_per_source
    arms = [_by_score(semantic), _by_score(keyword), expanded.hits]
    arms.append(Hits(timely.ordinals, timely.scores) if timely is not None else no_hits())
    seconds["arms"] = time.perf_counter() - begin
    begin = time.perf_counter()
    found = fusion.rrf([fusion.cap_per_source(hits, cap) for hits in arms])
    seconds["rrf_merge"] = time.perf_counter() - begin
    begin = time.perf_counter()
    kept = boosts.cut(found, boosts.parse(settings.recall_strategy_boosts), plan.cap)
    seconds["rerank_prefilter"] = time.perf_counter() - begin
    return _shortlist(bank, plan, scan, matches, found, kept, timely, expanded, lists, seconds)
