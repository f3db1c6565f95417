"""Settings: bounds stand in one place and hold for the server, for banks and for strategies."""

import dataclasses
import logging
import math
from typing import Any

import pytest
from pydantic import TypeAdapter

from retrieval.errors import InvalidInput
from retrieval.settings import RecallSettings, RetainSettings, check, fields, per_bank
from retrieval.store import bankconfig
from serve.settings import Settings, SettingsError, parse

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("owner", [RecallSettings, RetainSettings])
def test_every_setting_has_a_sentence_and_a_valid_default(owner: Any) -> None:
    schema = TypeAdapter(owner).json_schema()["properties"]
    for field in dataclasses.fields(owner):
        assert schema[field.name].get("description"), field.name
        if field.default is not None:
            assert check(owner, field.name, field.default) is None, field.name


@pytest.mark.parametrize("owner", [RecallSettings, RetainSettings, bankconfig.Accepted])
def test_every_number_is_bounded_and_finite(owner: Any) -> None:
    for name in fields(owner):
        for huge in (1e308, math.inf, -math.inf, math.nan, 10**30, -(10**30)):
            assert check(owner, name, huge), (name, huge)


TRIED: list[Any] = ["interleave", "chunks", "Asia/Tokyo", "x" * 9, -5, 0, 300, 1e9, True, []]


def test_what_a_bank_may_set_it_may_set_as_the_server_may() -> None:
    for owner, section in ((RecallSettings, "recall"), (RetainSettings, "retain")):
        for name in per_bank(owner):
            for given in TRIED:
                bank = check(owner, name, given) is None
                try:
                    parse({section: {name: given}}, {})
                except SettingsError:
                    server = False
                else:
                    server = True
                # A file's and the environment's "3" is a number, JSON's is not.
                assert server or not bank, (name, given)
    assert bankconfig.checked({"fusion": "interleave"}) == {"fusion": "interleave"}


WRONG = [
    ({"retain_chunk_size": -5}, "retain_chunk_size"),
    ({"retain_chunk_size": 0}, "retain_chunk_size"),
    ({"retain_chunk_size": 10**9}, "retain_chunk_size"),
    ({"retain_chunk_size": "300"}, "retain_chunk_size"),
    ({"retain_chunk_size": True}, "retain_chunk_size"),
    ({"recall_budget_adaptive_low": 1e308}, "recall_budget_adaptive_low"),
    ({"recall_budget_adaptive_mid": math.nan}, "recall_budget_adaptive_mid"),
    ({"recall_budget_adaptive_high": math.inf}, "recall_budget_adaptive_high"),
    ({"recall_budget_fixed_high": 2**40}, "recall_budget_fixed_high"),
    ({"enable_reranking": "no"}, "enable_reranking"),
    ({"timezone": "Mars/Olympus"}, "timezone"),
    ({"timezone": "+09:00"}, "timezone"),
    ({"timezone": "../etc/passwd"}, "timezone"),
    ({"timezone": ""}, "timezone"),
    ({"text_search_language": "klingon"}, "text_search_language"),
    ({"retain_mission": "x" * 30_000}, "retain_mission"),
    ({"retain_strategies": {"a": {"retain_chunk_size": -5}}}, "retain_strategies"),
    ({"retain_strategies": {"a": {"retain_chunk_size": "big"}}}, "retain_strategies"),
    ({"retain_strategies": {"a": {"recall_budget_min": 5}}}, "retain_strategies"),
    ({"retain_strategies": {"a": {"nonsense": 5}}}, "retain_strategies"),
    ({"retain_strategies": {"a": {"text_search_language": "german"}}}, "retain_strategies"),
    ({"retain_strategies": {"a": {"retain_strategies": {}}}}, "retain_strategies"),
    ({"retain_strategies": {"a": 5}}, "retain_strategies"),
    ({"retain_strategies": {str(i): {} for i in range(200)}}, "retain_strategies"),
    ({"graph_quota": 11}, "graph_quota"),
    ({"fiscal_year_start_month": 13}, "fiscal_year_start_month"),
    ({"recall_timeout_s": 5}, "recall_timeout_s"),
    ({"port": 1}, "port"),
]


@pytest.mark.parametrize(("updates", "field"), WRONG)
def test_a_bank_cannot_be_set_so(updates: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=field) as told:
        bankconfig.checked(updates)
    assert told.value.field == field
    assert len(str(told.value)) < 500


def test_a_strategy_names_what_is_wrong_in_it() -> None:
    with pytest.raises(InvalidInput, match=r"retain_strategies\.notes\.retain_chunk_size"):
        bankconfig.checked({"retain_strategies": {"notes": {"retain_chunk_size": -5}}})
    with pytest.raises(SettingsError, match=r"retain_strategies\.notes\.retain_chunk_size"):
        parse({"retain": {"retain_strategies": {"notes": {"retain_chunk_size": -5}}}}, {})


def test_good_values_are_kept_in_field_form() -> None:
    given = {
        "HINDSIGHT_API_RECALL_BUDGET_ADAPTIVE_LOW": 1,
        "FOURFOLD_TIMEZONE": "asia/tokyo",
        "retain_strategies": {"notes": {"retain_chunk_size": 400, "retain_mission": "all"}},
        "temporal_day_first": None,
    }
    assert bankconfig.checked(given) == {
        "recall_budget_adaptive_low": 1.0,
        "timezone": "Asia/Tokyo",
        "retain_strategies": {"notes": {"retain_chunk_size": 400, "retain_mission": "all"}},
        "temporal_day_first": None,
    }


def test_a_config_has_a_largest_size() -> None:
    with pytest.raises(InvalidInput, match="at most 262144 bytes"):
        bankconfig.agree({"entity_labels": {"a": "x" * bankconfig.CONFIG_BYTES}})
    bankconfig.agree({"entity_labels": {"a": "x" * 100_000}})


def test_what_is_stored_already_and_wrong_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    stored = {
        "recall_budget_adaptive_low": 1e308,
        "recall_budget_fixed_low": 70,
        "fusion": "magic",
        "retain_chunk_size": -5,
        "retain_strategies": {"a": {"retain_chunk_size": -5, "retain_mission": "m"}, "b": 5},
        "timezone": "Mars/Olympus",
        "recall_max_tokens": -1,
        "unknown": 1,
    }
    with caplog.at_level(logging.WARNING, "retrieval.settings"):
        recall, retain = RecallSettings().with_overrides(stored), RetainSettings()
        assert recall == dataclasses.replace(RecallSettings(), recall_budget_fixed_low=70)
        kept = {"a": {"retain_mission": "m"}}
        assert retain.with_overrides(stored) == dataclasses.replace(retain, retain_strategies=kept)
        assert RecallSettings().with_overrides(stored) == recall
    assert sum("fusion" in line for line in caplog.messages) == 1  # said once
    shown = bankconfig.resolved(stored, RecallSettings(), RetainSettings())
    assert shown["recall_budget_fixed_low"] == 70
    assert shown["fusion"] == "rrf"
    assert "recall_max_tokens" not in shown


def test_one_timezone_for_recalls_and_retains() -> None:
    settings = parse({}, {"FOURFOLD_TIMEZONE": "europe/berlin"})
    assert settings.recall.timezone == settings.retain.timezone == "Europe/Berlin"
    settings = parse({"recall": {"timezone": "Asia/Tokyo"}}, {})
    assert settings.retain.timezone == "Asia/Tokyo"
    assert Settings().retain.timezone is None
    with pytest.raises(SettingsError, match="IANA"):
        parse({}, {"FOURFOLD_TIMEZONE": "Nowhere"})
