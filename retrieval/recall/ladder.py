"""Why a memory is not served: the gates that it passed, the one at which it stopped, and the
smallest changes of the request that would let it through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np

from retrieval.ranking import packing
from retrieval.ranking.budgets import recall_budget
from retrieval.recall.decision import Decision
from retrieval.recall.look.placing import Gate, Placed
from retrieval.types import Budget, FactType, Filters, RecallQuery, TagsMatch, TemporalMode

Change = dict[str, Any]
"""Fields of a request's body, as they would be; `settings` holds settings of this recall."""

_AFTER = {
    "min_scores.reranker": "reranker",
    "min_scores.final": "floors",
    "told_by_observation": "observation",
    "duplicate": "duplicate",
    "rank": "rank",
    "limit": "limit",
    "tokens": "tokens",
}
"""The gate at which each reason of a drop stops; in the order in which they are passed."""


@dataclass(frozen=True, slots=True)
class Standing:
    """verdict: served, left, not_listed, filtered, invalidated or unknown. `rank`: 1-based among
    the results, None if not served."""

    verdict: str
    stopped_at: str | None
    gates: tuple[Gate, ...]
    rank: int | None
    changes: tuple[Change, ...]


def standing(decision: Decision | None, placed: Placed, stored: bool, live: bool) -> Standing:
    """Where a memory stands after the whole recall. `stored`: the bank has it; `live`: it is not
    invalidated. `decision` is None of a bank without memories."""
    if not stored:
        return Standing("unknown", "exists", (Gate("exists", False),), None, ())
    before = (Gate("exists", True), Gate("valid", live))
    if not live or decision is None or placed.ordinal < 0:
        return Standing("invalidated", "valid", before, None, ())
    gates = (*before, *placed.gates)
    stop = next((gate for gate in gates if not gate.passes), None)
    if stop is not None:
        verdict = {"arms": "not_listed", "cap": "left"}.get(stop.name, "filtered")
        return Standing(verdict, stop.name, gates, None, _lifting(decision, placed, stop))
    found = np.flatnonzero(decision.shortlist.found.ordinals == placed.ordinal)
    if not len(found):  # deleted between two steps
        return Standing("left", "cap", (*gates, Gate("cap", False)), None, ())
    after, rank = _after(decision, int(found[0]))
    stop = next((gate for gate in after if not gate.passes), None)
    if stop is None:
        return Standing("served", None, (*gates, *after), rank, ())
    changes = _admitting(decision, int(found[0]), stop)
    return Standing("left", stop.name, (*gates, *after), None, changes)


def dropped_by(decision: Decision, position: int) -> str | None:
    """The id of the memory on whose account this one was left out: an observation that tells it,
    or what it is a duplicate of; None where there is none."""
    reason, shortlist = decision.dropped.get(position), decision.shortlist
    ptr, own = shortlist.source_ptr, int(shortlist.found.ordinals[position])
    sources = shortlist.source_ordinals
    order = decision.order if reason == "duplicate" else decision.ranked.order
    for other in order.tolist():
        theirs = sources[ptr[other] : ptr[other + 1]]
        if own in theirs and (reason == "told_by_observation" or len(theirs) == 1):
            return _id(decision, other)
        if reason != "duplicate":
            continue
        mine = sources[ptr[position] : ptr[position + 1]]
        if len(mine) == 1 and int(mine[0]) == int(shortlist.found.ordinals[other]):
            return _id(decision, other)
        vectors, least = shortlist.vectors, decision.query.dedupe
        if vectors is None or least is None:
            continue
        if float(vectors[other] @ vectors[position]) >= least:
            return _id(decision, other)
    return None


def room_left(decision: Decision, position: int) -> int:
    """Tokens that were left when this position's turn came."""
    tokens, kept = decision.shortlist.facts.tokens, set(decision.packed.kept.tolist())
    used = 0
    for place, other in enumerate(decision.order.tolist()):
        if other == position:
            break
        used += int(tokens[other]) if place in kept else 0
    return decision.query.max_tokens - used


def _after(decision: Decision, position: int) -> tuple[list[Gate], int | None]:
    """The gates behind the shortlist, and the memory's place among the results."""
    ranked, floors = decision.ranked, decision.query.min_scores
    reason = decision.dropped.get(position)
    stopped = None if reason is None else _AFTER[reason]
    place = _place(decision, position)
    values: dict[str, Gate] = {
        "reranker": Gate("reranker", True, float(ranked.base[position]), least=floors.reranker),
        "floors": Gate("floors", True, float(ranked.weight[position]), least=floors.final),
        "observation": Gate("observation", True),
        "duplicate": Gate("duplicate", True),
        "rank": Gate("rank", True, place, most=2 * decision.shortlist.budget),
        "limit": Gate("limit", True, place, most=decision.query.limit),
        "tokens": Gate("tokens", True, int(decision.shortlist.facts.tokens[position])),
    }
    gates: list[Gate] = []
    for name, gate in values.items():
        if name == "tokens":
            gate = replace(gate, most=room_left(decision, position))
        if name == stopped:
            by = dropped_by(decision, position) if name in ("observation", "duplicate") else None
            gates.append(replace(gate, passes=False, by=by))
            return gates, None
        gates.append(gate)
    return gates, 1 + decision.kept.tolist().index(position)


def _place(decision: Decision, position: int) -> int:
    """1-based among what the floors left, duplicates and told ones taken out; its place among all
    for these."""
    gone = {p for p, why in decision.dropped.items() if why in ("told_by_observation", "duplicate")}
    order = [p for p in decision.ranked.order.tolist() if p not in gone or p == position]
    return order.index(position) + 1 if position in order else 0


def _lifting(decision: Decision, placed: Placed, stop: Gate) -> tuple[Change, ...]:
    """What lifts a gate before the shortlist."""
    query = decision.query
    match stop.name:
        case "types":
            return ({"types": [*(kind.wire for kind in query.filters.types), stop.value]},)
        case "tags":
            return ({"tags": None, "tag_groups": None, "tags_match": None},)
        case "metadata":
            return ({"metadata_filter": None},)
        case "as_of":
            return ({"as_of": None},)
        case "window":
            return ({"temporal_mode": "rank"},)
        case "excluded":
            gone = UUID(bytes=placed.id).bytes
            left = [str(UUID(bytes=i)) for i in query.filters.exclude_ids if i != gone]
            return ({"exclude_ids": left or None},)
        case "cap":
            return ({"settings": {"reranker_max_candidates": int(stop.value)}},)
    return _listing(decision, placed)


def _listing(decision: Decision, placed: Placed) -> tuple[Change, ...]:
    """What puts a memory into the list of an arm."""
    changes: list[Change] = []
    semantic, words = placed.arms["semantic"], placed.arms["bm25"]
    for budget in (Budget.LOW, Budget.MID, Budget.HIGH):
        size = recall_budget(decision.settings, budget, decision.query.max_tokens)
        fits = [
            arm
            for arm in (semantic, words)
            if "rank" in arm and arm["rank"] <= size and arm["score"] >= arm["floor"]
        ]
        if fits and size > decision.shortlist.budget:
            changes.append({"budget": budget.value})
            break
    if "score" in semantic and semantic["score"] < semantic["floor"]:
        least = np.floor(semantic["score"] * 1e4 - 1) / 1e4
        changes.append({"min_scores": {"semantic": float(least)}})
    if words.get("score", 0.0) > 0 and words["score"] < words["floor"]:
        changes.append({"min_scores": {"keyword": float(np.floor(words["score"] * 1e3) / 1e3)}})
    for name, setting in (
        ("bm25", "enable_text_search"),
        ("graph", "enable_graph_retrieval"),
        ("temporal", "enable_temporal_retrieval"),
    ):
        if placed.arms[name].get("reason") == "off":
            changes.append({"settings": {setting: True}})
    return tuple(changes[:4])


def _admitting(decision: Decision, position: int, stop: Gate) -> tuple[Change, ...]:
    """What lifts a gate behind the shortlist."""
    match stop.name:
        case "reranker":
            return ({"min_scores": {"reranker": _below(stop.value)}},)
        case "floors":
            return ({"min_scores": {"final": _below(stop.value)}},)
        case "observation":
            return ({"prefer_observations": False},)
        case "duplicate":
            return ({"dedupe": None},)
        case "rank":
            return ({"budget": "high"},) if decision.query.budget is not Budget.HIGH else ()
        case "limit":
            return ({"limit": int(stop.value)},)
    return ({"max_tokens": _enough(decision, position)},)


def _below(score: float) -> float:
    return float(np.floor(score * 1e6) / 1e6)


def _enough(decision: Decision, position: int) -> int:
    """Least of two budgets of tokens that serve a position: what it lacked more, else what all up
    to it take."""
    place = decision.order.tolist().index(position)
    tokens = decision.shortlist.facts.tokens[decision.order]
    lacked = int(tokens[place]) - room_left(decision, position)
    wanted = decision.query.max_tokens + lacked
    if place in packing.pack(tokens, wanted).kept.tolist():
        return wanted
    return int(tokens[: place + 1].sum())


def changed(
    query: RecallQuery, overrides: Mapping[str, Any], change: Change
) -> tuple[RecallQuery, Mapping[str, Any]]:
    """The recall with the change made."""
    filters: Filters = query.filters
    for name, value in change.items():
        match name:
            case "types":
                filters = replace(filters, types=tuple(map(FactType.of, value)))
            case "tags":
                filters = replace(filters, tags=None, tag_groups=None, tags_match=TagsMatch.ANY)
            case "metadata_filter":
                filters = replace(filters, metadata=None)
            case "as_of":
                filters = replace(filters, as_of=None)
            case "exclude_ids":
                ids: Sequence[str] = value or ()
                filters = replace(filters, exclude_ids=tuple(UUID(i).bytes for i in ids))
            case "temporal_mode":
                filters = replace(filters, window=None)
                query = replace(query, temporal_mode=TemporalMode(value))
            case "budget":
                query = replace(query, budget=Budget(value))
            case "min_scores":
                query = replace(query, min_scores=replace(query.min_scores, **value))
            case "settings":
                overrides = {**overrides, **value}
            case "prefer_observations" | "dedupe" | "limit" | "max_tokens":
                query = replace(query, **{name: value})
    return replace(query, filters=filters), overrides


def _id(decision: Decision, position: int) -> str:
    return str(UUID(bytes=decision.shortlist.facts.ids[position].tobytes()))
