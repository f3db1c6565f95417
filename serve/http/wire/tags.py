"""Tag filters: groups as JSON, and the query parameters that say which memories count."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import Depends, Query
from fastapi.exceptions import RequestValidationError
from pydantic import Field

from retrieval.store.tag_groups import MAX_TAGS, tag_groups
from retrieval.store.tags import TagFilter
from retrieval.types import TagGroup, TagsMatch

Tags = Annotated[list[str], Field(max_length=MAX_TAGS, fail_fast=True)]
TagList = Annotated[list[str] | None, Query(max_length=MAX_TAGS)]


def _groups(text: str) -> tuple[TagGroup, ...]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"tag_groups is not JSON: {error}") from None
    return tag_groups(found)


def _counted(
    tags: TagList = None,
    tags_match: TagsMatch = TagsMatch.ANY,
    tag_groups: Annotated[
        str | None, Query(description="JSON list of tag groups, as in a recall; not with `tags`")
    ] = None,
) -> TagFilter:
    try:
        if tags is not None and tag_groups is not None:
            raise ValueError("give tags or tag_groups, not both")
        return TagFilter(tags, tags_match, _groups(tag_groups) if tag_groups is not None else ())
    except ValueError as error:
        problem = {"loc": ("query", "tag_groups"), "msg": str(error), "type": "value_error"}
        raise RequestValidationError([problem]) from None


Counted = Annotated[TagFilter, Depends(_counted)]
"""The memories that count, by the query parameters `tags`, `tags_match` and `tag_groups`."""
