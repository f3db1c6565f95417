"""Tag groups from their JSON form, within bounds."""

from __future__ import annotations

from typing import Any

from retrieval.store.edge import clean
from retrieval.types import TagAll, TagAny, TagGroup, TagLeaf, TagNot, TagsMatch

MAX_DEPTH = 16
MAX_GROUPS = 256
"""Groups of all kinds in one `tag_groups`: each is a pass over the bank's tags."""
MAX_TAGS = 1_000
"""Tags in one filter."""


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
