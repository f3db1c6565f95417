"""When two ways to scope observations mean the same for a memory."""

from typing import Any

import pytest

from retrieval.ingest.scopes import resolved

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("one", "other", "tags"),
    [
        (None, "combined", ["a", "b"]),
        ([], "combined", ["a", "b"]),
        ([["b", "a"]], None, ["a", "b"]),
        ([[]], "shared", ["a"]),
        ("per_tag", "combined", ["a"]),
        ("per_tag", [["b"], ["a"]], ["a", "b"]),
        ("all_combinations", "per_tag", ["a"]),
        ("per_tag", "shared", []),
        ("all_combinations", None, []),
    ],
)
def test_the_same(one: Any, other: Any, tags: list[str]) -> None:
    assert resolved(one, tags) == resolved(other, tags)


@pytest.mark.parametrize(
    ("one", "other", "tags"),
    [
        (None, "shared", ["a"]),
        ("per_tag", "combined", ["a", "b"]),
        ("per_tag", "all_combinations", ["a", "b"]),
        ([["a"]], [["a"], []], ["a"]),
        ([["a"]], None, []),
    ],
)
def test_not_the_same(one: Any, other: Any, tags: list[str]) -> None:
    assert resolved(one, tags) != resolved(other, tags)


def test_what_all_combinations_means_follows_the_tags() -> None:
    assert resolved("all_combinations", ["a", "b"]) != resolved("all_combinations", ["a", "c"])
