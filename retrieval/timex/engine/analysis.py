"""From a text to its expressions of time: which languages to try, rules in order, one choice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from retrieval.timex.calendar import days
from retrieval.timex.calendar.lunar import LUNAR
from retrieval.timex.engine.grammar import DATE, Context, Span
from retrieval.timex.engine.lexicon import LANGUAGES, Lexicon, lexicon
from retrieval.timex.engine.recognition import everyday, evidence, in_contention
from retrieval.timex.engine.text import WORDS, Folded
from retrieval.timex.expression import Settings, TimeExpression
from retrieval.timex.rules.approximate import number_first, without_vagueness
from retrieval.timex.rules.bare import LATE_BARE
from retrieval.timex.rules.composition import COMPOSED
from retrieval.timex.rules.compounds import COMPOUNDS
from retrieval.timex.rules.dates import BARE, NAMED
from retrieval.timex.rules.dutch import DUTCH
from retrieval.timex.rules.eras import ERAS
from retrieval.timex.rules.habits import HABITS
from retrieval.timex.rules.holidays import HOLIDAYS
from retrieval.timex.rules.labels import labels
from retrieval.timex.rules.names import may_be_names, names, without
from retrieval.timex.rules.offsets import OFFSETS, TIMED, merge_measures
from retrieval.timex.rules.periods import PERIODS
from retrieval.timex.rules.ranges import NUMBERS, OPEN, RANGES
from retrieval.timex.rules.relative import RELATIVE
from retrieval.timex.rules.several import SEVERAL
from retrieval.types import Window

_STEPS = (
    LUNAR, NUMBERS, COMPOUNDS, NAMED, HABITS, OFFSETS, RELATIVE, ERAS, PERIODS, HOLIDAYS, SEVERAL,
    COMPOSED, DUTCH, BARE, COMPOSED, LATE_BARE, COMPOSED, TIMED, RANGES, COMPOSED, OPEN,
)  # fmt: skip
_DAY_FIRST_REGIONS = frozenset({"GB", "AU", "NZ", "IE", "IN", "ZA"})


@dataclass(frozen=True, slots=True)
class Reading:
    """What one language's rules found in a text; `void` where it says that there is no window,
    `alone` where words start that are times only if nobody is called so."""

    language: str
    found: tuple[tuple[Span, int, int], ...]
    void: bool
    covered: int
    alone: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Candidates:
    """The languages in which a text may name a time: `likely` ones, best first, and `others`,
    which have time words in it but which the text's everyday words speak against."""

    likely: tuple[Lexicon, ...]
    others: tuple[Lexicon, ...]
    evidence: Mapping[str, float]


def candidates(folded: str) -> Candidates:
    """The languages in which the text may name a time; none for most texts."""
    words = frozenset(WORDS.findall(folded))
    digits = (_DIGIT if len(folded) <= _SHORT else _LONG_DIGITS).search(folded) is not None
    scripts = _scripts(folded)
    found = evidence(words, folded)
    own: list[Lexicon] = []
    likely: list[Lexicon] = []
    others: list[Lexicon] = []
    leader = max(found, key=lambda name: found[name], default="")
    ordinary = everyday(leader) if leader else frozenset[str]()
    if leader in LANGUAGES:
        ordinary -= lexicon(leader).triggers
    for name in LANGUAGES:
        words_of = lexicon(name)
        if words_of.script != "latin":
            if words_of.script in scripts and (digits or words_of.has_trigger(words, folded)):
                own.append(words_of)
        elif in_contention(found, name):
            if found.get(name, 0.0) < found.get(leader, 0.0):
                timely = words_of.triggers & words
                if timely and timely <= ordinary:
                    others.append(words_of)  # "hier" in a German question
                    continue
            numbers = digits and (name in found or not found or name == "en")
            if numbers or words_of.has_trigger(words, folded):
                likely.append(words_of)
        elif words_of.has_trigger(words, folded):
            others.append(words_of)
    likely.sort(key=lambda words_of: -found.get(words_of.language, 0.0))
    return Candidates((*own, *likely), tuple(others), found)


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


def context_of(
    words: Lexicon, reference_time: datetime, settings: Settings, text: Folded
) -> Context:
    day_first = settings.day_first
    if day_first is None:
        day_first = words.day_first or (settings.region or "").upper() in _DAY_FIRST_REGIONS
    return Context(reference_time, settings, words.language, day_first, words.options, text.text)


def read(words: Lexicon, context: Context, text: Folded, named: set[int]) -> Reading:
    """All expressions that one language finds, left to right, none inside another.

    `named`: where the words and numbers start that a likelier language takes for names or labels;
    what this one takes for such is added.
    """
    folded = text.text
    spans: list[tuple[Span, int, int]] = []
    alone: set[int] = set()
    for start, end in _stretches(words, folded):
        context = replace(context, is_capital=partial(text.is_capital, base=start))
        part = folded[start:end]
        tokens = without_vagueness(merge_measures(context, part, words.tokens(context, part)))
        if "inverted_numbers" in words.options:
            tokens = number_first(tokens)
        named.update(start + place for place in labels(part, tokens))
        tokens = without(tokens, {place - start for place in named})
        named.update(start + place for place in names(context, part, tokens))
        tokens = without(tokens, {place - start for place in named})
        alone.update(start + place for place in may_be_names(tokens))
        for step in _STEPS:
            tokens = step.reduce(context, tokens)
        spans.extend(
            (t.value, start + t.start, start + t.end)
            for t in tokens
            if t.kind == DATE and isinstance(t.value, Span)
        )
    covered = sum(end - start for span, start, end in spans)
    return Reading(
        words.language,
        tuple(s for s in spans if not s[0].void),
        any(s[0].void for s in spans),
        covered,
        frozenset(alone),
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


_EVIDENT = 20
"""So many characters of a time that a language reads speak for it as much as an everyday word."""


def best_reading(text: Folded, reference_time: datetime, settings: Settings) -> Reading | None:
    """The reading of the likeliest language: everyday words speak for it, and so does the length of
    what it reads as a time."""
    tried = candidates(text.text)
    best: Reading | None = None
    best_score = 0.0
    named: set[int] = set()
    for words in tried.likely:
        reading = read(words, context_of(words, reference_time, settings, text), text, named)
        if not reading.found and not reading.void:
            continue
        if words.script != "latin":
            return reading  # what the script says is surer than any count of characters
        score = tried.evidence.get(words.language, 0.0) + reading.covered / _EVIDENT
        if best is None or score > best_score:
            best, best_score = reading, score
    if best is not None:
        return best
    for words in tried.others:
        reading = read(words, context_of(words, reference_time, settings, text), text, named)
        if reading.found and _is_borrowed(tried, text.text, reading):
            return reading
    return None


def _is_borrowed(tried: Candidates, folded: str, reading: Reading) -> bool:
    """Whether a time in another language than the text's is meant as one: it is the whole text, a
    date in full, or two words that are not everyday ones of the text's language. One word by
    itself is more likely a name, or something else in the text's language."""
    left = folded
    for _, start, end in reversed(reading.found):
        left = left[:start] + left[end:]
    if not WORDS.search(left):
        return True
    ordinary = frozenset[str]().union(
        *(everyday(name) for name in tried.evidence if in_contention(tried.evidence, name))
    )
    return all(
        (span.explicit and span.grain == "day")
        or sum(word not in ordinary for word in WORDS.findall(folded[start:end])) > 1
        for span, start, end in reading.found
    )


def languages_of(folded: str) -> list[str]:
    """The languages that a text most resembles, by its script and its everyday words."""
    scripts = _scripts(folded)
    for name in LANGUAGES:
        script = lexicon(name).script
        if script != "latin" and script in scripts:
            return [name]
    found = evidence(frozenset(WORDS.findall(folded)), folded)
    known = [name for name in LANGUAGES if lexicon(name).script == "latin"]
    most = max((found.get(name, 0.0) for name in known), default=0.0)
    return [name for name in known if found.get(name, 0.0) >= most - 1e-9]


def covered(folded: str) -> list[tuple[int, int]]:
    """The places of a text that are expressions of time, in order, whatever the reference time."""
    reading = best_reading(Folded(folded), datetime(2024, 6, 12, tzinfo=UTC), Settings())
    return [] if reading is None else [(start, end) for _, start, end in reading.found]


def aware(reference_time: datetime) -> datetime:
    """The reference time with an offset; a naive one is UTC."""
    if reference_time.tzinfo is None or reference_time.utcoffset() is None:
        return reference_time.replace(tzinfo=UTC)
    return reference_time


def expressions(folded: Folded, reading: Reading, reference_time: datetime) -> list[TimeExpression]:
    """What a reading found, without what no calendar holds."""
    found: list[TimeExpression] = []
    for span, start, end in reading.found:
        one = expression(folded, span, start, end, reference_time)
        if one is not None:
            word = start in reading.alone and WORDS.fullmatch(folded.text, start, end) is not None
            found.append(replace(one, maybe_name=word))
    return found


def expression(
    folded: Folded, span: Span, start: int, end: int, reference_time: datetime
) -> TimeExpression | None:
    """The span as whole days (or exact moments) of the reference time's offset, bounds in UTC."""
    try:
        if span.moments is not None:
            first, last = (m.astimezone(UTC) for m in span.moments)
            window = Window(first, last)
        else:
            zone = reference_time.tzinfo
            opened = closed = None
            if span.first is not None:
                opened = days.opening(span.first, zone)
            if span.last is not None:
                closed = days.closing(span.last, zone)
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
        span.explicit,
    )


def whole_days(
    text: str, span: Span, start: int, end: int, reference_time: datetime
) -> TimeExpression:
    """The expression of a closed span of days at a place of the text as given."""
    if span.first is None or span.last is None:
        raise ValueError("an open span")
    window = Window(
        days.opening(span.first, reference_time.tzinfo),
        days.closing(span.last, reference_time.tzinfo),
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
    finer = min(first, second, key=_rank)
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
        finer.explicit,
    )


def _rank(one: TimeExpression) -> tuple[int, bool]:
    """The finer unit first; of days, one that is named in full before "yesterday"."""
    fineness = _fineness(one)
    return fineness, not (one.explicit and fineness <= _GRAINS.index("day"))


def _fineness(one: TimeExpression) -> int:
    if one.window.start is None or one.window.end is None:
        return len(_GRAINS)
    return _GRAINS.index(one.granularity) if one.granularity in _GRAINS else len(_GRAINS)
