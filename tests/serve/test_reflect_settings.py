"""Settings of reflects: in the environment, in a bank's config, in what it shows."""

from __future__ import annotations

import pytest

from retrieval.errors import InvalidInput
from retrieval.reflect import disposition
from retrieval.store import bankconfig
from serve.settings import SettingsError, parse

pytestmark = pytest.mark.unit


def test_the_environment() -> None:
    settings = parse(
        {},
        {
            "HINDSIGHT_API_REFLECT_WALL_TIMEOUT": "12.5",
            "HINDSIGHT_API_REFLECT_MAX_ITERATIONS": "4",
            "HINDSIGHT_API_REFLECT_SOURCE_FACTS_MAX_TOKENS": "0",
            "HINDSIGHT_API_DISPOSITION_EMPATHY": "5",
            "HINDSIGHT_API_RECALL_INCLUDE_CHUNKS": "false",
            "FOURFOLD_REFLECT_STRICT_GROUNDING": "true",
            "FOURFOLD_REFLECT_MISSION": "Be useful.",
        },
    )
    found = settings.reflect
    assert (found.reflect_wall_timeout_s, found.reflect_max_iterations) == (12.5, 4)
    assert (found.reflect_strict_grounding, found.reflect_mission) == (True, "Be useful.")
    assert (found.disposition_empathy, found.recall_include_chunks) == (5, False)
    assert found.reflect_source_facts_max_tokens == 0
    assert settings.warnings == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"REFLECT_MAX_ITERATIONS": "0"},
        {"REFLECT_WALL_TIMEOUT": "never"},
        {"REFLECT_MAX_CONTEXT_TOKENS": "10"},
        {"DISPOSITION_EMPATHY": "6"},
        {"REFLECT_SOURCE_FACTS_MAX_TOKENS": "-2"},
    ],
    ids=str,
)
def test_wrong_ones(wrong: dict[str, str]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(SettingsError, match=name):
        parse({}, {f"HINDSIGHT_API_{name}": value})


def test_a_banks_own() -> None:
    options = {
        "reflect_search_observations_max_tokens": 900,
        "reflect_search_observations_include_entities": False,
    }
    given = {"reflect_default_options": options, "disposition_skepticism": 5,
             "reflect_strict_grounding": True, "recall_max_tokens": 100}  # fmt: skip
    assert bankconfig.checked(given) == given
    settings = parse({}, {})
    shown = bankconfig.resolved(given, *settings.of_banks)
    assert shown["reflect_default_options"] == options
    assert (shown["recall_max_tokens"], shown["recall_chunks_max_tokens"]) == (100, 1000)
    for wrong in (
        {"reflect_max_iterations": 3},
        {"reflect_wall_timeout_s": 3},
        {"reflect_default_options": {"budget": "high"}},
        {"disposition_empathy": 0},
        {"reflect_mission": 7},
    ):
        with pytest.raises(InvalidInput):
            bankconfig.checked(wrong)


def test_dispositions() -> None:
    said = {
        (trait, level): disposition.sentences({trait: level})[place]
        for place, trait in enumerate(disposition.TRAITS)
        for level in range(1, 6)
    }
    assert len(set(said.values())) == 15
    assert disposition.sentences({}) == disposition.sentences(dict.fromkeys(disposition.TRAITS, 3))
    assert disposition.levels(
        {"skepticism": 1}, {"skepticism": 5, "literalism": 4, "empathy": 3}, {"empathy": 2}
    ) == {"skepticism": 1, "literalism": 4, "empathy": 2}
