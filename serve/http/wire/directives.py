"""Bodies about directives."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from serve.http.wire.common import Body, Int, Name, Tag, not_blank

CONTENT_MAX = 20_000
TAGS_MAX = 100


def _distinct(value: list[str]) -> list[str]:
    return list(dict.fromkeys(value))


Label = Annotated[Name, AfterValidator(not_blank)]
OwnTags = Annotated[
    list[Tag], Field(max_length=TAGS_MAX, fail_fast=True), AfterValidator(_distinct)
]
"""Tags that something has, each once."""
Content = Annotated[str, Field(max_length=CONTENT_MAX), AfterValidator(not_blank)]


class DirectiveBody(Body):
    """A rule that goes into the answers of a bank."""

    name: Label
    content: Content
    priority: Int = 0
    """Higher ones go first."""
    is_active: bool = True
    tags: OwnTags = Field(default_factory=list)
    """The scope it is for; none: every one."""


class DirectivePatch(Body):
    """What is given changes."""

    name: Label | None = None
    content: Content | None = None
    priority: Int | None = None
    is_active: bool | None = None
    tags: OwnTags | None = None

    @property
    def changes(self) -> dict[str, Any]:
        return self.model_dump(include=self.model_fields_set)
