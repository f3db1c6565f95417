"""Bodies about the knowledge base."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from retrieval.mental.trigger import GivenTrigger, TriggerFields
from serve.http.wire.common import Body
from serve.http.wire.directives import Label, OwnTags
from serve.http.wire.mental_models import MaxTokens, SourceQuery

NodeId = Annotated[str, Field(min_length=1, max_length=200)]


class FolderBody(Body):
    """A folder."""

    name: Label
    parent_id: NodeId | None = None
    """A folder; none: the root."""


class PageBody(Body):
    """A page: a mental model in a folder."""

    name: Label
    source_query: SourceQuery
    parent_id: NodeId | None = None
    tags: OwnTags = Field(default_factory=list)
    max_tokens: MaxTokens = 4096
    trigger: GivenTrigger = Field(default_factory=lambda: TriggerFields())
    """What differs from the bank's default for pages."""

    @property
    def fields(self) -> dict[str, Any]:
        return self.model_dump(exclude={"parent_id"}, mode="json")


class NodePatch(BaseModel):
    """What is given changes; `parent_id` null is the root, other nulls count as not given."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    name: Label | None = None
    parent_id: NodeId | None = None
    source_query: SourceQuery | None = None
    tags: OwnTags | None = None
    max_tokens: MaxTokens | None = None
    trigger: GivenTrigger | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {k: v for k, v in data.items() if v is not None or k == "parent_id"}
        return data

    @property
    def changes(self) -> dict[str, Any]:
        return self.model_dump(include=self.model_fields_set, mode="json")
