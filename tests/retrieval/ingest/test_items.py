from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from retrieval.errors import InvalidInput
from retrieval.ingest.items import RetainItem, parse

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def one(item: dict[str, Any], tags: list[str] | None = None) -> RetainItem:
    (found,) = parse([item], tags, NOW, 1)
    return found


def test_what_an_item_says() -> None:
    item = one(
        {
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}],
            "tags": '["x", "y"]',
            "metadata": {"n": 1, "gone": None, "yes": True},
            "timestamp": "Unset",
            "update_mode": None,
            "strategy": None,
            "entities": [{"text": "Ann", "type": "PERSON"}],
        },
        ["y", "z"],
    )
    assert (item.content, item.strategy, item.append, item.named) == ("a\n", None, False, False)
    section = item.section
    assert (section.timestamp, section.assumed) == (None, False)
    assert section.tags == ("x", "y", "z")
    assert section.metadata == {"n": "1", "yes": "true"}
    assert [mention.name for mention in section.mentions] == ["Ann"]


@pytest.mark.parametrize("time", [None, "", "  "])
def test_an_item_without_a_time_is_of_now(time: str | None) -> None:
    section = one({"content": "c", "timestamp": time}).section
    assert (section.timestamp, section.assumed) == (NOW, True)


def test_one_plain_text_is_one_tag() -> None:
    assert one({"content": "c", "tags": "plain"}).section.tags == ("plain",)
    assert one({"content": "c", "tags": "[plain"}).section.tags == ("[plain",)


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({}, "content"),
        ({"content": None}, "content"),
        ({"content": "  "}, "content"),
        ({"content": [{"type": "text", "text": " "}]}, "content"),
        ({"content": [{"type": "image", "source": {}}]}, "content[0].source.media_type"),
        ({"content": "c", "timestamp": "soon"}, "timestamp"),
        ({"content": "c", "timestamp": 7}, "timestamp"),
        ({"content": "c", "update_mode": "merge"}, "update_mode"),
        ({"content": "c", "metadata": {"a": [1]}}, "metadata.a"),
        ({"content": "c", "resolve_entities": "no"}, "resolve_entities"),
        (
            {
                "content": "c",
                "tags": [f"t{i}" for i in range(7)],
                "observation_scopes": "all_combinations",
            },
            "observation_scopes",
        ),
    ],
)
def test_what_is_wrong_is_named(item: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        one(item)
    assert caught.value.field == f"items[0].{field}"
