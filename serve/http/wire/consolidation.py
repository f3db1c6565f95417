"""Bodies of the endpoints about consolidation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from retrieval.types import TagsMatch
from serve.http.wire.common import Body, Limit, Tag

PATTERNS = 200


class ConsolidateBody(Body):
    """What to consolidate; nothing given is everything."""

    observation_scopes: Annotated[list[list[Tag]], Field(max_length=100)] | None = None
    """Only memories that have all tags of one of these."""


class PreviewBody(ConsolidateBody):
    """What to estimate. `run` asks about the first batch, which costs a call."""

    run: bool = False


class ScopePattern(Body):
    """Tags by pattern (* and ?), and how they match those of a scope."""

    tags: Annotated[list[Tag], Field(max_length=64, default_factory=list)]
    tags_match: TagsMatch = TagsMatch.ANY


class StrategyBody(Body):
    """One strategy: the scopes that it takes, and what is otherwise for them."""

    scopes: Annotated[list[ScopePattern], Field(max_length=64)] | None = None
    observations_mission: str | None = None
    max_observations_per_scope: Limit | None = None
    consolidation_source_facts_max_tokens: Limit | None = None
    consolidation_source_facts_max_tokens_per_observation: Limit | None = None


class StrategiesBody(Body):
    """Strategies to try on the scopes that there are."""

    strategies: Annotated[list[StrategyBody], Field(max_length=100)]
    sample_limit: Annotated[int, Field(ge=0, le=50)] = 5

    @model_validator(mode="after")
    def _countable(self) -> StrategiesBody:
        rules = [rule for strategy in self.strategies for rule in strategy.scopes or ()]
        if sum(len(rule.tags) for rule in rules) > PATTERNS:
            raise ValueError(f"strategies: at most {PATTERNS} patterns in all")
        return self

    @property
    def drafts(self) -> list[dict[str, Any]]:
        return [strategy.model_dump(exclude_none=True) for strategy in self.strategies]
