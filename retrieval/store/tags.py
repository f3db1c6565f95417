"""Tags: the filter as SQL, and the list of those in use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retrieval.errors import InvalidInput
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.edge import listing, page
from retrieval.text.language import fold
from retrieval.types import TagAll, TagGroup, TagLeaf, TagNot, TagsMatch

Bind = Callable[[Any], str]
"""Adds a parameter to a statement; answers its placeholder."""


TAGGED: Mapping[str, Callable[[str], str]] = {
    "any": lambda tags: f"tags && {tags}",
    "all": lambda tags: f"tags @> {tags}",
    "exact": lambda tags: f"tags @> {tags} and tags <@ {tags}",
}
"""How rows are listed by their tags, as SQL, given the placeholder of those that are asked for."""


@dataclass(frozen=True, slots=True)
class TagFilter:
    """Which memories count: those whose tags match, and satisfy every group."""

    tags: Sequence[str] | None = None
    match: TagsMatch = TagsMatch.ANY
    groups: Sequence[TagGroup] = ()


EVERYTHING = TagFilter()


def condition(column: str, tags: Sequence[str] | None, match: str, bind: Bind) -> str | None:
    """The SQL test for a tag filter; None if it lets everything pass."""
    try:
        mode = TagsMatch(match)
    except ValueError:
        names = ", ".join(TagsMatch)
        raise InvalidInput(f"tags_match must be one of {names}", "tags_match") from None
    if not tags and mode is not TagsMatch.EXACT:
        return None
    return _leaf(column, tags or (), mode, bind)


def visible(column: str, wanted: TagFilter, bind: Bind) -> str | None:
    """The SQL test for a tag filter with groups; None if everything passes."""
    tests = [condition(column, wanted.tags, wanted.match, bind)]
    tests += [_group(column, group, bind) for group in wanted.groups]
    return " and ".join(test for test in tests if test is not None) or None


def _leaf(column: str, tags: Sequence[str], mode: TagsMatch, bind: Bind) -> str:
    """The rule of the five modes; without tags only EXACT and ANY mean untagged."""
    wanted = f"{bind(list(tags))}::text[]"
    return {
        TagsMatch.ANY: f"({column} = '{{}}' or {column} && {wanted})",
        TagsMatch.ANY_STRICT: f"{column} && {wanted}",
        TagsMatch.ALL: f"({column} = '{{}}' or {column} @> {wanted})",
        TagsMatch.ALL_STRICT: f"({column} <> '{{}}' and {column} @> {wanted})",
        TagsMatch.EXACT: f"({column} @> {wanted} and {column} <@ {wanted})",
    }[mode]


def _group(column: str, group: TagGroup, bind: Bind) -> str:
    if isinstance(group, TagLeaf):
        return _leaf(column, group.tags, group.match, bind)
    if isinstance(group, TagNot):
        return f"not ({_group(column, group.group, bind)})"
    between = " and " if isinstance(group, TagAll) else " or "
    return f"({between.join(_group(column, part, bind) for part in group.groups)})"


_SOURCES = {
    "memories": ("memory_units", "ordinal is not null"),
    "mental_models": ("mental_models", "true"),
}


async def list_tags(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    q: str | None = None,
    source: str = "memories",
    limit: int = 100,
    offset: int = 0,
) -> dict[str, Any]:
    """{items: [{tag, count}], total, limit, offset} of the live memories, or of the mental models,
    most used first.

    `q` matches whole tags, folded as recall folds words; `*` stands for anything.
    """
    limit, offset = page(limit, offset)
    if source not in _SOURCES:
        raise InvalidInput("source must be memories or mental_models", "source")

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        table, live = _SOURCES[source]
        found = await connection.fetch(
            f"select tag, n from (select t as tag, count(*) as n from {table}, unnest(tags) t"
            f"  where bank = $1 and {live} group by t) used"
            ' order by n desc, tag collate "C"',
            bank,
        )
        if q:
            found = await asyncio.to_thread(_matching, found, q)
        total, found = len(found), found[offset : offset + limit]
        items = [{"tag": row["tag"], "count": row["n"]} for row in found]
        return listing("items", items, total, limit, offset)

    return await read(pool, work)


def _matching(rows: Sequence[Mapping[str, Any]], pattern: str) -> list[Mapping[str, Any]]:
    """The rows whose `tag` is like the pattern, in which `*` stands for anything."""
    first, *others = fold(pattern).split("*")
    return [row for row in rows if _like(fold(row["tag"]), first, others)]


def _like(text: str, first: str, others: Sequence[str]) -> bool:
    """Does the text begin with `first`, end with the last of `others`, and have the rest between
    them, in order? Without `others` it is `first`. Linear."""
    if not others:
        return text == first
    *between, last = others
    end = len(text) - len(last)
    if not text.startswith(first) or end < len(first) or not text.endswith(last):
        return False
    place = len(first)
    for part in between:
        found = text.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True
