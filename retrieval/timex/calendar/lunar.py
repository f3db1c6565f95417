"""Rules for dates in the Chinese calendar, as they are said in Chinese: 正月十五, 农历八月初一.

A date without a year is its latest instance up to the reference time; a year is the one that began
then.
"""

from __future__ import annotations

from datetime import date
from functools import partial

from retrieval.timex.calendar import calendars
from retrieval.timex.engine.grammar import Context, Match, Rules, Span
from retrieval.timex.rules.dates import day_of_month, exact, year_of

LUNAR = Rules()

_YEAR = "(YEAR YMARK? | NUM YMARK | YEAROFF)?"
_MONTH = "(OF | LUNAR)* (LUNARMONTH | LUNAR LEAP? MON | LEAP MON)"
_REACH = 20  # years: a leap month comes back within nineteen


@LUNAR("lunar day", f"{_YEAR} {_MONTH} PHASE? NUM (MDAY | (?! UNIT | UTIME))")
@LUNAR("lunar day", f"{_YEAR} MON PHASE NUM (?= STOP | COMMA | DOT | OF | PART | DASH | TO | $)")
def _day(context: Context, m: Match) -> Span | None:
    day = day_of_month(m.all("NUM")[-1])
    if m.has("PHASE") and (m.word("PHASE") != "early" or day > 10):
        return None
    month, leap = m.number("LUNARMONTH", "MON"), m.has("LEAP")
    given = _year(context, m)
    if given is not None:
        return exact(calendars.lunar(given, month, day, leap=leap), explicit=True)
    for year in _years(context):
        try:
            found = calendars.lunar(year, month, day, leap=leap)
        except OverflowError:
            continue
        if found <= context.today:
            event_year = None if leap else partial(_one_day, month=month, day=day)
            return exact(found, 0.9, event_year=event_year)
    return None


@LUNAR("lunar month", f"{_YEAR} {_MONTH} (?! PHASE | NUM MDAY | NUM (?! UNIT | UTIME))")
def _month(context: Context, m: Match) -> Span | None:
    month, leap = m.number("LUNARMONTH", "MON"), m.has("LEAP")
    given = _year(context, m)
    if given is not None:
        return Span(*calendars.lunar_month(given, month, leap=leap), "month", 0.95, explicit=True)
    for year in _years(context):
        try:
            first, last = calendars.lunar_month(year, month, leap=leap)
        except OverflowError:
            continue
        if first <= context.today:
            return Span(first, last, "month", 0.85)
    return None


def _one_day(year: int, *, month: int, day: int) -> tuple[date, date]:
    found = calendars.lunar(year, month, day)
    return found, found


def _years(context: Context) -> range:
    latest = calendars.lunar_year_of(context.today)
    return range(latest, latest - _REACH, -1)


def _year(context: Context, m: Match) -> int | None:
    if m.has("YEAR"):
        return m.number("YEAR")
    if m.has("YEAROFF"):
        return context.today.year + m.number("YEAROFF")
    return year_of(context, m.all("NUM")[0]) if m.has("YMARK") else None
