"""Rules for weekdays so far away ("Monday two weeks from now") and times of day beside a day."""

from __future__ import annotations

from retrieval.timex.calendar import days
from retrieval.timex.calendar.spans import amounts, moved, shift_of, shifted
from retrieval.timex.engine.grammar import Context, Match, Rules, Span, Token, chars_of, kind_of
from retrieval.timex.rules.dates import exact
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
@OFFSETS("weekday away", f"{DURATION} (LATER | AGO) COMMA? ON? THE? WEEKDAY")
@OFFSETS("weekday away", f"PRELATER {DURATION} LATER? COMMA? ON THE? WEEKDAY")
def _weekday_away(context: Context, m: Match) -> Span | None:
    """The weekday in the week in which that day lies."""
    before = m.before
    if before is not None and m.tokens[0].kind in _COUNTS and before.kind in _LENGTHENED:
        return None
    away = moved(context.today, amounts(m), -1 if m.has("AGO") else 1)
    monday = days.week(away)[0]
    return exact(days.plus_days(monday, m.number("WEEKDAY") - 1), 0.9, relative=True)


_COUNTS = chars_of("COUNT")
_LENGTHENED = frozenset().union(*map(chars_of, ["PREV", "PAST", "NEXT", "COMING"]))


@OFFSETS(
    "days of the week",
    "(FROM|BETWEEN)? WEEKDAY (TO|AND|DASH|UNTIL) WEEKDAY (OF|IN|COMMA|THE|FROM)* MOD UWEEK",
)
def _weekdays_of_week(context: Context, m: Match) -> Span | None:
    first, last = (int(str(token.value)) - 1 for token in m.all("WEEKDAY"))
    monday = days.plus_days(days.week(context.today)[0], 7 * shift_of(m))
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


_CLOCKS = "CLOCK ((DASH | TO | UNTIL | AND) CLOCK (?! (COMMA | ON)* THE? DATE))?"


@TIMED("timed", f"DATE (COMMA | ON | FROM | BETWEEN | IN)* {_CLOCKS}")
@TIMED("timed", "DATE (COMMA | ON | IN | OF | THE)* PART")
@TIMED("timed", "CLOCK ((DASH | TO | UNTIL | AND) CLOCK)? (COMMA | ON | OF | IN)* THE? DATE")
def _timed(context: Context, m: Match) -> Span | None:
    """A day with a time of day is that day."""
    span = m.spans()[0]
    return span if span.grain == "day" and not span.void else None


_CLOCK, _OCLOCK = kind_of("CLOCK"), kind_of("OCLOCK")
_HOURS = chars_of("NUM")


_HALVES, _UNITS = kind_of("MD"), chars_of("UNIT") | chars_of("UTIME")


def merge_measures(tokens: list[Token]) -> list[Token]:
    """ "3 pm", "9 o'clock", "10:30 UTC" as one time of day, and "1.5 years" as a number of them."""
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


def _is_hour(token: Token) -> bool:
    if token.kind in _HOURS:
        return isinstance(token.value, int) and 0 <= token.value <= 24
    return token.kind == _CLOCK
