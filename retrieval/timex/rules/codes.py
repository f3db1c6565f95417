"""Times written as codes, alike in every language: ISO 8601 intervals and weeks, 3Q24, FY24, CY18.

Each becomes tokens that stand for it whole, so that no rule reads a piece of it: "2025-W12" is no
year, and "2026-07-25/26" no fraction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date

from retrieval.timex.calendar import days
from retrieval.timex.engine.grammar import DATE, Context, Span, Token, kind_of

_YEAR = r"(?:1[5-9]|20|21)\d\d"
_DAY = r"\d{4}-\d{2}-\d{2}"
_CLOCK = r"(?:(?:t|[ ](?=\d\d:))\d{2}:?\d{2}(?::?\d{2}(?:[.,]\d+)?)?(?:z|[+-]\d\d:?\d\d)?)?"
_TO = r"\s?(?:/|\.{2,3}|…|--|(?<=\s)-(?=\s))\s?"
_OPENS = r"(?<![\w$#@\\])(?<![\w][-./:])"
_ENDS = r"(?![\w°%]|[-/:.]\d)"
_WEEKS = "week|weeks|wk|cw|kw|w|woche|wochen|semaine|semana|settimana|vecka|uge|uke|hafta"

Reader = Callable[[Context, "re.Match[str]"], "Span | None"]


def _span(first: date, last: date, grain: str) -> Span | None:
    return Span(first, last, grain, 0.95, explicit=True) if first <= last else None


def _interval(context: Context, hit: re.Match[str]) -> Span | None:
    """Two days; what the second leaves out is as in the first."""
    first = date.fromisoformat(hit["first"])
    second = [int(part) for part in hit["second"].split("-")]
    year, month, day = [first.year, first.month, first.day][: 3 - len(second)] + second
    return _span(first, days.day(year, month, day), "day")


def _compact(context: Context, hit: re.Match[str]) -> Span | None:
    first, last = (
        days.day(int(written[:4]), int(written[4:6]), int(written[6:])) for written in hit.groups()
    )
    return _span(first, last, "day")


def _months(context: Context, hit: re.Match[str]) -> Span | None:
    first = days.month(int(hit[1]), int(hit[2]))[0]
    return _span(first, days.month(int(hit[3]), int(hit[4]))[1], "month")


def _years(context: Context, hit: re.Match[str]) -> Span | None:
    first, last = int(hit[1]), int(hit[2])
    if not context.today.year - 120 <= first < last <= context.today.year + 20:
        return None
    return _span(*days.years(first, last), "year")


def _season(context: Context, hit: re.Match[str]) -> Span | None:
    """2019/20, the two years that a season or a winter lies in; 2011/12 is a month."""
    first, last = int(hit[1]), int(hit[2])
    if last <= 12 or (first + 1) % 100 != last:
        return None
    return _span(*days.years(first, first + 1), "year")


def _dotted(context: Context, hit: re.Match[str]) -> Span | None:
    first, last, month, year = (int(part) for part in hit.groups())
    return _span(days.day(year, month, first), days.day(year, month, last), "day")


def _week(context: Context, hit: re.Match[str]) -> Span | None:
    found = hit.groupdict()
    year = int(found["year"])
    first = days.numbered_week(year, int(found["week"]))[0]
    if found.get("day"):
        only = days.plus_days(first, int(found["day"]) - 1)
        return _span(only, only, "day")
    last = days.numbered_week(year, int(found.get("last") or found["week"]))[1]
    return _span(first, last, "week")


def _quarter(context: Context, hit: re.Match[str]) -> Span | None:
    """A quarter or half with its year; "1h19" in small letters is an hour and 19 minutes."""
    kind, number, year = hit["kind"], int(hit["number"]), hit["year"]
    if kind == "h" and (number > 2 or (hit["glued"] and not context.is_capital(hit.start("kind")))):
        return None
    size = 3 if kind == "q" else 6
    whole = int(year) if len(year) == 4 else days.full_year(year, context.today)
    first, last = days.months(whole, size * (number - 1) + 1, size * number)
    return _span(first, last, "quarter" if size == 3 else "half")


def _calendar_year(context: Context, hit: re.Match[str]) -> Span | None:
    return _span(*days.year(days.full_year(hit[1], context.today)), "year")


_QUARTERS = (
    rf"(?P<glued>(?<=$)x)?(?P<year>{_YEAR})[-/ ]?(?P<kind>[qh])(?P<number>[1-4])",
    rf"(?P<glued>(?<=$)x)?(?P<number>[1-4])(?P<kind>[qh])[-/' ]?(?P<year>{_YEAR})",
    r"(?P<number>[1-4])(?P<kind>q)(?P<glued>\s?'?)(?P<year>\d\d)",
    r"(?P<number>[12])(?P<kind>h)(?P<glued>(?=\d)|')(?P<year>\d\d)",
    r"(?P<glued>(?<=$)x)?(?P<kind>[qh])(?P<number>[1-4])\s?'\s?(?P<year>\d\d)",
)

# "2T 2024" is a quarter where the word for one begins so, "1S 2024" a half.
_TRIMESTERS = (
    rf"(?P<number>[1-4])(?P<kind>[ts])[-/ ]?(?P<year>{_YEAR})",
    rf"(?P<year>{_YEAR})[-/ ]?(?P<kind>[ts])(?P<number>[1-4])",
)
_WITH_TRIMESTERS = frozenset({"es", "fr", "it", "pt"})


def _trimester(context: Context, hit: re.Match[str]) -> Span | None:
    kind, number, year = hit["kind"], int(hit["number"]), int(hit["year"])
    if context.language not in _WITH_TRIMESTERS or (kind == "s" and number > 2):
        return None
    size = 3 if kind == "t" else 6
    first, last = days.months(year, size * (number - 1) + 1, size * number)
    return _span(first, last, "quarter" if size == 3 else "half")


_CODES: tuple[tuple[str, re.Pattern[str], Reader], ...] = tuple(
    (rule, re.compile(f"{_OPENS}(?:{pattern}){_ENDS}"), reader)
    for rule, pattern, reader in (
        (
            "interval",
            rf"(?P<first>{_DAY}){_CLOCK}{_TO}(?P<second>{_DAY}|\d\d-\d\d|\d\d){_CLOCK}",
            _interval,
        ),
        ("interval", rf"((?:19|20)\d{{6}})(?:{_TO}|\s?-\s?)((?:19|20)\d{{6}})", _compact),
        ("interval", rf"({_YEAR})-(\d\d){_TO}({_YEAR})-(\d\d)", _months),
        ("interval", rf"({_YEAR}){_TO}({_YEAR})", _years),
        ("years", rf"({_YEAR})[/-](\d\d)", _season),
        ("interval", rf"(\d\d?)\.\s?-\s?(\d\d?)\.\s?(\d\d?)\.\s?({_YEAR})", _dotted),
        (
            "week number",
            rf"(?P<year>{_YEAR})\s?[-/]?\s?w(?P<week>\d\d?)(?:-w?(?P<last>\d\d))?",
            _week,
        ),
        ("week and weekday", rf"(?P<year>{_YEAR})-?w(?P<week>\d\d)-?(?P<day>[1-7])", _week),
        (
            "week number",
            rf"(?:{_WEEKS})\s?\.?\s?#?(?P<week>\d\d?)(?:\s?-\s?w?(?P<last>\d\d?))?"
            rf"(?:\s?[-/,]\s?|\s(?:of\s|de\s|von\s)?)(?P<year>{_YEAR})",
            _week,
        ),
        *(("quarter", pattern, _quarter) for pattern in _QUARTERS),
        *(("quarter", pattern, _trimester) for pattern in _TRIMESTERS),
        ("year", r"cy\s?'?(\d{4}|\d\d)", _calendar_year),
    )
)
# What only a reader of the question's own words can read becomes words: FY2023/24, the last 30d.
_FISCAL = re.compile(rf"{_OPENS}fy\s?'?(?:(?:{_YEAR}|\d\d)\s?[-/]\s?)?'?({_YEAR}|\d\d){_ENDS}")
_SHORT_UNIT = re.compile(r"(?<![\w.,:-])(\d{1,4})\s?(d|h|hrs?|w|wks?|mo|mos|y|yrs?)(?![\w'])")
_UNITS = {"d": "UDAY", "h": "UHOUR", "w": "UWEEK", "m": "UMONTH", "y": "UYEAR"}
_COUNTED_BEFORE = re.compile(
    r"\b(?:last|past|previous|prior|next|within|letzten?|vergangenen|ultim[oia]s?|derniers?|"
    r"dernieres|laatste|afgelopen|senaste|son)\s$"
)
_COUNTED_AFTER = re.compile(r"\s?ago\b")


def code_tokens(context: Context, folded: str) -> Iterator[list[Token]]:
    """The tokens of each code in a text, in no order; where two overlap, the first given counts."""
    if not _DIGIT.search(folded):
        return
    for rule, pattern, reader in _CODES:
        for hit in pattern.finditer(folded):
            try:
                span = reader(context, hit)
            except (OverflowError, ValueError):
                continue
            if span is not None:
                named = Span(span.first, span.last, span.grain, 0.95, rule, explicit=True)
                yield [Token(DATE, named, hit.start(), hit.end())]
    for hit in _FISCAL.finditer(folded):
        year = days.full_year(hit[1], context.today)
        yield [
            Token(kind_of("FISCAL"), None, hit.start(), hit.start() + 2),
            Token(kind_of("YEAR"), year, hit.start() + 2, hit.end(), str(year)),
        ]
    for hit in _SHORT_UNIT.finditer(folded):
        before = folded[max(0, hit.start() - 16) : hit.start()]
        if _COUNTED_BEFORE.search(before) or _COUNTED_AFTER.match(folded, hit.end()):
            unit = kind_of(_UNITS[hit[2][0]])
            yield [
                Token(kind_of("NUM"), int(hit[1]), hit.start(), hit.end(1), hit[1]),
                Token(unit, None, hit.start(2), hit.end()),
            ]


_DIGIT = re.compile(r"\d")
