"""Filters as one mask per recall, shared by every arm and applied before any cut."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from retrieval.bank.resident import ResidentBank
from retrieval.types import (
    NO_TIME,
    Bools,
    Filters,
    Ints,
    Longs,
    TagAll,
    TagGroup,
    TagLeaf,
    TagNot,
    TagsMatch,
    Window,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(moment: datetime) -> int:
    """An aware datetime as int64 microseconds since the epoch, exactly."""
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def bounds(window: Window) -> tuple[int | None, int | None]:
    """A window's sides in microseconds."""
    return (
        None if window.start is None else microseconds(window.start),
        None if window.end is None else microseconds(window.end),
    )


def allowed(bank: ResidentBank, filters: Filters, metadata: Ints | None = None) -> Bools:
    """bool (size,): which ordinals may be candidates at all; `metadata` as in `visible`."""
    return narrowed(bank, filters, visible(bank, filters, metadata))


def narrowed(bank: ResidentBank, filters: Filters, mask: Bools) -> Bools:
    """Of the `visible` ordinals those of the asked fact types that touch the window."""
    columns, mask = bank.columns, mask.copy()
    if len(set(filters.types)) < 3:
        mask &= np.isin(columns.fact_type, [int(t) for t in filters.types])
    if filters.window is not None:
        mask &= overlaps(
            columns.occurred_start,
            columns.occurred_end,
            columns.mentioned_at,
            bounds(filters.window),
        )
    return mask


def visible(bank: ResidentBank, filters: Filters, metadata: Ints | None = None) -> Bools:
    """bool (size,): which ordinals may be shown, whatever kind of memory is asked for.

    `metadata` holds the ordinals that satisfy `filters.metadata` (looked up in the database);
    memories the snapshot does not know yet are ignored. A memory without a mention time passes
    `as_of`: nothing says that it was learned later. `retrieval.visibility` says the same of rows.
    """
    columns = bank.columns
    mask: Bools = bank.live.copy()
    if filters.tags or filters.tags_match is TagsMatch.EXACT:
        mask &= tagged(bank, filters.tags or (), filters.tags_match)
    for group in filters.tag_groups or ():
        mask &= _group(bank, group)
    if filters.as_of is not None:
        limit = microseconds(filters.as_of)
        mask &= (columns.mentioned_at <= limit) | (columns.mentioned_at == NO_TIME)
    if metadata is not None:
        chosen = np.zeros(bank.size, np.bool_)
        chosen[metadata[metadata < bank.size]] = True
        mask &= chosen
    if filters.exclude_ids:
        raw = np.frombuffer(b"".join(filters.exclude_ids), np.uint8).reshape(-1, 16)
        gone = bank.ordinal_of(raw)
        mask[gone[gone >= 0]] = False
    return mask


def overlaps(
    start: Longs, end: Longs, mentioned: Longs, window: tuple[int | None, int | None]
) -> Bools:
    """Which memories touch a window: their event overlaps it, or they were mentioned in it.

    Both sides inclusive; a side that is None is open. Memories without any date do not touch.
    """
    low = NO_TIME + 1 if window[0] is None else window[0]
    high = np.iinfo(np.int64).max if window[1] is None else window[1]

    def inside(column: Longs) -> Bools:
        within: Bools = (column >= low) & (column <= high)
        return within

    spans = (start != NO_TIME) & (end != NO_TIME) & (start <= high) & (end >= low)
    touching: Bools = spans | inside(mentioned) | inside(start) | inside(end)
    return touching


def tagged(bank: ResidentBank, tags: tuple[str, ...], match: TagsMatch) -> Bools:
    """bool (size,): the rule of the five modes for a non-empty tag list; with an empty one
    EXACT means untagged, and so does ANY inside a group (see `_group`)."""
    lists = bank.columns.tags
    held = np.diff(lists.ptr)
    numbers = bank.tag_numbers(sorted(set(tags)))
    known = numbers[numbers >= 0]
    hit = np.isin(lists.values, known)
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(hit)])
    shared = total[lists.ptr[1:]] - total[lists.ptr[:-1]]
    untagged = held == 0
    every = shared == len(numbers)
    rules: dict[TagsMatch, Bools] = {
        TagsMatch.ANY: untagged | (shared > 0),
        TagsMatch.ANY_STRICT: shared > 0,
        TagsMatch.ALL: untagged | every,
        TagsMatch.ALL_STRICT: ~untagged & every,
        TagsMatch.EXACT: every & (held == len(numbers)),
    }
    return rules[match]


def _group(bank: ResidentBank, group: TagGroup) -> Bools:
    if isinstance(group, TagLeaf):
        return tagged(bank, group.tags, group.match)
    if isinstance(group, TagNot):
        return ~_group(bank, group.group)
    parts = [_group(bank, part) for part in group.groups]
    if isinstance(group, TagAll):
        every: Bools = np.logical_and.reduce(parts)
        return every
    some: Bools = np.logical_or.reduce(parts)
    return some
