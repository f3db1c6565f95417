"""Wire models: times, tags, metadata, blocks, and their translation."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from retrieval.store.tag_groups import tag_groups
from retrieval.types import FactType, TagAll, TagLeaf, TagNot, TagsMatch
from serve.http.wire.recall import RecallBody
from serve.http.wire.writes import MemoryPatch, RetainBody

pytestmark = pytest.mark.unit
NOW = datetime(2025, 6, 1, tzinfo=UTC)


def test_the_whole_body_arrives() -> None:
    body = RecallBody.model_validate(
        {
            "query": "q",
            "types": ["world", "world", "opinion"],
            "include": {"chunks": {}, "source_facts": {"max_tokens": 7}},
            "min_scores": {"final": 0.5},
            "temporal_window": {"start": "2025-01-01", "end": "2025-01-31"},
            "temporal_mode": "filter",
            "metadata_filter": {"a": "x", "b": {"gte": 3}},
            "exclude_ids": ["00000000-0000-0000-0000-000000000001"],
        }
    )
    query = body.to_query("t", "b", now=NOW, deadline=1.0)
    assert query.filters.types == (FactType.WORLD,)
    assert (query.include.entities, query.include.chunks) == (500, 8192)
    assert (query.include.source_facts, query.include.source_facts_per_observation) == (7, -1)
    assert query.min_scores.final == 0.5
    assert query.window == query.filters.window
    assert query.filters.metadata == {"a": {"eq": "x"}, "b": {"gte": 3}}
    assert query.filters.exclude_ids == (bytes(15) + b"\x01",)


def test_a_window_ranks_unless_told_to_filter() -> None:
    body = RecallBody.model_validate({"query": "q", "temporal_window": {"start": "2025-01-01"}})
    query = body.to_query("t", "b", now=NOW, deadline=None)
    assert query.window is not None
    assert query.filters.window is None


def test_tag_groups() -> None:
    (group,) = tag_groups([{"and": [{"tags": ["a"], "match": "all"}, {"not": {"tags": []}}]}])
    assert group == TagAll((TagLeaf(("a",), TagsMatch.ALL), TagNot(TagLeaf(()))))


def nested(depth: int) -> object:
    group: object = {"tags": []}
    for _ in range(depth):
        group = {"not": group}
    return group


LEAF: dict[str, Any] = {"tags": ["a"]}


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([nested(17)], "deep"),
        ([LEAF] * 257, "256 tag groups"),
        ([{"or": [LEAF] * 256}], "256 tag groups"),
        ([{"tags": ["a"] * 1001}], "1000 tags"),
        ([{"tags": ["a"] * 501}, {"not": {"tags": ["a"] * 500}}], "1000 tags"),
        ([{"tags": [["a"]]}], "list of texts"),
        ("a", "list"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_tag_groups_are_bounded(groups: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tag_groups(groups)


def test_the_largest_tag_groups() -> None:
    assert len(tag_groups([LEAF] * 256)) == 256
    assert tag_groups([nested(16)])
    assert tag_groups([{"tags": ["a"] * 1000}])


def metadata_filter(value: object) -> Any:
    body = RecallBody.model_validate({"query": "q", "metadata_filter": value})
    return body.to_query("t", "b", now=NOW, deadline=None).filters.metadata


def test_metadata_filters() -> None:
    assert metadata_filter({"a": 1, "b": None, "c": True, "d": {"in": ["x", 2.5, None]}}) == {
        "a": {"eq": 1},
        "b": {"eq": None},
        "c": {"eq": True},
        "d": {"in": ["x", 2.5, None]},
    }
    exact = orjson.loads('{"a": 18093456123123302599, "b": 6.02e23}')
    assert metadata_filter(exact) == {
        "a": {"eq": 18_093_456_123_123_302_599},
        "b": {"eq": 6.02e23},
    }
    assert metadata_filter({"a\0": "x\0"}) == {"a": {"eq": "x"}}, "as it would be stored"


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": {}},
        {"a": {"near": 1}},
        {"a": {"eq": 1, "near": 1}},
        {"a": ["x"]},
        {"a": {"eq": {"b": 1}}},
        {"a": {"eq": ["x"]}},
        {"a": {"in": "x"}},
        {"a": {"in": [["x"]]}},
        {"a": {"in": [{}]}},
        {"a": {"exists": None}},
        {"a": {"exists": 1}},
        {"a": {"gt": None}},
        {"a": {"lt": True}},
        {"a": {"gte": ["x"]}},
        {"a": float("nan")},
        {"a": {"lt": float("inf")}},
        orjson.loads('{"a": 98093456123123302600}'),
        orjson.loads('{"a": {"in": [1, -18093456123123302600]}}'),
        {str(i): 1 for i in range(65)},
        {"a": {"in": ["x"] * 2_001}},
        {str(i): {"in": ["x"] * 100} for i in range(21)},
        {"a": "x" * 65_537},
        {"a" * 65_537: 1},
        {"a": {"in": ["x" * 40] * 1_700}},
        ["a"],
        "a",
    ],
    ids=lambda value: str(value)[:40],
)
def test_metadata_filters_that_are_wrong(wrong: object) -> None:
    with pytest.raises(ValidationError) as caught:
        metadata_filter(wrong)
    (problem,) = caught.value.errors()
    assert problem["loc"][0] == "metadata_filter"
    assert len(problem["msg"]) < 300


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("query", "word " * 4_001),
        ("query", "\ufdfa" * 1_000_000),
        ("tags", ["a"] * 1_001),
        ("tags", [1] * 100_000),
        ("tags", [[["a"]]]),
        ("types", ["world"] * 65),
        ("types", [1] * 100_000),
        ("exclude_ids", ["a"] * 10_001),
        ("exclude_ids", [1] * 100_000),
        ("tag_groups", [LEAF] * 100_000),
        ("tag_groups", [nested(400)]),
        ("metadata_filter", {"a": {"in": [1] * 100_000}}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_too_much_is_refused_before_any_work(field: str, value: object) -> None:
    begin = time.process_time()
    with pytest.raises(ValidationError) as caught:
        RecallBody.model_validate({"query": "q", field: value})
    assert time.process_time() - begin < 0.1
    assert {problem["loc"][0] for problem in caught.value.errors()} == {field}
    assert caught.value.error_count() == 1


def test_items_of_a_retain_are_taken_as_they_were_sent() -> None:
    sent = {"content": ["?"], "tags": 1, "timestamp": "soon", "context": None, "kept_file": {}}
    body = RetainBody.model_validate({"items": [sent]})
    assert body.items == [{"content": ["?"], "tags": 1, "timestamp": "soon"}]
    with pytest.raises(ValidationError, match="must be an object"):
        RetainBody.model_validate({"items": [7]})


def test_a_patch_says_what_was_given() -> None:
    patch = MemoryPatch.model_validate({"occurred_end": None, "text": "t"})
    assert patch.changes == {"occurred_end": None, "text": "t"}
    with pytest.raises(ValidationError, match="nothing to change"):
        MemoryPatch.model_validate({"reason": "r"})
