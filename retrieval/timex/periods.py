"""Rules for time told from the anchor (yesterday, last week, three days ago) and for periods by name."""

from __future__ import annotations

import re
from datetime import date, timedelta

from retrieval.timex import days
from retrieval.timex.dates import exact, year_of
from retrieval.timex.grammar import OTHER, Context, Match, Rules, Span, Token, change, chars_of

PERIODS = Rules()
"""Relative days and periods, years, quarters, decades; run after the named dates."""

FEW, COUPLE = 3, 2
UNITS = {
    "UDAY": "day", "MDAY": "day", "UWEEK": "week", "UMONTH": "month", "UYEAR": "year",
    "YMARK": "year", "UQUARTER": "quarter", "UHALF": "half", "UWEEKEND": "weekend",
    "UDECADE": "decade", "UCENTURY": "century", "UWORKDAY": "workday", "UWORKWEEK": "workweek",
    "UFORTNIGHT": "fortnight", "UHOUR": "hour", "UMINUTE": "minute", "USECOND": "second",
}  # fmt: skip
_UNIT_OF = {char: unit for kind, unit in UNITS.items() for char in chars_of(kind)}
# "A couple of days ago" and "a few days ago" are spans, not days: (from, to) back from the anchor.
_LOOSE = {COUPLE: (3, 1), FEW: (5, 2)}


def unit_of(token: Token) -> str:
    return _UNIT_OF[token.kind]


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


def amounts(m: Match) -> list[tuple[float, str]]:
    """The counted units of a duration such as "2 years and 3 weeks", in order."""
    found: list[tuple[float, str]] = []
    count: Token | None = None
    half = False
    for token in m.tokens:
        if token.kind in _COUNTS:
            if token.kind in chars_of("HALFWORD") and found and count is None:
                size, unit = found[-1]
                found[-1] = (size + 0.5, unit)
                continue
            if token.kind in chars_of("HALFWORD"):
                half = True
            else:
                count = token
        elif token.kind in _UNIT_OF:
            size = 0.0 if half and count is None else count_of(count)
            if half:
                size += 0.5
            dated = count is not None and count.kind in chars_of("YEAR") and bool(count.text)
            if not size or (dated and unit_of(token) == "year"):
                raise LookupError("no duration")
            found.append((size, unit_of(token)))
            count, half = None, False
    return found


_FUTURE = re.compile("(?:गा|गे|गी|ऊंगा|ऊँगा|होंगे)(?![\u0900-\u097f])")
_PAST = re.compile("(?<![\u0900-\u097f])(?:था|थे|थी|गया|गई|हुआ|हुई|किया)(?![\u0900-\u097f])")
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


DURATION = (
    "(COUNT|HALFWORD) OF? HALFWORD? UNIT (AND? A? HALFWORD)? "
    "((COMMA|AND)* (COUNT|HALFWORD) UNIT (AND? A? HALFWORD)?)*"
)


def _back(context: Context, m: Match) -> Span:
    parts = amounts(m)
    if len(parts) == 1:
        loose = m.one("FEW", "COUPLE")
        if loose is not None:
            kind = FEW if loose.kind in chars_of("FEW") else COUPLE
            unit = parts[0][1]
            far, near = _LOOSE[kind]
            if unit in ("day", "week", "month", "year"):
                unit_days = 30 if unit == "month" else 1
                step = "day" if unit == "month" else unit
                first = days.plus(context.today, step, -far * unit_days)
                last = days.plus(context.today, step, -near * unit_days)
                return Span(first, last, parts[0][1], 0.8, relative=True)
    return exact(moved(context.today, parts, -1), 0.95, relative=True)


@PERIODS("every", "EVERY (UNIT | DAY | WDAY | PART) (TO DAY)?")
@PERIODS("no window", "VOID")
@PERIODS("no window", f"{DURATION} PBEFORE")
def _void(context: Context, m: Match) -> Span | None:
    """What recurs, or has no bounds, or does not exist: read, but no window."""
    if m.has("PBEFORE") and not any(t.value == "void" for t in m.all("PBEFORE")):
        return None
    return Span(None, None, "none", void=True)


@PERIODS("ago", f"{DURATION} (AGO|EARLIERIN)")
@PERIODS("ago", f"PREAGO {DURATION} AGO?")
def _ago(context: Context, m: Match) -> Span | None:
    if _counted_from(m):
        return None
    try:
        return _back(context, m)
    except OverflowError:
        return Span(None, None, "none", void=True)


def _counted_from(m: Match) -> bool:
    """Whether the duration is counted from a day just named, as in "two days from tomorrow"."""
    before, first = m.before, m.back(2)
    return (
        before is not None
        and first is not None
        and before.kind in _LINKS_BACK
        and first.kind in _DAYS
    )


_LINKS_BACK = frozenset().union(*map(chars_of, ["FROM", "OF", "PSINCE", "PAFTER"]))
_DAYS = frozenset().union(*map(chars_of, ["REL", "DATE", "EITHER", "DAY", "FROM"]))


@PERIODS("about ago", "ADJACENT UNIT AGO")
@PERIODS("about ahead", "ADJACENT UNIT (LATER | PAFTER)")
@PERIODS("rolling", "(PAST | PREV) ADJACENT UNIT")
@PERIODS("rolling ahead", "COMING ADJACENT UNIT")
def _adjacent(context: Context, m: Match) -> Span:
    """Two numbers in a row, three or four: from the nearer to the farther, or rolling by the upper."""
    near, far = divmod(m.number("ADJACENT"), 10)
    unit = unit_of(m.all("UNIT")[0])
    if m.tokens[0].kind not in chars_of("ADJACENT"):
        return _rolling(context, [(far, unit)], 1 if m.has("COMING") else -1)
    today = context.today
    if m.has("AGO"):
        return Span(
            days.plus(today, unit, -far), days.plus(today, unit, -near), unit, 0.8, relative=True
        )
    return Span(days.plus(today, unit, near), days.plus(today, unit, far), unit, 0.8, relative=True)


@PERIODS("about ahead", "(FEW | COUPLE) UNIT (LATER | PAFTER)")
def _few_ahead(context: Context, m: Match) -> Span | None:
    if "tens" not in context.options:
        return None
    unit = unit_of(m.all("UNIT")[0])
    far = 5 if m.has("FEW") else 3
    first, last = days.plus(context.today, unit, 2), days.plus(context.today, unit, far)
    return Span(first, last, unit, 0.7, relative=True)


@PERIODS("day", "EITHER")
def _yesterday_or_tomorrow(context: Context, m: Match) -> Span:
    """Hindi says one word for both; the tense of the sentence decides, and the past by default."""
    ahead = _FUTURE.search(context.text) is not None and _PAST.search(context.text) is None
    offset = m.number("EITHER") * (1 if ahead else -1)
    return exact(days.plus_days(context.today, offset), 0.7, relative=True)


@PERIODS("weekend", "THE? (MOD UWEEK?)? DAY AND? DAY")
def _both_days(context: Context, m: Match) -> Span | None:
    """Saturday and Sunday said one after the other are one weekend."""
    if [t.value for t in m.all("DAY")] != [6, 7] or "weekday_of_this_week" not in context.options:
        return None
    monday = days.plus(days.week(context.today)[0], "week", shift_of(m) if m.has("MOD") else 0)
    return Span(days.plus_days(monday, 5), days.plus_days(monday, 6), "weekend", 0.9)


@PERIODS("from now", f"(PRELATER|LATER)? {DURATION} LATER")
@PERIODS("from now", f"PRELATER {DURATION} (?! AFTER | BEFORE | FROM | PAFTER | SINCE)")
def _ahead(context: Context, m: Match) -> Span | None:
    parts = amounts(m)
    if _counted_from(m) or (m.has("OF") and parts[0][1] in ("decade", "century")):
        return None
    return exact(moved(context.today, parts, 1), 0.95, relative=True)


@PERIODS("hours", "THE? (PREV|PAST) COUNT? OF? UTIME")
@PERIODS("hours", "THE? COUNT (PREV|PAST) UTIME")
@PERIODS("hours", "COUNT UTIME WITHINPOST")
def _hours(context: Context, m: Match) -> Span:
    minutes = count_of(m.one("COUNT")) * days.MINUTES_OF[unit_of(m.all("UTIME")[0])]
    if unit_of(m.all("UTIME")[0]) == "second":
        minutes /= 60
    start = context.now - timedelta(minutes=minutes)
    return Span(
        start.date(), context.today, "hour", 0.95, relative=True, moments=(start, context.now)
    )


@PERIODS("ago", "COUNT OF? UTIME AGO")
@PERIODS("ago", "PREAGO COUNT OF? UTIME")
@PERIODS("from now", "PRELATER COUNT UTIME LATER?")
@PERIODS("from now", "COUNT UTIME LATER")
def _time_away(context: Context, m: Match) -> Span:
    minutes = count_of(m.one("COUNT")) * days.MINUTES_OF[unit_of(m.all("UTIME")[0])]
    if unit_of(m.all("UTIME")[0]) == "second":
        minutes /= 60
    sign = -1 if m.has("AGO", "PREAGO") else 1
    return exact((context.now + timedelta(minutes=sign * minutes)).date(), 0.9, relative=True)


@PERIODS("weekdays away", "NUM WEEKDAY LATER")
@PERIODS("weekdays away", "NUM WEEKDAY AGO")
def _weekdays_away(context: Context, m: Match) -> Span:
    weekday, count = m.number("WEEKDAY") - 1, m.number("NUM")
    gap = (weekday - context.today.weekday()) % 7
    if m.has("LATER"):
        away = (gap or 7) + 7 * (count - 1)
    else:
        away = gap - 7 - 7 * (count - 1)
    return exact(days.plus_days(context.today, away), 0.95, relative=True)


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
        return _rolling(context, [(1, unit)], count)
    if unit == "weekend" and count == -1:
        # The latest Saturday before today's weekend; on a weekend, not the running one.
        saturday = days.plus_days(days.week(today)[0], -2)
        return Span(saturday, days.plus_days(saturday, 1), "weekend", 0.95, relative=True)
    first, last = days.period(unit, days.plus(days.period(unit, today)[0], unit, count))
    return Span(first, last, unit, 0.95, relative=True)


def _rolling(
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


@PERIODS("rolling", f"THE? (PREV|PAST) (THE|OF)* {DURATION}")
@PERIODS("rolling", f"THE? {DURATION} (PREV|PAST)")
@PERIODS("rolling", "THE? (NUM|FEW|COUPLE) (PREV|PAST) UNIT")
@PERIODS("rolling", f"{DURATION} WITHINPOST")
@PERIODS("rolling", f"IN? THE? PAST (THE|OF)* {DURATION}")
def _last_units(context: Context, m: Match) -> Span | None:
    if _one_of_several(m) or _counted_from(m):
        return None
    return _rolling(context, amounts(m), -1)


def _one_of_several(m: Match) -> bool:
    """Whether the number belongs to something else: "only 3 next week"."""
    unit = m.all("UNIT")[0]
    return (
        unit.value == 1
        and m.tokens[0].kind in chars_of("NUM")
        and m.tokens[-1] is unit
        and m.number("NUM") > 1
    )


@PERIODS("rolling", "THE? PAST UNIT")
def _past_unit(context: Context, m: Match) -> Span:
    return _rolling(context, [(1, unit_of(m.all("UNIT")[0]))], -1)


@PERIODS("rolling ahead", f"(THE|WITHIN)* (NEXT|COMING) (THE|OF)* {DURATION}")
@PERIODS("rolling ahead", f"THE? {DURATION} (NEXT|COMING)")
@PERIODS("rolling ahead", "THE? (NUM|FEW|COUPLE) (NEXT|COMING) UNIT")
@PERIODS("rolling ahead", f"WITHIN {DURATION} (?! BEFORE | AFTER | FROM | SINCE)")
@PERIODS("rolling ahead", "THE? COMING UNIT")
def _next_units(context: Context, m: Match) -> Span | None:
    parts = amounts(m)
    if _one_of_several(m):
        return None
    if not m.has("COUNT", "HALFWORD"):
        parts = [(1, unit_of(m.all("UNIT")[0]))]
    return _rolling(context, parts, 1, m.has("NEXT") and not m.has("COMING"))


@PERIODS("period", "PERIOD")
def _lexical_period(context: Context, m: Match) -> Span:
    """Words that name a span by themselves: the value holds two offsets, such as "-3d -1d"."""
    first, last = (
        days.plus(
            context.today, {"d": "day", "w": "week", "m": "month", "y": "year"}[o[-1]], int(o[:-1])
        )
        for o in m.word("PERIOD").split()
    )
    return Span(first, last, "day", 0.85, relative=True)


@PERIODS("day", "REL (OF? PART | COLON)?")
def _relative_day(context: Context, m: Match) -> Span:
    return exact(days.plus_days(context.today, m.number("REL")), relative=True)


@PERIODS("part of the day", "(THIS | NEXT | PREV) PART")
@PERIODS("part of the day", "PART (THIS | NEXT | PREV)")
def _part(context: Context, m: Match) -> Span:
    return exact(days.plus_days(context.today, shift_of(m)), 0.95, relative=True)


@PERIODS("week and weekday", "THE? MOD UWEEK (ON|DASH|COMMA|OF|AND)* THE? WEEKDAY")
@PERIODS("week and weekday", "THE? UWEEK MOD (ON|DASH|COMMA|OF|AND)* THE? WEEKDAY")
@PERIODS("week and weekday", "ON? THE? WEEKDAY (OF|IN|COMMA|THE|FROM)* MOD UWEEK")
@PERIODS("week and weekday", "ON? THE? WEEKDAY (OF|IN|COMMA|THE|FROM)* UWEEK MOD")
@PERIODS("week and weekday", "WEEKOFF (ON|OF)? WEEKDAY")
def _weekday_of_week(context: Context, m: Match) -> Span:
    weeks = m.number("WEEKOFF") if m.has("WEEKOFF") else shift_of(m)
    monday = days.week(context.today)[0]
    return exact(days.plus_days(monday, 7 * weeks + m.number("WEEKDAY") - 1), 0.95, relative=True)


@PERIODS(
    "weekday",
    "THE? THIS? (NEXT|PREV) WEEKDAY (?! LINK* (NUM|ORD|MD|MON) | (OF|IN) THE? (DATE|MOD UNIT|UYEARS? YEAR))",
)
@PERIODS("weekday", "THE? THIS WEEKDAY (NEXT|PREV)? (?! LINK* (NUM|ORD|MD|MON))")
@PERIODS("weekday", "THE? WEEKDAY (OF|THE)* MOD (?! UNIT)")
def _moved_weekday(context: Context, m: Match) -> Span:
    """Last: the latest before today. This: the one of this week. Next: the one of next week, but
    "coming" and "this next" the first after today."""
    weekday = m.number("WEEKDAY") - 1
    today = context.today
    strong = m.one("PREV", "NEXT")
    if strong is None:
        found = days.plus_days(days.week(today)[0], weekday)
    elif "weekday_of_this_week" in context.options:
        found = days.plus_days(days.week(today)[0], 7 * shift_of(m) + weekday)
    elif strong.kind in chars_of("PREV"):
        found = days.plus_days(today, -((today.weekday() - weekday - 1) % 7 + 1))
        found = days.plus_days(found, 7 * (_far(strong) - 1) * -1)
    elif strong.value is None and not m.has("THIS"):
        found = days.plus_days(days.week(today)[0], 7 + weekday)
    else:
        found = days.plus_days(today, (weekday - today.weekday() - 1) % 7 + 1)
        found = days.plus_days(found, 7 * (_far(strong) - 1))
    return exact(found, 0.95, relative=True)


def _far(token: Token) -> int:
    return abs(token.value) if isinstance(token.value, int) else 1


# What follows "this may" where it is a verb.
_VERBS = frozenset().union(*map(chars_of, ["X", "OR", "A", "AND", "NUM", "ORD"]))


@PERIODS("calendar month", "THE? MOD (OF)? MON")
@PERIODS("calendar month", "THE? MON (OF|THE)* MOD (?! UNIT)")
def _moved_month(context: Context, m: Match) -> Span | None:
    if m.has("THIS") and m.has("WMONTH") and m.after is not None and m.after.kind in _VERBS:
        return None
    first, last = days.month(context.today.year + shift_of(m), m.number("MON"))
    return Span(first, last, "month", 0.9, relative=True)


def bounds(span: Span) -> tuple[date, date]:
    """First and last day of a span; LookupError where a side is open."""
    if span.first is None or span.last is None:
        raise LookupError("an open span")
    return span.first, span.last


def cut(context: Context, span: Span, part: str) -> Span | None:
    """The early, middle or late part of a period.

    A named year has thirds, a year told from the anchor halves, a month 1-15, 10-20 and 16 to its
    end (in Chinese tens of days), a week Monday-Wednesday, Tuesday-Friday and Thursday-Sunday.
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
    elif span.grain in ("decade", "century", "quarter", "half", "season", "weekend"):
        third = ((last - first).days + 1) // 3
        a = days.plus_days(first, third * at)
        b = last if at == 2 else days.plus_days(a, third - 1)
    else:
        return None
    return change(
        span, first=a, last=b, part=part, whole=(first, last), confidence=span.confidence * 0.95
    )


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


@PERIODS("to date", "(THE|THIS)? UNIT TODATE")
@PERIODS("to date", "TODATE OF? (THE|THIS)? UNIT")
def _to_date(context: Context, m: Match) -> Span:
    """From the start of the running period up to yesterday."""
    first, _ = days.period(unit_of(m.all("UNIT")[0]), context.today)
    return Span(first, days.plus_days(context.today, -1), "day", 0.9, relative=True)


@PERIODS("rest of", "THE? REST (OF|THE|THIS)* UNIT")
@PERIODS("rest of", "THIS? UNIT (OF|THE)* REST")
def _rest(context: Context, m: Match) -> Span:
    _, last = days.period(unit_of(m.all("UNIT")[0]), context.today)
    return Span(context.today, last, "day", 0.9, relative=True)


@PERIODS("earlier in the period", "(EARLIER|EARLIERIN) (IN|OF|THE)* THIS? UNIT")
@PERIODS("earlier in the period", "THIS UNIT EARLIER")
def _earlier(context: Context, m: Match) -> Span | None:
    return earlier_in(context, shifted(context, unit_of(m.all("UNIT")[0]), 0))


@PERIODS("later in the period", "(LATERIN|LATER) (IN|OF|THE)* THIS? UNIT")
@PERIODS("later in the period", "THIS UNIT LATERIN")
def _later(context: Context, m: Match) -> Span | None:
    return later_in(context, shifted(context, unit_of(m.all("UNIT")[0]), 0))


_OF_PERIOD = "(EARLY|MID|LATE|EARLIER)"


@PERIODS("calendar period", "THE? MOD UNIT (?! (OF|IN) (THE|OF)* (MON|YEAR|UNIT|MOD UNIT|DATE))")
@PERIODS("calendar period", "THE? (THIS|NEXT) UNIT")
@PERIODS("calendar period", "THE? UNIT (OF|THE)* MOD (?! UNIT | OF MON | MON)")
def _moved_period(context: Context, m: Match) -> Span | None:
    modifier = m.one("MOD")
    if modifier is not None and modifier.kind in chars_of("LASTORD") and m.before is not None:
        if m.before.kind in _WHOLES:
            return None  # Turkish, Korean: the last week of what was just named
    return shifted(context, unit_of(m.all("UNIT")[0]), shift_of(m))


_WHOLES = frozenset().union(*map(chars_of, "OF LOC MON DATE YEAR UYEARS".split()))


@PERIODS("rolling", "THIS (NUM | FEW) UNIT")
def _these(context: Context, m: Match) -> Span | None:
    if m.has("MDAY"):
        return None
    parts = amounts(m)
    return _rolling(context, parts, -1) if parts[0][0] > 1 else None


@PERIODS("calendar period", "UNIT AFTER THE? NEXT (?! UNIT | WEEKDAY | MON | HOLIDAY)")
@PERIODS("calendar period", "UNIT BEFORE THE? PREV (?! UNIT | WEEKDAY | MON | HOLIDAY)")
def _but_one(context: Context, m: Match) -> Span:
    return shifted(context, unit_of(m.all("UNIT")[0]), 2 if m.has("NEXT") else -2)


@PERIODS("calendar period", "UNIT AFTERNEXT")
@PERIODS("calendar period", "YEAROFF | MONTHOFF | WEEKOFF | WEEKENDOFF")
def _lexical_calendar_period(context: Context, m: Match) -> Span:
    if m.has("AFTERNEXT"):
        token = m.all("AFTERNEXT")[0]
        return shifted(
            context, unit_of(m.all("UNIT")[0]), 2 if token.value is None else int(str(token.value))
        )
    token = m.tokens[0]
    names = {"YEAROFF": "year", "MONTHOFF": "month", "WEEKOFF": "week", "WEEKENDOFF": "weekend"}
    unit = next(u for k, u in names.items() if token.kind in chars_of(k))
    return shifted(context, unit, int(str(token.value)))


@PERIODS("calendar period", "(?<= OF | IN | THE) (UWEEK | UMONTH | UQUARTER | UYEAR)")
def _the_period(context: Context, m: Match) -> Span | None:
    """"The last day of the month": the running one, where an ordinal asks for a part of it."""
    for steps in range(2, 7):
        token = m.back(steps)
        if token is None or token.kind == OTHER:
            return None
        if token.kind in _ORDINALS:
            return change(shifted(context, unit_of(m.tokens[0]), 0), confidence=0.85)
    return None


_ORDINALS = chars_of("ORD") | chars_of("LASTORD") | chars_of("PREV")


@PERIODS("fiscal year", "(IN|THE|OF)* FISCAL UYEAR? OF? (YEAR|NUM)")
@PERIODS("fiscal year", "(IN|THE|OF)* MOD FISCAL UYEAR?")
def _fiscal_year(context: Context, m: Match) -> Span | None:
    start = context.settings.fiscal_year_start_month
    number = m.one("YEAR", "NUM")
    if number is None:
        today = context.today
        year = today.year + (start > 1 and today.month >= start) + shift_of(m)
    else:
        year = year_of(context, number)
    first = days.day(year - (start > 1), start, 1)
    return Span(first, days.plus_days(days.plus_months(first, 12), -1), "year", 0.9, explicit=True)


_LINKS = "(OF|IN|COMMA|DASH|SLASH|THE)*"
_YEAR_OF = "THE? UYEARS? YEAR YMARK?"
_TAIL = "(TO|PUNTIL|PBETWEEN|OF)*"


@PERIODS("quarter", f"(IN|THE)* (QN | ORD UQUARTER | UQUARTER NUM) {_LINKS} UYEARS? YEAR YMARK?")
@PERIODS("quarter", f"YEAR YMARK? {_LINKS} (QN | ORD UQUARTER | UQUARTER NUM | NUM UQUARTER)")
@PERIODS("half", f"(IN|THE)* (HN | ORD (UHALF | HALFWORD)) {_LINKS} UYEARS? YEAR YMARK?")
@PERIODS("half", f"YEAR YMARK? {_LINKS} (HN | ORD (UHALF | HALFWORD))")
def _part_of_year(context: Context, m: Match) -> Span:
    return part_of_year(m, m.number("YEAR"))


def part_of_year(m: Match, year: int) -> Span:
    """The quarter or half that a match names, in this year."""
    if m.has("HN", "UHALF", "HALFWORD"):
        size, number = 6, m.number("HN", "ORD")
    else:
        size, number = 3, m.number("QN", "ORD", "NUM")
    if not 1 <= number <= 12 // size:
        raise LookupError("no such part")
    first, last = days.months(year, size * (number - 1) + 1, size * number)
    return Span(first, last, "half" if size == 6 else "quarter", explicit=True)


@PERIODS("season", f"(IN|THE|OF)* SEASON {_LINKS} UYEARS? YEAR YMARK?")
@PERIODS("season", f"YEAR YMARK? {_LINKS} SEASON")
def _season_of_year(context: Context, m: Match) -> Span:
    return season(context, m.number("SEASON"), m.number("YEAR"))


@PERIODS("season", "THE? MOD SEASON")
@PERIODS("season", "THE? SEASON MOD")
def _moved_season(context: Context, m: Match) -> Span:
    number, shift, today = m.number("SEASON"), shift_of(m), context.today
    near = [season(context, number, y) for y in range(today.year - 2, today.year + 3)]
    if shift < 0:
        past = [s for s in near if s.last is not None and s.last < today]
        return past[shift]
    if shift > 0:
        return [s for s in near if s.first is not None and s.first > today][shift - 1]
    for found in near:
        if found.first and found.last and found.first <= today <= found.last:
            return found
    return near[2]


@PERIODS("season", "(IN|DURING|SINCE) THE? SEASON (?! X SEASON)")
def _season(context: Context, m: Match) -> Span | None:
    if m.has("SINCE"):
        return None
    return latest_season(context, m.number("SEASON"))


def latest_season(context: Context, number: int) -> Span:
    """The latest instance of a season that has begun."""
    today = context.today
    for year in (today.year, today.year - 1, today.year - 2):
        found = season(context, number, year)
        if found.first is not None and found.first <= today:
            return change(found, confidence=0.85)
    raise OverflowError


def season(context: Context, number: int, year: int) -> Span:
    """Season 1-4 (spring first) that starts in this year: meteorological, three whole months."""
    if context.settings.hemisphere == "south":
        number = (number + 1) % 4 + 1
    first = days.day(year, 3 * number, 1)
    last = days.plus_days(days.plus_months(first, 3), -1)
    return Span(first, last, "season", 0.95)


@PERIODS("decade", "(IN|THE)* (NUM|ORD) UCENTURY OF? (THE|OF)* NUM DECS")
def _decade_of_century(context: Context, m: Match) -> Span:
    numbers = m.all("NUM", "ORD")
    century = m.number("NUM", "ORD")
    tens = int(str(numbers[-1].value))
    first = (century - 1) * 100 + tens // 10 * 10
    return _decade(first)


def _decade(first: int) -> Span:
    start, end = days.years(first, first + 9)
    return Span(start, end, "decade", 0.95)


@PERIODS("decade", "(IN|THE|OF)* UDECADE? (OF|THE)* YEAR DECS UDECADE?")
@PERIODS("decade", "(IN|THE|OF)* (DECPRE|UDECADE) (OF|THE)* YEAR")
@PERIODS("decade", "(IN|THE|OF)* YEAR OF? UDECADE")
@PERIODS("decade", "YEAR YMARK? DECS")
def _decade_of_year(context: Context, m: Match) -> Span:
    return _decade(m.number("YEAR") // 10 * 10)


@PERIODS("decade", "(IN|THE|OF)* (DECPRE|UDECADE) (OF|THE)* APOSTROPHE? NUM")
@PERIODS("decade", "(IN|THE|OF)* APOSTROPHE? NUM APOSTROPHE? DECS UDECADE?")
@PERIODS("decade", "(IN|THE|OF)* NUM (OF UDECADE | UDECADE OF)")
@PERIODS("decade", "(IN|THE|OF)* UYEAR APOSTROPHE? (NUM | YEAR)")
def _decade_of_two_digits(context: Context, m: Match) -> Span | None:
    if m.has("UYEAR") and m.all("UYEAR")[0].value != 2:
        return None
    if m.before is not None and m.before.kind in chars_of("UCENTURY"):
        return None
    tens = m.number("NUM", "YEAR")
    if m.has("YEAR"):
        return _decade(tens) if tens % 10 == 0 else None
    if tens % 10 or tens > 99:
        return None
    century = context.today.year // 100 * 100
    first = century + tens
    return _decade(first if first <= context.today.year else first - 100)


@PERIODS("decade", "(IN|THE|OF)* (DECPRE|UDECADE)? (OF|THE)* NUM? (DASH)? DECADE UDECADE?")
def _decade_in_words(context: Context, m: Match) -> Span:
    value = m.number("DECADE")
    if m.has("NUM"):
        value = m.number("NUM") * 100 + value
    elif value < 100:
        century = context.today.year // 100 * 100
        value += century if century + value <= context.today.year else century - 100
    return _decade(value)


@PERIODS("century", "(IN|THE)* (ORD | NUM ORDEND?) UCENTURY")
@PERIODS("century", "UCENTURY (ORD | NUM)")
def _century(context: Context, m: Match) -> Span:
    number = m.number("ORD", "NUM")
    first, last = days.years(max(1, (number - 1) * 100), number * 100 - 1)
    return Span(first, last, "century", 0.95)


@PERIODS("years", f"(FROM|BETWEEN) {_YEAR_OF} FROM? (TO|UNTIL|DASH|AND) {_YEAR_OF} {_TAIL}")
@PERIODS("years", f"{_YEAR_OF} (DASH|TO|UNTIL) {_YEAR_OF} {_TAIL}")
@PERIODS("years", f"{_YEAR_OF} (FROM|TO|AND|DASH) {_YEAR_OF} OF? (TO|PUNTIL|PBETWEEN)")
def _years(context: Context, m: Match) -> Span | None:
    first, last = (int(str(t.value)) for t in m.all("YEAR"))
    if not (plausible(context, first) and plausible(context, last) and first < last):
        return None
    return Span(*days.years(first, last), "year", 0.9, explicit=True)


@PERIODS("week number", f"(IN|THE)* UWEEK OF? NUM {_LINKS} UYEARS? YEAR YMARK?")
@PERIODS("week number", f"YEAR YMARK? {_LINKS} UWEEK NUM")
@PERIODS("week number", f"YEAR YMARK? {_LINKS} ORD UWEEK")
@PERIODS("week number", "(IN|THE)* UWEEK NUM (?! UNIT)")
@PERIODS("week number", "NUM ORDEND UWEEK")
@PERIODS("week number", "WEEKN")
def _numbered_week(context: Context, m: Match) -> Span | None:
    if m.has("NUM") and not m.all("NUM")[0].text:
        return None
    number = m.number("NUM", "ORD", "WEEKN")
    year = m.number("YEAR") if m.has("YEAR") else context.today.year
    first, last = days.iso_week(year, number)
    if not 1 <= number <= 53 or days.plus_days(first, 3).year != year:
        raise OverflowError("no such week")
    return Span(first, last, "week", 0.9)


def plausible(context: Context, year: int) -> bool:
    """Whether a lone number can be meant as a year, seen from the anchor."""
    return max(1, context.today.year - 120) <= year <= context.today.year + 20


@PERIODS(
    "year",
    "(IN|DURING) (OF|THE|DASH)* UYEAR? OF? YEAR YMARK? (?! DOT NUM | SLASH | DASH NUM | MON)",
)
@PERIODS("year", "IN NUM YMARK")
@PERIODS("year", "YEAR YMARK")
@PERIODS("year", "YEAR (UYEAR | LOC) (?! MON | OF? MON)")
@PERIODS(
    "year", "NUM YMARK (?! AGO | LATER | UNIT | HALFWORD | PAFTER | PBEFORE | MON | WITHINPOST)"
)
@PERIODS("year", "UYEAR OF? YEAR (?! MON)")
def _year(context: Context, m: Match) -> Span | None:
    token = m.all("YEAR")[0] if m.has("YEAR") else m.all("NUM")[0]
    if token.kind in chars_of("NUM"):
        if len(token.text) == 3:
            return _whole_year(m.number("NUM"))
        if len(token.text) != 2 and not (m.number("NUM") < 10 and _two_words(token)):
            return None
        return _whole_year(year_of(context, token))
    year = m.number("YEAR")
    spelled = not token.text
    if not plausible(context, year) and not (
        (m.has("UYEAR", "YMARK") or spelled) and 1000 <= year <= 2999
    ):
        return None
    if m.has("YMARK") and not plausible(context, year) and not m.has("IN"):
        return _whole_year(year) if year < context.today.year else None
    return _whole_year(year)


def _two_words(token: Token) -> bool:
    return token.end - token.start == 2


def _whole_year(year: int) -> Span:
    first, last = days.year(year)
    return Span(first, last, "year", 0.95, explicit=True)


@PERIODS("year", "UYEAR NUM (?! UNIT)")
@PERIODS("year", "NUM UYEAR LOC")
def _small_year(context: Context, m: Match) -> Span | None:
    token = m.all("NUM")[0]
    return _whole_year(m.number("NUM")) if len(token.text) == 3 else None


@PERIODS("now", "RECENT")
def _now(context: Context, m: Match) -> Span:
    return exact(context.today, 0.7, relative=True)
