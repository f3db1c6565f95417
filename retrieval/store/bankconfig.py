"""A bank's own settings: which there are, and what each may hold.

Keys come in field form (`recall_budget_min`) or as environment names
(`HINDSIGHT_API_RECALL_BUDGET_MIN`) and are stored in field form. Types and bounds are those of the
fields marked PER_BANK in retrieval/settings/__init__.py, and of `Accepted` below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Protocol

import orjson
from pydantic import ConfigDict, Field

from retrieval.errors import InvalidInput, TooMuch
from retrieval.settings import (
    ANALYSIS,
    PER_BANK,
    RecallSettings,
    ReflectSettings,
    RetainSettings,
    check,
    per_bank,
    value,
)
from retrieval.settings.consolidation import ConsolidationSettings
from retrieval.settings.mental import RefreshInterval
from retrieval.text import language

__all__ = ["ANALYSIS", "CONFIG_BYTES", "TRAITS", "agree", "checked", "field_name", "names"]

CONFIG_BYTES = 256 * 1024
"""Largest config of a bank, as JSON."""

_PREFIXES = ("HINDSIGHT_API_", "FOURFOLD_")

_Positive = Annotated[int, Field(ge=1, le=1_000_000), PER_BANK]
_Flag = Annotated[bool, PER_BANK]
_Map = Annotated[dict[str, Any], PER_BANK]
_Anything = Annotated[dict[str, Any] | list[Any], PER_BANK]


@dataclass(frozen=True, slots=True)
class Accepted:
    """Settings of parts that are not built here: kept, shown, and read by nobody."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)

    mcp_enabled_tools: Annotated[list[str], PER_BANK]
    """Read where tools are shown and called (serve/mcp)."""
    audit_log_enabled: _Flag
    memory_defense: _Map
    retain_chunk_batch_size: _Positive
    entity_labels: _Anything
    entities_allow_free_form: _Flag
    mental_model_min_refresh_interval_seconds: Annotated[RefreshInterval, PER_BANK]
    knowledge_page_default_trigger: _Map


class PerBankSettings(Protocol):
    """A deployment's settings, some of which a bank may set for itself."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def with_overrides(self, overrides: Mapping[str, Any]) -> PerBankSettings: ...


TRAITS = ("skepticism", "literalism", "empathy")


@cache
def names() -> Mapping[str, type[object]]:
    """Every setting that a bank may have, with the class that it is a field of."""
    owners = (
        Accepted,
        ConsolidationSettings,
        ReflectSettings,
        RetainSettings,
        RecallSettings,
    )
    return {name: owner for owner in owners for name in per_bank(owner)}


def field_name(key: str) -> str:
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            return key.removeprefix(prefix).lower()
    return key


def problem(name: str, given: Any) -> str | None:
    """What is wrong with this value of a bank's setting; None if nothing is."""
    if name == "text_search_language" and isinstance(given, str):
        try:
            language.check(given)
        except InvalidInput as error:
            return str(error)
    return check(names()[name], name, given)


def checked(updates: Mapping[str, Any]) -> dict[str, Any]:
    """The updates in field form. InvalidInput names the first key that cannot be set so.

    A null value stays: it takes the override away.
    """
    found: dict[str, Any] = {}
    for key, given in updates.items():
        name = field_name(key)
        if name not in names():
            raise InvalidInput(f"{key[:80]!r} cannot be set for a bank", key[:80])
        if given is None:
            found[name] = None
            continue
        if said := problem(name, given):
            raise InvalidInput(f"{key}: {said}", key)
        found[name] = value(names()[name], name, given)
    return found


def agree(config: Mapping[str, Any]) -> None:
    """InvalidInput unless the overrides fit each other; TooMuch beyond CONFIG_BYTES."""
    defaults = RecallSettings()
    low = config.get("recall_budget_min", defaults.recall_budget_min)
    high = config.get("recall_budget_max", defaults.recall_budget_max)
    if low > high:
        raise InvalidInput(
            f"recall_budget_min ({low}) must not exceed recall_budget_max ({high})",
            "recall_budget_min",
        )
    size = len(orjson.dumps(dict(config)))
    if size > CONFIG_BYTES:
        raise TooMuch(
            f"the config of a bank has at most {CONFIG_BYTES} bytes; this would be {size}",
            "updates",
        )


def resolved(overrides: Mapping[str, Any], *defaults: PerBankSettings) -> dict[str, Any]:
    """Every bank setting that has a value: the deployment's, then the bank's own where valid."""
    values: dict[str, Any] = {}
    for each in reversed(defaults):
        values |= dataclasses.asdict(each.with_overrides(overrides))
    known = {name: values[name] for name in names() if values.get(name) is not None}
    kept = per_bank(Accepted)
    return {**known, **{k: v for k, v in overrides.items() if k in kept and not problem(k, v)}}
