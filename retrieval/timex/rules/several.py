"""Rules for several parts of one year: "Q1 to Q3 of last year", "March and April 2024"."""

from __future__ import annotations

from retrieval.timex.calendar.spans import bounds, cut
from retrieval.timex.engine.grammar import Context, Match, Rules, Span, change, chars_of
from retrieval.timex.rules.composition import scope
from retrieval.timex.rules.dates import months_until
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
