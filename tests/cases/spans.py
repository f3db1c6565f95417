"""Windows compared by calendar day, in the offset of the question's anchor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

Span = tuple[datetime | None, datetime | None]
Days = tuple[str | None, str | None]


def parse(text: str) -> datetime:
    """An ISO time; without a zone it is UTC."""
    value = datetime.fromisoformat(text)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def of_trace(trace: Mapping[str, Any]) -> Span | None:
    """The window that a trace names, None where it names none."""
    found = trace["query"]["temporal_constraint"]
    if found is None:
        return None
    start, end = found.get("start"), found.get("end")
    return (parse(start) if start else None, parse(end) if end else None)


def check(
    found: Span | None,
    anchor: datetime | None,
    expected: Days | str | None,
    also_ok: Sequence[Days] = (),
    must_include: Sequence[str] = (),
    must_exclude: Sequence[str] = (),
) -> None:
    """Raises AssertionError where the window is not the expected one, or one of `also_ok`."""
    if expected is None:
        assert found is None, f"there is a window {found}"
        return
    assert found is not None, f"there is no window, {expected} was expected"
    zone = anchor.tzinfo if anchor is not None else UTC
    if expected != "any":
        assert not isinstance(expected, str), f"unknown expectation {expected!r}"
        days = tuple(None if t is None else t.astimezone(zone).date() for t in found)
        allowed = [tuple(_day(day) for day in pair) for pair in (expected, *also_ok)]
        assert days in allowed, f"{days[0]} to {days[1]}, expected {expected}"
    for text in must_include:
        assert _inside(found, text, zone), f"{text} lies outside {found}"
    for text in must_exclude:
        assert not _inside(found, text, zone), f"{text} lies inside {found}"


def _day(text: str | None) -> date | None:
    return None if text is None else date.fromisoformat(text[:10])


def _inside(span: Span, text: str, zone: Any) -> bool:
    """Whether an instant, or noon of a day, lies inside."""
    if len(text) == 10:
        moment = datetime.fromisoformat(text).replace(tzinfo=zone) + timedelta(hours=12)
    else:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=zone)
    start, end = span
    return (start is None or start <= moment) and (end is None or moment <= end)
