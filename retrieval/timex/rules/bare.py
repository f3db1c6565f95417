"""Rules for periods without anything to complete them: "Q3", "end of the month", "the weekend"."""

from __future__ import annotations

from retrieval.timex.calendar import days
from retrieval.timex.calendar.spans import PHASES, cut, half_of, phase_of, shifted, unit_of
from retrieval.timex.engine.grammar import (
    OTHER,
    Context,
    Match,
    Rules,
    Span,
    any_of,
    change,
)
from retrieval.timex.rules.dates import exact
from retrieval.timex.rules.eras import latest_season, part_of_year
from retrieval.timex.rules.tense import asks_about_the_past

LATE_BARE = Rules()
"""Run when all that could complete them is read."""


@LATE_BARE(
    "part of the period",
    "(THE|IN|AT)* (EARLY|MID|LATE) (OF|IN|THE)* (UWEEK|UMONTH|UQUARTER|UYEAR|UDECADE)",
)
@LATE_BARE(
    "part of the period", "THE? (UWEEK|UMONTH|UQUARTER|UYEARS|UDECADE) (OF|THE)* (EARLY|MID|LATE)"
)
@LATE_BARE("part of the period", "WEEKPHASE | MONTHPHASE | QUARTERPHASE | YEARPHASE")
def _bare_cut(context: Context, m: Match) -> Span | None:
    phase = m.one(*PHASES)
    if phase is not None:
        unit, part = phase_of(phase)
    else:
        unit = unit_of(m.all("UNIT")[0])
        part = "early" if m.has("EARLY") else "mid" if m.has("MID") else "late"
    return cut(context, shifted(context, unit, 0), part)


@LATE_BARE("quarter", "(IN|THE)* (QN | HN | ORD UQUARTER | ORD UHALF) (OF THE? UYEAR)?")
@LATE_BARE("quarter", "NUM UQUARTER")
def _bare_part(context: Context, m: Match) -> Span | None:
    """This year's, or last year's where that one has not begun."""
    this_year = "part_of_this_year" in context.options
    led = m.has("IN") or m.before is None or m.before.kind in _LEADING
    if m.has("QN", "HN") and not led and not this_year:
        return None
    if m.has("NUM") and (not this_year or m.tokens[-1].end - m.tokens[-1].start > _QUARTER):
        return None  # Chinese 一个季度 is as long as a quarter, 一季度 the first
    year = context.today.year
    span = part_of_year(m, year)
    if span.first is not None and span.first > context.today and not this_year:
        span = part_of_year(m, year - 1)
    return change(span, confidence=0.8, relative=True, explicit=False)


_QUARTER = len("季度")
_LEADING = any_of("IN OF SINCE UNTIL BEFORE AFTER EARLY MID LATE TO FROM BETWEEN ASOF REST")


@LATE_BARE("half of the month", "HALFMONTH | HALFWEEK")
def _running_half(context: Context, m: Match) -> Span | None:
    unit = "week" if m.has("HALFWEEK") else "month"
    return half_of(shifted(context, unit, 0), m.number("HALFMONTH", "HALFWEEK"))


@LATE_BARE("week number", "(NUM | ORD) WEEKNO")
@LATE_BARE("week number", "ORD UWEEK (?! X)")
@LATE_BARE("week number", "ORD UWEEK")
def _numbered_week(context: Context, m: Match) -> Span | None:
    number = m.all("ORD", "NUM")[0]
    if not number.text:
        return None
    return Span(*days.iso_week(context.today.year, m.number("ORD", "NUM")), "week", 0.8)


@LATE_BARE("season", "(THE|IN)* (EARLY|MID|LATE) DASH? (SEASON|LONESEASON)")
def _part_of_season(context: Context, m: Match) -> Span | None:
    part = "early" if m.has("EARLY") else "mid" if m.has("MID") else "late"
    return cut(context, latest_season(context, m.number("SEASON", "LONESEASON")), part)


@LATE_BARE("season", "LONESEASON")
def _lone_season(context: Context, m: Match) -> Span:
    return latest_season(context, m.number("LONESEASON"))


@LATE_BARE("calendar period", "(MY|ON|THIS) (UDAY|UWEEK|UWEEKEND|UMONTH|UYEAR)")
@LATE_BARE("calendar period", "(ON|THE|IN)* UWEEKEND")
def _running(context: Context, m: Match) -> Span | None:
    unit = unit_of(m.all("UNIT")[0])
    if m.has("ON") and unit != "weekend":
        return None
    if unit == "weekend" and m.all("UNIT")[0].value == 2:
        return None  # "on weekends"
    lone = len(m.tokens) == 1 and m.before is not None and m.before.kind == OTHER
    if lone and m.after is not None and m.after.kind not in _CLOSING:
        return None  # "another theme park weekend; ..."
    over = unit == "weekend" and context.today.weekday() < 5 and asks_about_the_past(context)
    return change(shifted(context, unit, -over), confidence=0.75)


_CLOSING = any_of("DOT LOC STOP")


@LATE_BARE("day before", "THE UDAY (BEFORE|AFTER) (?=STOP|DOT|$)")
def _day_beside(context: Context, m: Match) -> Span:
    return exact(days.plus_days(context.today, -1 if m.has("BEFORE") else 1), 0.7, relative=True)
