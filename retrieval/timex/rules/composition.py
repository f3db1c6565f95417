"""Rules that build on what is already read: the first week of May, two days after, early 2024."""

from __future__ import annotations

from retrieval.timex.calendar import days
from retrieval.timex.calendar.spans import (
    PHASES,
    amounts,
    bounds,
    cut,
    earlier_in,
    half_of,
    later_in,
    moved,
    phase_of,
    plausible,
    shift_of,
    shifted,
    unit_of,
)
from retrieval.timex.engine.grammar import Context, Match, Rules, Span, change, chars_of
from retrieval.timex.rules.dates import day_of_month, exact, latest_month
from retrieval.timex.rules.eras import part_of_year, season
from retrieval.timex.rules.relative import DURATION

COMPOSED = Rules()
"""Run before and after the bare words are read."""

_IN = "(OF|IN|THE|ON|COMMA|DASH)*"
_P = "(DATE | MON | UYEAR? YEAR YMARK?)"


def scope(context: Context, m: Match) -> Span:
    """The period that a composition refers to: a span, or a month by its name."""
    spans = m.spans()
    if spans and m.has("MON"):  # "March last year"
        if spans[-1].grain != "year":
            raise LookupError("no year")
        return Span(*days.month(bounds(spans[-1])[0].year, m.number("MON")), "month", 0.95)
    if spans:
        return spans[-1]
    if m.has("YEAR"):
        year = m.number("YEAR")
        if not plausible(context, year):
            raise LookupError("no year")
        return Span(*days.year(year), "year", 0.95, explicit=True)
    return latest_month(context, m.number("MON"))


def _nth(m: Match) -> int:
    token = m.one("ORD", "LASTORD", "PREV") or m.one("NUM")
    if token is None:
        return 1
    if token.kind in chars_of("LASTORD") | chars_of("PREV"):
        return -1
    return int(str(token.value))


@COMPOSED("weekday of the period", f"THE? (ORD|LASTORD|PREV) WEEKDAY {_IN} MON {_IN} DATE")
@COMPOSED("weekday of the period", f"THE? (ORD|LASTORD|PREV) WEEKDAY {_IN} {_P}")
@COMPOSED("weekday of the period", f"WEEKDAY (ORD|LASTORD) (OF|IN)+ {_P}")
@COMPOSED("weekday of the period", f"{_P} OF? (THE|OF|IN)* (ORD|LASTORD|PREV) WEEKDAY")
def _weekday_of(context: Context, m: Match) -> Span | None:
    span = scope(context, m)
    if span.grain not in ("month", "year", "quarter"):
        return None
    return exact(days.nth_weekday(bounds(span), m.number("WEEKDAY") - 1, _nth(m)), 0.95)


@COMPOSED("part of the period", f"THE? (ORD|LASTORD) UNIT {_IN} MON {_IN} DATE")
@COMPOSED("part of the period", f"THE? (ORD|LASTORD|PREV) UNIT {_IN} {_P}")
@COMPOSED("part of the period", f"THE? (ORD|LASTORD|PREV) FULL UNIT {_IN} {_P}")
@COMPOSED("part of the period", f"THE? (ORD|LASTORD|PREV) UNIT FULL {_IN} {_P}")
@COMPOSED("part of the period", f"REL LASTORD (OF|IN)+ {_P}")
@COMPOSED("part of the period", f"{_P} OF? (THE|OF|IN)* (ORD|LASTORD) UNIT")
@COMPOSED("part of the period", f"(UWEEK|UWEEKEND|UQUARTER|UMONTH) (ORD|LASTORD) (OF|IN)+ {_P}")
def _unit_of(context: Context, m: Match) -> Span | None:
    span, nth = scope(context, m), _nth(m)
    first, last = bounds(span)
    unit = "day" if m.has("REL") else unit_of(m.all("UNIT")[0])
    if unit == "workday":
        start = days.plus_days(first, -1) if nth > 0 else days.plus_days(last, 1)
        return exact(days.plus(start, unit, nth), 0.95)
    if unit == "week":
        if span.grain not in ("month", "year", "quarter"):
            return None
        if m.has("FULL"):
            monday = days.nth_weekday((first, days.plus_days(last, -6)), 0, nth)
            return Span(*days.week(monday), "week", 0.95)
        if span.grain == "year" and nth > 0:
            return Span(*days.iso_week(first.year, nth), "week", 0.95)
        return Span(*days.nth_week((first, last), nth), "week", 0.95)
    if unit == "fortnight" and span.grain == "month" and context.language != "en":
        return half_of(span, nth if nth > 0 else 2)  # Spanish "quincena"
    if unit == "day":
        found = days.plus_days(first, nth - 1) if nth > 0 else last
        return exact(found, 0.95) if first <= found <= last else None
    if unit == "weekend":
        saturday = days.nth_weekday((first, last), 5, nth)
        return Span(saturday, days.plus_days(saturday, 1), "weekend", 0.95)
    if nth > 0:
        start = days.plus(first, unit, nth - 1)
    else:
        start = days.plus(days.plus_days(last, 1), unit, -1)
    end = days.plus_days(days.plus(start, unit, 1), -1)
    return Span(start, end, unit, 0.95) if first <= start and end <= last else None


@COMPOSED("first or last units", f"THE? (ORD|LASTORD|PREV) NUM UNIT {_IN} {_P}")
@COMPOSED("first or last units", f"THE? NUM (ORD|LASTORD|PREV) UNIT {_IN} {_P}")
@COMPOSED("first or last units", f"{_P} OF? THE? (ORD|LASTORD|PREV) NUM UNIT")
@COMPOSED("first or last units", f"UNIT NUM (ORD|LASTORD) (OF|IN)+ {_P}")
def _edge_units(context: Context, m: Match) -> Span | None:
    if m.number("NUM") == 1:
        return _unit_of(context, m)
    span = scope(context, m)
    first, last = bounds(span)
    parts = [(float(m.all("NUM")[0].value or 0), unit_of(m.all("UNIT")[0]))]  # type: ignore[arg-type]
    if parts[0][1] == "week" and span.grain == "year":
        week = days.nth_week((first, last), -1 if _nth(m) < 0 else 1)
        first, last = (first, week[1]) if _nth(m) < 0 else (week[0], last)
    if _nth(m) < 0:
        return Span(days.plus_days(moved(last, parts, -1), 1), last, "day", 0.9)
    return Span(first, days.plus_days(moved(first, parts, 1), -1), "day", 0.9)


@COMPOSED("first units", f"{_P} OF? PAST NUM UNIT")
def _first_units(context: Context, m: Match) -> Span | None:
    """Chinese 前 is "the first" where a period has it, and "before now" elsewhere."""
    span = scope(context, m)
    if m.one("PAST") is not m.one("AGO") or span.grain not in ("month", "year", "quarter", "week"):
        return None
    first, last = bounds(span)
    parts = [(float(m.number("NUM")), unit_of(m.all("UNIT")[0]))]
    if parts[0][1] == "week" and span.grain == "year":
        first = days.nth_week((first, last), 1)[0]
    return Span(first, days.plus_days(moved(first, parts, 1), -1), "day", 0.9)


@COMPOSED("week of", "THE? UWEEK (STARTING|OF|IN|THE|ON|FROM|BEFORE)* DATE")
@COMPOSED("week of", "DATE (OF|STARTING|FROM|LOC)* UWEEK")
@COMPOSED("week of", "THE? WEEKCOMMENCING DATE")
@COMPOSED("week of", "THE? WEEKENDING (ON|THE)* DATE")
@COMPOSED("month of", "THE? UMONTH (OF|IN|THE)* DATE")
@COMPOSED("month of", "DATE OF UMONTH")
def _period_of_day(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    if span.grain == "month" and m.has("UMONTH"):
        return span
    if span.grain != "day" or m.has("BEFORE"):
        return None
    if m.before is not None and m.before.kind in chars_of("COUNT"):
        return None  # "two weeks starting on Monday" are two weeks
    first, last = bounds(span)
    if m.has("WEEKENDING"):
        return Span(days.plus_days(last, -6), last, "week", 0.9)
    if m.has("STARTING", "WEEKCOMMENCING") and m.has("UWEEK", "WEEKCOMMENCING"):
        return Span(first, days.plus_days(first, 6), "week", 0.9)
    unit = "week" if m.has("UWEEK", "WEEKCOMMENCING") else "month"
    return Span(*days.period(unit, first), unit, 0.9)


@COMPOSED("weekend of", "THE? UWEEKEND OF DATE")
@COMPOSED("weekend of", "DATE UWEEKEND")
def _weekend_of(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    if span.grain != "day":
        return None
    first, _ = bounds(span)
    saturday = days.nth_weekday((days.plus_days(first, -3), days.plus_days(first, 3)), 5, 1)
    return Span(min(saturday, first), max(first, days.plus_days(saturday, 1)), "weekend", 0.8)


@COMPOSED("day of the month", "(ON|THE)* DOM DOT? UDAYS? (OF|THE|COMMA|DASH)* DATE")
@COMPOSED("day of the month", "DATE (OF|THE|ON|IN)* DOM MDAY")
@COMPOSED("day of the month", "DATE (OF|THE|ON|IN)* ORD (UDAY | (?! UNIT | HALFWORD | WEEKDAY))")
@COMPOSED("day of the month", "DATE OF? NUM DOMEND")
def _day_of(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    if span.grain != "month":
        return None
    first, _ = bounds(span)
    try:
        return exact(days.day(first.year, first.month, day_of_month(m.all("DOM")[0])), 0.95)
    except OverflowError:
        return Span(None, None, "none", void=True)


@COMPOSED(
    "days of the month", "(FROM|BETWEEN)? THE? DOM (DASH|TO|UNTIL|AND) THE? DOM (OF|IN|THE)* DATE"
)
@COMPOSED("days of the month", "DATE (FROM|BETWEEN|OF)* DOM UDAYS? FROM? (DASH|TO|AND) DOM UDAYS")
def _days_of(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    if span.grain != "month":
        return None
    month, _ = bounds(span)
    first, last = (days.day(month.year, month.month, day_of_month(t)) for t in m.all("DOM")[:2])
    return Span(first, last, "day", 0.9) if first <= last else None


@COMPOSED("days of the week", "DATE COMMA? (FROM|BETWEEN) WEEKDAY (TO|AND|DASH|UNTIL) WEEKDAY")
@COMPOSED(
    "days of the week", "(FROM|BETWEEN)? WEEKDAY (TO|AND|DASH|UNTIL) WEEKDAY (OF|THE|IN)* DATE"
)
def _days_of_week(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    if span.grain != "week":
        return None
    monday, _ = bounds(span)
    first, last = (days.plus_days(monday, int(str(t.value)) - 1) for t in m.all("WEEKDAY"))
    return Span(first, last, "day", 0.95) if first <= last else None


@COMPOSED("month of the year", f"MON DOT? {_IN} DATE")
@COMPOSED("month of the year", "DATE (OF|IN|COMMA|THE)* MON")
def _month_of(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    if span.grain != "year":
        return None
    return Span(*days.month(bounds(span)[0].year, m.number("MON")), "month", 0.95)


@COMPOSED("month and day of the year", f"DATE {_IN} DATE")
def _together(context: Context, m: Match) -> Span | None:
    """Two readings of one time, side by side: a weekday and a date, a date and its year."""
    one, two = m.spans()[:2]
    for part, scope in ((one, two), (two, one)):
        if scope.grain == "year" and part.month is not None and part.day is not None:
            return exact(days.day(bounds(scope)[0].year, part.month, part.day), 0.95)
        if scope.grain == "year" and part.event_year is not None:
            return Span(*part.event_year(bounds(scope)[0].year), part.grain, 0.95)
        if scope.grain == "year" and part.month is not None and part.grain == "month":
            return Span(*days.month(bounds(scope)[0].year, part.month), "month", 0.95)
        if scope.grain == "year" and part.rule == "week number":
            number = days.plus_days(bounds(part)[0], 3).isocalendar().week
            return Span(*days.iso_week(bounds(scope)[0].year, number), "week", 0.95)
        if scope.grain == "week" and part.weekday is not None:
            return exact(days.plus_days(bounds(scope)[0], part.weekday), 0.95)
        if scope.grain == "year" and part.grain in ("quarter", "half", "season") and part.relative:
            first, last = bounds(part)
            year = bounds(scope)[0].year
            shift = 12 * (year - first.year)
            return change(
                part,
                first=days.plus_months(first, shift),
                last=days.plus_days(days.plus_months(days.plus_days(last, 1), shift), -1),
            )
    linked = len(m.tokens) == 2 or m.has("COMMA")
    if linked and {one.grain, two.grain} == {"day"} and one.weekday is not None:
        return two
    if linked and two.weekday is not None and one.grain == "day" and (one.day or one.explicit):
        return one
    if one.grain == "day" and two.weekday is not None and one.relative:
        return one if bounds(one)[0].weekday() == two.weekday else None
    return None


@COMPOSED("weekday and date", "DATE (OPEN|DASH|THE|ON)* (MD | DATE) CLOSE?")
def _weekday_with_date(context: Context, m: Match) -> Span | None:
    """ "This Friday 7/6": the numbers say which day; the word before them, which year."""
    weekday, given = m.spans()[:2]
    if weekday.grain != "day" or not (weekday.relative or weekday.weekday is not None):
        return None
    if given.month is None or given.day is None:
        return None
    if weekday.weekday is not None:
        return change(given, confidence=0.9)
    return exact(days.day(context.today.year, given.month, given.day), 0.9)


@COMPOSED("weekday and date", "(THIS|NEXT|PREV) WEEKDAY? (OPEN|DASH|COMMA|OF)* (MD | DATE) CLOSE?")
def _moved_date(context: Context, m: Match) -> Span | None:
    given = m.spans()[0]
    if given.month is None or given.day is None:
        return None
    today = context.today
    found = days.day(today.year, given.month, given.day)
    if not m.has("WEEKDAY") and m.has("PREV"):
        found = found if found < today else days.day(today.year - 1, given.month, given.day)
    elif not m.has("WEEKDAY") and m.has("NEXT"):
        found = found if found > today else days.day(today.year + 1, given.month, given.day)
    return exact(found, 0.9)


@COMPOSED(
    "part of the year",
    f"(QN | HN | ORD UQUARTER | ORD (UHALF | HALFWORD) | NUM UQUARTER) {_IN} DATE",
)
@COMPOSED(
    "part of the year",
    "DATE (OF|IN|COMMA|THE)* (QN | HN | ORD UQUARTER | ORD (UHALF | HALFWORD) | NUM UQUARTER)",
)
def _part_of(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    if span.grain in ("month", "week", "quarter") and m.has("HN", "UHALF", "HALFWORD"):
        return half_of(span, m.number("HN", "ORD"))
    if span.grain in ("century", "decade") and m.has("HN", "UHALF", "HALFWORD"):
        begin, years = bounds(span)[0].year, 50 if span.grain == "century" else 5
        begin += years * (m.number("HN", "ORD") - 1)
        return Span(*days.years(begin, begin + years - 1), span.grain, 0.9)
    if span.grain != "year":
        return None
    first = bounds(span)[0]
    part = change(part_of_year(m, first.year), explicit=False)
    if first.month == 1 or part.first is None or part.last is None:
        return part
    later = first.month - 1  # a fiscal year that does not begin in January
    last = days.plus_days(days.plus_months(days.plus_days(part.last, 1), later), -1)
    return change(part, first=days.plus_months(part.first, later), last=last)


@COMPOSED("half of the month", f"(HN | ORD (UHALF | HALFWORD)) {_IN} MON")
@COMPOSED("half of the month", "(MON | DATE) OF? HALFMONTH")
@COMPOSED("half of the week", "DATE OF? HALFWEEK")
def _half_of(context: Context, m: Match) -> Span | None:
    unit = "week" if m.has("HALFWEEK") else "month"
    span = scope(context, m)
    number = m.number("HALFMONTH", "HALFWEEK", "HN", "ORD")
    return half_of(span, number) if span.grain == unit else None


@COMPOSED("season", f"(SEASON|LONESEASON) {_IN} DATE")
@COMPOSED("season", "DATE (OF|IN|THE)* (SEASON|LONESEASON)")
def _season_of(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    if span.grain != "year":
        return None
    return season(context, m.number("SEASON", "LONESEASON"), bounds(span)[0].year)


@COMPOSED("decade", "THE? (ORD|LASTORD) UDECADE (OF|THE)* DATE")
@COMPOSED("decade", "DATE (OF|IN|THE)* (ORD|LASTORD) UDECADE")
@COMPOSED("decade", "DATE OF? NUM DECS")
def _decade_of(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    if span.grain != "century":
        return None
    century = bounds(span)[0].year // 100 * 100
    if m.has("DECS"):
        first = century + m.number("NUM") // 10 * 10
    else:
        first = century + (10 * (_nth(m) - 1) if _nth(m) > 0 else 90)
    return Span(*days.years(first, first + 9), "decade", 0.95)


@COMPOSED("part of the period", f"(THE|IN|AT)* (EARLY|MID|LATE) (OF|IN|THE|DASH)* {_P}")
@COMPOSED("part of the period", f"{_P} (OF|THE|DASH|IN)* (EARLY|MID|LATE)")
def _cut(context: Context, m: Match) -> Span | None:
    if m.has("PBETWEEN"):  # Hindi "between" and "the middle" are one word
        first, last = bounds(scope(context, m))
        if (last - first).days > 31 and len(m.spans()) == 1 and m.spans()[0].grain == "month":
            return m.spans()[0]
        if m.before is not None and m.before.kind in chars_of("AND"):
            return None
    if m.has("EARLY"):
        span = scope(context, m)
        return earlier_in(context, span) if span.relative else cut(context, span, "early")
    return cut(context, scope(context, m), "mid" if m.has("MID") else "late")


@COMPOSED("to date", "DATE TODATE")
def _to_date(context: Context, m: Match) -> Span:
    first, last = bounds(m.spans()[0])
    if last < context.today:
        return Span(first, context.today, "day", 0.9, relative=True)
    return Span(first, days.plus_days(context.today, -1), "day", 0.9, relative=True)


@COMPOSED("earlier in the period", "EARLIERIN DATE")
@COMPOSED("earlier in the period", "DATE (OF|IN|AND|COMMA)* EARLIERIN")
def _earlier(context: Context, m: Match) -> Span | None:
    return earlier_in(context, m.spans()[0])


@COMPOSED("later in the period", "LATERIN (THE|OF|IN)* DATE")
@COMPOSED("later in the period", "DATE (OF|IN|THE|COMMA)* LATERIN")
def _later(context: Context, m: Match) -> Span | None:
    return later_in(context, m.spans()[0])


@COMPOSED("rest of", "THE? REST (OF|THE)* DATE")
@COMPOSED("rest of", "DATE (OF|THE)* REST")
@COMPOSED("rest of", "THE? REST UDAY? (OF|THE|IN)* (DATE | UYEAR? YEAR)")
def _rest(context: Context, m: Match) -> Span | None:
    first, last = bounds(scope(context, m))
    if last < context.today:
        return None
    return Span(max(first, context.today), last, "day", 0.9, relative=True)


@COMPOSED("beside a day", "(ON|THE)* BESIDE (OF|THE|ON|IN|TO)* DATE")
@COMPOSED("beside a day", "DATE OF? BESIDE")
def _day_beside(context: Context, m: Match) -> Span | None:
    """ "On the eve of Thanksgiving", French "le lendemain de Noël"."""
    away, span = m.number("BESIDE"), m.spans()[0]
    if span.grain not in ("day", "season") or (span.grain == "season" and span.event_year is None):
        return None
    first, last = bounds(span)
    return exact(days.plus_days(first if away < 0 else last, away), 0.9)


@COMPOSED("beside a day", "(THE | IN | WITHIN) NUM UNIT (BEFORE | AFTER) (THE|OF)* DATE")
def _units_beside(context: Context, m: Match) -> Span | None:
    """ "The three days before Christmas", all of them."""
    first, last = bounds(m.spans()[0])
    count, unit = int(m.number("NUM")), unit_of(m.all("UNIT")[0])
    if unit in ("weekend", "workday", "workweek") or not 1 <= count <= 999:
        return None
    if not m.has("THE") and context.language not in ("de", "fr"):
        return None  # there "in den" and "dans les" have the article in them
    if m.has("AFTER"):
        start = days.plus_days(last, 1)
        return Span(start, days.plus_days(days.plus(start, unit, count), -1), unit, 0.9)
    return Span(days.plus(first, unit, -count), days.plus_days(first, -1), unit, 0.9)


@COMPOSED("beside a day", "THE? (WEEKDAY | UNIT) (BEFORE | AFTER) (THE|OF)* DATE")
def _beside(context: Context, m: Match) -> Span | None:
    """ "The Monday before 24 July", "the week after": what lies next to a named day."""
    span = m.spans()[0]
    if span.grain != "day" or (m.before is not None and m.before.kind in chars_of("COUNT")):
        return None
    first, last = bounds(span)
    ahead = m.has("AFTER")
    if m.has("WEEKDAY"):
        weekday = m.number("WEEKDAY") - 1
        if ahead:
            return exact(days.plus_days(last, (weekday - last.weekday() - 1) % 7 + 1), 0.9)
        return exact(days.plus_days(first, -((first.weekday() - weekday - 1) % 7 + 1)), 0.9)
    unit = unit_of(m.all("UNIT")[0])
    if unit == "weekend":
        saturday = days.plus_days(last, (5 - last.weekday() - 1) % 7 + 1)
        if not ahead:
            saturday = days.plus_days(first, -((first.weekday() - 6 - 1) % 7 + 1) - 1)
        return Span(saturday, days.plus_days(saturday, 1), "weekend", 0.9)
    if unit in ("day", "week", "fortnight"):
        length = days.DAYS_OF[unit]
        if ahead:
            return Span(days.plus_days(last, 1), days.plus_days(last, length), unit, 0.9)
        return Span(days.plus_days(first, -length), days.plus_days(first, -1), unit, 0.9)
    start = days.plus(days.period(unit, first)[0], unit, 1 if ahead else -1)
    return Span(*days.period(unit, start), unit, 0.85)


@COMPOSED("away from a day", f"{DURATION} (AFTER|FROM|SINCE|LATER) (THE|OF|FROM|IN)* DATE")
@COMPOSED("away from a day", f"PRELATER {DURATION} (FROM|SINCE|AFTER) (DATE | YEAR)")
@COMPOSED("away from a day", f"DATE (OF|FROM|PAFTER|PSINCE)* {DURATION} (LATER|PAFTER)")
@COMPOSED("away from a day", f"DATE PAFTER {DURATION}")
@COMPOSED("away from a day", f"DATE FROM PSINCE {DURATION} LATER?")
def _after(context: Context, m: Match) -> Span | None:
    return _away(context, m, 1)


@COMPOSED("away from a day", "DATE (OF|FROM|PBEFORE)* AMOUNT (PBEFORE|AGO)")
@COMPOSED("away from a day", "AMOUNT BEFORE DATE")
@COMPOSED("away from a day", f"PREAGO (AMOUNT | {DURATION}) (OF|FROM)+ DATE")
@COMPOSED("away from a day", f"{DURATION} (BEFORE|AGO) (THE|OF|FROM|IN)* DATE")
@COMPOSED("away from a day", f"DATE (OF|FROM|PBEFORE)* {DURATION} (PBEFORE|AGO)")
@COMPOSED("away from a day", f"DATE PBEFORE {DURATION}")
def _before(context: Context, m: Match) -> Span | None:
    return _away(context, m, -1)


def _away(context: Context, m: Match, sign: int) -> Span | None:
    span = scope(context, m)
    if span.grain not in ("day", "year") or span.first is None:
        return None
    first = span.first
    if span.weekday is not None and sign > 0 and first < context.today:
        first = days.plus_days(first, 7)  # "three days from Tuesday" looks ahead
    parts = amounts(m)
    found = moved(first, parts[:1] if m.has("YEAR") else parts, sign)
    return exact(found, 0.9, relative=True)


_PHASE = "(WEEKPHASE | MONTHPHASE | QUARTERPHASE | YEARPHASE)"


@COMPOSED("part of the period", f"{_PHASE} OF? {_P}")
@COMPOSED("part of the period", f"{_P} OF? ({_PHASE} | PHASE)")
def _phase(context: Context, m: Match) -> Span | None:
    span = scope(context, m)
    phase = m.one(*PHASES)
    if phase is None:
        return cut(context, span, m.word("PHASE"))
    unit, part = phase_of(phase)
    return cut(context, span, part) if span.grain == unit else None


@COMPOSED("part of the period", f"MOD {_PHASE}")
def _moved_phase(context: Context, m: Match) -> Span | None:
    unit, part = phase_of(m.all(*PHASES)[0])
    return cut(context, shifted(context, unit, shift_of(m)), part)
