"""From a text to its expressions of time: which languages to try, rules in order, one choice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time

from retrieval.timex.composition import COMPOSED, LATE_BARE
from retrieval.timex.dates import BARE, NAMED
from retrieval.timex.eras import ERAS
from retrieval.timex.expression import Settings, TimeExpression
from retrieval.timex.grammar import DATE, Context, Span
from retrieval.timex.holidays import HOLIDAYS
from retrieval.timex.lexicon import LANGUAGES, Lexicon, lexicon
from retrieval.timex.lunar import LUNAR
from retrieval.timex.periods import PERIODS
from retrieval.timex.ranges import OPEN, RANGES
from retrieval.timex.relative import RELATIVE
from retrieval.timex.text import WORDS, Folded
from retrieval.types import Window

_STEPS = (
    LUNAR, NAMED, RELATIVE, ERAS, PERIODS, HOLIDAYS, COMPOSED, BARE, COMPOSED, LATE_BARE, COMPOSED,
    RANGES, COMPOSED, OPEN,
)  # fmt: skip
_DAY_FIRST_REGIONS = frozenset({"GB", "AU", "NZ", "IE", "IN", "ZA"})


@dataclass(frozen=True, slots=True)
class Reading:
    """What one language's rules found in a text; `void` where it says that there is no window."""

    language: str
    found: tuple[tuple[Span, int, int], ...]
    void: bool
    score: tuple[int, int]


def candidates(folded: str) -> list[Lexicon]:
    """The languages in which the text may name a time, likeliest first; empty for most texts.

    A language with less than two thirds of the known words of the best one is out.
    """
    words = frozenset(WORDS.findall(folded))
    digits = (_DIGIT if len(folded) <= _SHORT else _LONG_DIGITS).search(folded) is not None
    scripts = _scripts(folded)
    known: list[tuple[int, Lexicon]] = []
    likely: list[tuple[int, Lexicon]] = []
    for name in LANGUAGES:
        words_of = lexicon(name)
        if words_of.script == "latin":
            known.append((len(words & words_of.vocabulary), words_of))
        elif words_of.script in scripts and (digits or words_of.has_trigger(words, folded)):
            likely.append((1_000, words_of))
    most = max(count for count, _ in known)
    for count, words_of in known:
        if (3 * count >= 2 * most or most - count <= 1) and (
            (digits and (count or not most or words_of.language == "en"))
            or words_of.has_trigger(words, folded)
        ):
            likely.append((count, words_of))
    likely.sort(key=lambda entry: -entry[0])
    return [words_of for _, words_of in likely]


_DIGIT = re.compile(r"\d")
# In a text too long to be read for any number in it: what could be a year or a date.
_LONG_DIGITS = re.compile(
    r"(?<![\d.,:/-])(?:(?:1\d|20|21)\d\d(?![\d.,:/-]*\d)|\d{4}[-/.]\d{1,2}(?:[-/.]\d{1,2})?(?![\d.:/-])"
    r"|\d{1,2}[-/]\d{1,2}[-/]\d{2,4}(?!\d)|\d{1,2}\.\d{1,2}\.\d{4}(?!\d)|\d{1,2}/\d{1,2}(?![\d/])"
    r"|\d{1,2}[-/]\d{4}(?!\d))"
)
_SHORT = 300
_AROUND = 100


def _scripts(folded: str) -> frozenset[str]:
    if folded.isascii():
        return _LATIN
    found = {"latin"}
    for character in set(folded):
        if character < "\u0400":
            continue
        if "\u0400" <= character <= "\u052f":
            found.add("cyrillic")
        elif "\u0600" <= character <= "\u06ff":
            found.add("arabic")
        elif "\u0900" <= character <= "\u097f":
            found.add("devanagari")
        elif "\u3041" <= character <= "\u30ff":
            found.add("kana")
        elif "\uac00" <= character <= "\ud7a3":
            found.add("hangul")
        elif "\u4e00" <= character <= "\u9fff":
            found.add("han")
    if "han" in found and any(mark in folded for mark in lexicon("ja").marks):
        found.add("kana")
    if "kana" in found:
        found.discard("han")
    elif "han" in found:
        found.add("kana")
    return frozenset(found)


_LATIN = frozenset({"latin"})


def context_of(words: Lexicon, anchor: datetime, settings: Settings, folded: str) -> Context:
    day_first = settings.day_first
    if day_first is None:
        day_first = words.day_first or (settings.region or "").upper() in _DAY_FIRST_REGIONS
    return Context(anchor, settings, words.language, day_first, words.options, folded)


def read(words: Lexicon, context: Context, folded: str) -> Reading:
    """All expressions that one language finds, left to right, none inside another."""
    spans: list[tuple[Span, int, int]] = []
    for start, end in _stretches(words, folded):
        tokens = words.tokens(context, folded[start:end])
        for step in _STEPS:
            tokens = step.reduce(context, tokens)
        spans.extend(
            (t.value, start + t.start, start + t.end)
            for t in tokens
            if t.kind == DATE and isinstance(t.value, Span)
        )
    covered = sum(end - start for span, start, end in spans)
    known = len(frozenset(WORDS.findall(folded)) & words.vocabulary)
    return Reading(
        words.language,
        tuple(s for s in spans if not s[0].void),
        any(s[0].void for s in spans),
        (known, covered),
    )


def _stretches(words: Lexicon, folded: str) -> list[tuple[int, int]]:
    """The parts of a text to read: all of a short one, of a long one what lies around a trigger."""
    if len(folded) <= _SHORT:
        return [(0, len(folded))]
    places = words.places(folded)
    places.extend(m.start() for m in _LONG_DIGITS.finditer(folded))
    found: list[tuple[int, int]] = []
    for place in sorted(places):
        start = max(0, folded.rfind(" ", 0, max(0, place - _AROUND)) + 1)
        if words.script != "latin" or place - start > 2 * _AROUND:
            start = max(0, place - _AROUND)
        end = folded.find(" ", place + _AROUND)
        if end < 0 or end - place > 2 * _AROUND:
            end = min(len(folded), place + 2 * _AROUND)
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def best_reading(folded: str, anchor: datetime, settings: Settings) -> Reading | None:
    """The reading of the likeliest language; of equally likely ones, the one that covers most."""
    best: Reading | None = None
    for words in candidates(folded):
        reading = read(words, context_of(words, anchor, settings, folded), folded)
        if not reading.found and not reading.void:
            continue
        if words.script != "latin":
            return reading  # what the script says is surer than any count of characters
        if best is None or reading.score > best.score:
            best = reading
    return best


def languages_of(folded: str) -> list[str]:
    """The languages that a text most resembles, by its script and its everyday words."""
    words, scripts = frozenset(WORDS.findall(folded)), _scripts(folded)
    known: dict[str, int] = {}
    for name in LANGUAGES:
        words_of = lexicon(name)
        if words_of.script in scripts:
            if words_of.script != "latin":
                return [name]
            known[name] = len(words & words_of.common)
    most = max(known.values(), default=0)
    return [name for name, count in known.items() if count == most]


def covered(folded: str) -> list[tuple[int, int]]:
    """The places of a text that are expressions of time, in order, whatever the anchor."""
    reading = best_reading(folded, datetime(2024, 6, 12, tzinfo=UTC), Settings())
    return [] if reading is None else [(start, end) for _, start, end in reading.found]


def aware(anchor: datetime) -> datetime:
    """The anchor with an offset; a naive one is UTC."""
    if anchor.tzinfo is None or anchor.utcoffset() is None:
        return anchor.replace(tzinfo=UTC)
    return anchor


def expression(
    folded: Folded, span: Span, start: int, end: int, anchor: datetime
) -> TimeExpression | None:
    """The span as whole days (or exact moments) of the anchor's offset, bounds in UTC."""
    try:
        if span.moments is not None:
            first, last = (m.astimezone(UTC) for m in span.moments)
            window = Window(first, last)
        else:
            zone = anchor.tzinfo
            opened = closed = None
            if span.first is not None:
                opened = datetime.combine(span.first, time.min, zone).astimezone(UTC)
            if span.last is not None:
                closed = datetime.combine(span.last, time.max, zone).astimezone(UTC)
            window = Window(opened, closed)
    except (OverflowError, ValueError):
        return None
    if window.start is None and window.end is None:
        return None
    first_char, last_char = folded.original_span(start, end)
    return TimeExpression(
        window,
        first_char,
        last_char,
        folded.original[first_char:last_char],
        span.rule,
        round(span.confidence, 3),
        span.grain,
    )


def whole_days(text: str, span: Span, start: int, end: int, anchor: datetime) -> TimeExpression:
    """The expression of a closed span of days at a place of the text as given."""
    if span.first is None or span.last is None:
        raise ValueError("an open span")
    window = Window(
        datetime.combine(span.first, time.min, anchor.tzinfo).astimezone(UTC),
        datetime.combine(span.last, time.max, anchor.tzinfo).astimezone(UTC),
    )
    return TimeExpression(
        window, start, end, text[start:end], span.rule, span.confidence, span.grain
    )


_GRAINS = (
    "hour", "day", "weekend", "week", "fortnight", "month", "quarter", "season", "half", "year",
    "decade", "century",
)  # fmt: skip


def combine(found: Iterable[TimeExpression]) -> TimeExpression | None:
    """One window for a text with several expressions.

    Of two that overlap, the inner one, or their common part, counts; of two apart, the one with the
    finer unit, and of equals the one that comes first in the text.
    """
    chosen: TimeExpression | None = None
    for one in found:
        chosen = one if chosen is None else _narrower(chosen, one)
    return chosen


def _narrower(first: TimeExpression, second: TimeExpression) -> TimeExpression:
    starts = [w.start for w in (first.window, second.window) if w.start is not None]
    ends = [w.end for w in (first.window, second.window) if w.end is not None]
    start = max(starts) if starts else None
    end = min(ends) if ends else None
    finer = first if _fineness(first) <= _fineness(second) else second
    if start is not None and end is not None and end < start:
        return finer
    common = Window(start, end)
    for one in (first, second):
        if one.window == common:
            return one
    return TimeExpression(
        common,
        min(first.start, second.start),
        max(first.end, second.end),
        finer.text,
        f"{first.rule} and {second.rule}",
        min(first.confidence, second.confidence),
        finer.granularity,
    )


def _fineness(one: TimeExpression) -> int:
    if one.window.start is None or one.window.end is None:
        return len(_GRAINS)
    return _GRAINS.index(one.granularity) if one.granularity in _GRAINS else len(_GRAINS)
