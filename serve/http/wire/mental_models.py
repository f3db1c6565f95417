"""Bodies about mental models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints

from retrieval.mental.trigger import ID, GivenTrigger, TriggerFields
from serve.http.wire.common import Body, not_blank
from serve.http.wire.directives import Label, OwnTags

QUERY_MAX = 20_000

SourceQuery = Annotated[str, Field(min_length=1, max_length=QUERY_MAX), AfterValidator(not_blank)]
MaxTokens = Annotated[int, Field(ge=256, le=8192)]


class MentalModelBody(Body):
    """A document to be kept about a question."""

    id: Annotated[str, StringConstraints(pattern=f"^{ID}$")] | None = None
    """Lower-case letters, digits and hyphens; without one the server gives it one."""
    name: Label
    source_query: SourceQuery
    """The question that the document answers."""
    tags: OwnTags = Field(default_factory=list)
    max_tokens: MaxTokens = 2048
    """Of the document."""
    trigger: GivenTrigger = Field(default_factory=lambda: TriggerFields())

    @property
    def fields(self) -> dict[str, Any]:
        return self.model_dump(exclude={"id"}, mode="json")


class MentalModelPatch(Body):
    """What is given changes."""

    name: Label | None = None
    source_query: SourceQuery | None = None
    tags: OwnTags | None = None
    max_tokens: MaxTokens | None = None
    trigger: GivenTrigger | None = None

    @property
    def changes(self) -> dict[str, Any]:
        return self.model_dump(include=self.model_fields_set, mode="json")


class RefreshBody(Body):
    """How to refresh."""

    mode: Literal["full"] | None = None
    """full: from scratch, whatever the trigger says."""
