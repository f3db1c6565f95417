"""What the cross-encoder reads of a memory."""

from __future__ import annotations

from datetime import UTC, datetime

from retrieval.text.months import MONTHS


def document(text: str, context: str | None, occurred_start: datetime | None) -> str:
    """ "[Date: June 5, 2022 (2022-06-05)] context: text"; the parts that are missing fall away.

    English month names whatever the locale, the day without a leading zero, dates in UTC.
    """
    read = f"{context}: {text}" if context else text
    if occurred_start is None:
        return read
    day = occurred_start.astimezone(UTC)
    return (
        f"[Date: {MONTHS[day.month - 1]} {day.day}, {day.year} "
        f"({day.year:04d}-{day.month:02d}-{day.day:02d})] {read}"
    )
