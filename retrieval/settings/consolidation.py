"""What can be tuned in a consolidation; retrieval.settings says how settings are written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field

from retrieval.settings import MISSION_LIMIT, PER_BANK, Described, usable
from retrieval.types import TagsMatch

_Limit = Annotated[int, Field(ge=-1, le=2**31 - 1)]


NAMED_SCOPES = ("per_tag", "combined", "all_combinations", "shared")


def _scopes(value: Any) -> Any:
    if value in NAMED_SCOPES if isinstance(value, str) else isinstance(value, list):
        groups = [] if isinstance(value, str) else value
        if all(isinstance(g, list) and all(isinstance(t, str) for t in g) for g in groups):
            return value
    raise ValueError(f"must be one of {', '.join(NAMED_SCOPES)}, or a list of lists of patterns")


_KEYS = {
    "scopes", "observations_mission", "max_observations_per_scope",
    "consolidation_source_facts_max_tokens",
    "consolidation_source_facts_max_tokens_per_observation",
}  # fmt: skip


def _strategy(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """One rule: the scopes that it takes, and what is otherwise for them."""
    if unknown := sorted(set(value) - _KEYS):
        raise ValueError(f"a strategy has no {unknown[0]!r}")
    scopes = value.get("scopes")
    if scopes is not None and not isinstance(scopes, list):
        raise ValueError('"scopes" of a strategy are a list of {tags, tags_match}')
    for scope in scopes or ():
        tags = scope.get("tags") if isinstance(scope, Mapping) else None
        if tags is None and isinstance(scope, Mapping):
            tags = []
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise ValueError("a scope of a strategy has tags, a list of patterns")
        if (scope.get("tags_match") or "any") not in set(TagsMatch):
            raise ValueError(f"tags_match is one of {', '.join(TagsMatch)}")
    mission = value.get("observations_mission")
    if mission is not None and (not isinstance(mission, str) or len(mission) > MISSION_LIMIT):
        raise ValueError(f"observations_mission is a text of at most {MISSION_LIMIT} characters")
    for key in sorted(_KEYS - {"scopes", "observations_mission"}):
        limit = value.get(key)
        whole = isinstance(limit, int) and not isinstance(limit, bool)
        if limit is not None and not (whole and limit >= -1):
            raise ValueError(f"{key} is a whole number from -1")
    return value


def _scope_limit(value: Mapping[str, Any]) -> Mapping[str, Any]:
    globs, limit = value.get("scope"), value.get("limit")
    if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs):
        raise ValueError('a limit needs "scope", a list of patterns')
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < -1:
        raise ValueError('a limit needs "limit", a whole number from -1')
    return value


Strategies: TypeAlias = Annotated[
    Sequence[Annotated[Mapping[str, Any], AfterValidator(_strategy)]], Field(max_length=100)
]


@dataclass(frozen=True, slots=True)
class ConsolidationSettings(Described):
    """Everything a consolidation reads. Immutable; `with_overrides` gives a bank's own copy."""

    enable_observations: Annotated[bool, PER_BANK] = True
    """Make observations out of memories, where there is a language model to do it."""
    enable_auto_consolidation: Annotated[bool, PER_BANK] = True
    """Do so by itself after writes; false: only when asked for."""
    consolidation_debounce_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """Seconds without a write after which it begins, so that a burst is one run."""
    consolidation_debounce_max_s: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """Seconds after which it begins even if writes go on."""
    consolidation_reconcile_interval_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    """How often memories are looked for that wait and that nothing is queued for."""
    consolidation_max_memories_per_round: Annotated[int, Field(ge=0, le=100_000), PER_BANK] = 100
    """Most memories of one operation; the rest is queued behind it; 0 = all."""
    consolidation_llm_batch_size: Annotated[int, Field(ge=1, le=64), PER_BANK] = 8
    """Memories that one call of a language model is about."""
    consolidation_llm_parallelism: Annotated[int, Field(ge=1, le=64), PER_BANK] = 4
    """Scopes of a bank that are consolidated at once."""
    consolidation_batch_size: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Memories that are read at once."""
    consolidation_max_attempts: Annotated[int, Field(ge=1, le=3)] = 3
    """Questions about the same memories, until an answer can be used; then they are halved."""
    consolidation_recall_budget: Literal["low", "mid", "high"] = "low"
    """How many observations are looked at for each memory: 20, 60 or 200 of each arm."""
    consolidation_recall_max_tokens: Annotated[int, Field(ge=1, le=100_000)] = 1024
    """Tokens of the observations that are shown for each memory."""
    consolidation_source_facts_max_tokens: Annotated[_Limit, PER_BANK] = 4096
    """Tokens of the memories that shown observations were made from; -1 = no limit."""
    consolidation_source_facts_max_tokens_per_observation: Annotated[_Limit, PER_BANK] = 256
    """The same for each observation."""
    consolidation_dedup_threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.97
    """Similarity from which on two observations of a scope may say the same; 1 = never."""
    max_observations_per_scope: Annotated[_Limit, PER_BANK] = -1
    """Most observations of one scope of tags; -1 = no limit."""
    observation_scope_limits: Annotated[
        Annotated[
            Sequence[Annotated[Mapping[str, Any], AfterValidator(_scope_limit)]],
            Field(max_length=100),
        ]
        | None,
        PER_BANK,
    ] = None
    """The same for scopes by the patterns of their tags: {scope: [patterns], limit}."""
    consolidation_strategies: Annotated[Strategies | None, PER_BANK] = None
    """What is otherwise in scopes by their tags; the first that takes a scope counts."""
    default_observation_scopes: Annotated[
        Annotated[Any, AfterValidator(_scopes)] | None, PER_BANK
    ] = None
    """Scopes of memories that have none of their own: per_tag, combined, all_combinations, shared,
    or lists of patterns that pick tags; unset: combined."""
    observations_mission: Annotated[
        Annotated[str, Field(max_length=MISSION_LIMIT)] | None, PER_BANK
    ] = None
    """What observations are to be about, for a language model."""
    enable_observation_history: bool = True
    """Keep what an observation said before."""
    observation_history_max_entries: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Most earlier states of an observation that are kept."""

    def with_overrides(self, overrides: Mapping[str, Any]) -> ConsolidationSettings:
        """These settings with a bank's overrides, as RecallSettings.with_overrides."""
        known = dict(usable(ConsolidationSettings, overrides))
        return dataclasses.replace(self, **known) if known else self
