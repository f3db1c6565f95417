"""A recall with everything that led to its answer: what the recall inspector draws.

`Explainer.explain` runs the recall of the engine, by the same stages over the same snapshot, and
tells of all that its filters let be shown, and of nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np

from retrieval import timex, zones
from retrieval.arms.adjacency import PathLink
from retrieval.errors import InvalidInput
from retrieval.ranking import boosts, fusion, scoring
from retrieval.recall import ladder
from retrieval.recall.engine import (
    RETRIEVAL_GRACE_S,
    Ranking,
    RecallEngine,
    RecallResult,
    Retriever,
)
from retrieval.recall.look.inspection import ArmReport, Inspection
from retrieval.recall.look.placing import Gate, Placed
from retrieval.recall.retriever import time_options
from retrieval.settings import RecallSettings, check, per_bank
from retrieval.stopwatch import Span, Stopwatch
from retrieval.store import openings
from retrieval.store.edge import iso
from retrieval.timex.rules.events import asks_for_length
from retrieval.types import FactType, RecallQuery, Window

TEXT_CHARACTERS = 600
CHECKS_MOST = 2
"""Recalls that `check` costs at most."""

TRIED = frozenset(per_bank(RecallSettings)) | {
    "recall_strategy_boosts",
    "recall_max_candidates_per_source",
    "reranker_max_candidates",
    "reranker_max_candidates_low",
    "reranker_max_candidates_mid",
    "reranker_max_candidates_high",
    "recency_decay_function",
    "recency_decay_linear_window_days",
    "recency_decay_halflife_days",
}
"""Settings that one recall may try: what a bank may set, boosts, caps and recency."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to explain besides the answer.

    settings: of this recall only; why: memories to be placed; check: try what would let them in;
    lists: most entries of an arm's list; text: most characters of a memory."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    why: Sequence[UUID] = ()
    check: bool = False
    lists: int = 300
    text: int = TEXT_CHARACTERS


@dataclass(frozen=True, slots=True)
class _Seen:
    """One recall up to its ranking."""

    ranking: Ranking
    inspection: Inspection | None
    spans: tuple[Span, ...]


def checked_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a recall may try. InvalidInput names the first that it may not."""
    for name, value in given.items():
        if name not in TRIED:
            raise InvalidInput(f"settings: {name[:80]!r} cannot be tried in a recall", "settings")
        if value is None:
            continue
        if said := check(RecallSettings, name, value):
            raise InvalidInput(f"settings.{name}: {said}", "settings")
    return {name: value for name, value in given.items() if value is not None}


class Explainer:
    """Explains recalls of an engine. Holds no state; safe for any number of concurrent calls."""

    def __init__(self, pool: asyncpg.Pool, retriever: Retriever, engine: RecallEngine) -> None:
        self._pool, self.retriever, self._engine = pool, retriever, engine

    async def explain(
        self, query: RecallQuery, asked: Asked
    ) -> tuple[RecallResult, dict[str, Any]]:
        """The recall's result as `RecallEngine.recall` gives it, and the explanation without it.

        Raises what a recall does, and InvalidInput for a setting that cannot be tried."""
        overrides = checked_settings(asked.settings)
        query = self._engine.checked(query)
        clock, begin = Stopwatch(), time.perf_counter()
        seen = await self._seen(query, overrides, asked, clock)
        answer = await self._engine.answer(seen.ranking, clock)
        spans = _spans(begin, clock, seen.spans)
        why = await self._why(query, overrides, asked, seen)
        return answer, await self._explanation(seen, asked, spans, why)

    async def look(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """See retrieval.recall.engine.Retriever."""
        return await self.retriever.look(name, arguments)

    async def _seen(
        self,
        query: RecallQuery,
        overrides: Mapping[str, Any],
        asked: Asked,
        clock: Stopwatch,
    ) -> _Seen:
        patience = None if query.deadline is None else query.deadline + RETRIEVAL_GRACE_S
        async with clock.stage("parallel_retrieval", patience):
            shortlist, inspection, spans = await self.retriever.look(
                "explain",
                {
                    "query": query,
                    "texts": self._engine.reads_text,
                    "overrides": overrides,
                    "ids": [id.bytes for id in asked.why],
                    "lists": asked.lists,
                },
            )
        ranking = await self._engine.ranking(query, shortlist, clock, overrides)
        return _Seen(ranking, inspection, spans)

    # Why not

    async def _why(
        self, query: RecallQuery, overrides: Mapping[str, Any], asked: Asked, seen: _Seen
    ) -> list[tuple[Placed, ladder.Standing, list[dict[str, Any]]]]:
        """For each memory asked about: where it stands, and what would bring it in."""
        if not asked.why:
            return []
        bank = seen.ranking.shortlist.head.bank
        rows = await openings.openings(self._pool, bank, asked.why, 0)
        left = CHECKS_MOST if asked.check else 0
        found = []
        for id in asked.why:
            placed = _placed_of(seen, id)
            row = rows.get(str(id))
            live = row is not None and row.ordinal is not None
            stands = ladder.standing(
                None if seen.inspection is None else seen.ranking, placed, row is not None, live
            )
            needs: list[dict[str, Any]] = []
            for change in stands.changes:
                if not left or needs:
                    needs.append({"change": change, "then": None, "checked": False, "rank": None})
                    continue
                need, spent = await self._tried(query, overrides, asked, id, change, left)
                needs.append(need)
                left -= spent
            found.append((placed, stands, needs))
        return found

    async def _tried(
        self,
        query: RecallQuery,
        overrides: Mapping[str, Any],
        asked: Asked,
        id: UUID,
        change: ladder.Change,
        left: int,
    ) -> tuple[dict[str, Any], int]:
        """What a change does, tried; where another gate stops the memory then, with that lifted
        too. And how many recalls that took."""
        whole: dict[str, Any] = {}
        then: str | None = None
        for spent in range(1, left + 1):
            whole = _joined(whole, change)
            new_query, new_overrides = ladder.changed(query, overrides, whole)
            one = Asked(why=(id,), lists=0)
            seen = await self._seen(new_query, new_overrides, one, Stopwatch())
            stands = ladder.standing(seen.ranking, _placed_of(seen, id), True, True)
            then = stands.stopped_at
            if stands.verdict == "served":
                return {
                    "change": whole,
                    "then": "served",
                    "checked": True,
                    "rank": stands.rank,
                }, spent
            if not stands.changes:
                break
            change = stands.changes[0]
        return {"change": whole, "then": then, "checked": True, "rank": None}, spent

    # The explanation

    async def _explanation(
        self,
        seen: _Seen,
        asked: Asked,
        spans: list[dict[str, Any]],
        why: list[tuple[Placed, ladder.Standing, list[dict[str, Any]]]],
    ) -> dict[str, Any]:
        ranking, inspection = seen.ranking, seen.inspection
        head = ranking.shortlist.head
        ids = _Ids()
        body: dict[str, Any] = {
            "bank": {"version": head.version, "memories": inspection.memories if inspection else 0},
            "time": await _time(ranking),
            "spans": spans,
            "tokens": {"max": ranking.query.max_tokens, "used": ranking.packed.tokens},
            "formula": _formula(ranking),
            "reading": _reading(inspection),
            "arms": _arms(inspection, ids, asked.lists),
            "fused": _fused(inspection, ids),
            "cut": {
                "cap": ranking.shortlist.cap,
                "count": inspection.candidates if inspection else 0,
            },
            "ranked": _ranked(ranking, inspection, ids),
            "left": _left(ranking, inspection, ids),
            "paths": _paths(inspection, ids),
            "why": [_standing(*each) for each in why],
        }
        for placed, stands, _ in why:
            if stands.verdict != "unknown" and (placed.shown or placed.ordinal < 0):
                ids.place(placed.id)
        if (event := body["time"]["event"]) is not None:
            event["m"] = ids.place(UUID(event.pop("id")).bytes)
        for stop in body["left"]:
            if stop["by"] is not None:
                stop["by"] = ids.place(UUID(stop["by"]).bytes)
        rows = await openings.openings(self._pool, head.bank, ids.uuids, asked.text)
        body["memories"] = [_memory(id, rows.get(id)) for id in ids.uuids]
        return body


class _Ids:
    """The memories that are named, in the order in which they are first."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}

    def place(self, id: bytes) -> int:
        return self._places.setdefault(id, len(self._places))

    @property
    def uuids(self) -> list[str]:
        return [str(UUID(bytes=id)) for id in self._places]


def _placed_of(seen: _Seen, id: UUID) -> Placed:
    for placed in seen.inspection.placed if seen.inspection is not None else ():
        if placed.id == id.bytes:
            return placed
    return Placed(id.bytes, -1, False, (), {}, 0)


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    joined = {**one, **other}
    for name in ("settings", "min_scores"):
        if name in one and name in other:
            joined[name] = {**one[name], **other[name]}
    return joined


def _memory(id: str, row: openings.Opening | None) -> dict[str, Any]:
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


async def _time(ranking: Ranking) -> dict[str, Any]:
    """How the time of the question was read. `start` and `end` count characters (code points)."""
    query, question = ranking.query, ranking.shortlist.question
    settings = ranking.settings
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
        "anchor": iso(query.now),
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
        "cues": list(inspection.cues),
    }


def _arms(inspection: Inspection | None, ids: _Ids, most: int) -> list[dict[str, Any]]:
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


def _fused(inspection: Inspection | None, ids: _Ids) -> list[list[Any]]:
    if inspection is None:
        return []
    each = zip(inspection.ids, inspection.found.rrf.tolist(), inspection.found.ranks.tolist(),
               strict=True)  # fmt: skip
    return [[ids.place(id.tobytes()), round(score, 9), *ranks] for id, score, ranks in each]


def _ranked(ranking: Ranking, inspection: Inspection | None, ids: _Ids) -> list[dict[str, Any]]:
    """Everything that was scored, in the order it stands in before the floors."""
    ranked, shortlist = ranking.ranked, ranking.shortlist
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


def _left(ranking: Ranking, inspection: Inspection | None, ids: _Ids) -> list[dict[str, Any]]:
    """What was left out after it was found, and why."""
    if inspection is None:
        return []
    shortlist, found = ranking.shortlist, []
    kept = set(inspection.kept.tolist())
    for ordinal, id in zip(inspection.found.ordinals.tolist(), inspection.ids, strict=True):
        if ordinal not in kept:
            found.append({"m": ids.place(id.tobytes()), "at": "cap", "by": None})
    for position, reason in ranking.dropped.items():
        entry: dict[str, Any] = {
            "m": ids.place(shortlist.facts.ids[position].tobytes()),
            "at": reason,
            "by": ladder.dropped_by(ranking, position)
            if reason in ("duplicate", "told_by_observation")
            else None,
        }
        if reason == "tokens":
            entry["needs"] = int(shortlist.facts.tokens[position])
            entry["room"] = ladder.room_left(ranking, position)
        found.append(entry)
    return found


def _paths(inspection: Inspection | None, ids: _Ids) -> list[dict[str, Any]]:
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


def _formula(ranking: Ranking) -> dict[str, Any]:
    settings = ranking.settings
    return {
        "ordered_by": ranking.ranked.member,
        "reranked": ranking.ranked.raw is not None,
        "recency": scoring.ALPHA_RECENCY,
        "time": scoring.ALPHA_TEMPORAL,
        "proof": scoring.ALPHA_PROOF,
        "outside": scoring.OUTSIDE,
        "rrf_k": fusion.RRF_K,
        "fusion": settings.fusion,
        "boosts": boosts.parse(settings.recall_strategy_boosts).levels,
        "budget": ranking.shortlist.budget,
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


def _spans(begin: float, clock: Stopwatch, inner: Sequence[Span]) -> list[dict[str, Any]]:
    """All steps on one axis, in seconds since the beginning of the recall. What the retriever
    noted counts from the beginning of its call, on whatever machine that was."""
    outer = {span.name: span for span in clock.spans}
    base = outer["parallel_retrieval"].start - begin
    end = time.perf_counter() - begin
    spans = [Span("recall", 0.0, end)]
    spans += [Span(s.name, s.start - begin, s.seconds) for s in clock.spans]
    limit = base + outer["parallel_retrieval"].seconds
    for span in inner:
        start = min(base + span.start, limit)
        spans.append(Span(span.name, start, min(span.seconds, limit - start)))
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
