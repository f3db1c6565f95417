"""Filters as one mask per recall, shared by every arm and applied before any cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

import numpy as np

from retrieval.bank.columns import Columns
from retrieval.bank.resident import ResidentBank
from retrieval.types import (
    DAY_US,
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
    microseconds,
)

_MICROSECOND, _NOTHING = timedelta(microseconds=1), timedelta(0)
_SECOND_US = 1_000_000


class WindowBounds(NamedTuple):
    """A window's sides in microseconds; None is open.

    low, high: as instants. first, last: as the clocks of the window's offset show them, written as
    if they were UTC, which is how a memory that carries only a date is stored.
    """

    low: int | None
    high: int | None
    first: int | None
    last: int | None

    @property
    def local(self) -> bool:
        """Do clocks and instants differ?"""
        return self.first != self.low or self.last != self.high


def bounds(window: Window) -> WindowBounds:
    """A window's sides in microseconds."""
    low, high = (None if s is None else microseconds(s) for s in (window.start, window.end))
    return WindowBounds(low, high, _shown(low, window.start), _shown(high, window.end))


def _shown(instant: int | None, side: datetime | None) -> int | None:
    if instant is None or side is None:
        return None
    return instant + (side.utcoffset() or _NOTHING) // _MICROSECOND


def by_date(start: Longs, end: Longs) -> Bools:
    """Which events carry only dates: they begin with a day (UTC), and end with the same instant, at
    the end of a day or nowhere."""
    whole = (end == NO_TIME) | (end == start) | (end % DAY_US >= DAY_US - _SECOND_US)
    whole |= end % DAY_US == 0
    dated: Bools = whole & (start != NO_TIME) & (start % DAY_US == 0)
    return dated


def allowed(bank: ResidentBank, filters: Filters, metadata: Ints | None = None) -> Bools:
    """bool (size,): which ordinals may be candidates at all; `metadata` as in `visible`."""
    return narrowed(bank, filters, visible(bank, filters, metadata))


def narrowed(bank: ResidentBank, filters: Filters, mask: Bools) -> Bools:
    """Of the `visible` ordinals those of the asked fact types that touch the window."""
    columns, mask = bank.columns, mask.copy()
    if len(set(filters.types)) < 3:
        mask &= np.isin(columns.fact_type, [int(t) for t in filters.types])
    if filters.window is not None:
        mask &= touching(columns, bounds(filters.window))
    return mask


def visible(bank: ResidentBank, filters: Filters, metadata: Ints | None = None) -> Bools:
    """bool (size,): which ordinals may be shown, whatever kind of memory is asked for.

    `metadata` holds the ordinals that satisfy `filters.metadata` (looked up in the database);
    memories the snapshot does not know yet are ignored. A memory without a mention time passes
    `as_of`: nothing says that it was learned later. `retrieval.store.visibility` says the same of
    rows.
    """
    columns = bank.columns
    mask: Bools = bank.live.copy()
    if filters.tags or filters.tags_match is TagsMatch.EXACT:
        mask &= tagged(bank, filters.tags or (), filters.tags_match)
    if filters.tag_groups:
        tags = _Tags(bank, chain.from_iterable(map(_named, filters.tag_groups)))
        for group in filters.tag_groups:
            mask &= tags.group(group)
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


def touching(columns: Columns, window: WindowBounds, ordinals: Ints | None = None) -> Bools:
    """Which of these memories (None: of all) touch a window: where it is known from when or until
    when one holds, if it holds in the window; else by its event or mention, as `overlaps`."""
    rows: Ints | slice = slice(None) if ordinals is None else ordinals
    start, end = columns.occurred_start[rows], columns.occurred_end[rows]
    touches = overlaps(start, end, columns.mentioned_at[rows], window)
    if not len(columns.timed):
        return touches
    at = columns.timed
    if ordinals is not None:
        known = (columns.valid_from[rows] != NO_TIME) | (columns.valid_until[rows] != NO_TIME)
        at = np.flatnonzero(known).astype(np.int32)
    since, until = columns.valid_from[rows][at], columns.valid_until[rows][at]
    begun = np.where(since != NO_TIME, since, np.where(start[at] != NO_TIME, start[at], _FIRST))
    over = np.where(until != NO_TIME, until, _LAST)
    low, high = _side(window.low, _FIRST), _side(window.high, _LAST)
    first, last = _side(window.first, _FIRST), _side(window.last, _LAST)
    # What ends with an instant, such as the beginning of a day, does not reach into it.
    touches[at] = (begun <= np.where(begun % DAY_US == 0, last, high)) & (
        over > np.where(over % DAY_US == 0, first, low)
    )
    return touches


def held(columns: Columns, ordinals: Ints, window: WindowBounds) -> tuple[Longs, Longs]:
    """(start, end) of these memories' events; of one that is known to hold for some time, of the
    part of that which lies in the window, if any does."""
    start, end = columns.occurred_start[ordinals], columns.occurred_end[ordinals]
    since, until = columns.valid_from[ordinals], columns.valid_until[ordinals]
    known = (since != NO_TIME) | (until != NO_TIME)
    low, high = _side(window.low, _FIRST), _side(window.high, _LAST)
    begun = np.where(since != NO_TIME, since, start)  # NO_TIME lies before all times
    over = np.where(until != NO_TIME, until, _LAST)
    first, last = np.maximum(begun, low), np.minimum(over, high)
    inside = known & (first <= last) & (first > _FIRST) & (last < _LAST)
    return np.where(inside, first, start), np.where(inside, last, end)


def lasting(columns: Columns, ordinals: Ints, window: WindowBounds) -> Bools:
    """Which of these memories are known to hold from before the window until behind it; a window
    without a begin has none."""
    since, until = columns.valid_from[ordinals], columns.valid_until[ordinals]
    known: Bools = (since != NO_TIME) | (until != NO_TIME)
    begun = np.where(since != NO_TIME, since, columns.occurred_start[ordinals])
    low, high = _side(window.low, _FIRST), _side(window.high, _LAST)
    known &= (begun != NO_TIME) & (begun < low)
    known &= (until == NO_TIME) | (until > high)
    return known


def overlaps(start: Longs, end: Longs, mentioned: Longs, window: WindowBounds) -> Bools:
    """Which memories touch a window: their event overlaps it, or they were mentioned in it.

    Both sides inclusive; a side that is None is open. Memories without any date do not touch. What
    carries only a date counts by the days of the window's offset.
    """
    low, high = _side(window.low, _FIRST), _side(window.high, _LAST)
    if not window.local:
        return _happened(start, end, low, high) | _within(mentioned, low, high)
    first, last = _side(window.first, _FIRST), _side(window.last, _LAST)
    event, saying = _happened(start, end, low, high), _within(mentioned, low, high)
    event_shown, saying_shown = _happened(start, end, first, last), _within(mentioned, first, last)
    touching: Bools = event | saying
    # Only near the window's edges does it matter what carries a date: a division of each is dear.
    near = np.flatnonzero((event != event_shown) | (saying != saying_shown))
    if len(near):
        dated, said = by_date(start[near], end[near]), mentioned[near] % DAY_US == 0
        touching[near] = np.where(dated, event_shown[near], event[near])
        touching[near] |= np.where(said, saying_shown[near], saying[near])
    return touching


_FIRST, _LAST = np.int64(NO_TIME + 1), np.int64(np.iinfo(np.int64).max)


def _side(value: int | None, open_: np.int64) -> np.int64:
    return open_ if value is None else np.int64(value)


def _within(column: Longs, low: np.int64, high: np.int64) -> Bools:
    inside: Bools = (column >= low) & (column <= high)
    return inside


def _happened(start: Longs, end: Longs, low: np.int64, high: np.int64) -> Bools:
    spans = (start != NO_TIME) & (end != NO_TIME) & (start <= high) & (end >= low)
    event: Bools = spans | _within(start, low, high) | _within(end, low, high)
    return event


def tagged(bank: ResidentBank, tags: tuple[str, ...], match: TagsMatch) -> Bools:
    """bool (size,): the rule of the five modes for a non-empty tag list; with an empty one
    EXACT means untagged, and so does ANY inside a group (see `_Tags.group`)."""
    return _Tags(bank, tags).leaf(TagLeaf(tags, match))


class _Tags:
    """Which memories have which of some tags, looked up once however many groups ask for them."""

    def __init__(self, bank: ResidentBank, tags: Iterable[str]) -> None:
        names, lists = sorted(set(tags)), bank.columns.tags
        numbers = bank.tag_numbers(names)
        held = np.diff(lists.ptr)
        hits = np.flatnonzero(np.isin(lists.values, numbers[numbers >= 0]))
        found = lists.values[hits]
        order = np.argsort(found, kind="stable")
        rows = (np.searchsorted(lists.ptr, hits, side="right") - 1)[order]
        sides = np.searchsorted(found[order], numbers), np.searchsorted(found[order], numbers + 1)
        self._rows = {
            n: rows[i:j] for n, i, j in zip(names, *map(np.ndarray.tolist, sides), strict=True)
        }
        self._held = held
        self._untagged: Bools = held == 0

    def leaf(self, leaf: TagLeaf) -> Bools:
        tags, match = frozenset(leaf.tags), leaf.match
        shared = np.zeros(len(self._held), np.int16)
        for tag in tags:
            shared[self._rows[tag]] += 1  # a memory has a tag once
        if match in (TagsMatch.ANY, TagsMatch.ANY_STRICT):
            some: Bools = shared > 0
            if match is TagsMatch.ANY:
                some |= self._untagged
            return some
        every: Bools = shared == len(tags)
        if match is TagsMatch.ALL:
            every |= self._untagged
        elif match is TagsMatch.ALL_STRICT:
            every &= ~self._untagged
        else:
            every &= self._held == len(tags)
        return every

    def group(self, group: TagGroup) -> Bools:
        if isinstance(group, TagLeaf):
            return self.leaf(group)
        if isinstance(group, TagNot):
            return ~self.group(group.group)
        joined = np.logical_and if isinstance(group, TagAll) else np.logical_or
        found: Bools = self.group(group.groups[0])
        for part in group.groups[1:]:  # one at a time: 256 masks of a large bank are much
            joined(found, self.group(part), out=found)
        return found


def _named(group: TagGroup) -> Iterator[str]:
    """The tags that a group asks for."""
    if isinstance(group, TagLeaf):
        yield from group.tags
    elif isinstance(group, TagNot):
        yield from _named(group.group)
    else:
        for part in group.groups:
            yield from _named(part)
