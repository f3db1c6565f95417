"""Settings: names of both prefixes, types, chains, files, and errors that name the variable."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from models.settings import EMBEDDER_PROVIDERS, RERANKER_PROVIDERS
from serve.settings import Settings, SettingsError, load, parse

pytestmark = pytest.mark.unit


def test_defaults_are_the_public_ones() -> None:
    settings = parse({}, {})
    assert settings == Settings()
    assert settings.recall.recall_budget_fixed_mid == 300
    assert settings.rerankers.members[0].tei_batch_size == 128
    assert settings.server.host == "127.0.0.1"


def documented(owner: Any) -> Iterator[tuple[str, bool]]:
    """(setting, does it say what it means) for all that a model of settings holds."""
    for definition in TypeAdapter(owner).json_schema()["$defs"].values():
        for name, field in definition.get("properties", {}).items():
            yield f"{definition['title']}.{name}", bool(field.get("description"))


def test_every_setting_says_what_it_means() -> None:
    parts = {"strategy"}  # whose own fields do
    found = dict(documented(Settings))
    assert len(found) > 300
    assert [n for n, said in found.items() if not said and n.split(".")[1] not in parts] == []


def test_the_environment_wins_over_the_file_and_our_prefix_over_theirs() -> None:
    tree = {"server": {"port": 1000, "log_level": "debug"}}
    settings = parse(tree, {"HINDSIGHT_API_PORT": "2000"})
    assert (settings.server.port, settings.server.log_level) == (2000, "debug")
    both = {"HINDSIGHT_API_PORT": "2000", "FOURFOLD_PORT": "3000"}
    assert parse(tree, both).server.port == 3000


@pytest.mark.parametrize("prefix", ["HINDSIGHT_API_", "FOURFOLD_"])
def test_what_orders_the_candidates(prefix: str) -> None:
    assert parse({}, {}).recall.fusion == "rrf"
    assert parse({}, {f"{prefix}FUSION": "convex"}).recall.fusion == "convex"
    with pytest.raises(SettingsError, match=f"{prefix}FUSION"):
        parse({}, {f"{prefix}FUSION": "concave"})


@pytest.mark.parametrize("word", ["true", "1", "YES", "True"])
def test_words_that_are_true(word: str) -> None:
    assert parse({}, {"HINDSIGHT_API_ACCESS_LOG": word}).server.access_log
    assert parse({}, {"HINDSIGHT_API_RECALL_PREFER_OBSERVATIONS": word}).recall == (
        Settings().recall.with_overrides({"recall_prefer_observations": True})
    )


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("HINDSIGHT_API_PORT", "abc", "whole number"),
        ("HINDSIGHT_API_RECALL_BUDGET_FIXED_LOW", "many", "whole number"),
        ("HINDSIGHT_API_SEMANTIC_MIN_SIMILARITY", "high", "number"),
        ("HINDSIGHT_API_REFLECT_MAX_ITERATIONS", "x", "whole number"),
        ("HINDSIGHT_API_DB_COMMAND_TIMEOUT", "soon", "number"),
        ("HINDSIGHT_API_ENABLE_RERANKING", "maybe", "true or false"),
        ("HINDSIGHT_API_RERANKER_1_TEI_BATCH_SIZE", "x", "whole number"),
        ("HINDSIGHT_API_TEXT_SEARCH_EXTENSION", "solr", "native"),
        ("HINDSIGHT_API_TEXT_SEARCH_EXTENSION_NATIVE_LANGUAGE", "1english", "letters"),
    ],
)
def test_a_wrong_value_names_its_variable(variable: str, value: str, reason: str) -> None:
    env = {"HINDSIGHT_API_RERANKER_1_PROVIDER": "tei", variable: value}
    with pytest.raises(SettingsError) as refused:
        parse({}, env)
    named = "text_search_language" if value == "1english" else variable
    assert named in str(refused.value)
    assert reason in str(refused.value)


def test_unknown_keys_of_a_file_are_errors_with_a_suggestion() -> None:
    with pytest.raises(SettingsError, match=r"server\.prot: unknown setting \(did you mean port"):
        parse({"server": {"prot": 1}}, {})
    with pytest.raises(SettingsError, match="unknown section 'sever'"):
        parse({"sever": {}}, {})
    with pytest.raises(SettingsError, match=r"stages\.embedder"):
        parse({"stages": {"embedder": {"gpu": 1}}}, {})


def test_unknown_variables_and_settings_without_effect_are_said() -> None:
    env = {"HINDSIGHT_API_GRAPH_RETRIEVER": "x", "HINDSIGHT_API_RECAL_MAX_CONCURRENT": "4"}
    warnings = "\n".join(parse({}, env).warnings)
    assert "GRAPH_RETRIEVER is accepted but has no effect" in warnings
    assert "did you mean recall_max_concurrent" in warnings


def test_values_that_are_replaced_with_a_warning() -> None:
    settings = parse(
        {},
        {
            "HINDSIGHT_API_RECALL_BUDGET_FUNCTION": "guess",
            "HINDSIGHT_API_RECENCY_DECAY_LINEAR_WINDOW_DAYS": "-3",
        },
    )
    assert settings.recall.recall_budget_function == "fixed"
    assert settings.recall.recency_decay_linear_window_days == 365
    assert len(settings.warnings) == 2


def test_the_chain_ends_at_the_first_gap_and_inherits_nothing() -> None:
    settings = parse(
        {},
        {
            "HINDSIGHT_API_RERANKER_PROVIDER": "tei",
            "HINDSIGHT_API_RERANKER_TEI_URL": "http://one",
            "HINDSIGHT_API_RERANKER_TEI_HTTP_TIMEOUT": "7",
            "HINDSIGHT_API_RERANKER_1_PROVIDER": "cohere",
            "HINDSIGHT_API_RERANKER_1_COHERE_API_KEY": "sesame",
            "HINDSIGHT_API_RERANKER_2_PROVIDER": "  ",
            "HINDSIGHT_API_RERANKER_3_PROVIDER": "rrf",
        },
    )
    first, second = settings.rerankers.members
    assert (first.provider, first.tei_url, first.tei_http_timeout_s) == ("tei", "http://one", 7)
    assert (second.provider, second.tei_url) == ("cohere", None)
    assert "sesame" not in repr(settings)


def test_a_secret_is_not_in_an_error() -> None:
    with pytest.raises(SettingsError) as refused:
        parse({"database": {"database_url": ["postgres://u:hunter2@h/d"]}}, {})
    assert "hunter2" not in str(refused.value)


def test_settings_travel_between_processes() -> None:
    settings = parse({}, {"FOURFOLD_DATABASE_URL": "postgres://u:p@h/d"})
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_a_file_that_is_no_application(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    with pytest.raises(SettingsError, match="cannot read"):
        load(path, {})
    path.write_text("applications: 3")
    with pytest.raises(SettingsError, match="applications"):
        load(path, {})
    path.write_text("a: [")
    with pytest.raises(SettingsError, match="YAML"):
        load(path, {})


def test_a_read_replica_is_told_that_nothing_reads_from_it() -> None:
    url = "postgresql://reader:secret@replica/db"
    (warning,) = parse({}, {"HINDSIGHT_API_READ_DATABASE_URL": url}).warnings
    assert warning.startswith("HINDSIGHT_API_READ_DATABASE_URL is accepted but has no effect here:")
    assert "every acknowledged write" in warning
    assert "secret" not in warning
    with pytest.raises(SettingsError, match=r"database\.read_database_url: unknown setting"):
        parse({"database": {"read_database_url": url}}, {})


@pytest.mark.parametrize(
    ("variable", "known"),
    [
        ("FOURFOLD_EMBEDDINGS_PROVIDER", EMBEDDER_PROVIDERS),
        ("FOURFOLD_RERANKER_PROVIDER", RERANKER_PROVIDERS),
    ],
)
def test_a_provider_that_is_accepted_can_be_opened(variable: str, known: Sequence[str]) -> None:
    """What the models do not know is refused at the start, and what they know is not."""
    for name in known:
        parse({}, {variable: name})
    with pytest.raises(SettingsError, match=variable):
        parse({}, {variable: "abacus"})
