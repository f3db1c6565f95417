"""Every check accepts what it should and refuses what it should, on made-up answers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest

from tests.cases import case, checks, spans
from tests.cases.scene import Load, Reply, Scene

pytestmark = pytest.mark.unit

IDS = ("id-0", "id-1", "id-2")
TEXTS = ("the red door", "the blue door", "the green door")
MEMORIES = tuple({"text": text} for text in TEXTS)


def memory(index: int, **fields: Any) -> dict[str, Any]:
    scores = {"final": 1.0 - 0.1 * index, "reranker": None, "semantic": 0.9, "keyword": None}
    scores.update(fields.pop("scores", {}))
    return {"id": IDS[index], "text": TEXTS[index], "type": "world", "scores": scores, **fields}


def reply(*results: Mapping[str, Any], status: int = 200, **body: Any) -> Reply:
    content = {"results": list(results), **body}
    return Reply(status, json.dumps(content), content, {}, 0.01, case.DEFAULT_BANK)


def refused(status: int, detail: str = "", **headers: str) -> Reply:
    body = {"detail": detail}
    return Reply(status, json.dumps(body), body, headers, 0.01, case.DEFAULT_BANK)


def scene(
    answer: Reply,
    *,
    later: list[Reply] | None = None,
    load: Load | None = None,
    memories: tuple[Mapping[str, Any], ...] = MEMORIES,
    stub_scores: Mapping[int, float] | None = None,
    params: Mapping[str, Any] | None = None,
) -> Scene:
    waiting = list(later or [])

    async def ask(**_changes: Any) -> Reply:
        return waiting.pop(0)

    async def rotated(_turn: int) -> Reply:
        return waiting.pop(0)

    return Scene(
        case=case.RecallCase("x", memories, "which door", {}, params or {}),
        ids=IDS,
        known={case.DEFAULT_BANK: dict(zip(IDS, TEXTS, strict=True))},
        reply=answer,
        ask=ask,
        load=load,
        stub_scores=stub_scores or {},
        rotated=rotated,
    )


def trace(window: Any = None, **arms: list[str]) -> dict[str, Any]:
    return {
        "query": {"temporal_constraint": window, "timestamp": "2020-01-01T00:00:00Z"},
        "retrieval_results": [
            {"method_name": name, "results": [{"node_id": i} for i in ids]}
            for name, ids in arms.items()
        ],
        "summary": {"phase_metrics": [{"phase_name": "reranking", "duration_seconds": 0.3}]},
    }


def load(*replies: Reply, health: tuple[float, ...] = (0.01,), growth: int = 0) -> Load:
    return Load(replies, health, growth)


ALL = reply(*(memory(i) for i in range(3)))
MAY = {"start": "2024-05-01T00:00:00+00:00", "end": "2024-05-31T23:59:59+00:00"}
KEYWORD = reply(memory(0, scores={"keyword": 2.5}), memory(1))

ACCEPTED: list[tuple[dict[str, Any], Scene]] = [
    ({"kind": "contains", "memories": [0, 2]}, scene(ALL)),
    ({"kind": "not_contains", "memories": [1]}, scene(reply(memory(0)))),
    ({"kind": "exact_set", "memories": [0, 1]}, scene(reply(memory(1), memory(0)))),
    ({"kind": "first", "memory": 1}, scene(reply(memory(1), memory(0)))),
    ({"kind": "top_k", "memory": 1, "k": 2}, scene(ALL)),
    ({"kind": "order", "before": 0, "after": 2}, scene(ALL)),
    (
        {"kind": "order", "before": 0, "after": 2, "after_optional": True},
        scene(reply(memory(0))),
    ),
    ({"kind": "count", "eq": 3}, scene(ALL)),
    ({"kind": "count", "ge": 2, "le": 3}, scene(ALL)),
    ({"kind": "status", "in": [400, 422]}, scene(refused(422, "no"))),
    ({"kind": "no_error"}, scene(ALL)),
    ({"kind": "error_text_nonempty"}, scene(refused(504, "out of time during reranking"))),
    ({"kind": "error_text_nonempty"}, scene(ALL)),
    ({"kind": "unique_ids"}, scene(ALL)),
    ({"kind": "ids_known"}, scene(ALL)),
    (
        {"kind": "window", "start": "2024-05-01", "end": "2024-05-31"},
        scene(reply(trace=trace(MAY))),
    ),
    ({"kind": "window_null"}, scene(reply(trace=trace()))),
    ({"kind": "window_null"}, scene(reply(), later=[reply(trace=trace())])),
    ({"kind": "arm_hit", "arm": "text", "memory": 0}, scene(KEYWORD)),
    ({"kind": "arm_miss", "arm": "text", "memory": 1}, scene(KEYWORD)),
    ({"kind": "arm_hit", "arm": "graph", "memory": 2}, scene(reply(trace=trace(graph=["id-2"])))),
    ({"kind": "arm_miss", "arm": "text", "memory": 2}, scene(reply(trace=trace(bm25=["id-1"])))),
    (
        {"kind": "arm_count_at_most", "arm": "text", "value": 1},
        scene(reply(trace=trace(bm25=["id-1"]))),
    ),
    (
        {"kind": "score_equals", "memory": 0, "field": "text", "value": 2.5, "tol": 1e-6},
        scene(KEYWORD),
    ),
    ({"kind": "score_order", "field": "text", "higher": 0, "lower": 1}, scene(KEYWORD)),
    ({"kind": "score_order", "field": "final", "higher": 0, "lower": 1}, scene(KEYWORD)),
    ({"kind": "scores_distinct", "field": "final"}, scene(ALL)),
    ({"kind": "scores_finite"}, scene(ALL)),
    ({"kind": "scores_non_increasing", "field": "final"}, scene(ALL)),
    (
        {"kind": "stub_scores_passthrough"},
        scene(
            reply(memory(0, scores={"reranker": 0.4}), memory(1)),
            stub_scores={0: 0.4, 1: math.nan},
        ),
    ),
    ({"kind": "nan_ranked_last"}, scene(ALL, stub_scores={0: 0.4, 1: 0.3, 2: math.nan})),
    (
        {"kind": "nan_ranked_last", "rotate": True},
        scene(
            reply(memory(1), memory(2), memory(0)),
            later=[reply(memory(2), memory(0), memory(1)), ALL],
            stub_scores={0: math.nan, 1: 0.3, 2: 0.2},
        ),
    ),
    (
        {"kind": "field_equals", "memory": 0, "field": "metadata", "value": {"a": "b"}},
        scene(reply(memory(0, metadata={"a": "b"}))),
    ),
    (
        {
            "kind": "field_equals",
            "path": "trace.query.timestamp",
            "value": "2020-01-01",
            "compare": "date",
        },
        scene(reply(trace=trace())),
    ),
    (
        {"kind": "field_contains", "memory": 0, "field": "entities", "value": "Vela"},
        scene(reply(memory(0, entities=["Vela"]))),
    ),
    ({"kind": "text_of", "memory": 0, "value": "the red door"}, scene(ALL)),
    ({"kind": "no_text", "value": "yellow"}, scene(ALL)),
    ({"kind": "text_matches_id"}, scene(ALL)),
    (
        {"kind": "sources_exclude", "memory": 0, "memories": [2]},
        scene(reply(memory(0, source_fact_ids=["id-1"]))),
    ),
    (
        {"kind": "field_drift_at_most", "field": "occurred_start", "seconds": 1},
        scene(
            reply(memory(0, occurred_start="2026-03-01T10:00:00.5+00:00")),
            memories=({"text": "", "occurred_start": "2026-03-01T10:00:00Z"},),
        ),
    ),
    ({"kind": "token_total_at_most", "tokens": 9}, scene(ALL)),
    ({"kind": "token_total_at_most", "tokens": 1, "unless_single": True}, scene(reply(memory(0)))),
    ({"kind": "packing_maximal", "tokens": 8}, scene(reply(memory(0), memory(1)))),
    (
        {
            "kind": "budget_monotonic",
            "param": "budget",
            "values": ["low", "mid"],
            "measure": "trace.semantic_candidates",
            "min_growth": 1.5,
        },
        scene(
            ALL,
            later=[
                reply(trace=trace(semantic=["id-0"])),
                reply(trace=trace(semantic=["id-0", "id-1"])),
            ],
        ),
    ),
    ({"kind": "stable_across_calls", "calls": 3}, scene(ALL, later=[ALL, ALL])),
    ({"kind": "isolated", "per_bank": True}, scene(ALL, load=load(ALL, ALL))),
    ({"kind": "neighbours_unaffected"}, scene(ALL, load=load(ALL))),
    ({"kind": "latency_at_most", "seconds": 0.1}, scene(ALL)),
    ({"kind": "latency_at_most", "seconds": 0.1, "stage": "retrieval"}, scene(ALL)),
    ({"kind": "health_latency_at_most", "seconds": 0.5}, scene(ALL, load=load(ALL))),
    (
        {"kind": "overload", "allowed": [200, 503], "max_queue_wait_s": 1},
        scene(ALL, load=load(ALL, refused(503, "full", **{"retry-after": "1"}))),
    ),
    ({"kind": "peak_memory_growth_at_most", "mb": 1}, scene(ALL, load=load(ALL, growth=900_000))),
    ({"kind": "degraded_flag", "stage": "rerank"}, scene(reply(degraded=["rerank"]))),
    ({"kind": "not_degraded"}, scene(ALL)),
    (
        {"kind": "all_of", "of": [{"kind": "count", "eq": 3}, {"kind": "first", "memory": 0}]},
        scene(ALL),
    ),
]

REFUSED: list[tuple[dict[str, Any], Scene]] = [
    ({"kind": "contains", "memories": [0, 2]}, scene(reply(memory(0)))),
    ({"kind": "contains", "memories": []}, scene(refused(500, "broken"))),
    ({"kind": "not_contains", "memories": [0]}, scene(ALL)),
    ({"kind": "exact_set", "memories": [0, 1]}, scene(ALL)),
    ({"kind": "exact_set", "memories": [0, 1]}, scene(reply(memory(0)))),
    ({"kind": "first", "memory": 1}, scene(ALL)),
    ({"kind": "first", "memory": 1}, scene(reply())),
    ({"kind": "top_k", "memory": 2, "k": 2}, scene(ALL)),
    ({"kind": "order", "before": 2, "after": 0}, scene(ALL)),
    ({"kind": "order", "before": 0, "after": 2}, scene(reply(memory(0)))),
    ({"kind": "count", "eq": 2}, scene(ALL)),
    ({"kind": "count", "ge": 4}, scene(ALL)),
    ({"kind": "count", "le": 2}, scene(ALL)),
    ({"kind": "status", "in": [400]}, scene(ALL)),
    ({"kind": "no_error"}, scene(refused(500))),
    ({"kind": "no_error"}, scene(ALL, load=load(refused(503)))),
    ({"kind": "no_error"}, scene(reply(memory(0, scores={"semantic": math.nan})))),
    ({"kind": "error_text_nonempty"}, scene(refused(504))),
    ({"kind": "unique_ids"}, scene(reply(memory(0), memory(0)))),
    ({"kind": "ids_known"}, scene(reply({**memory(0), "id": "-1"}))),
    (
        {"kind": "window", "start": "2024-05-01", "end": "2024-05-30"},
        scene(reply(trace=trace(MAY))),
    ),
    ({"kind": "window", "start": "2024-05-01", "end": "2024-05-31"}, scene(reply(trace=trace()))),
    ({"kind": "window_null"}, scene(reply(trace=trace(MAY)))),
    ({"kind": "arm_hit", "arm": "text", "memory": 1}, scene(KEYWORD)),
    ({"kind": "arm_miss", "arm": "text", "memory": 0}, scene(KEYWORD)),
    ({"kind": "arm_hit", "arm": "graph", "memory": 1}, scene(reply(trace=trace(graph=["id-2"])))),
    (
        {"kind": "arm_count_at_most", "arm": "text", "value": 0},
        scene(reply(trace=trace(bm25=["id-1"]))),
    ),
    ({"kind": "score_equals", "memory": 0, "field": "keyword", "value": 2.4}, scene(KEYWORD)),
    ({"kind": "score_order", "field": "text", "higher": 1, "lower": 0}, scene(KEYWORD)),
    ({"kind": "score_order", "field": "final", "higher": 1, "lower": 0}, scene(KEYWORD)),
    ({"kind": "scores_distinct", "field": "semantic"}, scene(ALL)),
    ({"kind": "scores_distinct", "field": "reranker"}, scene(ALL)),
    ({"kind": "scores_finite"}, scene(reply(memory(0, scores={"final": math.inf})))),
    ({"kind": "scores_non_increasing", "field": "final"}, scene(reply(memory(1), memory(0)))),
    (
        {"kind": "stub_scores_passthrough"},
        scene(reply(memory(0, scores={"reranker": 1.0})), stub_scores={0: 0.4}),
    ),
    ({"kind": "nan_ranked_last"}, scene(ALL, stub_scores={0: math.nan, 1: 0.3, 2: 0.1})),
    (
        {"kind": "nan_ranked_last", "rotate": True},
        scene(
            reply(memory(1), memory(2), memory(0)),
            later=[ALL, ALL],
            stub_scores={0: math.nan, 1: 0.3, 2: 0.2},
        ),
    ),
    ({"kind": "field_equals", "memory": 0, "field": "metadata", "value": {}}, scene(ALL)),
    ({"kind": "field_contains", "memory": 0, "field": "entities", "value": "x"}, scene(ALL)),
    ({"kind": "text_of", "memory": 0, "value": "a door"}, scene(ALL)),
    ({"kind": "no_text", "value": "red"}, scene(ALL)),
    ({"kind": "text_matches_id"}, scene(reply({**memory(0), "text": "another"}))),
    (
        {"kind": "sources_exclude", "memory": 0, "memories": [1]},
        scene(reply(memory(0, source_fact_ids=["id-1"]))),
    ),
    (
        {"kind": "field_drift_at_most", "field": "occurred_start", "seconds": 1},
        scene(
            reply(memory(0, occurred_start="2026-03-01T10:01:40Z")),
            memories=({"text": "", "occurred_start": "2026-03-01T10:00:00Z"},),
        ),
    ),
    ({"kind": "field_drift_at_most", "field": "occurred_start", "seconds": 1}, scene(reply())),
    ({"kind": "token_total_at_most", "tokens": 8}, scene(ALL)),
    ({"kind": "packing_maximal", "tokens": 20}, scene(reply(memory(0)))),
    (
        {
            "kind": "budget_monotonic",
            "param": "budget",
            "values": ["low", "mid"],
            "measure": "trace.semantic_candidates",
            "min_growth": 1.5,
        },
        scene(ALL, later=[reply(trace=trace(semantic=["id-0"]))] * 2),
    ),
    (
        {"kind": "stable_across_calls", "calls": 2},
        scene(ALL, later=[reply(memory(1), memory(0), memory(2))]),
    ),
    (
        {"kind": "stable_across_calls", "calls": 2},
        scene(ALL, later=[reply(memory(0, scores={"final": 0.5}), memory(1), memory(2))]),
    ),
    ({"kind": "isolated", "per_bank": True}, scene(ALL)),
    (
        {"kind": "isolated", "per_bank": True},
        scene(ALL, load=load(reply({**memory(0), "id": "foreign"}))),
    ),
    ({"kind": "neighbours_unaffected"}, scene(ALL, load=load(ALL, refused(500, "broken")))),
    ({"kind": "latency_at_most", "seconds": 0.001}, scene(ALL)),
    ({"kind": "health_latency_at_most", "seconds": 0.5}, scene(ALL, load=load(health=(0.1, 0.6)))),
    (
        {"kind": "health_latency_at_most", "seconds": 0.5},
        scene(ALL, load=load(health=(0.1, math.inf))),
    ),
    (
        {"kind": "overload", "allowed": [200, 503], "max_queue_wait_s": 1},
        scene(ALL, load=load(refused(503, "full"))),
    ),
    (
        {"kind": "overload", "allowed": [200, 503], "max_queue_wait_s": 1},
        scene(ALL, load=load(refused(500, "broken"))),
    ),
    (
        {"kind": "overload", "allowed": [200], "max_queue_wait_s": 0.001},
        scene(ALL, load=load(ALL)),
    ),
    ({"kind": "peak_memory_growth_at_most", "mb": 1}, scene(ALL, load=load(growth=2_000_000))),
    ({"kind": "degraded_flag", "stage": "rerank"}, scene(ALL)),
    ({"kind": "degraded_flag", "stage": "rerank"}, scene(reply(degraded=["graph"]))),
    ({"kind": "not_degraded"}, scene(reply(degraded=["graph"]))),
    (
        {"kind": "all_of", "of": [{"kind": "count", "eq": 3}, {"kind": "first", "memory": 1}]},
        scene(ALL),
    ),
    ({"kind": "no_such_check"}, scene(ALL)),
    ({"kind": "count", "eq": 3, "between": [1, 2]}, scene(ALL)),
]


def names(rows: list[tuple[dict[str, Any], Scene]]) -> list[str]:
    return [f"{number}-{expected['kind']}" for number, (expected, _) in enumerate(rows)]


@pytest.mark.parametrize(("expected", "seen"), ACCEPTED, ids=names(ACCEPTED))
async def test_accepts(expected: dict[str, Any], seen: Scene) -> None:
    await checks.run(seen, expected)


@pytest.mark.parametrize(("expected", "seen"), REFUSED, ids=names(REFUSED))
async def test_refuses(expected: dict[str, Any], seen: Scene) -> None:
    with pytest.raises(AssertionError):
        await checks.run(seen, expected)


def test_every_check_is_tried_both_ways() -> None:
    assert {row["kind"] for row, _ in ACCEPTED} == checks.kinds()
    assert checks.kinds() <= {row["kind"] for row, _ in REFUSED}


def span(start: str | None, end: str | None) -> spans.Span:
    return (spans.parse(start) if start else None, spans.parse(end) if end else None)


@pytest.mark.parametrize(
    ("found", "expected", "also_ok", "include", "exclude", "right"),
    [
        (None, None, (), (), (), True),
        (span("2024-05-01", None), None, (), (), (), False),
        (None, "any", (), (), (), False),
        (span("2024-05-01", None), "any", (), ("2025-01-01",), ("2024-04-30",), True),
        (span("2024-05-01", None), "any", (), ("2024-04-30",), (), False),
        (span("2024-05-01", None), ("2024-05-01", None), (), (), (), True),
        (span("2024-05-01", None), ("2024-05-01", "2024-06-01"), (), (), (), False),
        (
            span("2024-05-01", None),
            ("2024-05-01", "2024-06-01"),
            (("2024-05-01", None),),
            (),
            (),
            True,
        ),
        # Bounds are compared by day in the anchor's offset, here +02:00.
        (
            span("2024-04-30T22:00:00Z", "2024-05-01T21:59:59Z"),
            ("2024-05-01", "2024-05-01"),
            (),
            ("2024-05-01T23:00:00+02:00",),
            ("2024-05-02",),
            True,
        ),
    ],
)
def test_windows_are_compared_by_day(
    found: spans.Span | None,
    expected: Any,
    also_ok: Any,
    include: Any,
    exclude: Any,
    right: bool,
) -> None:
    anchor = spans.parse("2024-06-01T12:00:00+02:00")
    if right:
        spans.check(found, anchor, expected, also_ok, include, exclude)
    else:
        with pytest.raises(AssertionError):
            spans.check(found, anchor, expected, also_ok, include, exclude)


def test_a_bulk_rule_fills_its_braces() -> None:
    rule = {
        "count": 2,
        "template": "Part {i}.",
        "occurred_start": "2026-05-0{i%6+1:d}",
        "tags": ["t{i}"],
    }
    row = {
        "id": "b",
        "memories": [],
        "bulk": [rule],
        "query_repeat": {"text": "a ", "times": 2, "suffix": "b"},
        "expect": {"kind": "no_error"},
    }
    made = case.recall_case(row)
    assert made.query == "a a b"
    assert made.bulk == (
        {"text": "Part 0.", "occurred_start": "2026-05-01", "tags": ["t0"]},
        {"text": "Part 1.", "occurred_start": "2026-05-02", "tags": ["t1"]},
    )
