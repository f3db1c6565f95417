"""Wire models: times, tags, metadata, blocks, and their translation."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from retrieval.types import FactType, TagAll, TagLeaf, TagNot, TagsMatch
from serve.wire.common import moment
from serve.wire.recall import RecallBody
from serve.wire.tags import MAX_TAG_GROUP_DEPTH, tag_group
from serve.wire.writes import ItemBody, MemoryPatch

pytestmark = pytest.mark.unit
NOW = datetime(2025, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-03-04", datetime(2025, 3, 4, tzinfo=UTC)),
        ("2025-03-04T05:06:07Z", datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2025-03-04T05:06:07", datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("2025-03-04T05:06:07+02:00", datetime(2025, 3, 4, 3, 6, 7, tzinfo=UTC)),
    ],
)
def test_moments(text: str, expected: datetime) -> None:
    assert moment(text) == expected


@pytest.mark.parametrize(
    "text", ["", "now", "2025", "20250304", "2025-W01-1", "0001-01-01T00:00:00+23:00", "2025-02-30"]
)
def test_no_moments(text: str) -> None:
    with pytest.raises(ValueError):
        moment(text)


@given(st.text(max_size=40))
def test_any_text_is_a_moment_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert moment(text).tzinfo is not None


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
    group = tag_group({"and": [{"tags": ["a"], "match": "all"}, {"not": {"tags": []}}]})
    assert group == TagAll((TagLeaf(("a",), TagsMatch.ALL), TagNot(TagLeaf(()))))
    deep: object = {"tags": []}
    for _ in range(MAX_TAG_GROUP_DEPTH + 1):
        deep = {"not": deep}
    with pytest.raises(ValueError, match="deep"):
        tag_group(deep)


def test_items_of_a_retain() -> None:
    item = ItemBody.model_validate(
        {
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "tags": '["x", "y"]',
            "metadata": {"n": 1, "gone": None, "yes": True},
            "timestamp": "Unset",
            "update_mode": None,
            "strategy": None,
        }
    )
    assert item.content == "a\nb"
    assert item.tags == ["x", "y"]
    assert item.metadata == {"n": "1", "yes": "true"}
    assert item.timestamp == "unset"
    assert item.update_mode == "replace"
    assert ItemBody.model_validate({"content": "c", "tags": "plain"}).tags == ["plain"]


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"content": "  "},
        {"content": [{"type": "image", "source": {}}]},
        {"content": "c", "timestamp": "soon"},
        {"content": "c", "update_mode": "merge"},
        {"content": "c", "metadata": {"a": [1]}},
    ],
)
def test_items_that_are_refused(item: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ItemBody.model_validate(item)


def test_a_patch_says_what_was_given() -> None:
    patch = MemoryPatch.model_validate({"occurred_end": None, "text": "t"})
    assert patch.changes == {"occurred_end": None, "text": "t"}
    with pytest.raises(ValidationError, match="nothing to change"):
        MemoryPatch.model_validate({"reason": "r"})
