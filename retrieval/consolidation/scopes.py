"""Under which scopes memories are consolidated, and what is otherwise in some of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from retrieval.ingest.scopes import expanded, scope_key
from retrieval.settings.consolidation import ConsolidationSettings
from retrieval.types import TagsMatch


@dataclass(frozen=True, slots=True)
class ScopeSettings:
    """The settings that hold in one scope."""

    base: ConsolidationSettings
    mission: str | None
    max_observations_per_scope: int

    @property
    def enable_observation_history(self) -> bool:
        return self.base.enable_observation_history

    @property
    def observation_history_max_entries(self) -> int:
        return self.base.observation_history_max_entries


def of_memory(scopes: Any, tags: Collection[str], default: Any) -> list[frozenset[str]]:
    """The scopes of a memory, each once. `default` for memories that say nothing: a name, or lists
    of patterns, each of which picks those of the memory's tags that fit it; what picks none is no
    scope, and where none does the memory's tags are one.

    InvalidInput where all combinations of its tags would be too many.
    """
    if scopes is None and isinstance(default, list):
        picked = [frozenset(t for t in tags if fits(t, group)) for group in default]
        found = {group for group, globs in zip(picked, default, strict=True) if group or not globs}
        return sorted(found or {frozenset(tags)}, key=scope_key)
    return expanded(default if scopes is None else scopes, tags)


def fits(tag: str, globs: Iterable[str]) -> bool:
    """Whether a tag fits one of the patterns, in which * and ? stand for any characters."""
    return any(fnmatchcase(tag, glob) for glob in globs)


def takes(rule: Mapping[str, Any], scope: Collection[str]) -> bool:
    """Whether a rule of a strategy, {tags: [patterns], tags_match}, takes a scope. One without
    patterns is not finished, and takes none."""
    globs = list(rule.get("tags") or ())
    if not globs:
        return False
    match = TagsMatch(rule.get("tags_match") or TagsMatch.ANY)
    every = all(any(fnmatchcase(tag, glob) for tag in scope) for glob in globs)
    some = any(fits(tag, globs) for tag in scope)
    covered = all(fits(tag, globs) for tag in scope)
    return {
        TagsMatch.ANY: not scope or some,
        TagsMatch.ANY_STRICT: some,
        TagsMatch.ALL: not scope or every,
        TagsMatch.ALL_STRICT: bool(scope) and every,
        TagsMatch.EXACT: every and covered,
    }[match]


def strategy_of(
    strategies: Sequence[Mapping[str, Any]] | None, scope: Collection[str]
) -> tuple[int, int] | None:
    """(place of the strategy, place of its rule) of the first that takes the scope."""
    for i, strategy in enumerate(strategies or ()):
        for j, rule in enumerate(strategy.get("scopes") or ()):
            if takes(rule, scope):
                return i, j
    return None


def settings_of(settings: ConsolidationSettings, scope: Collection[str]) -> ScopeSettings:
    """What holds in one scope: the first strategy that takes it over the bank's settings, and the
    first limit whose patterns cover it."""
    own: Mapping[str, Any] = {}
    if (found := strategy_of(settings.consolidation_strategies, scope)) is not None:
        own = settings.consolidation_strategies[found[0]]  # type: ignore[index]
    limit = settings.max_observations_per_scope
    for each in settings.observation_scope_limits or ():
        globs = each["scope"]
        if takes({"tags": globs, "tags_match": "exact"}, scope):
            limit = each["limit"]
            break
    if own.get("max_observations_per_scope") is not None:
        limit = own["max_observations_per_scope"]
    mission = own.get("observations_mission") or settings.observations_mission
    changed = {
        name: own[name]
        for name in (
            "consolidation_source_facts_max_tokens",
            "consolidation_source_facts_max_tokens_per_observation",
        )
        if own.get(name) is not None
    }
    base = replace(settings, observations_mission=mission, **changed)
    return ScopeSettings(base, mission, limit)
