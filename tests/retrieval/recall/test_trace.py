"""The trace of the bank of test_search, whose scores are computed there by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import exp
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from retrieval.ranking import score_fusion
from retrieval.ranking.packing import pack
from retrieval.recall import search, trace
from retrieval.recall.decision import Decision
from retrieval.types import Arm, FactType, MemoryRow, Window, microseconds
from tests.retrieval.ranking.pools import plain
from tests.retrieval.recall.test_search import (
    IDF,
    MAY,
    QUERY,
    SETTINGS,
    by_fused,
    id_of,
    memories,
    own,
    run,
)

pytestmark = pytest.mark.unit

TRACED = replace(QUERY, trace=True, max_tokens=15)
SECONDS = {"parallel_retrieval": 0.125, "reranking": 0.25, "token_filtering": 0.125}


@pytest.fixture(autouse=True)
def known_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """See test_search."""
    model = plain(meaning=1.0, words=4.0)
    monkeypatch.setattr(search, "fused_scores", lambda pool: score_fusion.fused_scores(pool, model))


def row(ordinal: int) -> MemoryRow:
    id = str(UUID(bytes=id_of(ordinal)))
    return MemoryRow(
        ordinal, id, f"memory {ordinal}", FactType.WORLD, None, None, None, None, None, None,
        (), None, None, (), None, None, None,
    )  # fmt: skip


def traced(missing: int | None = None, **changes: Any) -> dict[str, Any]:
    """The trace of a recall that lists 2, 3, 0, 1 and has room for the first two: 7 tokens each."""
    window = changes.pop("window", None)
    shortlist = run(memories(**changes), query=TRACED, window=window)
    ranked = by_fused(shortlist)
    packed = pack(shortlist.facts.tokens[ranked.order], TRACED.max_tokens)
    left = np.setdiff1d(ranked.order, ranked.order[packed.kept])
    dropped = dict.fromkeys(left.tolist(), "tokens")
    decision = Decision(TRACED, SETTINGS, shortlist, ranked, ranked.order, packed, dropped, {}, ())
    known = {i: row(i) for i in range(10) if i != missing}
    return trace.build(decision, known, [{"id": "a"}, {"id": "b"}], SECONDS)


def name(ordinal: int) -> str:
    return str(UUID(bytes=id_of(ordinal)))


def test_every_arm_lists_what_it_found_and_by_which_score() -> None:
    semantic, keyword = [
        arm for arm in traced()["retrieval_results"] if arm["fact_type"] == "world"
    ]
    listed = [(hit["node_id"], hit["rank"]) for hit in semantic["results"]]
    assert (semantic["method_name"], semantic["metadata"]) == ("semantic", {"limit": 100})
    assert listed == [(name(0), 1), (name(1), 2), (name(2), 3)]
    assert [hit["score"] for hit in semantic["results"]] == pytest.approx([0.9, 0.8, 0.6])
    assert {hit["score_name"] for hit in keyword["results"]} == {"bm25_score"}
    assert [hit["score"] for hit in keyword["results"]] == pytest.approx([IDF, IDF])


def test_fusion_and_what_moved_behind_it() -> None:
    found = traced()
    merged = found["rrf_merged"]
    assert [one["node_id"] for one in merged] == [name(i) for i in (2, 0, 1, 3)]
    assert merged[0]["source_ranks"] == {"semantic_rank": 3, "bm25_rank": 1}
    assert merged[0]["rrf_score"] == pytest.approx(1 / 63 + 1 / 61)
    reranked = found["reranked"]
    assert [one["node_id"] for one in reranked] == [name(i) for i in (2, 3, 0, 1)]
    assert [one["rank_change"] for one in reranked] == [0, 2, -1, -1]
    second = reranked[1]["score_components"]
    assert second["cross_encoder_score"] is None
    assert second["combined_score"] == pytest.approx(exp(0.5 * (own(3) - own(2))), rel=1e-5)
    assert (second["recency"], second["temporal"], second["proof_norm"]) == (0.5, 0.5, 0.5)


def test_entry_points_are_the_most_similar_in_their_order() -> None:
    found = traced()["entry_points"]
    assert [(one["node_id"], one["rank"]) for one in found] == [
        (name(0), 1),
        (name(1), 2),
        (name(2), 3),
    ]
    assert [one["similarity_score"] for one in found] == pytest.approx([0.9, 0.8, 0.6])


def test_what_was_left_out_says_why() -> None:
    found = traced()
    assert [(one["id"], one["reason"]) for one in found["decisions"]] == [
        (name(0), "tokens"),
        (name(1), "tokens"),
    ]
    summary = found["summary"]
    assert (summary["total_nodes_visited"], summary["total_nodes_pruned"]) == (4, 2)
    assert (summary["entry_points_found"], summary["results_returned"]) == (3, 2)
    assert summary["total_duration_seconds"] == 0.5
    phases = {phase["phase_name"]: phase for phase in summary["phase_metrics"]}
    assert phases["reranking"]["duration_seconds"] == 0.25
    assert phases["token_filtering"]["details"] == {
        "results_selected": 2,
        "tokens_used": 14,
        "max_tokens": 15,
        "truncated": True,
    }
    assert phases["rerank_prefilter"]["details"]["survivors_by_arm"] == {
        "semantic": 3,
        "bm25": 2,
        "graph": 0,
        "temporal": 0,
    }


def test_what_was_deleted_meanwhile_has_no_text() -> None:
    found = traced(missing=0)
    semantic = found["retrieval_results"][0]
    assert [hit["node_id"] for hit in semantic["results"]] == [name(1), name(2)]
    assert {one["node_id"]: one["text"] for one in found["rrf_merged"]}[name(0)] == ""
    assert {one["node_id"]: one["text"] for one in found["visits"]}[name(1)] == "memory 1"


def test_a_window_is_told() -> None:
    window = Window(MAY - timedelta(days=9), MAY + timedelta(days=21))
    found = traced(window=window, m2={"occurred_start": microseconds(MAY)})
    told = found["query"]["temporal_constraint"]
    assert (told["start"], told["end"]) == (window.start, window.end)
    (temporal,) = [
        arm
        for arm in found["retrieval_results"]
        if (arm["method_name"], arm["fact_type"]) == (Arm.TEMPORAL.wire, "world")
    ]
    assert [hit["node_id"] for hit in temporal["results"]] == [name(2)]
    assert temporal["metadata"]["constraint"] == {"start": window.start, "end": window.end}
    assert found["summary"]["temporal_links_followed"] == 1
