"""Rules for weekdays so far away ("Monday two weeks from now") and times of day beside a day."""

from __future__ import annotations

from retrieval.timex.calendar import days
from retrieval.timex.calendar.spans import (
    amounts,
    count_of,
    moved,
    plausible,
    shift_of,
    shifted,
    unit_of,
)
from retrieval.timex.engine.grammar import (
    Context,
    Match,
    Rules,
    Span,
    Token,
    any_of,
    change,
    chars_of,
    kind_of,
)
from retrieval.timex.rules.dates import exact
from retrieval.timex.rules.eras import part_of_year, season
from retrieval.timex.rules.holidays import in_year_of
from retrieval.timex.rules.relative import DURATION

OFFSETS = Rules()
"""Run before the relative times, which would read the length alone."""

TIMED = Rules()
"""Run before the ranges, so that a time of day does not part the two ends of one."""


@OFFSETS("weekday away", f"ON? THE? WEEKDAY COMMA? {DURATION} (LATER | AGO)")
@OFFSETS(
    "weekday away",
    f"ON? THE? WEEKDAY COMMA? PRELATER {DURATION} (?! AFTER | BEFORE | FROM | PAFTER | SINCE)",
)
@OFFSETS("weekday away", f"ON? THE? WEEKDAY (OF | COMMA)? PREAGO {DURATION}")
@OFFSETS("weekday away", f"PREAGO {DURATION} AGO? (COMMA? (ON | IN) THE? | COMMA THE) WEEKDAY")
@OFFSETS("weekday away", f"{DURATION} (LATER | AGO) COMMA? ON? THE? WEEKDAY")
@OFFSETS("weekday away", f"PRELATER {DURATION} LATER? COMMA? ON THE? WEEKDAY")
def _weekday_away(context: Context, m: Match) -> Span | None:
    """The weekday in the week in which that day lies."""
    before = m.before
    if before is not None and m.tokens[0].kind in _COUNTS and before.kind in _LENGTHENED:
        return None
    away = moved(context.today, amounts(m), -1 if m.has("AGO", "PREAGO") else 1)
    monday = days.week(away)[0]
    return exact(days.plus_days(monday, m.number("WEEKDAY") - 1), 0.9, relative=True)


_COUNTS = chars_of("COUNT")
_LENGTHENED = frozenset().union(*map(chars_of, ["PREV", "PAST", "NEXT", "COMING"]))


@OFFSETS(
    "days of the week",
    "(FROM|BETWEEN|OF)? THE? WEEKDAY FROM? (TO|AND|DASH|UNTIL) THE? WEEKDAY "
    "(OF|IN|ON|COMMA|THE|FROM)* (MOD UWEEK | UWEEK MOD | WEEKOFF)",
)
def _weekdays_of_week(context: Context, m: Match) -> Span | None:
    first, last = (int(str(token.value)) - 1 for token in m.all("WEEKDAY"))
    weeks = m.number("WEEKOFF") if m.has("WEEKOFF") else shift_of(m)
    monday = days.plus_days(days.week(context.today)[0], 7 * weeks)
    if first > last:
        return None
    return Span(
        days.plus_days(monday, first), days.plus_days(monday, last), "day", 0.95, relative=True
    )


@OFFSETS("weekend", "THE? THIS? PAST UWEEKEND")
def _past_weekend(context: Context, m: Match) -> Span:
    return shifted(context, "weekend", -1)


@OFFSETS("weekday away", "THE? WEEKDAY AFTER THE? NEXT (?! UNIT | WEEKDAY | MON | HOLIDAY)")
@OFFSETS("weekday away", "THE? WEEKDAY BEFORE THE? PREV (?! UNIT | WEEKDAY | MON | HOLIDAY)")
def _weekday_but_one(context: Context, m: Match) -> Span:
    """The one after next Tuesday, or the one before last Tuesday."""
    weekday, today = m.number("WEEKDAY") - 1, context.today
    if m.has("NEXT"):
        found = days.plus_days(days.week(today)[0], 14 + weekday)
    else:
        found = days.plus_days(today, -((today.weekday() - weekday - 1) % 7 + 1) - 7)
    return exact(found, 0.9, relative=True)


@OFFSETS("weekday away", "ON? THE? WEEKDAY UWEEK (?= STOP | DOT | COMMA | PART | $)")
@OFFSETS("weekday away", "(A | NUM) UWEEK ON THE? WEEKDAY (?! AGO | LATER)")
@OFFSETS("weekday away", "(WEEKDAY | REL) INWEEKS")
def _weeks_behind(context: Context, m: Match) -> Span | None:
    """ "Tuesday week", "a week on Friday", French "mardi en huit": so long after the coming one."""
    if m.has("UWEEK") and (m.all("UWEEK")[0].value == 2 and not m.has("NUM")):
        return None
    before = m.before
    if before is not None and before.text in _REPEATED and not m.has("INWEEKS"):
        return None  # "once a week on Friday"
    if m.has("REL"):
        start = days.plus_days(context.today, m.number("REL"))
    else:
        gap = (m.number("WEEKDAY") - 1 - context.today.weekday() - 1) % 7 + 1
        start = days.plus_days(context.today, gap)
    later = m.number("INWEEKS") if m.has("INWEEKS") else 7 * int(count_of(m.one("A", "NUM")))
    return exact(days.plus_days(start, later), 0.9, relative=True)


_REPEATED = frozenset(["once", "twice", "thrice", "times", "days", "hours"])


_NAMED = "(HOLIDAY | SEASON | LONESEASON | MON | QN | HN | ORD UQUARTER)"


@OFFSETS("years ago", f"(ON|IN|THE)* {_NAMED} (OF | COMMA)? (NUM | A) UYEARS AGO")
@OFFSETS(
    "years ago",
    f"(ON|IN|THE)* {_NAMED} (OF | COMMA)? PREAGO (NUM | A) UYEARS AGO? (?! AND | HALFWORD)",
)
def _years_ago(context: Context, m: Match) -> Span | None:
    """ "Christmas three years ago", German "im Sommer vor drei Jahren"."""
    year = context.today.year - int(count_of(m.all("NUM", "A")[-1]))
    if m.has("HOLIDAY"):
        return in_year_of(context, m, year)
    if m.has("MON"):
        return Span(*days.month(year, m.number("MON")), "month", 0.9, relative=True)
    if m.has("SEASON", "LONESEASON"):
        return season(context, m.number("SEASON", "LONESEASON"), year)
    return change(part_of_year(m, year), relative=True, explicit=False)


_PERIODS = (
    "(MOD (UYEAR | UMONTH | UWEEK) | (UYEAR | UMONTH | UWEEK) MOD | YEAROFF | MONTHOFF | WEEKOFF)"
)


@OFFSETS("the same day", f"ON? THE? (SAMEDAY | THIS UDAY) (OF|IN|COMMA|ON|THE)* {_PERIODS}")
@OFFSETS("the same day", "ON? THE? (SAMEDAY | THIS UDAY) (OF|IN|COMMA|ON|THE)* UYEARS? YEAR YMARK?")
def _same_day(context: Context, m: Match) -> Span | None:
    """ "This time last year", "on this day in 2020"."""
    today = context.today
    if m.has("YEAR"):
        if not plausible(context, m.number("YEAR")):
            return None
        return exact(days.day(m.number("YEAR"), today.month, today.day), 0.95)
    for kind, unit in (("YEAROFF", "year"), ("MONTHOFF", "month"), ("WEEKOFF", "week")):
        if m.has(kind):
            return exact(days.plus(today, unit, m.number(kind)), 0.95, relative=True)
    unit = unit_of(m.all("UYEAR", "UMONTH", "UWEEK")[0])
    shift = shift_of(m) if not m.has("THIS") else _shift(m)
    return exact(days.plus(today, unit, shift), 0.95, relative=True)


def _shift(m: Match) -> int:
    """That of the period, behind "this day"."""
    token = m.all("MOD")[-1]
    if isinstance(token.value, int):
        return token.value
    if token.kind in chars_of("PREV"):
        return -1
    return 0 if token.kind in chars_of("THIS") else 1


@OFFSETS(
    "days of the week", "OF? ORD TO (ORD | WEEKDAY) (OF|IN|FROM)+ THE? (MOD UWEEK | UWEEK MOD)"
)
def _numbered_weekdays(context: Context, m: Match) -> Span | None:
    """Portuguese "de segunda a sexta da semana passada": Monday is the second day."""
    if "numbered_weekdays" not in context.options:
        return None
    monday = days.plus_days(days.week(context.today)[0], 7 * shift_of(m))
    first, last = (
        int(str(token.value)) - (1 if token.kind in chars_of("WEEKDAY") else 2)
        for token in m.all("ORD", "WEEKDAY")
    )
    if not 0 <= first < last <= 6:
        return None
    ends = days.plus_days(monday, first), days.plus_days(monday, last)
    return Span(*ends, "day", 0.95, relative=True)


_CLOCKS = "CLOCK ((DASH | TO | UNTIL | AND) CLOCK (?! (COMMA | ON)* THE? DATE))?"


@TIMED("timed", f"DATE (COMMA | ON | FROM | BETWEEN | IN)* {_CLOCKS}")
@TIMED("timed", f"(AFTER | BEFORE) {_CLOCKS} (COMMA | ON | OF | IN)* THE? DATE")
@TIMED("timed", "DATE (COMMA | ON | IN | OF | THE)* PART")
@TIMED("timed", "CLOCK ((DASH | TO | UNTIL | AND) CLOCK)? (COMMA | ON | OF | IN)* THE? DATE")
def _timed(context: Context, m: Match) -> Span | None:
    """A day with a time of day is that day."""
    span = m.spans()[0]
    return span if span.grain == "day" and not span.void else None


_CLOCK, _OCLOCK = kind_of("CLOCK"), kind_of("OCLOCK")
_HOURS = chars_of("NUM")


_HALVES, _UNITS = kind_of("MD"), chars_of("UNIT") | chars_of("UTIME")


def merge_measures(context: Context, folded: str, tokens: list[Token]) -> list[Token]:
    """ "3 pm", "9 o'clock", "10:30 UTC" as one time of day, and "1.5 years" as a number of them."""
    if "spoken_clock" in context.options:
        tokens = _spoken(folded, tokens)
    if not any(token.kind in (_OCLOCK, _HALVES) for token in tokens):
        return tokens
    merged: list[Token] = []
    for token in tokens:
        last = merged[-1] if merged else None
        if last is not None and last.kind == _HALVES and token.kind in _UNITS:
            whole, mark, half = last.text.partition("." if "." in last.text else ",")
            if mark and half == "5" and whole.isdigit():
                merged[-1] = Token(kind_of("NUM"), int(whole) + 0.5, last.start, last.end)
        if token.kind == _OCLOCK and last is not None and _is_hour(last):
            merged[-1] = Token(_CLOCK, None, last.start, token.end)
        else:
            merged.append(token)
    return merged


def _spoken(folded: str, tokens: list[Token]) -> list[Token]:
    """ "At 10 to 5", "at half past six" as one time of day, with its preposition."""
    merged: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.kind in _LEADS and folded[token.start : token.end] == "at":
            part, link, hour = (*tokens[at + 1 : at + 4], None, None, None)[:3]
            if part is not None and part.kind in _ARTICLE:
                part, link, hour = (*tokens[at + 2 : at + 5], None, None, None)[:3]
            named = tokens[at + 1] if at + 1 < len(tokens) else None
            if named is not None and named.text and _is_hour_of(tokens, at + 1):
                merged.append(Token(_CLOCK, None, token.start, named.end))
                at += 2
                continue
            if hour is not None and _is_spoken(part, link, hour):
                merged.append(Token(_CLOCK, None, token.start, hour.end))
                at = tokens.index(hour, at) + 1
                continue
        merged.append(token)
        at += 1
    return merged


def _is_hour_of(tokens: list[Token], at: int) -> bool:
    """Whether a number is an hour, since its day comes behind it: "at 9 this morning"."""
    first, second = (*tokens[at + 1 : at + 3], None, None)[:2]
    if not _is_hour(tokens[at]) or first is None:
        return False
    if first.kind in _DAY_BEHIND:
        return True
    return second is not None and first.kind in _LED and second.kind in _DAY_BEHIND | _PART_BEHIND


_DAY_BEHIND, _PART_BEHIND = any_of("REL WEEKDAY"), any_of("PART")
_LED = any_of("ON MOD")


def _is_spoken(part: Token | None, link: Token | None, hour: Token) -> bool:
    if part is None or link is None or link.kind not in _PAST_OR_TO or hour.kind not in _HOURS:
        return False
    minutes = part.kind in _HOURS and isinstance(part.value, int) and 1 <= part.value <= 29
    fraction = part.kind in _FRACTIONS
    return (minutes or fraction) and isinstance(hour.value, int) and 1 <= hour.value <= 12


_LEADS, _ARTICLE = any_of("ON IN"), chars_of("A")
_PAST_OR_TO, _FRACTIONS = any_of("TO PAST BEFORE AFTER"), any_of("UQUARTER HALFWORD")


def _is_hour(token: Token) -> bool:
    if token.kind in _HOURS:
        return isinstance(token.value, int) and 0 <= token.value <= 24
    return token.kind == _CLOCK
