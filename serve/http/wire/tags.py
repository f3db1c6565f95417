"""Tag filters: groups as JSON, and the query parameters that say which memories count."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import Depends, Query
from fastapi.exceptions import RequestValidationError
from pydantic import Field

from retrieval.store.edge import clean
from retrieval.store.tags import TagFilter
from retrieval.types import TagAll, TagAny, TagGroup, TagLeaf, TagNot, TagsMatch

MAX_DEPTH = 16
MAX_GROUPS = 256
"""Groups of all kinds in one `tag_groups`: each is a pass over the bank's tags."""
MAX_TAGS = 1_000
"""Tags in one filter."""
Tags = Annotated[list[str], Field(max_length=MAX_TAGS, fail_fast=True)]
TagList = Annotated[list[str] | None, Query(max_length=MAX_TAGS)]


def tag_groups(value: Any) -> tuple[TagGroup, ...]:
    """Tag groups from their JSON form. ValueError with a sentence if they are none, or too many."""
    if not isinstance(value, list):
        raise ValueError("tag_groups is a JSON list of tag groups")
    reader = _Reader()
    return tuple(reader.group(group, 0) for group in value)


class _Reader:
    """Reads groups, and counts them while it does."""

    def __init__(self) -> None:
        self._groups = self._tags = 0

    def group(self, value: Any, depth: int) -> TagGroup:
        self._groups += 1
        if self._groups > MAX_GROUPS:
            raise ValueError(f"there may be {MAX_GROUPS} tag groups at most, nested ones included")
        if depth > MAX_DEPTH:
            raise ValueError(f"tag groups may be nested {MAX_DEPTH} deep at most")
        if not isinstance(value, dict):
            raise ValueError("a tag group is an object with `tags`, `and`, `or` or `not`")
        if "tags" in value:
            return self._leaf(value)
        if "not" in value:
            return TagNot(self.group(value["not"], depth + 1))
        for key, kind in (("and", TagAll), ("or", TagAny)):
            if key in value:
                groups = value[key]
                if not isinstance(groups, list) or not groups:
                    raise ValueError(f"`{key}` of a tag group must be a non-empty list of groups")
                return kind(tuple(self.group(group, depth + 1) for group in groups))
        raise ValueError("a tag group is an object with `tags`, `and`, `or` or `not`")

    def _leaf(self, value: dict[str, Any]) -> TagLeaf:
        tags = value["tags"]
        if not isinstance(tags, list):
            raise ValueError("`tags` of a tag group must be a list of texts")
        self._tags += len(tags)
        if self._tags > MAX_TAGS:
            raise ValueError(f"tag groups may name {MAX_TAGS} tags at most, all together")
        if not all(isinstance(tag, str) for tag in tags):
            raise ValueError("`tags` of a tag group must be a list of texts")
        if value.get("resolve") not in (None, "exact", "fuzzy"):
            raise ValueError("`resolve` of a tag group is exact or fuzzy")
        try:
            match = TagsMatch(value.get("match") or TagsMatch.ANY_STRICT)
        except ValueError:
            raise ValueError(f"`match` of a tag group is one of {', '.join(TagsMatch)}") from None
        return TagLeaf(tuple(clean(tag) for tag in tags), match)


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
