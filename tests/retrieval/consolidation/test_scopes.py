"""Scopes: which a memory has, which strategies take them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from retrieval.consolidation.scopes import of_memory, settings_of, strategy_of, takes
from retrieval.errors import InvalidInput
from retrieval.settings import check, value
from retrieval.settings.consolidation import ConsolidationSettings

pytestmark = pytest.mark.unit

TAGS = ("b", "a")


def scopes(given: Any, tags: Any = TAGS, default: Any = None) -> list[list[str]]:
    return [sorted(scope) for scope in of_memory(given, tags, default)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, [["a", "b"]]),
        ("combined", [["a", "b"]]),
        ([], [["a", "b"]]),
        ("per_tag", [["a"], ["b"]]),
        ("shared", [[]]),
        ([[]], [[]]),
        ([["x"], ["b", "a"], ["x"]], [["a", "b"], ["x"]]),
        ("all_combinations", [["a"], ["a", "b"], ["b"]]),
    ],
)
def test_five_kinds(given: Any, expected: list[list[str]]) -> None:
    assert sorted(scopes(given)) == sorted(expected)


def test_untagged_memories_have_one_scope() -> None:
    for given in (None, "combined", "per_tag", "all_combinations", "shared"):
        assert scopes(given, ()) == [[]]


def test_all_combinations_are_bounded() -> None:
    assert len(scopes("all_combinations", tuple("abcdef"))) == 63
    with pytest.raises(InvalidInput, match="at most 6 tags"):
        scopes("all_combinations", tuple("abcdefg"))


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("shared", [[]]),
        ("per_tag", [["chat:1"], ["user:a"]]),
        ([["user:*"]], [["user:a"]]),
        ([["user:*"], ["chat:?"]], [["chat:1"], ["user:a"]]),
        ([["user:*", "chat:*"]], [["chat:1", "user:a"]]),
        ([["team:*"]], [["chat:1", "user:a"]]),
        ([["team:*"], []], [[]]),
    ],
)
def test_defaults_of_a_bank(default: Any, expected: list[list[str]]) -> None:
    assert scopes(None, ("user:a", "chat:1"), default) == expected
    assert scopes("shared", ("user:a",), default) == [[]]


@pytest.mark.parametrize(
    ("match", "taken"),
    [
        ("any", ["a:1", "a:1 b", "", "a:1 a:2"]),
        ("any_strict", ["a:1", "a:1 b", "a:1 a:2"]),
        ("all", ["a:1", "a:1 b", "", "a:1 a:2"]),
        ("all_strict", ["a:1", "a:1 b", "a:1 a:2"]),
        ("exact", ["a:1", "a:1 a:2"]),
        (None, ["a:1", "a:1 b", "", "a:1 a:2"]),
    ],
)
def test_rules_of_strategies(match: str | None, taken: list[str]) -> None:
    rule = {"tags": ["a:*"], "tags_match": match}
    scopes = ["a:1", "a:1 b", "b", "", "a:1 a:2"]
    assert [scope for scope in scopes if takes(rule, scope.split())] == [
        scope for scope in scopes if scope in taken
    ]
    assert not takes({"tags": []}, ["a"])


def test_the_first_strategy_counts() -> None:
    settings = ConsolidationSettings(
        observations_mission="everything",
        max_observations_per_scope=5,
        observation_scope_limits=[
            {"scope": ["user:*"], "limit": 3},
            {"scope": ["user:*", "x"], "limit": 2},
        ],
        consolidation_strategies=[
            {"scopes": [{"tags": []}], "observations_mission": "nothing"},
            {"scopes": [{"tags": ["user:*"]}], "observations_mission": "people"},
            {"scopes": [{"tags": ["*"], "tags_match": "any_strict"}],
             "max_observations_per_scope": 9},
        ],
    )  # fmt: skip
    assert strategy_of(settings.consolidation_strategies, ["user:a"]) == (1, 0)
    people, others, none = (settings_of(settings, s) for s in (["user:a"], ["x"], []))
    assert (people.mission, people.max_observations_per_scope) == ("people", 3)
    assert (others.mission, others.max_observations_per_scope) == ("everything", 9)
    assert none.mission == "people"  # `any` takes what has no tags, too
    assert settings_of(settings, ["user:a", "x"]).max_observations_per_scope == 2


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("consolidation_strategies", [{"scopes": "x"}]),
        ("consolidation_strategies", [{"scopes": [{"tags": "x"}]}]),
        ("consolidation_strategies", [{"scopes": [], "unknown": 1}]),
        ("consolidation_strategies", [{"scopes": [{"tags": ["x"], "tags_match": "some"}]}]),
        ("consolidation_strategies", [{"max_observations_per_scope": "many"}]),
        ("default_observation_scopes", "everything"),
        ("default_observation_scopes", [["a"], "b"]),
        ("observation_scope_limits", [{"scope": "x", "limit": 1}]),
        ("observation_scope_limits", [{"scope": ["x"], "limit": -2}]),
        ("consolidation_llm_batch_size", 0),
        ("consolidation_dedup_threshold", 1.5),
        ("consolidation_max_attempts", 4),
    ],
)
def test_settings_that_cannot_be(name: str, given: Any) -> None:
    assert check(ConsolidationSettings, name, given)
    with pytest.raises(ValidationError):
        value(ConsolidationSettings, name, given)
