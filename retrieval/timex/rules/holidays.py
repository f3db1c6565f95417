"""Holidays with a fixed or computable day. A lone name means the latest one that has passed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial

from retrieval.timex.calendar import calendars, days
from retrieval.timex.engine.grammar import Context, Match, Rules, Span, chars_of
from retrieval.timex.rules.dates import exact

HOLIDAYS = Rules()


def _fixed(month: int, day: int, year: int) -> date:
    return days.day(year, month, day)


def _nth(month: int, weekday: int, nth: int, offset: int, year: int) -> date:
    return days.plus_days(days.nth_weekday(days.month(year, month), weekday, nth), offset)


def _from_easter(offset: int, year: int) -> date:
    return days.plus_days(days.easter(year), offset)


def _from_advent(weeks: int, year: int) -> date:
    """Weeks from the fourth Sunday of Advent, the last Sunday up to Christmas Eve."""
    eve = days.day(year, 12, 24)
    return days.plus_days(eve, -((eve.weekday() + 1) % 7) + 7 * weeks)


def _day_of_year(number: int, year: int) -> date:
    return days.plus_days(days.day(year, 1, 1), number - 1)


def holiday(code: str) -> Callable[[int], date]:
    """The day of a holiday in a year, from its code in a language's data.

    "12-25" is a fixed day; "11/4/4" the fourth Thursday (Monday is 1) of November, "5/1/-1" the
    last Monday of May, "11/4/4+1" the day after; "easter-2" Good Friday; "orthodox" their Easter;
    "advent-3" the first Sunday of Advent; "day256" the 256th day; "lunar8-15" a day of the Chinese
    calendar, "lunar-1" its New Year's Eve; "term23" a solar term; "islamic10-1" an Islamic day.
    """
    if code == "lunar-1":
        return calendars.eve
    for name, day_of in (("lunar", calendars.in_year), ("islamic", calendars.islamic)):
        if code.startswith(name):
            month, day = (int(part) for part in code[len(name) :].split("-"))
            return partial(day_of, month, day)
    if code.startswith("term"):
        return partial(calendars.solar_term, int(code[4:]))
    if code.startswith("easter"):
        return partial(_from_easter, int(code[6:] or 0))
    if code.startswith("orthodox"):
        return days.orthodox_easter
    if code.startswith("advent"):
        return partial(_from_advent, int(code[6:] or 0))
    if code.startswith("day"):
        return partial(_day_of_year, int(code[3:]))
    if "/" in code:
        rule, _, offset = code.partition("+")
        month, weekday, nth = (int(part) for part in rule.split("/"))
        return partial(_nth, month, weekday - 1, nth, int(offset or 0))
    month, day = (int(part) for part in code.split("-"))
    return partial(_fixed, month, day)


_LINKS = "(OF|IN|COMMA|THE|ON|FROM)*"


@HOLIDAYS("holiday", f"(ON|THE)* HOLIDAY {_LINKS} UYEARS? YEAR YMARK?")
@HOLIDAYS("holiday", f"YEAR YMARK? {_LINKS} HOLIDAY")
def _of_year(context: Context, m: Match) -> Span:
    return exact(holiday(m.word("HOLIDAY"))(m.number("YEAR")), 0.95, explicit=True)


@HOLIDAYS("holiday", f"(ON|THE)* HOLIDAY {_LINKS} DATE")
@HOLIDAYS("holiday", f"DATE {_LINKS} HOLIDAY")
def _of_span(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    if span.grain != "year" or span.first is None:
        return None
    return exact(holiday(m.word("HOLIDAY"))(span.first.year), 0.95)


@HOLIDAYS("holiday", "THE? MOD HOLIDAY")
@HOLIDAYS("holiday", "THE? HOLIDAY MOD (?! UNIT)")
def _moved(context: Context, m: Match) -> Span | None:
    day_in, today = holiday(m.word("HOLIDAY")), context.today
    found = [day_in(year) for year in range(today.year - 1, today.year + 2)]
    kind = m.all("MOD")[0].kind
    if kind in chars_of("PREV"):
        return exact([d for d in found if d < today][-1], 0.95)
    if kind in chars_of("NEXT"):
        return exact(next(d for d in found if d > today), 0.95)
    return exact(found[1], 0.9)


@HOLIDAYS("holiday", "(ON|THE)* HOLIDAY")
def _latest(context: Context, m: Match) -> Span:
    day_in, today = holiday(m.word("HOLIDAY")), context.today
    found = day_in(today.year)
    if found > today:
        found = day_in(today.year - 1)
    return exact(found, 0.8, event_year=day_in)
