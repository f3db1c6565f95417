"""Spans told from the reference time: counted units, calendar periods, and parts of a period."""

from __future__ import annotations

from datetime import date

from retrieval.timex.calendar import days
from retrieval.timex.engine.grammar import Context, Match, Span, Token, change, chars_of
from retrieval.timex.rules.dates import exact

FEW = 3

COUPLE = 2

UNITS = {
    "UDAY": "day", "MDAY": "day", "UWEEK": "week", "UMONTH": "month", "UYEAR": "year",
    "YMARK": "year", "UQUARTER": "quarter", "UHALF": "half", "UWEEKEND": "weekend",
    "UDECADE": "decade", "UCENTURY": "century", "UWORKDAY": "workday", "UWORKWEEK": "workweek",
    "UFORTNIGHT": "fortnight", "UHOUR": "hour", "UMINUTE": "minute", "USECOND": "second",
}  # fmt: skip

_UNIT_OF = {char: unit for kind, unit in UNITS.items() for char in chars_of(kind)}

# "A couple of days ago" and "a few days ago" are spans, not days: (from, to) counted back.
LOOSE = {COUPLE: (3, 1), FEW: (5, 2)}


PHASES = {
    "WEEKPHASE": "week", "MONTHPHASE": "month", "QUARTERPHASE": "quarter", "YEARPHASE": "year",
}  # fmt: skip


def unit_of(token: Token) -> str:
    return _UNIT_OF[token.kind]


def phase_of(token: Token) -> tuple[str, str]:
    """The unit and its part that one word names: German "Monatsende", the late month."""
    unit = next(unit for kind, unit in PHASES.items() if token.kind in chars_of(kind))
    return unit, str(token.value)


def count_of(token: Token | None) -> float:
    """The number that a counting token stands for: 3, a, few, couple."""
    if token is None or (token.value is None and token.kind in chars_of("A")):
        return 1
    if token.kind in chars_of("FEW"):
        return token.value if isinstance(token.value, int) else FEW
    if token.kind in chars_of("COUPLE"):
        return token.value if isinstance(token.value, int) else COUPLE
    if not isinstance(token.value, int | float):
        raise LookupError("no number")
    return token.value


def offset(written: str) -> tuple[int, str]:
    """ "3d" as three days, "-2w" as two weeks back."""
    units = {"d": "day", "w": "week", "m": "month", "y": "year"}
    return int(written[:-1]), units[written[-1]]


def amounts(m: Match) -> list[tuple[float, str]]:
    """The counted units of a duration such as "2 years and 3 weeks", in order. A word for a half
    may hold wholes too: German "anderthalb" is 1½."""
    found: list[tuple[float, str]] = []
    count: Token | None = None
    half, whole = False, 0
    for token in m.tokens:
        if token.kind in _COUNTS:
            if token.kind in chars_of("HALFWORD") and found and count is None:
                size, unit = found[-1]
                found[-1] = (size + 0.5, unit)
                continue
            if token.kind in chars_of("HALFWORD"):
                half, whole = True, token.value if isinstance(token.value, int) else 0
            else:
                count = token
        elif token.kind in chars_of("AMOUNT"):
            found.append(offset(str(token.value)))
        elif token.kind in _UNIT_OF:
            size = whole if half and count is None else count_of(count)
            if half:
                size += 0.5
            dated = count is not None and count.kind in chars_of("YEAR") and bool(count.text)
            if not size or (dated and unit_of(token) == "year"):
                raise LookupError("no duration")
            found.append((size, unit_of(token)))
            count, half = None, False
    return found


_COUNTS = frozenset().union(*map(chars_of, ["NUM", "YEAR", "A", "FEW", "COUPLE", "HALFWORD"]))


def moved(start: date, parts: list[tuple[float, str]], sign: int) -> date:
    """The day that is a duration before (-1) or after (+1) a day; the largest units go first."""
    order = ["century", "decade", "year", "half", "quarter", "month", "fortnight", "week"]
    parts = sorted(parts, key=lambda p: order.index(p[1]) if p[1] in order else len(order))
    for count, unit in parts:
        whole = int(count)
        start = days.plus(start, "week" if unit == "workweek" else unit, sign * whole)
        if count != whole:
            start = _plus_half(start, unit, sign)
    return start


def _plus_half(start: date, unit: str, sign: int) -> date:
    halves = {"year": ("month", 6), "month": ("day", 15), "decade": ("year", 5)}
    halves |= {"week": ("day", 3), "century": ("year", 50)}
    smaller, count = halves.get(unit, ("day", 0))
    return days.plus(start, smaller, sign * count)


def shift_of(m: Match) -> int:
    """How many periods away: last -1, this 0, next +1, the one before last -2."""
    token = m.one("MOD")
    if token is None:
        raise LookupError("no modifier")
    if isinstance(token.value, int):
        return token.value
    if token.kind in chars_of("PREV"):
        return -1
    return 0 if token.kind in chars_of("THIS") else 1


def shifted(context: Context, unit: str, count: int) -> Span:
    """The calendar period `count` periods from the one of today."""
    today = context.today
    if unit == "workweek":
        monday = days.week(days.plus(today, "week", count))[0]
        return Span(monday, days.plus_days(monday, 4), "week", 0.95, relative=True)
    if unit == "workday":
        return exact(days.plus(today, unit, count), 0.95, relative=True)
    if unit == "fortnight":
        return rolling(context, [(1, unit)], count)
    if unit == "weekend" and count == -1:
        # The latest Saturday before today's weekend; on a weekend, not the running one.
        saturday = days.plus_days(days.week(today)[0], -2)
        return Span(saturday, days.plus_days(saturday, 1), "weekend", 0.95, relative=True)
    first, last = days.period(unit, days.plus(days.period(unit, today)[0], unit, count))
    return Span(first, last, unit, 0.95, relative=True)


def rolling(
    context: Context, parts: list[tuple[float, str]], sign: int, from_tomorrow: bool = False
) -> Span:
    today = context.today
    count, unit = parts[0]
    if unit in ("quarter", "half", "decade", "century") and count == int(count):
        near = shifted(context, unit, sign)
        far = shifted(context, unit, sign * int(count))
        first, last = (far, near) if sign < 0 else (near, far)
        return Span(first.first, last.last, unit, 0.9, relative=True)
    far_day = moved(today, parts, sign)
    if sign > 0 and from_tomorrow:
        return Span(days.plus_days(today, 1), far_day, unit, 0.9, relative=True)
    first_day, last_day = (far_day, today) if sign < 0 else (today, far_day)
    return Span(first_day, last_day, unit, 0.9, relative=True)


def bounds(span: Span) -> tuple[date, date]:
    """First and last day of a span; LookupError where a side is open."""
    if span.first is None or span.last is None:
        raise LookupError("an open span")
    return span.first, span.last


def cut(context: Context, span: Span, part: str) -> Span | None:
    """The early, middle or late part of a period.

    A named year has thirds, a year told from the reference time halves, a month 1-15, 10-20 and 16
    to its end (in Chinese tens of days), a week Monday-Wednesday, Tuesday-Friday and
    Thursday-Sunday.
    """
    if span.part:
        return None
    first, last = bounds(span)
    at = {"early": 0, "mid": 1, "late": 2}[part]
    if "tens" in context.options and span.grain in ("month", "year"):
        if span.grain == "month":
            pieces = [(1, 10), (11, 20), (21, last.day)]
        else:
            month = days.month(first.year, (1, 6, 12)[at])
            return change(span, first=month[0], last=month[1], part=part, whole=(first, last))
        low, high = pieces[at]
        a, b = first.replace(day=low), first.replace(day=high)
    elif span.grain == "month":
        a, b = (
            (first, first.replace(day=15)),
            (first.replace(day=10), first.replace(day=20)),
            (first.replace(day=16), last),
        )[at]
    elif span.grain == "week":
        a, b = (
            (first, days.plus_days(first, 2)),
            (days.plus_days(first, 1), days.plus_days(first, 4)),
            (days.plus_days(first, 3), last),
        )[at]
    elif span.grain == "year" and span.relative and part != "mid":
        a, b = days.months(first.year, *((1, 6) if part == "early" else (7, 12)))
    elif span.grain == "year":
        a, b = days.months(first.year, 4 * at + 1, 4 * at + 4)
    elif span.grain == "decade":
        a, b = days.years(*((first.year + y) for y in ((0, 3), (4, 6), (7, 9))[at]))
    elif span.grain == "century":
        a, b = days.years(*((first.year + y) for y in ((0, 32), (33, 66), (67, 99))[at]))
    elif span.grain in ("quarter", "half", "season", "weekend"):
        third = ((last - first).days + 1) // 3
        a = days.plus_days(first, third * at)
        b = last if at == 2 else days.plus_days(a, third - 1)
    else:
        return None
    return change(
        span, first=a, last=b, part=part, whole=(first, last), confidence=span.confidence * 0.95
    )


def half_of(span: Span, number: int) -> Span | None:
    """The first or second half of a month (1-15 and 16 to its end), a week (from Thursday) or a
    quarter (from the 16th of its second month)."""
    first, last = bounds(span)
    begin = {"month": 15, "week": 3, "quarter": 15}.get(span.grain)
    if begin is None or span.part or number not in (1, 2):
        return None
    middle = first if span.grain != "quarter" else days.plus_months(first, 1)
    middle = days.plus_days(middle, begin)
    if number == 1:
        return change(span, last=days.plus_days(middle, -1), part="early", whole=(first, last))
    return change(span, first=middle, part="late", whole=(first, last))


def earlier_in(context: Context, span: Span) -> Span | None:
    """The early part of a period, of the running one only what lies before today."""
    part = cut(context, span, "early")
    today = context.today
    if part is None or part.first is None or part.last is None:
        return None
    if part.first < today <= part.last:
        return change(part, last=days.plus_days(today, -1))
    return part


def later_in(context: Context, span: Span) -> Span | None:
    """The late part of a period, of the running one only what is still to come."""
    part = cut(context, span, "late")
    if part is None or part.first is None or part.last is None:
        return None
    if part.first < context.today <= part.last:
        return change(part, first=context.today)
    return part


def plausible(context: Context, year: int) -> bool:
    """Whether a lone number can be meant as a year, seen from the reference time."""
    return max(1, context.today.year - 120) <= year <= context.today.year + 20
