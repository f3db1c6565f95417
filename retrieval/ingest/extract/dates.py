"""When the one time that a text names was, as a fact carries it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from retrieval import timex, zones
from retrieval.timex import TimeExpression
from retrieval.types import Window


def spoken(text: str, timestamp: datetime | None) -> list[TimeExpression]:
    """The times that our own grammar reads in a content of this time; of a content without one,
    those that it names in full."""
    if timestamp is None:
        return timex.explicit_dates(text, datetime.now(UTC))
    return timex.find(text, timestamp)


def the_one(found: Iterable[TimeExpression]) -> Window | None:
    """The window that all of them mean; None where there is none, or several."""
    windows = {one.window for one in found}
    return windows.pop() if len(windows) == 1 else None


def dated(window: Window, timestamp: datetime | None) -> Window:
    """Whole days of the content's offset as dates, anything else as it is."""
    return zones.calendar(window, None if timestamp is None else timestamp.tzinfo)
