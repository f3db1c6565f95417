"""What a recall decided and why, as the recall inspector draws it. Pure: nothing is read here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np

from retrieval import timex, zones
from retrieval.arms.adjacency import PathLink
from retrieval.ranking import boosts, fusion, scoring
from retrieval.recall import ladder
from retrieval.recall.decision import Decision
from retrieval.recall.look.inspection import ArmReport, Inspection
from retrieval.recall.look.placing import Gate, Placed
from retrieval.recall.retriever import time_options
from retrieval.stopwatch import Stopwatch, TimedStep
from retrieval.store import openings
from retrieval.store.edge import iso
from retrieval.timex.rules.events import asks_for_length
from retrieval.types import FactType, Window

Why: TypeAlias = tuple[Placed, ladder.Standing, list[dict[str, Any]]]
"""A memory that was asked about: where it lies, where it stands, what would bring it in."""


class Ids:
    """The memories that are named, in the order in which they are first."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}

    def place(self, id: bytes) -> int:
        return self._places.setdefault(id, len(self._places))

    @property
    def uuids(self) -> list[str]:
        return [str(UUID(bytes=id)) for id in self._places]


def body(
    decision: Decision,
    inspection: Inspection | None,
    spans: list[dict[str, Any]],
    why: Sequence[Why],
    most: int,
    ids: Ids,
) -> dict[str, Any]:
    """The report but for `memories`: those that `ids` holds then. `most`: entries of an arm's
    list."""
    head = decision.shortlist.head
    found: dict[str, Any] = {
        "bank": {"version": head.version, "memories": inspection.memories if inspection else 0},
        "time": _time(decision),
        "spans": spans,
        "tokens": {"max": decision.query.max_tokens, "used": decision.packed.tokens},
        "formula": _formula(decision),
        "reading": _reading(inspection),
        "arms": _arms(inspection, ids, most),
        "fused": _fused(inspection, ids),
        "cut": {
            "cap": decision.shortlist.cap,
            "count": inspection.candidates if inspection else 0,
        },
        "ranked": _ranked(decision, inspection, ids),
        "left": _left(decision, inspection, ids),
        "paths": _paths(inspection, ids),
        "why": [_standing(*each) for each in why],
    }
    for placed, stands, _ in why:
        if stands.verdict != "unknown" and (placed.shown or placed.ordinal < 0):
            ids.place(placed.id)
    if (event := found["time"]["event"]) is not None:
        event["m"] = ids.place(UUID(event.pop("id")).bytes)
    for stop in found["left"]:
        if stop["by"] is not None:
            stop["by"] = ids.place(UUID(stop["by"]).bytes)
    return found


def memory(id: str, row: openings.Opening | None) -> dict[str, Any]:
    if row is None:  # deleted between two steps
        return {"id": id, "text": "", "cut": False, "type": None, "tokens": 0, "tags": []}
    return {
        "id": id,
        "text": row.text,
        "cut": row.length > len(row.text),
        "type": FactType(row.fact_type).wire,
        "context": row.context,
        "start": iso(row.occurred_start),
        "end": iso(row.occurred_end),
        "mentioned": iso(row.mentioned_at),
        "document_id": row.document_id,
        "tags": list(row.tags),
        "tokens": row.token_count,
        "valid": row.ordinal is not None,
    }


def _window(window: Window | None) -> dict[str, Any] | None:
    return None if window is None else {"start": iso(window.start), "end": iso(window.end)}


def _time(decision: Decision) -> dict[str, Any]:
    """How the time of the question was read. `start` and `end` count characters (code points)."""
    query, question = decision.query, decision.shortlist.question
    settings = decision.settings
    names = frozenset() if question.name is None else frozenset({question.name})
    read = []
    if settings.enable_temporal_retrieval:
        read = timex.find(query.text, query.now, time_options(settings))
    window, event = question.window, question.event
    source, why_none = "none", None
    if window is not None:
        source = "request" if question.rule == "explicit" else "event" if event else "words"
    elif not settings.enable_temporal_retrieval:
        why_none = "reading times is switched off (enable_temporal_retrieval)"
    elif read and asks_for_length(query.text):
        why_none = "the question asks for a length of time, or when something was"
    elif read and all(one.maybe_name for one in read):
        why_none = "the word is a name in this bank"
    elif read:
        why_none = "the expressions of time give no window together"
    else:
        why_none = "no words of time in the question"
    return {
        "window": _window(window),
        "from": source,
        "rule": question.rule,
        "why_none": why_none,
        "mode": query.temporal_mode.value,
        "reference_time": iso(query.now),
        "as_of": iso(query.filters.as_of),
        "event": None
        if event is None
        else {
            "id": event.id,
            "phrase": event.phrase,
            "relation": event.relation,
            "confidence": event.confidence,
        },
        "found": [
            {
                "start": one.start,
                "end": one.end,
                "text": one.text,
                "rule": one.rule,
                "confidence": one.confidence,
                "granularity": one.granularity,
                "window": _window(zones.window_seen(one.window, query.now.tzinfo)),
                "used": source == "words" and _within(window, one.window) and one.text not in names,
            }
            for one in read
        ],
    }


def _within(window: Window | None, other: Window) -> bool:
    """Does the window lie in what an expression says?"""
    if window is None:
        return False
    starts = other.start is None or (window.start is not None and window.start >= other.start)
    ends = other.end is None or (window.end is not None and window.end <= other.end)
    return starts and ends


def _reading(inspection: Inspection | None) -> dict[str, Any]:
    if inspection is None:
        return {"terms": [], "entities": [], "cues": []}
    return {
        "terms": [{"term": t, "weight": w, "documents": n} for t, w, n in inspection.terms],
        "entities": [{"id": str(UUID(hex=i)), "name": name} for i, name in inspection.entities],
        "cues": list(inspection.intent),
    }


def _arms(inspection: Inspection | None, ids: Ids, most: int) -> list[dict[str, Any]]:
    if inspection is None:
        return []

    def listed(report: ArmReport) -> list[list[Any]]:
        hits = zip(report.hits.ordinals.tolist(), report.hits.scores.tolist(), strict=True)
        return [[ids.place(inspection.listed_ids[o]), round(score, 6)] for o, score in hits][:most]

    return [
        {
            "arm": report.arm.wire,
            "state": report.state,
            "allowed": report.allowed,
            "floor": report.floor,
            "limit": report.limit,
            "listed": report.listed,
            "last": report.last,
            "list": listed(report),
        }
        for report in inspection.arms
    ]


def _fused(inspection: Inspection | None, ids: Ids) -> list[list[Any]]:
    if inspection is None:
        return []
    each = zip(inspection.ids, inspection.found.rrf.tolist(), inspection.found.ranks.tolist(),
               strict=True)  # fmt: skip
    return [[ids.place(id.tobytes()), round(score, 9), *ranks] for id, score, ranks in each]


def _ranked(decision: Decision, inspection: Inspection | None, ids: Ids) -> list[dict[str, Any]]:
    """Everything that was scored, in the order it stands in before the floors."""
    ranked, shortlist = decision.ranked, decision.shortlist
    if inspection is None or not len(shortlist):
        return []
    stands = np.full(len(shortlist), len(shortlist), np.int64)
    stands[ranked.order] = np.arange(len(ranked.order))
    order = np.lexsort((np.arange(len(shortlist)), stands, -ranked.weight)).tolist()
    parts, steps = inspection.contributions, ranked.contributions
    at = {ordinal: place for place, ordinal in enumerate(inspection.kept.tolist())}
    score = parts.total if parts.parts else None
    rows = []
    for place, i in enumerate(order):
        row: dict[str, Any] = {
            "m": ids.place(shortlist.facts.ids[i].tobytes()),
            "final": float(ranked.weight[i]),
            "base": float(ranked.base[i]),
            "raw": None if ranked.raw is None else float(ranked.raw[i]),
            "recency": float(ranked.recency[i]),
            "time": float(ranked.proximity[i]),
            "proof": float(ranked.proof[i]),
            "steps": steps.at(i),
            "behind": ids.place(shortlist.facts.ids[order[place - 1]].tobytes())
            if ranked.lifted[i] and place
            else None,
        }
        own = at.get(int(shortlist.found.ordinals[i]))
        if score is not None and own is not None:
            row["score"] = float(score[own])
            row["parts"] = parts.at(own)
        rows.append(row)
    return rows


def _left(decision: Decision, inspection: Inspection | None, ids: Ids) -> list[dict[str, Any]]:
    """What was left out after it was found, and why."""
    if inspection is None:
        return []
    shortlist, found = decision.shortlist, []
    kept = set(inspection.kept.tolist())
    for ordinal, id in zip(inspection.found.ordinals.tolist(), inspection.ids, strict=True):
        if ordinal not in kept:
            found.append({"m": ids.place(id.tobytes()), "at": "cap", "by": None})
    for position, reason in decision.dropped.items():
        entry: dict[str, Any] = {
            "m": ids.place(shortlist.facts.ids[position].tobytes()),
            "at": reason,
            "by": ladder.dropped_by(decision, position)
            if reason in ("duplicate", "told_by_observation")
            else None,
        }
        if reason == "tokens":
            entry["needs"] = int(shortlist.facts.tokens[position])
            entry["room"] = ladder.room_left(decision, position)
        found.append(entry)
    return found


def _paths(inspection: Inspection | None, ids: Ids) -> list[dict[str, Any]]:
    if inspection is None:
        return []
    paths = inspection.paths
    links = tuple(link.wire for link in PathLink)
    return [
        {
            "m": ids.place(inspection.ids[i].tobytes()),
            "from": ids.place(paths.parent[i].tobytes()),
            "link": links[paths.link[i]],
            "via": paths.via[i],
            "hop": int(paths.hop[i]),
            "evidence": round(float(paths.evidence[i]), 6),
        }
        for i in np.flatnonzero((paths.hop > 0) & (paths.source >= 0)).tolist()
    ]


def _formula(decision: Decision) -> dict[str, Any]:
    settings = decision.settings
    return {
        "ordered_by": decision.ranked.member,
        "reranked": decision.ranked.raw is not None,
        "recency": scoring.ALPHA_RECENCY,
        "time": scoring.ALPHA_TEMPORAL,
        "proof": scoring.ALPHA_PROOF,
        "outside": scoring.OUTSIDE,
        "rrf_k": fusion.RRF_K,
        "fusion": settings.fusion,
        "boosts": boosts.parse(settings.recall_strategy_boosts).levels,
        "budget": decision.shortlist.budget,
    }


def _standing(
    placed: Placed, stands: ladder.Standing, needs: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "id": str(UUID(bytes=placed.id)),
        "verdict": stands.verdict,
        "stopped_at": stands.stopped_at,
        "rank": stands.rank,
        "place": placed.place,
        "gates": [_gate(gate) for gate in stands.gates],
        "arms": placed.arms,
        "would_need": needs,
    }


def _gate(gate: Gate) -> dict[str, Any]:
    told = {"value": gate.value, "least": gate.least, "most": gate.most, "by": gate.by}
    known = {name: value for name, value in told.items() if value is not None}
    return {"gate": gate.name, "pass": gate.passes, **known}


_PARENTS = {
    "parallel_retrieval": "recall",
    "reranking": "recall",
    "combined_scoring": "recall",
    "token_filtering": "recall",
    "hydrate_results": "recall",
    "backend_acquisition": "parallel_retrieval",
    "query_analysis": "parallel_retrieval",
    "bank_open": "parallel_retrieval",
    "generate_query_embedding": "parallel_retrieval",
    "search": "parallel_retrieval",
    "hydrate_texts": "parallel_retrieval",
}
"""Which span lies in which; what is not here is a part of the search."""


def spans(begin: float, clock: Stopwatch, inner: Sequence[TimedStep]) -> list[dict[str, Any]]:
    """All steps on one axis, in seconds since the beginning of the recall. What the retriever
    noted counts from the beginning of its call, on whatever machine that was."""
    outer = {span.name: span for span in clock.spans}
    base = outer["parallel_retrieval"].start - begin
    end = time.perf_counter() - begin
    spans = [TimedStep("recall", 0.0, end)]
    spans += [TimedStep(s.name, s.start - begin, s.seconds) for s in clock.spans]
    limit = base + outer["parallel_retrieval"].seconds
    for span in inner:
        start = min(base + span.start, limit)
        spans.append(TimedStep(span.name, start, min(span.seconds, limit - start)))
    by_name = {span.name for span in spans}
    return [
        {
            "name": span.name,
            "parent": _parent(span.name, by_name),
            "start": round(span.start, 7),
            "seconds": round(span.seconds, 7),
        }
        for span in spans
    ]


def _parent(name: str, known: set[str]) -> str | None:
    if name == "recall":
        return None
    parent = _PARENTS.get(name, "search")
    return parent if parent in known else "parallel_retrieval"
