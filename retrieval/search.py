"""The array half of a recall: four arms over one bank snapshot, fused and cut.

Pure: reads a snapshot, touches no socket. May run on any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from retrieval import cues, filters
from retrieval.arms import graph, semantic, temporal
from retrieval.arms.adjacency import GraphHits, GraphSettings
from retrieval.arms.bank_graph import BankGraph
from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors import Scan
from retrieval.ingest.subject import ASKS
from retrieval.keyword import bm25
from retrieval.keyword.analyser import Query
from retrieval.ranking import boosts, fusion, score_fusion
from retrieval.ranking.fusion import Candidates
from retrieval.ranking.score_fusion import Scale, spread
from retrieval.settings import RecallSettings
from retrieval.shortlist import ArmList, Facts, Paths, Question, Shortlist
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

DAY_US = 86_400_000_000
NO_TERMS = Query(np.empty(0, np.uint64), np.empty(0, np.float32))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a search needs besides the bank; `vector` is None where embedding failed. `matches`:
    what another keyword back-end found; None lets the resident postings answer `terms`. `degraded`:
    stages that failed before the search."""

    query: RecallQuery
    settings: RecallSettings
    question: Question
    terms: Query
    budget: int
    cap: int
    hops: int
    vector: Floats | None
    metadata: Ints | None
    semantic_floor: float
    matches: bm25.ScoredMatches | None = None
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Senses:
    """What the arms share of one question over one bank."""

    bank: ResidentBank
    scan: Scan
    matches: bm25.ScoredMatches
    scale: Scale
    allowed: Bools
    named: Ints
    """Entities that the question names."""

    def affinity(self, ordinals: Ints) -> Doubles:
        return score_fusion.affinity(self.scan.at(ordinals), self.matches.at(ordinals), self.scale)


class _Lists:
    """The arms' answers per fact type, with how long each took."""

    def __init__(self) -> None:
        self.parts: list[tuple[Arm, FactType, Hits, float]] = []
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, find: Callable[[], T]) -> T:
        begin = time.perf_counter()
        answer = find()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
        return answer

    def keep(self, arm: Arm, kind: FactType, hits: Hits, begin: float) -> Hits:
        self.parts.append((arm, kind, hits, time.perf_counter() - begin))
        return hits


def run(bank: ResidentBank, plan: Plan) -> Shortlist:
    """Semantic, keyword, temporal and graph arms; reciprocal rank fusion; the cut."""
    settings, lists = plan.settings, _Lists()
    senses = lists.timed("keyword_and_vectors", lambda: _senses(bank, plan))
    alike = _semantic(senses, plan, lists)
    worded = _keyword(senses, plan, lists) if settings.enable_text_search else no_hits()
    timely = _temporal(senses, plan, lists)
    walked = (
        _graph(senses, plan, [alike, worded], lists) if settings.enable_graph_retrieval else None
    )

    arms = [alike, worded, no_hits() if walked is None else walked.hits, no_hits()]
    if timely is not None:
        arms[Arm.TEMPORAL] = Hits(timely.ordinals, timely.scores)
    cap = settings.recall_max_candidates_per_source
    found = lists.timed(
        "rrf_merge", lambda: fusion.rrf([fusion.cap_per_source(hits, cap) for hits in arms])
    )
    strategy = boosts.parse(settings.recall_strategy_boosts)
    kept = lists.timed("rerank_prefilter", lambda: boosts.cut(found, strategy, plan.cap))
    fused = lists.timed("score_fusion", lambda: _fused(senses, plan, kept, walked))
    source_ptr, source_ordinals = _sources(bank, kept.ordinals)
    return Shortlist(
        head=bank.head,
        question=plan.question,
        budget=plan.budget,
        found=kept,
        facts=_facts(bank, kept.ordinals),
        proximity=_proximity(kept.ordinals, timely),
        fused=fused,
        source_ptr=source_ptr,
        source_ordinals=source_ordinals,
        paths=_paths(bank, kept.ordinals, walked),
        vectors=bank.vectors.rows(kept.ordinals) if plan.query.dedupe is not None else None,
        query_vector=plan.vector if plan.query.trace else None,
        dropped=len(found) - len(kept),
        cap=plan.cap,
        degraded=(*(("semantic",) if plan.vector is None else ()), *plan.degraded),
        arms=_trace(bank, lists) if plan.query.trace else (),
        seconds=lists.seconds,
    )


def take(shortlist: Shortlist, index: Ints) -> Shortlist:
    """The shortlist with only the candidates at these positions, in that order."""
    facts, paths = shortlist.facts, shortlist.paths
    counts = np.diff(shortlist.source_ptr)[index]
    starts = shortlist.source_ptr[index]
    values = [shortlist.source_ordinals[s : s + n] for s, n in zip(starts, counts, strict=True)]
    return replace(
        shortlist,
        found=shortlist.found.take(index),
        facts=Facts(**{f: getattr(facts, f)[index] for f in Facts.__slots__}),
        proximity=shortlist.proximity[index],
        fused=shortlist.fused[index],
        source_ptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        source_ordinals=np.concatenate([np.empty(0, np.int32), *values]).astype(np.int32),
        paths=Paths(
            paths.hop[index],
            paths.parent[index],
            paths.link[index],
            tuple(paths.via[i] for i in index.tolist()),
        ),
        vectors=None if shortlist.vectors is None else shortlist.vectors[index],
    )


def find_event(
    bank: ResidentBank, phrase: Query, vector: Floats, settings: RecallSettings
) -> tuple[int, datetime, datetime, float] | None:
    """The dated memory that an event phrase means: (ordinal, start, end, confidence), or None.

    The best by similarity must also share words with the phrase, or be very similar, and have an
    occurred date; confidence is its similarity. A doubtful event gives no window: a wrong one
    would hide the answer.
    """
    scan = bank.vectors.scan(vector)
    matches = bm25.scores(bank.postings, phrase, bank.live, k1=settings.bm25_k1, b=settings.bm25_b)
    dated = bank.live & (bank.columns.occurred_start != NO_TIME)
    best: tuple[float, int] | None = None
    for kind in FactType:
        hits = scan.top(10, dated, kind)
        shared = matches.at(hits.ordinals)
        most = float(matches.scores.max()) if len(matches) else 0.0
        share = shared / most if most > 0 else np.zeros(len(hits))
        score = hits.scores + 0.3 * share
        good = (hits.scores >= _EVENT_SIMILAR) | (
            (hits.scores >= _EVENT_SIMILAR_WITH_WORDS) & (share >= _EVENT_WORDS)
        )
        for ordinal, value, passes in zip(hits.ordinals, score, good, strict=True):
            if passes and (best is None or value > best[0]):
                best = (float(value), int(ordinal))
    if best is None:
        return None
    ordinal = best[1]
    start = int(bank.columns.occurred_start[ordinal])
    end = int(bank.columns.occurred_end[ordinal])
    first = _EPOCH + timedelta(microseconds=start)
    last = first if end == NO_TIME else _EPOCH + timedelta(microseconds=end)
    return ordinal, first, max(first, last), min(1.0, best[0] / 1.3)


_EVENT_SIMILAR = 0.62
_EVENT_SIMILAR_WITH_WORDS = 0.45
_EVENT_WORDS = 0.5


def uuid_of(raw: NDArray[np.uint8]) -> str:
    return str(UUID(bytes=raw.tobytes()))


def _senses(bank: ResidentBank, plan: Plan) -> _Senses:
    """The scan and the keyword scores that every arm reads, and what they are measured against."""
    allowed = filters.allowed(bank, plan.query.filters, plan.metadata)
    scan: Scan = semantic.Blind() if plan.vector is None else bank.vectors.scan(plan.vector)
    matches = plan.matches
    if matches is None:
        terms = plan.terms if plan.settings.enable_text_search else NO_TERMS
        matches = bm25.scores(
            bank.postings, terms, bank.live, k1=plan.settings.bm25_k1, b=plan.settings.bm25_b
        )
    mean, deviation = scan.moments(None)
    open_ = matches.scores[allowed[matches.ordinals]]
    return _Senses(
        bank,
        scan,
        matches,
        Scale(
            mean, spread(deviation, int(bank.live.sum())), float(open_.max()) if len(open_) else 0.0
        ),
        allowed,
        bank.entities.find(plan.question.text),
    )


def _semantic(senses: _Senses, plan: Plan, lists: _Lists) -> Hits:
    floor = plan.query.min_scores.semantic
    floor = plan.semantic_floor if floor is None else floor
    parts = []
    for kind in plan.query.filters.types:
        begin = time.perf_counter()
        hits = semantic.search(senses.scan, senses.allowed, kind, limit=plan.budget, floor=floor)
        parts.append(lists.keep(Arm.SEMANTIC, kind, hits, begin))
    return _by_score(parts)


def _keyword(senses: _Senses, plan: Plan, lists: _Lists) -> Hits:
    floor = plan.query.min_scores.keyword
    floor = plan.settings.bm25_min_score if floor is None else floor
    begin = time.perf_counter()
    types = plan.query.filters.types
    best = bm25.top(
        senses.matches,
        senses.bank.columns.fact_type,
        types,
        plan.budget,
        allowed=senses.allowed,
        floor=floor,
    )
    return _by_score([lists.keep(Arm.BM25, kind, best[kind], begin) for kind in types])


def _temporal(senses: _Senses, plan: Plan, lists: _Lists) -> temporal.TemporalHits | None:
    window = plan.question.window
    if window is None or not plan.settings.enable_temporal_retrieval:
        return None
    parts = []
    for kind in plan.query.filters.types:
        begin = time.perf_counter()
        part = temporal.search(
            senses.bank,
            senses.scan,
            senses.allowed,
            kind,
            filters.bounds(window),
            limit=plan.budget,
            min_similarity=plan.settings.temporal_semantic_min_similarity,
        )
        parts.append(part)
        lists.keep(Arm.TEMPORAL, kind, Hits(part.ordinals, part.scores), begin)
    merged = temporal.merge(parts, [senses.scan.at(part.ordinals) for part in parts])
    return merged if len(merged) else None


def _graph(senses: _Senses, plan: Plan, seeds: Sequence[Hits], lists: _Lists) -> GraphHits:
    settings, bank = plan.settings, senses.bank
    begin = time.perf_counter()
    asked = GraphSettings(
        hops=plan.hops,
        per_entity=settings.link_expansion_per_entity_limit,
        limit=plan.budget,
        hub_damping=settings.graph_hub_damping,
        causes=cues.asks_why(plan.question.text),
    )
    late = begin + settings.link_expansion_timeout_s
    walked = graph.expand(
        BankGraph(bank),
        graph.pick_seeds(seeds, senses.affinity),
        senses.affinity,
        senses.allowed,
        asked,
        named=senses.named,
        late=lambda: time.perf_counter() > late,
    )
    kinds = bank.columns.fact_type[walked.hits.ordinals]
    for kind in plan.query.filters.types:
        mine = kinds == kind
        part = Hits(walked.hits.ordinals[mine], walked.hits.scores[mine])
        lists.keep(Arm.GRAPH, kind, part, begin)
    return walked


def _by_score(parts: Sequence[Hits]) -> Hits:
    """One arm over all fact types: by its own score, equal ones in the order of the types."""
    ordinals = np.concatenate([hits.ordinals for hits in parts])
    scores = np.concatenate([hits.scores for hits in parts])
    order = np.argsort(-scores, kind="stable")
    return Hits(ordinals[order], scores[order])


def _fused(senses: _Senses, plan: Plan, kept: Candidates, walked: GraphHits | None) -> Doubles:
    bank, columns = senses.bank, senses.bank.columns
    ordinals = kept.ordinals
    window = score_fusion.windows(ordinals, bank.previous, bank.next)
    flat = np.maximum(window, 0).ravel()
    named = np.zeros(len(ordinals), np.bool_)
    if len(senses.named):
        named = np.isin(bank.subject[ordinals], senses.named)
    asking = (columns.flags[np.maximum(window[:, :2], 0)] & ASKS).astype(np.bool_)
    evidence, support = _evidence(ordinals, walked)
    return score_fusion.fused_scores(
        window,
        senses.scan.at(flat).reshape(window.shape),
        senses.matches.terms_at(flat).reshape(senses.matches.terms, *window.shape),
        senses.scale,
        document=columns.document[ordinals],
        tokens=columns.tokens[ordinals],
        named=named,
        evidence=evidence,
        support=support,
        asks=asking & (window[:, :2] >= 0),
        timely=_timely(bank, plan, ordinals),
        over=_over(bank, plan, ordinals),
    )


def _timely(bank: ResidentBank, plan: Plan, ordinals: Ints) -> Bools | None:
    window = plan.question.window
    if window is None or not plan.settings.enable_temporal_retrieval:
        return None
    columns = bank.columns
    return filters.overlaps(
        columns.occurred_start[ordinals],
        columns.occurred_end[ordinals],
        columns.mentioned_at[ordinals],
        filters.bounds(window),
    )


def _over(bank: ResidentBank, plan: Plan, ordinals: Ints) -> Bools | None:
    """Spans longer than a day that ended before now; a day's event is no state that could end."""
    if not cues.asks_about_now(plan.question.text):
        return None
    start, end = bank.columns.occurred_start[ordinals], bank.columns.occurred_end[ordinals]
    known = (start != NO_TIME) & (end != NO_TIME)
    over: Bools = known & (end < filters.microseconds(plan.query.now)) & (end - start > DAY_US)
    return over


def _evidence(ordinals: Ints, walked: GraphHits | None) -> tuple[Floats, Ints]:
    """What the walk handed to each candidate, and the ordinal it comes from (-1 none)."""
    evidence = np.zeros(len(ordinals), np.float32)
    support = np.full(len(ordinals), -1, np.int32)
    if walked is None or not len(walked):
        return evidence, support
    where, there = _lookup(walked.hits.ordinals, ordinals)
    evidence[there] = walked.evidence[where[there]]
    support[there] = walked.support[where[there]]
    return evidence, support


def _proximity(ordinals: Ints, timely: temporal.TemporalHits | None) -> Doubles:
    """Nearness to the window where the temporal arm found the memory, NaN elsewhere; kept also
    for memories that another arm found first."""
    near = np.full(len(ordinals), np.nan)
    if timely is None:
        return near
    where, there = _lookup(timely.ordinals, ordinals)
    near[there] = timely.proximity[where[there]]
    return near


def _lookup(held: Ints, asked: Ints) -> tuple[NDArray[np.intp], Bools]:
    """Where each asked ordinal stands in `held` (distinct, any order), and whether it is there."""
    order = np.argsort(held, kind="stable")
    place = np.searchsorted(held, asked, sorter=order)
    where = order[np.minimum(place, len(held) - 1)]
    return where, held[where] == asked


def _facts(bank: ResidentBank, ordinals: Ints) -> Facts:
    columns = bank.columns
    return Facts(
        ids=columns.id[ordinals],
        fact_type=columns.fact_type[ordinals],
        occurred_start=columns.occurred_start[ordinals],
        occurred_end=columns.occurred_end[ordinals],
        mentioned_at=columns.mentioned_at[ordinals],
        proof=columns.proof[ordinals],
        tokens=columns.tokens[ordinals],
    )


def _sources(bank: ResidentBank, ordinals: Ints) -> tuple[Ints, Ints]:
    row, source = bank.columns.sources.take(ordinals)
    counts = np.bincount(row, minlength=len(ordinals))
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), source


def _paths(bank: ResidentBank, ordinals: Ints, walked: GraphHits | None) -> Paths:
    """How the walk came to each candidate that is no seed."""
    count = len(ordinals)
    hop, link = np.zeros(count, np.int8), np.zeros(count, np.uint8)
    parent, via = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    if walked is not None and len(walked):
        where, there = _lookup(walked.hits.ordinals, ordinals)
        at = where[there]
        hop[there], link[there] = walked.hop[at], walked.link[at]
        parent[there], via[there] = walked.parent[at], walked.via[at]
    names: list[str | None] = [None] * count
    for i in np.flatnonzero(via >= 0).tolist():
        names[i] = bank.entities.name[via[i]]
    return Paths(hop, bank.columns.id[np.maximum(parent, 0)], link, tuple(names))


def _trace(bank: ResidentBank, lists: _Lists) -> tuple[ArmList, ...]:
    return tuple(
        ArmList(arm, kind, hits, bank.columns.id[hits.ordinals], seconds)
        for arm, kind, hits, seconds in lists.parts
    )
