"""Times as callers write them, time zones by their IANA names, and what a time without an offset
means."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime, time, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from retrieval.errors import InvalidInput
from retrieval.types import RecallQuery, Window

_DATE_ONLY = re.compile(r"\d{4}-\d{2}-\d{2}")
_DATE_AND_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]")


def written(value: str) -> datetime:
    """An ISO 8601 date or date-time with the offset that it was written with, if any.

    ValueError for anything else, and for years outside 1..9999 once in UTC.
    """
    text, shown = value.strip(), repr(value[:80])
    if _DATE_ONLY.fullmatch(text):
        try:
            day = date.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{shown} is not a day of the calendar") from None
        return datetime(day.year, day.month, day.day)
    try:
        found = datetime.fromisoformat(text) if _DATE_AND_TIME.match(text) else None
    except ValueError:
        found = None
    if found is None:
        raise ValueError(f"{shown} is not an ISO 8601 time such as 2024-05-31T12:00:00Z")
    return in_calendar(found)


def in_calendar(moment: datetime) -> datetime:
    """The moment; ValueError where it lies outside the years 1..9999 once in UTC."""
    try:
        _ = moment.tzinfo is None or moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{moment} lies outside the years 1 to 9999") from None
    return moment


def utc(moment: datetime) -> datetime:
    """The moment in UTC; without an offset it is UTC."""
    return placed(moment, UTC).astimezone(UTC)


@cache
def _names() -> dict[str, str]:
    """Names are told apart without regard to case: RFC 9557, section 2."""
    return {name.lower(): name for name in available_timezones()}


def canonical(name: str) -> str:
    """The name as the database of time zones writes it. ValueError if it knows none such."""
    found = _names().get(name.strip().lower())
    if found is None:
        raise ValueError(
            f"timezone {name[:80]!r} is not a name of the IANA database, such as Europe/Berlin"
        )
    return found


def zone(name: str | None) -> tzinfo:
    """The zone of that name; UTC for None. ValueError if there is none such."""
    return UTC if name is None else ZoneInfo(canonical(name))


def placed(moment: datetime, where: tzinfo) -> datetime:
    """A time without an offset read on the clocks of `where`; any other as it is."""
    return moment.replace(tzinfo=where) if moment.tzinfo is None else moment


def seen(moment: datetime, where: tzinfo) -> datetime:
    """The same instant on the clocks of `where`; as it is at the ends of the calendar."""
    try:
        return moment.astimezone(where)
    except OverflowError:
        return moment


def window_seen(window: Window, where: tzinfo | None) -> Window:
    """The same span on the clocks of `where`."""
    if where is None or where is UTC:
        return window
    sides = (window.start, window.end)
    return Window(*(None if side is None else seen(side, where) for side in sides))


def days_of(window: Window, where: tzinfo | None) -> Window:
    """The span of what is known by its date alone: the same dates, as days of `where`."""
    if where is None or where is UTC:
        return window
    sides = [side and side.replace(tzinfo=where) for side in (window.start, window.end)]
    return Window(*sides)


def calendar(window: Window, where: tzinfo | None) -> Window:
    """A span of whole days of `where` as the same dates in UTC, which is how what is known by its
    date alone is stored; any other span as it is."""
    local = window_seen(window, where)
    first, last = local.start, local.end
    if first is None or last is None or (first.time(), last.time()) != (time.min, time.max):
        return window
    return Window(first.replace(tzinfo=UTC), last.replace(tzinfo=UTC))


def settled(query: RecallQuery, default: str | None) -> RecallQuery:
    """The query with every time aware: what was given without an offset is read in the query's own
    zone, else in that of `default`, else in UTC; and so is the clock, where no time was given.

    InvalidInput for times outside the calendar, and for a window that ends before it starts.
    """
    where = zone(query.timezone or default)
    filters, now = query.filters, query.now
    if where is UTC and not _open(query):
        return query
    now = seen(now, where) if query.from_clock else placed(now, where)
    window, hard = _window(query.window, where), _window(filters.window, where)
    as_of = None if filters.as_of is None else placed(filters.as_of, where)
    for field, moment in (("query_timestamp", now), ("as_of", as_of)):
        try:
            _ = moment is None or moment.astimezone(UTC)
        except OverflowError:
            raise InvalidInput(f"{field}: {moment} is out of range", field) from None
    return replace(
        query, now=now, window=window, filters=replace(filters, window=hard, as_of=as_of)
    )


def _open(query: RecallQuery) -> bool:
    """Has any of its times no offset?"""
    times = [query.now, query.filters.as_of]
    for window in (query.window, query.filters.window):
        times += [] if window is None else [window.start, window.end]
    return any(time is not None and time.tzinfo is None for time in times)


def _window(window: Window | None, where: tzinfo) -> Window | None:
    if window is None:
        return None
    sides = [None if side is None else placed(side, where) for side in (window.start, window.end)]
    try:
        _ = [side is None or side.astimezone(UTC) for side in sides]
        return Window(*sides)
    except (OverflowError, ValueError) as error:
        raise InvalidInput(f"temporal_window: {error}", "temporal_window") from None
