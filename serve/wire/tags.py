"""Tag filters: groups as JSON, and the query parameters that say which memories count."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import Depends, Query
from fastapi.exceptions import RequestValidationError

from retrieval.store.edge import clean
from retrieval.store.tags import TagFilter
from retrieval.types import TagAll, TagAny, TagGroup, TagLeaf, TagNot, TagsMatch

MAX_TAG_GROUP_DEPTH = 16
TagList = Annotated[list[str] | None, Query()]


def tag_group(value: Any, depth: int = 0) -> TagGroup:
    """A tag group from its JSON form. ValueError with a sentence if it is none."""
    if depth > MAX_TAG_GROUP_DEPTH:
        raise ValueError(f"tag groups may be nested {MAX_TAG_GROUP_DEPTH} deep at most")
    if not isinstance(value, dict):
        raise ValueError("a tag group is an object with `tags`, `and`, `or` or `not`")
    if "tags" in value:
        tags = value["tags"]
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise ValueError("`tags` of a tag group must be a list of texts")
        if value.get("resolve") not in (None, "exact", "fuzzy"):
            raise ValueError("`resolve` of a tag group is exact or fuzzy")
        try:
            match = TagsMatch(value.get("match") or TagsMatch.ANY_STRICT)
        except ValueError:
            raise ValueError(f"`match` of a tag group is one of {', '.join(TagsMatch)}") from None
        return TagLeaf(tuple(clean(tag) for tag in tags), match)
    if "not" in value:
        return TagNot(tag_group(value["not"], depth + 1))
    for key, kind in (("and", TagAll), ("or", TagAny)):
        if key in value:
            groups = value[key]
            if not isinstance(groups, list) or not groups:
                raise ValueError(f"`{key}` of a tag group must be a non-empty list of groups")
            return kind(tuple(tag_group(group, depth + 1) for group in groups))
    raise ValueError("a tag group is an object with `tags`, `and`, `or` or `not`")


def _groups(text: str) -> tuple[TagGroup, ...]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"tag_groups is no JSON: {error}") from None
    if not isinstance(found, list):
        raise ValueError("tag_groups is a JSON list of tag groups")
    return tuple(tag_group(group) for group in found)


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
