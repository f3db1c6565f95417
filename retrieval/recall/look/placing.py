"""Where given memories stand in a search: the gates that each one passes on its way to the
shortlist, and its place in every arm, beyond the arm's limit too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from retrieval.bank import filters
from retrieval.messages import message
from retrieval.recall.search import Searched, SearchPlan
from retrieval.types import Arm, Doubles, FactType, Ints, TagsMatch


@message
@dataclass(frozen=True, slots=True)
class Gate:
    """One thing that a memory has to pass. What it has, and the least or the most that would do;
    None where it is no number, or nothing that may be told."""

    name: str
    passes: bool
    value: Any = None
    least: float | None = None
    most: float | None = None
    by: str | None = None
    """The id of the memory on whose account it fails."""


@message
@dataclass(frozen=True, slots=True)
class Placed:
    """A memory's gates up to the shortlist. `ordinal`: -1 where the bank has no such live memory;
    then there are no gates. `shown`: the filters let it be shown. `arms`: by name what it has
    there, empty where it may not be shown; `place`: 1-based among the candidates, 0 if none."""

    id: bytes
    ordinal: int
    shown: bool
    gates: tuple[Gate, ...]
    arms: dict[str, dict[str, Any]]
    place: int


def placed(plan: SearchPlan, seen: Searched, ids: Sequence[bytes]) -> tuple[Placed, ...]:
    """Where these memories stand, in their order."""
    if not ids:
        return ()
    bank = seen.senses.bank
    raw = np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 16)
    ordinals = bank.ordinal_of(raw)
    masks = _masks(plan, seen)
    similar = _similarities(plan, seen, ordinals[ordinals >= 0])
    return tuple(
        Placed(id, -1, False, (), {}, 0)
        if ordinal < 0
        else _placed(plan, seen, masks, similar, id, ordinal)
        for id, ordinal in zip(ids, ordinals.tolist(), strict=True)
    )


def _masks(plan: SearchPlan, seen: Searched) -> dict[str, Any]:
    """Which memories pass each filter by itself."""
    bank, own = seen.senses.bank, plan.query.filters
    bare = replace(
        own, tags=None, tag_groups=None, tags_match=TagsMatch.ANY, metadata=None,
        as_of=None, window=None, exclude_ids=(),
    )  # fmt: skip
    tagged = replace(bare, tags=own.tags, tags_match=own.tags_match, tag_groups=own.tag_groups)
    return {
        "tags": filters.visible(bank, tagged),
        "metadata": filters.visible(bank, bare, plan.metadata),
        "as_of": filters.visible(bank, replace(bare, as_of=own.as_of)),
        "excluded": filters.visible(bank, replace(bare, exclude_ids=own.exclude_ids)),
    }


def _similarities(plan: SearchPlan, seen: Searched, ordinals: Ints) -> dict[int, Doubles]:
    """The similarities of all memories that may be listed, by type, of the types asked for."""
    if plan.asked.vector is None or not len(ordinals):
        return {}
    columns, allowed = seen.senses.bank.columns, seen.senses.allowed
    found = {}
    for kind in np.unique(columns.fact_type[ordinals[allowed[ordinals]]]).tolist():
        rows = np.flatnonzero(allowed & (columns.fact_type == kind)).astype(np.int32)
        found[kind] = seen.senses.scan.at(rows).astype(np.float64)
    return found


def _placed(
    plan: SearchPlan,
    seen: Searched,
    masks: dict[str, Any],
    similar: dict[int, Doubles],
    id: bytes,
    ordinal: int,
) -> Placed:
    bank, query = seen.senses.bank, plan.query
    kind = FactType(int(bank.columns.fact_type[ordinal]))
    shown = bool(seen.senses.visible[ordinal])
    gates = [Gate("types", kind in query.filters.types, kind.wire)]
    gates += [Gate(name, bool(masks[name][ordinal])) for name in ("tags", "metadata", "as_of")]
    window = query.filters.window
    touches = True
    if window is not None:
        at = np.array([ordinal], np.int32)
        touches = bool(filters.touching(bank.columns, filters.bounds(window), at)[0])
    gates += [Gate("window", touches), Gate("excluded", bool(masks["excluded"][ordinal]))]
    if not shown or not all(gate.passes for gate in gates):
        return Placed(id, ordinal, shown, tuple(gates), {}, 0)
    arms = {
        "semantic": _semantic(plan, seen, similar, kind, ordinal),
        "bm25": _keyword(plan, seen, kind, ordinal),
        "graph": _graph(plan, seen, ordinal),
        "temporal": _temporal(plan, seen, ordinal),
    }
    gates.append(Gate("arms", any(arm["listed"] for arm in arms.values())))
    (place,) = np.flatnonzero(seen.found.ordinals == ordinal)[:1].tolist() or [-1]
    if gates[-1].passes:
        kept = bool((seen.shortlist.found.ordinals == ordinal).any())
        gates.append(Gate("cap", kept or place < 0, place + 1, most=plan.cap))
    return Placed(id, ordinal, shown, tuple(gates), arms, place + 1)


def _listed(seen: Searched, arm: Arm, ordinal: int) -> bool:
    return bool((seen.arms[arm].ordinals == ordinal).any())


def _semantic(
    plan: SearchPlan, seen: Searched, similar: dict[int, Doubles], kind: FactType, ordinal: int
) -> dict[str, Any]:
    if plan.asked.vector is None:
        return {"listed": False, "reason": "degraded"}
    own = plan.query.min_scores.semantic
    score = float(seen.senses.scan.at(np.array([ordinal], np.int32))[0])
    return {
        "listed": _listed(seen, Arm.SEMANTIC, ordinal),
        "rank": 1 + int((similar[int(kind)] > score).sum()),
        "score": score,
        "floor": plan.semantic_floor if own is None else own,
        "last": _last(seen.arms[Arm.SEMANTIC].scores),
        "limit": plan.budget,
    }


def _keyword(plan: SearchPlan, seen: Searched, kind: FactType, ordinal: int) -> dict[str, Any]:
    if not plan.settings.enable_text_search:
        return {"listed": False, "reason": "off"}
    matches, own = seen.senses.matches, plan.query.min_scores.keyword
    score = float(matches.at(np.array([ordinal], np.int32))[0])
    found: dict[str, Any] = {
        "listed": _listed(seen, Arm.BM25, ordinal),
        "score": score,
        "floor": plan.settings.bm25_min_score if own is None else own,
        "last": _last(seen.arms[Arm.BM25].scores),
        "limit": plan.budget,
    }
    if score <= 0:
        return {**found, "reason": "no_word"}
    mine = seen.senses.allowed[matches.ordinals]
    mine &= seen.senses.bank.columns.fact_type[matches.ordinals] == kind
    return {**found, "rank": 1 + int((matches.scores[mine] > score).sum())}


def _graph(plan: SearchPlan, seen: Searched, ordinal: int) -> dict[str, Any]:
    if not plan.settings.enable_graph_retrieval:
        return {"listed": False, "reason": "off"}
    hits = seen.arms[Arm.GRAPH]
    (at,) = np.flatnonzero(hits.ordinals == ordinal)[:1].tolist() or [-1]
    if at < 0:
        return {"listed": False, "reason": f"no strong path within {plan.hops} hops"}
    return {"listed": True, "rank": at + 1, "score": float(hits.scores[at]), "limit": plan.budget}


def _temporal(plan: SearchPlan, seen: Searched, ordinal: int) -> dict[str, Any]:
    if not plan.settings.enable_temporal_retrieval:
        return {"listed": False, "reason": "off"}
    window = plan.question.window
    if window is None:
        return {"listed": False, "reason": "no_window"}
    hits = seen.arms[Arm.TEMPORAL]
    (at,) = np.flatnonzero(hits.ordinals == ordinal)[:1].tolist() or [-1]
    if at >= 0:
        return {"listed": True, "rank": at + 1, "score": float(hits.scores[at])}
    one = np.array([ordinal], np.int32)
    inside = filters.touching(seen.senses.bank.columns, filters.bounds(window), one)[0]
    return {"listed": False, "reason": "less_similar" if inside else "outside_window"}


def _last(scores: Any) -> float | None:
    return float(scores.min()) if len(scores) else None
