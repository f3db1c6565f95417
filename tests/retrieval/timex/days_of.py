"""Reading windows as calendar days in the anchor's offset, for the tests of this folder."""

from __future__ import annotations

from datetime import UTC, datetime, time

from retrieval.timex import Settings, TimeExpression, parse

Days = tuple[str | None, str | None]
NOW = datetime(2025, 6, 18, 10, 30, tzinfo=UTC)  # a Wednesday


def days_of(found: TimeExpression | None, anchor: datetime) -> Days | None:
    """First and last day of a window; asserts that a window of days holds whole days."""
    if found is None:
        return None
    zone = anchor.tzinfo or UTC
    start = found.window.start and found.window.start.astimezone(zone)
    end = found.window.end and found.window.end.astimezone(zone)
    if found.granularity != "hour":
        assert start is None or start.timetz().replace(tzinfo=None) == time.min
        assert end is None or end.timetz().replace(tzinfo=None) == time.max
    return (
        None if start is None else start.date().isoformat(),
        None if end is None else end.date().isoformat(),
    )


def read(text: str, anchor: datetime = NOW, settings: Settings | None = None) -> Days | None:
    return days_of(parse(text, anchor, settings or Settings()), anchor)


def written(days: str) -> Days | None:
    """Days from a table: first and last, "-" where open; one alone is both; "none" is none."""
    if days == "none":
        return None
    first, *rest = (None if part == "-" else part for part in days.split())
    return first, (rest[0] if rest else first)
