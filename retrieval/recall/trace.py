"""The trace of a recall: what every stage did, with real timings. It never changes the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np

from retrieval.arms.adjacency import PathLink
from retrieval.ranking import boosts
from retrieval.ranking.fusion import arm_name
from retrieval.ranking.shortlist import ArmList, Shortlist
from retrieval.ranking.weights import Ranked
from retrieval.recall.decision import Decision
from retrieval.store import memories
from retrieval.types import Arm, Doubles, Ints, MemoryRow, RecallQuery

_SCORE_NAMES = {
    Arm.SEMANTIC: "similarity",
    Arm.BM25: "bm25_score",
    Arm.GRAPH: "activation",
    Arm.TEMPORAL: "temporal_score",
}
_ENTRY_POINTS = 10


async def rows(pool: asyncpg.Pool, shortlist: Shortlist) -> dict[int, MemoryRow]:
    """By ordinal, the live memories that an arm listed or that were fused."""
    listed = [part.hits.ordinals for part in shortlist.arms]
    ordinals = np.unique(np.concatenate([shortlist.found.ordinals, *listed]))
    head = shortlist.head
    found = await memories.rows(pool, head.bank, ordinals, head.generation)
    return {row.ordinal: row for row in found}


def build(
    decision: Decision,
    known: Mapping[int, MemoryRow],
    results: Sequence[Mapping[str, Any]],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """The whole trace object. `known`: of `rows`; `results`: as they are served; `seconds`: of the
    stages behind the shortlist."""
    shortlist, ranked = decision.shortlist, decision.ranked
    return {
        "query": _query(decision.query, shortlist),
        "retrieval_results": [_arm(part, known, shortlist) for part in shortlist.arms],
        "rrf_merged": _merged(shortlist, known),
        "reranked": _reranked(shortlist, ranked, known),
        "entry_points": _entry_points(shortlist, known),
        "visits": _visits(shortlist, ranked, decision.order, known),
        "pruned": [],
        "decisions": [
            {"id": _id(shortlist, i), "reason": reason, "final": float(ranked.weight[i])}
            for i, reason in decision.dropped.items()
        ],
        "summary": _summary(decision, seconds, len(results)),
        "final_results": list(results),
    }


def _query(query: RecallQuery, shortlist: Shortlist) -> dict[str, Any]:
    question = shortlist.question
    window = question.window
    vector = shortlist.query_vector
    shown: dict[str, Any] = {
        "query_text": query.text,
        "query_embedding": [] if vector is None else [float(x) for x in vector],
        "timestamp": query.now,
        "budget": shortlist.budget,
        "max_tokens": query.max_tokens,
        "tags": None if query.filters.tags is None else list(query.filters.tags),
        "tags_match": query.filters.tags_match.value,
        "temporal_constraint": None
        if window is None
        else {"start": window.start, "end": window.end, "rule": question.rule},
    }
    if question.event is not None:
        event = question.event
        shown["temporal_event"] = {
            "phrase": event.phrase,
            "relation": event.relation,
            "memory_id": event.id,
            "confidence": event.confidence,
        }
    return shown


def _arm(part: ArmList, known: Mapping[int, MemoryRow], shortlist: Shortlist) -> dict[str, Any]:
    name = _SCORE_NAMES[part.arm]
    results = [
        {"rank": rank, "score": float(score), "score_name": name, **_row(row)}
        for rank, (ordinal, score) in enumerate(
            zip(part.hits.ordinals.tolist(), part.hits.scores.tolist(), strict=True), 1
        )
        if (row := known.get(ordinal)) is not None
    ]
    size = "budget" if part.arm in (Arm.GRAPH, Arm.TEMPORAL) else "limit"
    metadata: dict[str, Any] = {size: shortlist.budget}
    window = shortlist.question.window
    if part.arm is Arm.TEMPORAL and window is not None:
        metadata["constraint"] = {"start": window.start, "end": window.end}
    return {
        "method_name": part.arm.wire,
        "fact_type": part.fact_type.wire,
        "results": results,
        "duration_seconds": part.seconds,
        "metadata": metadata,
    }


def _row(row: MemoryRow) -> dict[str, Any]:
    return {
        "node_id": row.id,
        "text": row.text,
        "context": row.context,
        "event_date": row.occurred_start or row.mentioned_at,
        "fact_type": row.fact_type.wire,
    }


def _merged(shortlist: Shortlist, known: Mapping[int, MemoryRow]) -> list[dict[str, Any]]:
    found = shortlist.found
    return [
        {
            "node_id": _id(shortlist, i),
            "text": _text(shortlist, known, i),
            "rrf_score": float(found.rrf[i]),
            "source_ranks": {
                f"{arm_name(arm)}_rank": rank for arm, rank in enumerate(ranks) if rank > 0
            },
            "final_rrf_rank": i + 1,
        }
        for i, ranks in enumerate(found.ranks.tolist())
    ]


def _reranked(
    shortlist: Shortlist, ranked: Ranked, known: Mapping[int, MemoryRow]
) -> list[dict[str, Any]]:
    return [
        {
            "node_id": _id(shortlist, i),
            "text": _text(shortlist, known, i),
            "rerank_score": float(ranked.weight[i]),
            "rerank_rank": rank,
            "rrf_rank": i + 1,
            "rank_change": i + 1 - rank,
            "score_components": {
                "cross_encoder_score": _at(ranked.raw, i),
                "cross_encoder_score_normalized": float(ranked.base[i]),
                "rrf_score": float(shortlist.found.rrf[i]),
                "rrf_normalized": 0.0,
                "temporal": float(ranked.proximity[i]),
                "recency": float(ranked.recency[i]),
                "proof_norm": float(ranked.proof[i]),
                "combined_score": float(ranked.combined[i]),
            },
        }
        for rank, i in enumerate(ranked.order.tolist(), 1)
    ]


def _entry_points(shortlist: Shortlist, known: Mapping[int, MemoryRow]) -> list[dict[str, Any]]:
    ranks = shortlist.found.ranks[:, Arm.SEMANTIC]
    first = np.flatnonzero((ranks > 0) & (ranks <= _ENTRY_POINTS))
    return [
        {
            "node_id": _id(shortlist, i),
            "text": _text(shortlist, known, i),
            "similarity_score": float(shortlist.found.scores[i, Arm.SEMANTIC]),
            "rank": int(ranks[i]),
        }
        for i in first[np.argsort(ranks[first])].tolist()
    ]


def _visits(
    shortlist: Shortlist, ranked: Ranked, order: Ints, known: Mapping[int, MemoryRow]
) -> list[dict[str, Any]]:
    """One entry per ranked row, in the shape that older consumers of the trace read."""
    visits = []
    for rank, i in enumerate(order.tolist(), 1):
        row = known.get(int(shortlist.found.ordinals[i]))
        scores = shortlist.found.scores[i]
        semantic = 0.0 if np.isnan(scores[Arm.SEMANTIC]) else float(scores[Arm.SEMANTIC])
        activation = 0.0 if np.isnan(scores[Arm.GRAPH]) else float(scores[Arm.GRAPH])
        visits.append(
            {
                "step": rank,
                "node_id": _id(shortlist, i),
                "text": "" if row is None else row.text,
                "context": "" if row is None else row.context or "",
                "event_date": None if row is None else row.occurred_start or row.mentioned_at,
                "is_entry_point": 0 < shortlist.found.ranks[i, Arm.SEMANTIC] <= _ENTRY_POINTS,
                "parent_node_id": None,
                "link_type": None,
                "link_weight": None,
                "weights": {
                    "activation": activation,
                    "semantic_similarity": semantic,
                    "recency": float(ranked.recency[i]),
                    "frequency": 0.0,
                    "final_weight": float(ranked.weight[i]),
                },
                "neighbors_explored": [],
                "final_rank": rank,
            }
        )
    return visits


def _summary(decision: Decision, seconds: Mapping[str, float], returned: int) -> dict[str, Any]:
    shortlist, packed, dropped = decision.shortlist, decision.packed, decision.dropped
    found = shortlist.found
    listed = found.ranks > 0
    phases = {**shortlist.seconds, **seconds}
    for part in shortlist.arms:
        name = f"retrieval_{part.arm.wire}"
        phases[name] = phases.get(name, 0.0) + part.seconds
    details: dict[str, dict[str, Any]] = {
        "rerank_prefilter": {
            "kept": len(found),
            "dropped": shortlist.dropped,
            "max_candidates": shortlist.cap,
            "boosts": boosts.parse(decision.settings.recall_strategy_boosts).levels,
            "survivors_by_arm": {arm.wire: int(listed[:, arm].sum()) for arm in Arm},
        },
        "token_filtering": {
            "results_selected": returned,
            "tokens_used": packed.tokens,
            "max_tokens": decision.query.max_tokens,
            "truncated": packed.truncated,
        },
    }
    phases.setdefault("rerank_prefilter", 0.0)
    nodes = len(found) + shortlist.dropped
    return {
        "total_nodes_visited": nodes,
        "total_nodes_pruned": len(dropped) + shortlist.dropped,
        "entry_points_found": int(
            (listed[:, Arm.SEMANTIC] & (found.ranks[:, Arm.SEMANTIC] <= _ENTRY_POINTS)).sum()
        ),
        "budget_used": nodes,
        "budget_remaining": max(0, shortlist.budget - nodes),
        "total_duration_seconds": sum(seconds.values()),
        "results_returned": returned,
        "temporal_links_followed": int((found.ranks[:, Arm.TEMPORAL] > 0).sum()),
        "semantic_links_followed": _followed(shortlist, PathLink.SEMANTIC),
        "entity_links_followed": _followed(shortlist, PathLink.ENTITY, PathLink.SUBJECT),
        "phase_metrics": [
            {"phase_name": name, "duration_seconds": spent, "details": details.get(name, {})}
            for name, spent in phases.items()
        ],
    }


def _followed(shortlist: Shortlist, *links: PathLink) -> int:
    paths = shortlist.paths
    return int(((paths.hop > 0) & np.isin(paths.link, links)).sum())


def _id(shortlist: Shortlist, i: int) -> str:
    return str(UUID(bytes=shortlist.facts.ids[i].tobytes()))


def _text(shortlist: Shortlist, known: Mapping[int, MemoryRow], i: int) -> str:
    row = known.get(int(shortlist.found.ordinals[i]))
    return "" if row is None else row.text


def _at(values: Doubles | None, i: int) -> float | None:
    return None if values is None else float(values[i])
