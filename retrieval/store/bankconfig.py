"""A bank's own settings: which there are, and what each may hold.

Keys come in field form (`recall_budget_min`) or as environment names
(`HINDSIGHT_API_RECALL_BUDGET_MIN`) and are stored in field form.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from retrieval.errors import InvalidInput
from retrieval.settings import RecallSettings, RetainSettings

Check: TypeAlias = Callable[[Any], str | None]
"""What a value must be, if it is not that; None if it is."""

_PREFIXES = ("HINDSIGHT_API_", "FOURFOLD_")


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "a string"


def _whole(low: int, high: int | None = None) -> Check:
    wanted = f"a whole number from {low}" + ("" if high is None else f" to {high}")

    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return wanted
        return None if value >= low and (high is None or value <= high) else wanted

    return check


def _ratio(value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and math.isfinite(value) and value > 0 else "a positive number"


def _one_of(*names: str) -> Check:
    return lambda value: None if value in names else "one of " + ", ".join(names)


def _maybe(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _strings(value: Any) -> str | None:
    good = isinstance(value, list) and all(isinstance(v, str) for v in value)
    return None if good else "a list of strings"


def _map(value: Any) -> str | None:
    return None if isinstance(value, dict) else "an object"


def _maps(value: Any) -> str | None:
    good = isinstance(value, dict) and all(isinstance(v, dict) for v in value.values())
    return None if good else "an object of objects"


def _anything(value: Any) -> str | None:
    return None if isinstance(value, dict | list) else "an object or a list"


_POSITIVE = _whole(1)
_LIMIT = _whole(-1)
_TRAIT = _whole(1, 5)
MODES = ("concise", "verbose", "custom", "verbatim", "chunks")

CHECKS: Mapping[str, Check] = {
    "mcp_enabled_tools": _strings,
    "audit_log_enabled": _flag,
    "memory_defense": _map,
    "store_document_text": _flag,
    "retain_extraction_mode": _one_of(*MODES),
    "retain_chunk_size": _POSITIVE,
    "retain_structured_chunk_size": _POSITIVE,
    "retain_mission": _text,
    "retain_custom_instructions": _text,
    "retain_default_strategy": _text,
    "retain_strategies": _maps,
    "retain_chunk_batch_size": _POSITIVE,
    "entity_labels": _anything,
    "entities_allow_free_form": _flag,
    "enable_text_search": _flag,
    "enable_temporal_retrieval": _flag,
    "enable_graph_retrieval": _flag,
    "enable_reranking": _flag,
    "enable_observations": _flag,
    "enable_auto_consolidation": _flag,
    "consolidation_llm_batch_size": _POSITIVE,
    "consolidation_llm_parallelism": _POSITIVE,
    "consolidation_max_memories_per_round": _POSITIVE,
    "consolidation_source_facts_max_tokens": _LIMIT,
    "consolidation_source_facts_max_tokens_per_observation": _LIMIT,
    "consolidation_strategies": _anything,
    "default_observation_scopes": _anything,
    "observations_mission": _text,
    "max_observations_per_scope": _LIMIT,
    "observation_scope_limits": _anything,
    "mental_model_min_refresh_interval_seconds": _whole(0),
    "reflect_mission": _text,
    "reflect_source_facts_max_tokens": _LIMIT,
    "reflect_default_options": _map,
    "recall_include_chunks": _flag,
    "recall_max_tokens": _POSITIVE,
    "recall_chunks_max_tokens": _POSITIVE,
    "recall_prefer_observations": _flag,
    "recall_budget_function": _one_of("fixed", "adaptive"),
    "recall_budget_fixed_low": _POSITIVE,
    "recall_budget_fixed_mid": _POSITIVE,
    "recall_budget_fixed_high": _POSITIVE,
    "recall_budget_adaptive_low": _ratio,
    "recall_budget_adaptive_mid": _ratio,
    "recall_budget_adaptive_high": _ratio,
    "recall_budget_min": _POSITIVE,
    "recall_budget_max": _POSITIVE,
    "disposition_skepticism": _TRAIT,
    "disposition_literalism": _TRAIT,
    "disposition_empathy": _TRAIT,
    # Our own
    "default_tags_match": _one_of("any", "any_strict"),
    "fusion": _one_of("rrf", "convex"),
    "graph_hub_damping": _flag,
    "rerank_graph_paths": _flag,
    "graph_quota": _whole(0, 10),
    "hemisphere": _one_of("north", "south"),
    "fiscal_year_start_month": _whole(1, 12),
    "temporal_day_first": _maybe(_flag),
    "event_windows": _flag,
    "retain_recognise_names": _flag,
    "retain_date_text": _flag,
    "text_search_language": _text,
    "text_search_segmenter": _one_of("bigram", "jieba"),
}

ANALYSIS = frozenset({"text_search_language", "text_search_segmenter"})
"""Settings that the stored postings depend on: fixed once a bank holds memories."""

TRAITS = ("skepticism", "literalism", "empathy")


def field_name(key: str) -> str:
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            return key.removeprefix(prefix).lower()
    return key


def checked(updates: Mapping[str, Any]) -> dict[str, Any]:
    """The updates in field form. InvalidInput names the first key that cannot be set so.

    A null value stays: it takes the override away.
    """
    found: dict[str, Any] = {}
    for key, value in updates.items():
        name = field_name(key)
        check = CHECKS.get(name)
        if check is None:
            raise InvalidInput(f"{key!r} cannot be set for a bank", key)
        if value is not None and (wanted := check(value)) is not None:
            raise InvalidInput(f"{key} must be {wanted}", key)
        found[name] = value
    return found


def agree(config: Mapping[str, Any]) -> None:
    """InvalidInput unless the overrides fit each other."""
    defaults = RecallSettings()
    low = config.get("recall_budget_min", defaults.recall_budget_min)
    high = config.get("recall_budget_max", defaults.recall_budget_max)
    if low > high:
        raise InvalidInput(
            f"recall_budget_min ({low}) must not exceed recall_budget_max ({high})",
            "recall_budget_min",
        )


def resolved(
    overrides: Mapping[str, Any], recall: RecallSettings, retain: RetainSettings
) -> dict[str, Any]:
    """Every bank setting that has a value: the deployment's, then the bank's own."""
    values = {**dataclasses.asdict(recall), **dataclasses.asdict(retain)}
    known = {name: values[name] for name in CHECKS if values.get(name) is not None}
    return {**known, **{k: v for k, v in overrides.items() if k in CHECKS}}
