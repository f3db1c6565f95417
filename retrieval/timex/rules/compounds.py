"""Rules for words written together: German "in der letzten Juliwoche 2024", "zweite Maihälfte"."""

from __future__ import annotations

from retrieval.timex.calendar import days
from retrieval.timex.calendar.spans import half_of
from retrieval.timex.engine.grammar import Context, Match, Rules, Span, chars_of
from retrieval.timex.rules.dates import latest_month

COMPOUNDS = Rules()


@COMPOUNDS("week of the month", "THE? (ORD | LASTORD | PREV) MON UWEEK (OF | IN | UYEARS)* YEAR?")
@COMPOUNDS("half of the month", "THE? ORD MON HALFWORD (OF | IN | UYEARS)* YEAR?")
def _part_of_month(context: Context, m: Match) -> Span | None:
    month, part = m.all("MON")[0], m.all("UWEEK", "HALFWORD")[0]
    if month.end != part.start:
        return None
    if m.has("YEAR"):
        found = Span(*days.month(m.number("YEAR"), m.number("MON")), "month", explicit=True)
    else:
        found = latest_month(context, m.number("MON"))
    order = m.one("ORD")
    nth = -1 if order is None or order.kind in chars_of("LASTORD") else m.number("ORD")
    if m.has("HALFWORD"):
        return half_of(found, nth)
    assert found.first is not None
    assert found.last is not None
    return Span(*days.nth_week((found.first, found.last), nth), "week", 0.95)
