"""The body of a recall and its translation into the engine's query."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from retrieval.store.edge import as_ids, clean
from retrieval.store.tag_groups import tag_groups
from retrieval.text.folding import fold
from retrieval.types import (
    Budget,
    FactType,
    Filters,
    Include,
    MinScores,
    RecallQuery,
    TagsMatch,
    TemporalMode,
    Window,
)
from serve.http.wire.common import Body, Limit, LocalMoment, Natural, Zone
from serve.http.wire.metadata import Predicates
from serve.http.wire.tags import Tags

_LETTER = re.compile(r"[^\W_]")


Score = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
"""Far beyond any score, and well within the float32 that scores are compared in."""


class EntityBudget(Body):
    max_tokens: Natural = 500


class ChunkBudget(Body):
    max_tokens: Natural = 8192


class SourceFactBudget(Body):
    max_tokens: Limit = 4096
    max_tokens_per_observation: Limit = -1


class IncludeBody(BaseModel):
    """Extras of a recall. Here null switches an extra off."""

    model_config = ConfigDict(frozen=True)

    entities: EntityBudget | None = EntityBudget()
    chunks: ChunkBudget | None = None
    source_facts: SourceFactBudget | None = None


class MinScoresBody(Body):
    semantic: Score | None = None
    keyword: Score | None = None
    reranker: Score | None = None
    final: Score | None = None


class WindowBody(Body):
    """Without an offset a side is read in the timezone of the recall, else the bank's, else UTC."""

    start: LocalMoment | None = None
    end: LocalMoment | None = None

    @model_validator(mode="after")
    def _ordered(self) -> WindowBody:
        try:
            Window(self.start, self.end)
        except ValueError:
            raise ValueError("end is before start") from None
        return self


MAX_QUERY_CHARACTERS = 20_000
"""Refused before anything reads the text; the limit in tokens is a setting, and lower."""


def checked_query(value: str) -> str:
    # Compatibility signs ("㎏") are letters once folded; a few tell.
    if not _LETTER.search(value) and not _LETTER.search(fold(value[:1_000])):
        raise ValueError("the query must contain at least one letter or digit")
    return value


def _known_types(value: list[str]) -> list[str]:
    for name in value:
        if name != "opinion":
            FactType.of(name)
    return value


def checked_groups(value: list[Any]) -> list[Any]:
    tag_groups(value)
    return value


class RecallBody(Body):
    query: Annotated[str, Field(max_length=MAX_QUERY_CHARACTERS), AfterValidator(checked_query)]
    types: (
        Annotated[list[str], Field(max_length=64, fail_fast=True), AfterValidator(_known_types)]
        | None
    ) = None
    prefer_observations: bool | None = None
    budget: Budget = Budget.MID
    max_tokens: Natural = 4096
    """0 asks for no memories: for chunks or entities alone."""
    explain: bool = False
    """An account with every result of why it stands where it does; a trace brings it too."""
    trace: bool = False
    query_timestamp: str | None = None
    """The time that words such as yesterday are relative to; absent: now. Its offset says whose
    days are meant."""
    timezone: Zone | None = None
    """IANA name, such as Europe/Berlin: where times without an offset are read; absent: the
    bank's."""
    include: IncludeBody = IncludeBody()
    tags: Tags | None = None
    tags_match: TagsMatch = TagsMatch.ANY
    tag_groups: Annotated[list[Any], AfterValidator(checked_groups)] | None = None
    min_scores: MinScoresBody = MinScoresBody()
    temporal_window: WindowBody | None = None
    temporal_mode: TemporalMode = TemporalMode.RANK
    """filter keeps only memories whose time lies in the window; rank (default) prefers them."""
    as_of: LocalMoment | None = None
    """Only memories mentioned at this time or before."""
    metadata_filter: Predicates | None = None
    """Key to {eq | in | gte | gt | lte | lt | exists}, or to a value, which means eq."""
    exclude_ids: Annotated[list[str], Field(max_length=10_000, fail_fast=True)] | None = None
    """Ids of memories to leave out."""
    limit: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """At most this many results, in addition to the token budget."""
    dedupe: Annotated[float, Field(gt=0, le=1)] | None = None
    """Merge results whose vectors are at least so similar, and observations of a single memory with
    it."""

    @model_validator(mode="after")
    def _exclusive(self) -> RecallBody:
        if self.tags is not None and self.tag_groups is not None:
            raise ValueError("give tags or tag_groups, not both")
        return self

    @property
    def nothing_asked(self) -> bool:
        """True where only a retired fact type was asked for: the answer is empty."""
        return bool(self.types) and set(self.types or ()) == {"opinion"}

    def to_query(
        self, tenant: str, bank_id: str, *, now: datetime, deadline: float | None
    ) -> RecallQuery:
        """The query for the engine, as of `now`: the clock's where the body brings no time."""
        chosen = [FactType.of(name) for name in self.types or () if name != "opinion"]
        entities, chunks, facts = (
            self.include.entities,
            self.include.chunks,
            self.include.source_facts,
        )
        window = self.temporal_window
        span = (
            Window(window.start, window.end)
            if window is not None and (window.start is not None or window.end is not None)
            else None
        )
        filtering = span is not None and self.temporal_mode is TemporalMode.FILTER
        return RecallQuery(
            tenant=tenant,
            bank_id=bank_id,
            text=self.query,
            now=now,
            filters=Filters(
                types=tuple(dict.fromkeys(chosen)) or tuple(FactType),
                tags=None if self.tags is None else tuple(map(clean, self.tags)),
                tags_match=self.tags_match,
                tag_groups=None if self.tag_groups is None else tag_groups(self.tag_groups),
                metadata=self.metadata_filter,
                as_of=self.as_of,
                window=span if filtering else None,
                exclude_ids=as_ids(self.exclude_ids or (), "exclude_ids"),
            ),
            budget=self.budget,
            max_tokens=self.max_tokens,
            prefer_observations=self.prefer_observations,
            include=Include(
                entities=None if entities is None else entities.max_tokens,
                chunks=None if chunks is None else chunks.max_tokens,
                source_facts=None if facts is None else facts.max_tokens,
                source_facts_per_observation=(
                    -1 if facts is None else facts.max_tokens_per_observation
                ),
            ),
            min_scores=MinScores(
                semantic=self.min_scores.semantic,
                keyword=self.min_scores.keyword,
                reranker=self.min_scores.reranker,
                final=self.min_scores.final,
            ),
            window=span,
            temporal_mode=self.temporal_mode,
            limit=self.limit,
            dedupe=self.dedupe,
            explain=self.explain,
            trace=self.trace,
            deadline=deadline,
            timezone=self.timezone,
            from_clock=self.query_timestamp is None,
        )
