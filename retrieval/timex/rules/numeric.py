"""Dates written in digits: 2024-05-10, 13.7.2024, 7/13/24, 2024/05, 7/13, and ranges of them.

Everything else that joins numbers by marks (versions, addresses, telephone numbers, times of day)
becomes one opaque token, so that no rule takes a piece of it for a day or a year.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from retrieval.timex.calendar.days import day, full_year, month
from retrieval.timex.engine.grammar import DATE, OTHER, Context, Span, Token, kind_of
from retrieval.timex.rules.codes import code_tokens

_RUN = re.compile(
    r"(?<![a-z0-9_#$€£@°\\])(?<![0-9][.,])(?:"
    r"(?P<iso>\d{4}-\d{2}-\d{2})(?:t|[ ](?=\d\d:))\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
    r"(?:z|[+-]\d\d:?\d\d)?"
    r"|(?P<date>\d{4}-\d{2}-\d{2})|(?<![a-z]-)(?P<run>\d+(?:(?:\s{0,2}[-/]\s{0,2}|[.:,])\d+)+)"
    r")(?![a-z_°]|[.,:/-]?\d|[/-][a-z])"
)
_VERSION = re.compile(
    r"(?<![a-z0-9_])(?:v|ver|rev|rc|py|go|jdk|node)\d{1,6}(?:\.\d{1,6}){1,8}(?!\d)"
)
_SPLIT = re.compile(r"\s*([-/.:,])\s*")
_COMPACT = re.compile(
    r"(?<![\w.])((?:19|20)\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?![\d_]|[-/.]\d)"
)

CLOCK = kind_of("CLOCK")
MONTH_DAY = kind_of("MD")
DASH = kind_of("DASH")


# "2024 - 7": a month of that year, unless a month follows that the 7 is a day of.
_SPACED = re.compile(r"\d{4} - ?\d\d?")
_FOLLOWING = re.compile(r"[.]?\s?(?:(?:de|of|van)\s)?([^\W\d_]+)")


def numeric_tokens(
    context: Context, folded: str, is_month: Callable[[str], bool]
) -> dict[int, list[Token]]:
    """Tokens of codes, and of digit groups that are joined by marks, by the place they start at."""
    found: dict[int, list[Token]] = {}
    taken = bytearray(len(folded))
    for tokens in code_tokens(context, folded):
        start, end = tokens[0].start, tokens[-1].end
        if not any(taken[start:end]):
            found[start] = tokens
            taken[start:end] = b"\1" * (end - start)
    for hit in _VERSION.finditer(folded):
        if not any(taken[hit.start() : hit.end()]):
            found[hit.start()] = [Token(OTHER, None, hit.start(), hit.end())]
            taken[hit.start() : hit.end()] = b"\1" * (hit.end() - hit.start())
    for hit in _RUN.finditer(folded):
        start, end = hit.span()
        if any(taken[start:end]):
            continue
        written = hit["iso"] or hit["date"] or hit["run"]
        if _SPACED.fullmatch(written):
            following = _FOLLOWING.match(folded, end)
            if following is not None and is_month(following[1]):
                continue
        found[start] = _read(context, written, start, end)
    for hit in _COMPACT.finditer(folded):
        if any(taken[hit.start() : hit.end()]):
            continue
        try:
            span = _one_day(int(hit[1]), int(hit[2]), int(hit[3]), 0.7)
        except OverflowError:
            continue
        found[hit.start()] = [Token(DATE, span, hit.start(), hit.end())]
    return {start: tokens for start, tokens in found.items() if tokens}


def _one_day(year: int, month_: int, day_: int, confidence: float = 1.0) -> Span:
    found = day(year, month_, day_)
    return Span(found, found, "day", confidence, rule="numeric date", explicit=True)


def _read(context: Context, written: str, start: int, end: int) -> list[Token]:
    parts = _SPLIT.split(written)
    numbers, marks = parts[::2], parts[1::2]
    if ":" in marks:
        return [Token(CLOCK, None, start, end)]
    sizes = {len(number) for number in numbers}
    if marks == ["-"] and (sizes == {4} or max(sizes) <= 2):
        return []  # "19-20", "2014-2018": the rules see numbers and a dash
    try:
        groups = _group(numbers, marks)
        spans = [_point(context, n, m) for n, m in groups]
    except (OverflowError, ValueError):
        return [Token(OTHER, None, start, end)]
    tokens: list[Token] = []
    for span in spans:
        if tokens:
            tokens.append(Token(DASH, None, start, end))
        bare = span.grain == "day" and span.month is not None
        kind = MONTH_DAY if bare and len(spans) == 1 else DATE
        tokens.append(Token(kind, span, start, end, written))
    return tokens


def _group(numbers: list[str], marks: list[str]) -> list[tuple[list[str], list[str]]]:
    count = len(numbers)
    if count <= 3:
        return [(numbers, marks)]
    if count > 6:
        raise ValueError("too many groups")
    half = count // 2
    if marks[half - 1] != "-":
        raise ValueError("no range")
    return [(numbers[:half], marks[: half - 1]), (numbers[half:], marks[half:])]


def _point(context: Context, numbers: list[str], marks: list[str]) -> Span:
    if len(numbers) == 3:
        return _three(context, numbers, marks)
    first, second = numbers
    if marks[0] == ",":
        raise ValueError("a decimal comma")
    if len(first) == 4 and len(second) <= 2:
        return _month(int(first), int(second))
    if len(second) == 4 and len(first) <= 2:
        return _month(int(second), int(first))
    if len(first) > 2 or len(second) > 2:
        raise ValueError("no date")
    month_, day_ = _order(context, int(first), int(second))
    day(2024, month_, day_)
    today = context.today
    for year in range(today.year, today.year - 9, -1):
        try:
            found = day(year, month_, day_)
        except OverflowError:
            continue
        if found <= today:
            return Span(found, found, "day", 0.8, rule="month and day", month=month_, day=day_)
    raise OverflowError


def _month(year: int, month_: int) -> Span:
    first, last = month(year, month_)
    return Span(first, last, "month", rule="numeric month", explicit=True)


def _three(context: Context, numbers: list[str], marks: list[str]) -> Span:
    first, second, third = numbers
    if marks[0] != marks[1] and marks != ["/", ","]:
        raise ValueError("mixed marks")
    if "," in marks and marks != ["/", ","]:
        raise ValueError("decimal commas")
    if len(first) == 4 and len(second) <= 2 and len(third) <= 2:
        try:
            return _one_day(int(first), int(second), int(third))
        except OverflowError:
            return _one_day(int(first), int(third), int(second))
    if len(first) > 2 or len(second) > 2 or len(third) not in (2, 4):
        raise ValueError("no date")
    if len(third) == 2:
        if marks[0] == "." and (len(second) != 2 or "dotted" not in context.options):
            raise ValueError("a version")
        if "year_first" in context.options and len(first) == 2:
            try:
                return _one_day(full_year(first, context.today), int(second), int(third), 0.8)
            except OverflowError:
                pass
    month_, day_ = _order(context, int(first), int(second), marks[0])
    return _one_day(full_year(third, context.today), month_, day_, 0.95)


def _order(context: Context, first: int, second: int, mark: str = "") -> tuple[int, int]:
    """(month, day) of two numbers, in the order of the language unless only the other is a date;
    in a whole date with dots the day is first everywhere."""
    day_first = context.day_first or mark == "."
    if first > 12 >= second:
        day_first = True
    elif second > 12 >= first:
        day_first = False
    return (second, first) if day_first else (first, second)
