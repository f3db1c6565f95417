"""Holidays with a fixed or computable day. A lone name means the latest one that has passed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial

from retrieval.timex.calendar import calendars, days, moon
from retrieval.timex.calendar.days import Days
from retrieval.timex.engine.grammar import COUNTED, Context, Match, Rules, Span, change, chars_of

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


def _weekday_from(month: int, day: int, weekday: int, year: int) -> date:
    start = days.day(year, month, day)
    return days.plus_days(start, (weekday - start.weekday()) % 7)


def _hebrew(passover: bool, offset: int, year: int) -> date:
    """Days from Rosh Hashanah, or from Passover, which lies 163 days before it."""
    return days.plus_days(calendars.rosh_hashanah(year), offset - 163 * passover)


_COMPUTED = {"diwali": moon.diwali, "holi": moon.holi, "hanukkah": calendars.hanukkah}


def feast(code: str) -> Callable[[int], Days]:
    """First and last day of a holiday that begins in a year: "easter-7~easter-1" is Holy Week, of
    two days as `_holiday` has them; "islamic9" a month of the Islamic calendar."""
    if code.startswith("islamic") and "-" not in code:
        return partial(calendars.islamic_month, int(code[7:]))
    begin, _, end = code.partition("~")
    first, last = _holiday(begin), _holiday(end or begin)

    def of_year(year: int) -> Days:
        opening, closing = first(year), last(year)
        return opening, closing if closing >= opening else last(year + 1)

    return of_year


def _holiday(code: str) -> Callable[[int], date]:
    """The day of a holiday in a year, from its code in a language's data.

    "12-25" is a fixed day, "6-19/5" the first Friday (Monday is 1) from 19 June on; "11/4/4" the
    fourth Thursday of November, "5/1/-1" the last Monday of May, "11/4/4+1" the day after;
    "easter-2" Good Friday; "orthodox" their Easter; "advent-3" the first Sunday of Advent; "day256"
    the 256th day; "lunar8-15" a day of the Chinese calendar, "lunar-1" its New Year's Eve;
    "term23" a solar term; "islamic10-1" an Islamic day; "rosh+9" Yom Kippur, "pesach-30" Purim,
    "hanukkah" its first evening; "diwali" and "holi" the Hindu ones.
    """
    if code in _COMPUTED:
        return _COMPUTED[code]
    if code.startswith(("rosh", "pesach")):
        return partial(_hebrew, code.startswith("pesach"), int(code.lstrip("roshpeac") or 0))
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
    if "/" in code and "-" in code.partition("/")[0]:
        start, _, weekday = code.partition("/")
        month, day = (int(part) for part in start.split("-"))
        return partial(_weekday_from, month, day, int(weekday) - 1)
    if "/" in code:
        rule, _, offset = code.partition("+")
        month, number, nth = (int(part) for part in rule.split("/"))
        return partial(_nth, month, number - 1, nth, int(offset or 0))
    month, day = (int(part) for part in code.split("-"))
    return partial(_fixed, month, day)


def _span(code: str, year: int, confidence: float, *, explicit: bool = False) -> Span:
    """The holiday of that year; one of several days is cut into parts as a season is."""
    first, last = feast(code)(year)
    grain = "day" if first == last else "season"
    return Span(first, last, grain, confidence, explicit=explicit, event_year=feast(code))


_LINKS = "(OF|IN|COMMA|THE|ON|FROM)*"
_FOR_OR_BEFORE = chars_of("BEFORE") & chars_of("ON")


@HOLIDAYS("holiday", f"(ON|THE)* HOLIDAY PART? {_LINKS} UYEARS? YEAR YMARK?")
@HOLIDAYS("holiday", f"YEAR YMARK? {_LINKS} HOLIDAY")
def _of_year(context: Context, m: Match) -> Span | None:
    if _is_beside(m):
        return None
    return change(_span(m.word("HOLIDAY"), m.number("YEAR"), 0.95, explicit=True), event_year=None)


@HOLIDAYS("holiday", f"(ON|THE)* HOLIDAY PART? {_LINKS} DATE")
@HOLIDAYS("holiday", f"DATE {_LINKS} HOLIDAY")
def _of_span(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    if span.grain != "year" or span.first is None or _is_beside(m):
        return None
    return change(_span(m.word("HOLIDAY"), span.first.year, 0.95), event_year=None)


@HOLIDAYS("week of", f"(ON|THE)* HOLIDAY UWEEK {_LINKS} (UYEARS? YEAR YMARK? | DATE)")
@HOLIDAYS("weekend of", f"(ON|THE)* HOLIDAY UWEEKEND {_LINKS} (UYEARS? YEAR YMARK? | DATE)")
def _weekend_of_year(context: Context, m: Match) -> Span | None:
    """ "Easter weekend 2024": the Saturday and Sunday beside it, and the day itself."""
    spans = m.spans()
    if spans and (spans[0].grain != "year" or spans[0].first is None):
        return None
    assert not spans or spans[0].first is not None
    year = spans[0].first.year if spans and spans[0].first else m.number("YEAR")
    first, last = feast(m.word("HOLIDAY"))(year)
    if m.has("UWEEK"):
        return Span(*days.week(first), "week", 0.9)
    saturday = days.nth_weekday((days.plus_days(first, -3), days.plus_days(first, 3)), 5, 1)
    ends = min(saturday, first), max(last, days.plus_days(saturday, 1))
    return Span(*ends, "weekend", 0.9)


@HOLIDAYS("holiday", "THE? MOD HOLIDAY")
@HOLIDAYS("holiday", "THE? HOLIDAY MOD (?! UNIT)")
def _moved(context: Context, m: Match) -> Span | None:
    code, today = m.word("HOLIDAY"), context.today
    found = [_span(code, year, 0.95) for year in range(today.year - 1, today.year + 2)]
    kind = m.all("MOD")[0].kind
    if kind in chars_of("PREV"):
        return [one for one in found if one.last is not None and one.last < today][-1]
    if kind in chars_of("NEXT"):
        return next(one for one in found if one.first is not None and one.first > today)
    return change(found[1], confidence=0.9)


@HOLIDAYS("holiday", "NUM HOLIDAY AGO")
def _holidays_ago(context: Context, m: Match) -> Span | None:
    """ "Three Christmases ago"."""
    latest = _nearest(context, m.word("HOLIDAY"))
    if latest.first is None or not 1 <= m.number("NUM") <= 99:
        return None
    year = latest.first.year - m.number("NUM") + 1
    return change(_span(m.word("HOLIDAY"), year, 0.9), event_year=None, relative=True)


@HOLIDAYS("holiday", "(ON|THE)* HOLIDAY")
def _latest(context: Context, m: Match) -> Span | None:
    return None if _is_beside(m) else _nearest(context, m.word("HOLIDAY"))


def _nearest(context: Context, code: str) -> Span:
    """The latest instance that has begun."""
    found = _span(code, context.today.year, 0.8)
    if found.first is not None and found.first > context.today:
        return _span(code, context.today.year - 1, 0.8)
    return found


def _is_beside(m: Match) -> bool:
    """Whether Dutch "voor" is "before" here, and not "for": "twee dagen voor Kerst"."""
    before = m.before
    return m.tokens[0].kind in _FOR_OR_BEFORE and before is not None and before.kind in COUNTED


def in_year_of(context: Context, m: Match, year: int) -> Span:
    """The holiday that a match names, in this year."""
    return change(_span(m.word("HOLIDAY"), year, 0.9), event_year=None, relative=True)
