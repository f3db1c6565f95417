"""Rules for several parts of one year, "Q1 to Q3 of last year", and for what one word tells of a
named day or month."""

from __future__ import annotations

from retrieval.timex.calendar import days
from retrieval.timex.calendar.spans import bounds, cut
from retrieval.timex.engine.grammar import Context, Match, Rules, Span, change, chars_of
from retrieval.timex.rules.composition import scope
from retrieval.timex.rules.dates import exact, months_until
from retrieval.timex.rules.eras import parts_of_year

SEVERAL = Rules()

_P = "(DATE | MON | UYEAR? YEAR YMARK?)"

_IN = "(OF|IN|THE|ON|COMMA|DASH)*"


@SEVERAL("quarters", f"(FROM|BETWEEN)? (QN|HN) (AND|TO|DASH|UNTIL) (QN|HN) {_IN} DATE")
def _parts_of(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    return parts_of_year(m, bounds(span)[0].year) if span.grain == "year" else None


@SEVERAL("months of the year", f"(FROM|BETWEEN)? MON (AND|TO|DASH|UNTIL|SLASH) MON {_IN} DATE")
def _months_of(context: Context, m: Match) -> Span | None:
    span = m.spans()[0]
    if span.grain != "year":
        return None
    first, last = (int(str(token.value)) for token in m.all("MON"))
    return months_until(bounds(span)[0].year, first, last)


@SEVERAL(
    "parts of the period", f"(IN|FROM)* (EARLY | MID) (TO | DASH | AND) (MID | LATE) DASH? {_P}"
)
def _parts(context: Context, m: Match) -> Span | None:
    """ "Early to mid 2023"."""
    whole = scope(context, m)
    kinds = [token.kind in chars_of("MID") for token in m.all("EARLY", "MID", "LATE")]
    first = cut(context, whole, "mid" if kinds[0] else "early")
    last = cut(context, whole, "mid" if kinds[1] else "late")
    if first is None or last is None:
        return None
    return change(first, last=last.last, part="", whole=None)


@SEVERAL("away from a day", "DATE PERIOD")
def _before_in_one_word(context: Context, m: Match) -> Span | None:
    """Chinese 圣诞节前两天, two days before it, and 前几天, the few days before it."""
    span, written = m.spans()[0], m.word("PERIOD").split()
    if span.grain != "day" or span.first is None or not written[0].startswith("-"):
        return None
    far, near = (int(one[:-1]) for one in written)
    if near == -1:
        return exact(days.plus_days(span.first, (far + near) // 2), 0.9, relative=True)
    ends = days.plus_days(span.first, far), days.plus_days(span.first, -1)
    return Span(*ends, "day", 0.8, relative=True)


@SEVERAL("week of the period", "(MON | DATE) OF? (NUM | ORD) WEEKNO")
def _numbered_week_of(context: Context, m: Match) -> Span | None:
    """Korean "5월 2주차": the second week of that month."""
    span = scope(context, m)
    if span.grain not in ("month", "quarter", "year"):
        return None
    first, last = bounds(span)
    number = m.number("NUM", "ORD")
    if span.grain == "year":
        return Span(*days.iso_week(first.year, number), "week", 0.95)
    return Span(*days.nth_week((first, last), number), "week", 0.95)
