"""Bodies about erasures."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from pydantic import AfterValidator, Field, model_validator

from retrieval.lifecycle.erasure.selection import Selectors
from serve.http.wire.common import Body, Tag, not_blank

MOST = 10_000
"""Ids of one kind in one request."""


def _stored(value: dict[str, Any]) -> dict[str, Any]:
    if any(isinstance(one, dict | list) or one is None for one in value.values()):
        raise ValueError("a value must be a text, a number, true or false")
    return value


Ids = Annotated[list[UUID], Field(min_length=1, max_length=MOST, fail_fast=True)]
Text = Annotated[str, Field(min_length=1, max_length=1_024)]


class EraseBody(Body):
    """What is to be erased: everything that satisfies all of the selectors, of which one at least
    must be given."""

    dry_run: bool
    """true: only say what would go."""
    document_ids: (
        Annotated[list[Text], Field(min_length=1, max_length=MOST, fail_fast=True)] | None
    ) = None
    memory_ids: Ids | None = None
    tags: Annotated[list[Tag], Field(min_length=1, max_length=1_000, fail_fast=True)] | None = None
    tags_match: Literal["any", "all", "any_strict", "all_strict", "exact"] = "any"
    """any and all mean the strict ones: what has no tags is never erased by tags."""
    entity_ids: Ids | None = None
    metadata: (
        Annotated[dict[Text, Any], Field(min_length=1, max_length=64), AfterValidator(_stored)]
        | None
    ) = None
    """Values that the metadata must have."""
    text_contains: (
        Annotated[str, Field(min_length=1, max_length=1_000), AfterValidator(not_blank)] | None
    ) = None
    """In whatever is stored of a memory, the chunk it was made from included."""
    observations: Literal["delete", "keep_supported"] = "delete"
    """Observations made from what goes: all go, or those stay that have another source."""

    @model_validator(mode="after")
    def _something(self) -> EraseBody:
        if not self.model_fields_set & set(_SELECTORS):
            raise ValueError(f"give at least one of {', '.join(_SELECTORS)}")
        return self

    @property
    def selectors(self) -> Selectors:
        return Selectors(
            document_ids=self.document_ids or [],
            memory_ids=[str(id) for id in self.memory_ids or ()],
            tags=self.tags or [],
            tags_match=self.tags_match,
            entity_ids=[str(id) for id in self.entity_ids or ()],
            metadata={
                key: value if isinstance(value, str) else orjson.dumps(value).decode()
                for key, value in (self.metadata or {}).items()
            },
            text_contains=self.text_contains,
        )


_SELECTORS = (
    "document_ids", "memory_ids", "tags", "entity_ids", "metadata", "text_contains",
)  # fmt: skip


class PurgeBody(Body):
    """Which invalidated memories go for good."""

    older_than_days: Annotated[float, Field(ge=0, le=36_500, allow_inf_nan=False)] = 0.0
    """Invalidated at least so long ago."""
