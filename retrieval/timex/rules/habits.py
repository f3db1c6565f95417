"""What recurs has no window: "on Monday nights", "usually on Sundays", "open Monday to Friday".

Only where the sentence does not tell of the past: "What happened from Monday to Friday?" does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from retrieval.timex.engine.grammar import OTHER, Context, Match, Rules, Span, any_of, chars_of
from retrieval.timex.engine.tables import word_lists
from retrieval.timex.engine.text import fold
from retrieval.timex.rules.tense import (
    QUESTION,
    asks_about_the_past,
    is_said,
    tells_of_the_past,
)

HABITS = Rules()
"""Run when days with numbers are read, before what is relative."""

_DATED_AFTER = (
    "(?! LINK* (NUM | ORD | MD | MON | MOD | DATE | YEAR | AGO | LATER | PAFTER | PBEFORE | CLOCK"
    "| UNIT | YEAROFF | MONTHOFF | WEEKOFF))"
)
_DATED_BEFORE = any_of("MOD NUM ORD LASTORD EVERY DATE WEEKOFF COUPLE FEW UWEEK REL")
_ENDS = "(FROM | OF | BETWEEN)? THE? {day} (TO | DASH | UNTIL | AND) (THE | TO)* {day}"
_PARTS = frozenset(fold("mornings afternoons evenings nights lunchtimes").split())
_ARTICLES = {"fr": frozenset({"le"}), "it": frozenset({"il", "la", "di"})}
"""Languages in which a weekday with its article is any such day: "le mardi", "la domenica"."""

_EACH = ["마", "다"]
_PARTICIPLE = re.compile(
    r"\b(?:est|sont|a|ai|as|suis|ont|avez|avons|e|ha|ho|hai|hanno|sono)(?: pas| deja| mai)? "
    r"\w{2,12}(?:e|ee|es|ees|i|is|ie|it|u|us|ue|ert|[aeiu]t[oaie]|s[oaie])\b"
)


@cache
def _lists() -> Mapping[str, Mapping[str, re.Pattern[str]]]:
    return {
        language: {key: _any(language, words) for key, words in lists.items()}
        for language, lists in word_lists("habits").items()
    }


def _any(language: str, words: str) -> re.Pattern[str]:
    said = "|".join(re.escape(word) for word in fold(words).split("|"))
    spaced = language not in ("ja", "zh", "ko", "hi", "ar")
    return re.compile(rf"\b(?:{said})\b" if spaced else f"(?:{said})")


def _habitual(context: Context, *keys: str) -> bool:
    lists = _lists().get(context.language, {})
    said = [lists[key] for key in keys if key in lists and is_said(lists[key], context.text)]
    return any(not tells_of_the_past(context, words) for words in said)


_NONE = Span(None, None, "none", void=True)


def _dated(m: Match) -> bool:
    return m.before is not None and m.before.kind in _DATED_BEFORE


@HABITS("habit", _ENDS.format(day="(DAY | DAYS | WDAY)") + _DATED_AFTER)
@HABITS("habit", _ENDS.format(day="(DAY | ORD)") + _DATED_AFTER)
def _days_of_every_week(context: Context, m: Match) -> Span | None:
    if m.has("ORD") and "numbered_weekdays" not in context.options:
        return None
    return None if _dated(m) or not _habitual(context, "usually", "weekly", "working") else _NONE


@HABITS("rate", "(IN | PRELATER | ON) (A | NUM) UNIT")
def _rate(context: Context, m: Match) -> Span | None:
    """ "How often does he call in a month?": no month from now."""
    number = m.one("NUM")
    lists = _lists().get(context.language, {})
    single = number is None or number.value in (None, 1)
    asked = "rate" in lists and is_said(lists["rate"], context.text)
    return _NONE if single and asked and not asks_about_the_past(context) else None


@HABITS("habit", "NUM MDAY LOC? (FEW | NUM)")
def _a_day(context: Context, m: Match) -> Span | None:
    """Japanese "一日に何杯", "1日3回": so often a day, and no first of the month."""
    counter, before = m.after, m.before
    if context.language != "ja" or m.number("NUM") != 1 or counter is None:
        return None
    if before is not None and before.kind in _MONTHS:
        return None
    if m.has("FEW"):
        asked = counter.kind in _HOURS or (counter.kind == OTHER and counter.text not in _PARTICLES)
        return _NONE if asked and (m.has("LOC") or counter.kind in _HOURS) else None
    return _NONE if counter.text in _TIMES else None


_HOURS = any_of("UTIME")
_MONTHS, _PARTICLES, _TIMES = any_of("MON"), frozenset("をがでもかはに"), frozenset("回度杯錠粒")


@HABITS("habit", "DAY X")
def _parts_of_days(context: Context, m: Match) -> Span | None:
    """English "Monday nights"."""
    return None if m.tokens[-1].text not in _PARTS or _dated(m) else _NONE


@HABITS("habit", f"(ON | IN | OF)? THE? (DAY | UWEEKEND | DAYS) PART? {_DATED_AFTER}")
def _usual_days(context: Context, m: Match) -> Span | None:
    if _dated(m):
        return None
    following = [token.text for token in (m.after, m.ahead(2)) if token is not None]
    if following == _EACH:
        return _NONE
    bound = m.tokens[0].kind in _BOUNDS or (m.before is not None and m.before.kind in _BOUNDS)
    if not bound and _habitual(context, "usually", "weekly"):
        return _NONE
    articles = _ARTICLES.get(context.language)
    link = m.tokens[0] if m.tokens[0].kind in _LINKS else m.before
    if articles is None or link is None or len(context.text) > QUESTION:
        return None
    if asks_about_the_past(context):
        return None
    led = m.has("DAY") and context.text[link.start : link.end] in articles
    told = any(other is not None and other.kind in _RELATED for other in map(m.back, range(1, 5)))
    return _NONE if led and not told and _PARTICIPLE.search(context.text) is None else None


_BOUNDS = any_of("SINCE UNTIL BEFORE AFTER FROM TO STARTING WITHIN")
_RELATED = any_of("UNIT MOD AGO LATER NUM ORD DATE")
_LINKS = chars_of("THE") | chars_of("OF") | chars_of("IN") | chars_of("ON")
