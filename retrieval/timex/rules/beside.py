"""What the words beside a day and a month make of them."""

from __future__ import annotations

from datetime import date

from retrieval.timex.engine.grammar import Context, Match, Token, any_of, chars_of

MONTHS = any_of("MON DATE YEAR")


def joined(m: Match) -> bool:
    """Whether the leading article is "to" after all: Portuguese "15 de abril a 2 de maio"."""
    before = m.before
    article_or_to = chars_of("THE") & chars_of("TO")
    return m.tokens[0].kind in article_or_to and before is not None and before.kind in MONTHS


def counts(context: Context, m: Match, number: Token, found: date) -> bool:
    """Whether the ordinal beside a month counts a weekday or a unit: "5月の第1月曜日" is no first
    of May, nor Arabic "the week the first of May"."""
    after = m.after
    if number is m.tokens[-1] and after is not None and after.kind in COUNTABLE:
        return number.kind in chars_of("ORD") or "year_first" in context.options
    if "ordinal_after" not in context.options or number.text or number.kind not in chars_of("ORD"):
        return False
    first = m.tokens[0]
    counted = m.before if first is number else first
    if counted is None or counted.kind not in COUNTABLE:
        return False
    weekday = counted.kind in chars_of("WEEKDAY") and counted.value == found.weekday() + 1
    return not weekday and counted.kind not in chars_of("UDAY")


COUNTABLE = chars_of("UNIT") | chars_of("WEEKDAY")
