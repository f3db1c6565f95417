"""Time in natural language: from a question and a reference time to the one window that it means.

Rules over word lists of sixteen languages; where they find nothing and the text has date words of
another language, `dateparser`. Pure functions, safe in any thread; nothing here raises for any
text. Every calendar boundary is computed in the offset of the reference time; windows are aware, in
UTC, and hold whole days (00:00:00 to 23:59:59.999999) unless hours were named.
"""

from __future__ import annotations

import logging
from datetime import datetime

from retrieval.timex.engine.analysis import (
    aware,
    best_reading,
    combine,
    covered,
    expression,
    expressions,
    whole_days,
)
from retrieval.timex.engine.fallback import other_language, search
from retrieval.timex.engine.text import Folded
from retrieval.timex.expression import EventReference, Settings, TimeExpression
from retrieval.timex.rules.events import asks_for_length, event_reference
from retrieval.timex.rules.quotations import asks_for_a_meaning, without_quoted

__all__ = [
    "EventReference",
    "Settings",
    "TimeExpression",
    "asks_for_length",
    "event_reference",
    "explicit_dates",
    "find",
    "is_quick",
    "parse",
    "warm",
]

QUICK_CHARACTERS = 300

_log = logging.getLogger(__name__)
_DEFAULT = Settings()


def warm() -> None:
    """Load all word lists and compile all rules: a tenth of a second that no question should wait.

    Optional; call it once where a process starts.
    """
    parse("the 1st", datetime(2024, 1, 2))
    covered("yesterday, hier, вчера, 昨天")
    is_quick("")
    for text in ("昨日は", "어제", "कल", "أمس", "ayer"):
        covered(text)


def is_quick(text: str) -> bool:
    """Whether `parse` takes a fraction of a millisecond: a short text, nothing for `dateparser`."""
    return len(text) <= QUICK_CHARACTERS and other_language(text) is None


def parse(
    text: str, reference_time: datetime, settings: Settings = _DEFAULT
) -> TimeExpression | None:
    """The one window of a question, or None.

    reference_time: what "yesterday" is relative to; aware, or naive and UTC.
    Several expressions give one window: of two that overlap, the inner one or the common part; of
    two apart, the one with the finer unit; of equals, the first in the text. Dates that no calendar
    holds, and questions that ask for a date ("how long ago"), give None. Never raises.
    """
    found = find(text, reference_time, settings)
    if not found or asks_for_length(text) or asks_for_a_meaning(text):
        return None
    return combine(found)


def find(
    text: str, reference_time: datetime, settings: Settings = _DEFAULT
) -> list[TimeExpression]:
    """All expressions of time in a text, in order, none inside another. Never raises."""
    try:
        return _find(text, aware(reference_time), settings)
    except Exception:
        _log.warning("time analysis failed; the text gets no window", exc_info=True)
        return []


def _find(text: str, reference_time: datetime, settings: Settings) -> list[TimeExpression]:
    folded = Folded(text)
    reading = best_reading(folded, reference_time, settings)
    if reading is None:
        other = search(text, reference_time) if settings.fallback else None
        return [] if other is None else [whole_days(text, *other, reference_time)]
    return without_quoted(text, expressions(folded, reading, reference_time))


def explicit_dates(
    text: str, reference_time: datetime, settings: Settings = _DEFAULT
) -> list[TimeExpression]:
    """The expressions that name a date or period in full, such as "5 May 2024"."""
    try:
        reference_time = aware(reference_time)
        folded = Folded(text)
        reading = best_reading(folded, reference_time, settings)
        if reading is None:
            return []
        found = [
            expression(folded, span, start, end, reference_time)
            for span, start, end in reading.found
            if span.explicit and span.first is not None and span.last is not None
        ]
        return [one for one in found if one is not None]
    except Exception:
        _log.warning("dating a text failed; it gets no dates", exc_info=True)
        return []
