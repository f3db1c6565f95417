"""What a recall saw of its bank: every arm's list, all candidates, and where given memories stand.

Made from the same snapshot and the same search as the shortlist beside it. What the filters of the
recall hide is counted nowhere: of a memory that they exclude only the filter that does so is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.messages import message
from retrieval.ranking.contributions import Contributions
from retrieval.ranking.fusion import Candidates
from retrieval.ranking.shortlist import Paths
from retrieval.recall import features, intent
from retrieval.recall.look.placing import Placed, placed
from retrieval.recall.search import Searched, SearchPlan
from retrieval.stopwatch import TimedStep
from retrieval.types import Arm, Hits, Ints

CANDIDATES_MOST = 1_000
"""Candidates beyond the cut that are shown."""
ENTITIES_MOST = 50


@dataclass(slots=True)
class Watch:
    """What to look at during a search, and what was seen.

    overrides: settings of this recall; ids: memories to be placed, 16 bytes each; lists: most
    entries of an arm's list."""

    overrides: Mapping[str, Any]
    ids: Sequence[bytes]
    lists: int
    inspection: Inspection | None = None
    spans: list[TimedStep] = field(default_factory=list)


@message
@dataclass(frozen=True, slots=True)
class ArmReport:
    """One arm over all fact types. state: ran, off, no_window or degraded; allowed: memories it
    might have listed; floor: least score, limit: most of each type; last: its lowest score."""

    arm: Arm
    state: str
    allowed: int
    floor: float | None
    limit: int
    listed: int
    last: float | None
    hits: Hits


@message
@dataclass(frozen=True, slots=True)
class Inspection:
    """memories: how many the filters let be shown; found: candidates in the order of the fusion,
    the first CANDIDATES_MOST and all of the shortlist, with `ids` u1 (n, 16) and `paths`;
    candidates: how many there were; contributions: of the shortlist's fused scores, in the order
    of `kept`, their ordinals; terms: (word, weight, memories that may be shown and have it);
    extra: ids of further memories that are named, by ordinal."""

    memories: int
    candidates: int
    found: Candidates
    ids: NDArray[np.uint8]
    paths: Paths
    kept: Ints
    contributions: Contributions
    arms: tuple[ArmReport, ...]
    terms: tuple[tuple[str, float, int], ...]
    entities: tuple[tuple[str, str], ...]
    intent: tuple[str, ...]
    placed: tuple[Placed, ...]
    listed_ids: Mapping[int, bytes]


def inspect(plan: SearchPlan, seen: Searched, watch: Watch, words: Mapping[int, str]) -> Inspection:
    """What the search saw. `words`: those of the question, by their hashes."""
    bank = seen.senses.bank
    kept = seen.shortlist.found.ordinals
    found = _shown(seen.found, kept)
    reports = tuple(_report(plan, seen, arm, watch.lists) for arm in Arm)
    ids = bank.columns.id[found.ordinals]
    listed = np.unique(np.concatenate([report.hits.ordinals for report in reports]))
    return Inspection(
        memories=int(seen.senses.visible.sum()),
        candidates=len(seen.found),
        found=found,
        ids=ids,
        paths=features.paths(bank, found.ordinals, seen.walked),
        kept=kept,
        contributions=seen.contributions,
        arms=reports,
        terms=_terms(plan, seen, words),
        entities=_entities(seen),
        intent=_intent(plan.question.text),
        placed=placed(plan, seen, watch.ids),
        listed_ids={o: bank.columns.id[o].tobytes() for o in listed.tolist()},
    )


def _shown(found: Candidates, kept: Ints) -> Candidates:
    if len(found) <= CANDIDATES_MOST:
        return found
    wanted = np.isin(found.ordinals, kept)
    wanted[:CANDIDATES_MOST] = True
    return found.take(np.flatnonzero(wanted).astype(np.int32))


def _report(plan: SearchPlan, seen: Searched, arm: Arm, most: int) -> ArmReport:
    hits = seen.arms[arm]
    senses, settings = seen.senses, plan.settings
    allowed = senses.allowed
    floor: float | None = None
    state = "ran"
    if arm is Arm.SEMANTIC:
        given = plan.query.min_scores.semantic
        floor = plan.semantic_floor if given is None else given
        if plan.asked.vector is None:
            state = "degraded"
    elif arm is Arm.BM25:
        given = plan.query.min_scores.keyword
        floor = settings.bm25_min_score if given is None else given
        if not settings.enable_text_search:
            state = "off"
        elif "keyword" in plan.degraded:
            state = "degraded"
    elif arm is Arm.GRAPH:
        state = "ran" if settings.enable_graph_retrieval else "off"
    elif not settings.enable_temporal_retrieval:
        state = "off"
    elif plan.question.window is None:
        state = "no_window"
    else:
        floor = settings.temporal_semantic_min_similarity
        floor = floor if plan.question.besides is None else -1.0
    first = Hits(hits.ordinals[:most], hits.scores[:most])
    last = float(hits.scores.min()) if len(hits) else None
    return ArmReport(arm, state, int(allowed.sum()), floor, plan.budget, len(hits), last, first)


def _terms(
    plan: SearchPlan, seen: Searched, words: Mapping[int, str]
) -> tuple[tuple[str, float, int], ...]:
    asked, matches = plan.asked.terms, seen.senses.matches
    count = np.zeros(len(asked), np.int64)
    if matches.terms == len(asked):
        for term, documents in matches.postings():
            count[term] += int(seen.senses.visible[documents].sum())
    each = zip(asked.terms.tolist(), asked.weights.tolist(), count.tolist(), strict=True)
    return tuple((words[hash], weight, n) for hash, weight, n in each if hash in words)


def _entities(seen: Searched) -> tuple[tuple[str, str], ...]:
    """Those that the question names and a memory that may be shown mentions."""
    bank, named = seen.senses.bank, seen.senses.named[:ENTITIES_MOST]
    if not len(named):
        return ()
    row, ordinal = bank.entities.units_of(named)
    known = np.unique(row[seen.senses.visible[ordinal]])
    return tuple(
        (bank.entities.id[n].tobytes().hex(), bank.entities.name[n]) for n in named[known].tolist()
    )


def _intent(text: str) -> tuple[str, ...]:
    read = {
        "why": intent.asks_why,
        "now": intent.asks_about_now,
        "happened": intent.asks_what_happened,
    }
    return tuple(name for name, asks in read.items() if asks(text))
