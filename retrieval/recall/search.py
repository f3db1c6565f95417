"""The array half of a recall: four arms over one bank snapshot, fused and cut.

Pure: reads a snapshot, touches no socket. May run on any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from retrieval.arms import graph, semantic, temporal
from retrieval.arms.adjacency import GraphHits, GraphSettings, Late
from retrieval.arms.affinity import Affinity, Scale, spread
from retrieval.arms.bank_graph import BankGraph
from retrieval.bank import filters, probe
from retrieval.bank.probe import NO_TERMS, Probe, ProbeResult
from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors.flat import Scan
from retrieval.keyword import bm25
from retrieval.ranking import boosts, floors, fusion, signals
from retrieval.ranking.contributions import Contributions
from retrieval.ranking.fusion import Candidates
from retrieval.ranking.score_fusion import PARTS, Fused, fused_scores
from retrieval.ranking.shortlist import ArmList, Facts, Question, Shortlist
from retrieval.ranking.signals import CandidatePool
from retrieval.recall import event, features, intent, validity
from retrieval.settings import RecallSettings
from retrieval.stopwatch import TimedStep, passed
from retrieval.text.subject import ASKS
from retrieval.topk import places
from retrieval.types import (
    Arm,
    Bools,
    Doubles,
    FactType,
    Floats,
    Hits,
    Ints,
    RecallQuery,
    microseconds,
    no_hits,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """All that a search needs besides the bank. `asked` has no vector where embedding failed.
    `reading`: what the ranges of a split bank say to it; None where the bank is held whole.
    `matches`: what another keyword back-end found; None lets the resident postings answer.
    `degraded`: stages that failed before the search. `legible`: as of ranking.signals.Pool."""

    query: RecallQuery
    settings: RecallSettings
    question: Question
    asked: Probe
    budget: int
    cap: int
    hops: int
    metadata: Ints | None
    semantic_floor: float
    reading: ProbeResult | None = None
    matches: bm25.ScoredMatches | None = None
    degraded: tuple[str, ...] = ()
    legible: float | None = None


@dataclass(frozen=True, slots=True)
class QueryContext:
    """What the arms share of one question over one bank."""

    bank: ResidentBank
    scan: Scan
    matches: bm25.ScoredMatches
    scale: Scale
    visible: Bools
    """What may be shown; `allowed`: and is of the kind and time that is asked for."""
    allowed: Bools
    named: Ints
    """Entities that the question names."""
    derived: Bools | None = None
    """Which are observations, of all memories; None where there are none."""

    def similarity(self, ordinals: Ints) -> Doubles:
        return self.scan.at(ordinals).astype(np.float64)

    @property
    def affinity(self) -> Affinity:
        return Affinity(self.scan, self.matches, self.scale)


class _Lists:
    """The arms' answers per fact type, with how long each took."""

    def __init__(self) -> None:
        self.parts: list[tuple[Arm, FactType, Hits, float]] = []
        self.seconds: dict[str, float] = {}
        self.spans: list[TimedStep] = []

    def timed(self, name: str, find: Callable[[], T]) -> T:
        begin = time.perf_counter()
        answer = find()
        spent = time.perf_counter() - begin
        self.seconds[name] = self.seconds.get(name, 0.0) + spent
        self.spans.append(TimedStep(name, begin, spent))
        return answer

    def keep(self, arm: Arm, kind: FactType, hits: Hits, begin: float) -> Hits:
        spent = time.perf_counter() - begin
        self.parts.append((arm, kind, hits, spent))
        self.spans.append(TimedStep(f"retrieval_{arm.wire}", begin, spent))
        return hits


@dataclass(frozen=True, slots=True)
class Searched:
    """A search with all that led to its shortlist, for whoever explains it.

    arms: every arm's list, in the order of `Arm`; found: all candidates, before the cut;
    parts: as of the shortlist, also where nobody asked for them."""

    shortlist: Shortlist
    senses: QueryContext
    arms: tuple[Hits, ...]
    walked: GraphHits | None
    found: Candidates
    parts: Doubles | None
    spans: tuple[TimedStep, ...]

    @property
    def contributions(self) -> Contributions:
        """What adds up to the logarithm of the fused score of each of the shortlist."""
        parts = () if self.parts is None else zip(PARTS, self.parts.T, strict=True)
        return Contributions.of(parts)


def searched(bank: ResidentBank, plan: SearchPlan) -> Searched:
    """Semantic, keyword, temporal and graph arms; fusion; the cut; and what led to it."""
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
    arms = [fusion.cap_per_source(hits, cap) for hits in arms]
    found = lists.timed("rrf_merge", lambda: _merged(senses, plan, arms, walked))
    strategy = boosts.parse(settings.recall_strategy_boosts)
    by_rank = settings.fusion == "rrf"
    echo = _echoes(senses, found.ordinals)
    kept = lists.timed(
        "rerank_prefilter",
        lambda: boosts.cut(found, strategy, plan.cap, by_rank=by_rank, last=echo),
    )
    paths = features.paths(bank, kept.ordinals, walked)
    fused, parts = kept.rrf, None
    if settings.fusion != "interleave":
        evidence = paths.evidence, paths.support
        found_out = lists.timed("score_fusion", lambda: _fused(senses, plan, kept, *evidence))
        fused, parts = found_out.score, found_out.parts
    source_ptr, source_ordinals = features.sources(bank, kept.ordinals)
    shortlist = Shortlist(
        head=bank.head,
        question=plan.question,
        budget=plan.budget,
        found=kept,
        facts=features.facts(bank, kept.ordinals),
        proximity=features.proximity(kept.ordinals, timely),
        fused=fused,
        parts=parts if plan.query.explain or plan.query.trace else None,
        source_ptr=source_ptr,
        source_ordinals=source_ordinals,
        paths=paths,
        outside=_outside(bank, plan, kept.ordinals),
        echo=echo if kept is found else _echoes(senses, kept.ordinals),
        lasting=_lasting(bank, plan, kept.ordinals),
        query_vector=plan.asked.vector if plan.query.trace else None,
        dropped=len(found) - len(kept),
        cap=plan.cap,
        degraded=(*(("semantic",) if plan.asked.vector is None else ()), *plan.degraded),
        arms=_trace(bank, lists) if plan.query.trace else (),
        seconds=lists.seconds,
    )
    spans = tuple(lists.spans)
    return Searched(shortlist, senses, tuple(arms), walked, found, parts, spans)


def picked(shortlist: Shortlist, index: Ints) -> Shortlist:
    """The shortlist with only the candidates at these positions, in that order."""
    facts = shortlist.facts
    counts = np.diff(shortlist.source_ptr)[index]
    starts = shortlist.source_ptr[index]
    values = [shortlist.source_ordinals[s : s + n] for s, n in zip(starts, counts, strict=True)]
    return replace(
        shortlist,
        found=shortlist.found.take(index),
        facts=Facts(**{f: getattr(facts, f)[index] for f in Facts.__slots__}),
        proximity=shortlist.proximity[index],
        fused=shortlist.fused[index],
        parts=None if shortlist.parts is None else shortlist.parts[index],
        source_ptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        source_ordinals=np.concatenate([np.empty(0, np.int32), *values]).astype(np.int32),
        paths=shortlist.paths.take(index),
        outside=None if shortlist.outside is None else shortlist.outside[index],
        echo=None if shortlist.echo is None else shortlist.echo[index],
        lasting=None if shortlist.lasting is None else shortlist.lasting[index],
        vectors=None if shortlist.vectors is None else shortlist.vectors[index],
    )


def find_event(
    bank: ResidentBank,
    query: RecallQuery,
    phrase: Probe,
    settings: RecallSettings,
    metadata: Ints | None = None,
    found: ProbeResult | None = None,
) -> event.Event | None:
    """The memory that an event phrase means, or None; among those that may be shown, of whatever
    type and time. `metadata`, `found`: as in Plan."""
    visible = filters.visible(bank, query.filters, metadata)
    found = found or probe.answer(bank, phrase, settings)
    return event.find(bank, found.scan, found.matches, visible)


def _senses(bank: ResidentBank, plan: SearchPlan) -> QueryContext:
    """The scan and the keyword scores that every arm reads, and what they are measured against."""
    visible = filters.visible(bank, plan.query.filters, plan.metadata)
    allowed = filters.narrowed(bank, plan.query.filters, visible)
    asked = plan.asked
    if plan.matches is not None:
        asked = replace(asked, terms=NO_TERMS)
    found = plan.reading or probe.answer(bank, asked, plan.settings)
    scan, matches = found.scan, found.matches if plan.matches is None else plan.matches
    mean, deviation = scan.moments(None)
    open_ = matches.scores[allowed[matches.ordinals]]
    *facts, observations = map(len, bank.population.rows)
    return QueryContext(
        bank,
        scan,
        matches,
        Scale(
            mean,
            spread(deviation, sum(facts) or observations),
            float(open_.max()) if len(open_) else 0.0,
        ),
        visible,
        allowed,
        bank.entities.find(plan.question.text),
        _derived(bank),
    )


def _derived(bank: ResidentBank) -> Bools | None:
    if not len(bank.population.rows[FactType.OBSERVATION]):
        return None
    derived: Bools = bank.columns.fact_type == FactType.OBSERVATION
    return derived


def _semantic(senses: QueryContext, plan: SearchPlan, lists: _Lists) -> Hits:
    given = plan.query.min_scores.semantic
    floor = plan.semantic_floor if given is None else floors.least(given, floors.ARM_DIGITS)
    parts = []
    for kind in plan.query.filters.types:
        begin = time.perf_counter()
        hits = semantic.search(senses.scan, senses.allowed, kind, limit=plan.budget, floor=floor)
        parts.append(lists.keep(Arm.SEMANTIC, kind, hits, begin))
    return _by_score(parts)


def _keyword(senses: QueryContext, plan: SearchPlan, lists: _Lists) -> Hits:
    given, usual = plan.query.min_scores.keyword, plan.settings.bm25_min_score
    floor = usual if given is None else floors.least(given, floors.ARM_DIGITS)
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


def _temporal(
    senses: QueryContext, plan: SearchPlan, lists: _Lists
) -> temporal.TemporalHits | None:
    window = plan.question.window
    if window is None or not plan.settings.enable_temporal_retrieval:
        return None
    # "What happened in May?" resembles nothing that happened in May.
    floor = plan.settings.temporal_semantic_min_similarity
    floor = floor if plan.question.besides is None else -1.0
    span, parts = filters.bounds(window), []
    begin = time.perf_counter()
    inside = temporal.touching(senses.bank, senses.allowed, span)
    for kind in plan.query.filters.types:
        part = temporal.search(
            senses.bank,
            senses.scan,
            senses.allowed,
            inside,
            kind,
            span,
            limit=plan.budget,
            min_similarity=floor,
        )
        parts.append(part)
        lists.keep(Arm.TEMPORAL, kind, Hits(part.ordinals, part.scores), begin)
        begin = time.perf_counter()
    merged = temporal.merge(parts, [senses.scan.at(part.ordinals) for part in parts])
    return merged if len(merged) else None


def _graph(
    senses: QueryContext, plan: SearchPlan, seeds: Sequence[Hits], lists: _Lists
) -> GraphHits:
    settings, bank = plan.settings, senses.bank
    begin = time.perf_counter()
    late = passed(begin + settings.link_expansion_timeout_s)
    asked = GraphSettings(
        hops=plan.hops,
        per_entity=settings.link_expansion_per_entity_limit,
        limit=plan.budget,
        causes=intent.asks_why(plan.question.text),
    )

    if not settings.graph_hub_damping:
        return _expanded(senses, plan, asked, lists, late)
    walked = graph.walk(
        BankGraph(bank, senses.visible),
        graph.pick_seeds(seeds, senses.affinity, senses.derived),
        senses.affinity,
        senses.allowed,
        asked,
        named=senses.named,
        derived=senses.derived,
        late=late,
    )
    kinds = bank.columns.fact_type[walked.hits.ordinals]
    for kind in plan.query.filters.types:
        mine = kinds == kind
        part = Hits(walked.hits.ordinals[mine], walked.hits.scores[mine])
        lists.keep(Arm.GRAPH, kind, part, begin)
    return walked


def _expanded(
    senses: QueryContext, plan: SearchPlan, asked: GraphSettings, lists: _Lists, late: Late
) -> GraphHits:
    """Plain link expansion: every fact type from its own most similar memories."""
    floor, parts = plan.settings.graph_seed_min_similarity, []
    walked = BankGraph(senses.bank, senses.visible)
    for kind in plan.query.filters.types:
        begin = time.perf_counter()
        own = senses.allowed & (senses.bank.columns.fact_type == kind)
        seeds = semantic.search(senses.scan, own, kind, limit=graph.SEEDS, floor=floor).ordinals
        part = graph.expand(walked, seeds, senses.similarity, own, asked, late)
        lists.keep(Arm.GRAPH, kind, part.hits, begin)
        parts.append(part)
    return graph.merged(parts)


def _by_score(parts: Sequence[Hits]) -> Hits:
    """One arm over all fact types: by its own score, equal ones in the order of the types."""
    ordinals = np.concatenate([hits.ordinals for hits in parts])
    scores = np.concatenate([hits.scores for hits in parts])
    order = np.argsort(-scores, kind="stable")
    return Hits(ordinals[order], scores[order])


def _merged(
    senses: QueryContext, plan: SearchPlan, arms: Sequence[Hits], walked: GraphHits | None
) -> Candidates:
    """One list of what the arms found, ordered as the `fusion` setting says."""
    if plan.settings.fusion == "rrf":
        return fusion.rrf(arms)
    if plan.settings.fusion == "interleave":
        return fusion.interleave(arms)
    found = fusion.gather(arms)
    evidence, support = features.evidence(found.ordinals, walked)
    return fusion.by_score(found, _fused(senses, plan, found, evidence, support).score)


_SAME_FIT = 1.0
"""Deviations of affinity by which an observation may fit better than what it was made of and still
say the same: a memory is embedded with its context and names, an observation without. In LoCoMo one
that is its memory's text word for word differs from it by up to 1.0, by 0.6 in 98 % of cases."""


def _echoes(senses: QueryContext, ordinals: Ints) -> Bools | None:
    """Which of these are observations made of one memory that is among them and fits the question
    as well: what they say, it says. Those of which it is known when they hold say more. None: there
    are none."""
    bank = senses.bank
    if senses.derived is None or not senses.derived[ordinals].any():
        return None
    echo: Bools = np.zeros(len(ordinals), np.bool_)
    ptr, source = features.sources(bank, ordinals)
    alone = np.flatnonzero(np.diff(ptr) == 1)
    alone = alone[~validity.timed(bank, ordinals[alone])]
    of = places(ordinals, source[ptr[alone]])
    alone, of = alone[of >= 0], of[of >= 0]
    fit = senses.affinity(ordinals)
    echo[alone] = fit[alone] <= fit[of] + _SAME_FIT
    return echo


def _fused(
    senses: QueryContext, plan: SearchPlan, found: Candidates, evidence: Floats, support: Ints
) -> Fused:
    return fused_scores(pool(senses, plan, found, evidence, support))


def pool(
    senses: QueryContext, plan: SearchPlan, found: Candidates, evidence: Floats, support: Ints
) -> CandidatePool:
    """What the fused score reads of these candidates."""
    bank, columns, ordinals = senses.bank, senses.bank.columns, found.ordinals
    window = signals.windows(ordinals, bank.previous, bank.next)
    flat = np.maximum(window, 0).ravel()
    named = np.zeros(len(ordinals), np.bool_)
    if len(senses.named):
        named = np.isin(bank.subject[ordinals], senses.named)
    asking = (columns.flags[np.maximum(window[:, :2], 0)] & ASKS).astype(np.bool_)
    window_asked = plan.question.window if plan.settings.enable_temporal_retrieval else None
    timely = superseded = None
    if window_asked is not None:
        timely = features.timely(bank, ordinals, window_asked)
    if intent.asks_about_now(plan.question.text):
        superseded = validity.superseded(bank, ordinals, _now(plan), senses.visible)
    return CandidatePool(
        window=window,
        similarity=senses.scan.at(flat).reshape(window.shape),
        terms=senses.matches.terms_at(flat).reshape(senses.matches.terms, *window.shape),
        ceilings=senses.matches.ceilings,
        scale=senses.scale,
        ranks=found.ranks,
        document=columns.document[ordinals],
        tokens=columns.tokens[ordinals],
        named=named,
        evidence=evidence,
        support=support,
        asks=asking & (window[:, :2] >= 0),
        timely=timely,
        happened=plan.question.besides is not None,
        superseded=superseded,
        outside=_outside(bank, plan, ordinals),
        derived=None if senses.derived is None else senses.derived[ordinals],
        legible=plan.legible,
    )


def _now(plan: SearchPlan) -> int:
    """The present of the question, in microseconds: what is known `as_of` a time is asked then."""
    moments = (plan.query.now, plan.query.filters.as_of or plan.query.now)
    return min(microseconds(moment) for moment in moments)


def _outside(bank: ResidentBank, plan: SearchPlan, ordinals: Ints) -> Bools | None:
    """Which candidates are known not to hold at the time that is meant: the question's window, else
    the present unless it asks about the past; None where that is known of none."""
    if not len(bank.columns.timed):
        return None
    window, text = plan.question.window, plan.question.text
    if window is not None and plan.settings.enable_temporal_retrieval:
        return validity.timed(bank, ordinals) & ~features.timely(bank, ordinals, window)
    if intent.asks_about_the_past(text) and not intent.asks_about_now(text):
        return None
    return validity.ended(bank, ordinals, _now(plan))


def _lasting(bank: ResidentBank, plan: SearchPlan, ordinals: Ints) -> Bools | None:
    """Which candidates hold all through the question's window and began before it; None: none."""
    window = plan.question.window
    if window is None or not len(bank.columns.timed):
        return None
    return filters.lasting(bank.columns, ordinals, filters.bounds(window))


def _trace(bank: ResidentBank, lists: _Lists) -> tuple[ArmList, ...]:
    return tuple(
        ArmList(arm, kind, hits, bank.columns.id[hits.ordinals], seconds)
        for arm, kind, hits, seconds in lists.parts
    )
