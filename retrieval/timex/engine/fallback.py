"""What the grammar leaves: dates in other languages, read by `dateparser`.

Asked only for a text that holds a date word of such a language, and told which one: detecting the
language among two hundred costs more than all else. dateparser is imported on the first such text.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache

from retrieval.timex.engine.grammar import Span
from retrieval.timex.engine.lexicon import LANGUAGES, lexicon
from retrieval.timex.engine.recognition import evidence, in_contention, judged
from retrieval.timex.engine.tables import word_lists
from retrieval.timex.engine.text import WORDS, fold

MAX_CHARACTERS = 1_000
"""dateparser's search takes time that grows with the text; a longer text is not given to it."""

_WORD = re.compile(r"[^\W\d_]+(?:[^\W\d_]|['ʼ’\u0300-\u036f\u0e31-\u0e4e])*")


@lru_cache(maxsize=1)
def _words() -> dict[str, str]:
    """Date words, each with the one language that has it; a word of several is no evidence."""
    found: dict[str, str | None] = {}
    for code, words in word_lists("others").items():
        for word in words.split():
            found[word] = None if word in found else code
    return {word: code for word, code in found.items() if code is not None}


def other_language(text: str) -> str | None:
    """The language without a grammar whose date words the text holds, or None.

    None also where the everyday words of the text speak for another one: Polish "of March" is a
    brand in Spanish.
    """
    words = _words()
    counts: dict[str, int] = {}
    for word in _WORD.findall(text.lower()):
        code = words.get(word)
        if code is not None:
            counts[code] = counts.get(code, 0) + 1
    if not counts:
        return None
    best = max(counts, key=counts.__getitem__)
    folded = fold(text)
    found = evidence(frozenset(WORDS.findall(folded)), folded)
    return best if best not in judged() or in_contention(found, best) else None


def _is_known(text: str, word: str, code: str) -> bool:
    """Whether a likelier language with a grammar has the word, and took it for a name: Swedish
    "Maj Sjöwall", though "maj" is May in Danish too."""
    folded = fold(text)
    found = evidence(frozenset(WORDS.findall(folded)), folded)
    return any(
        word in lexicon(name).triggers and found.get(name, 0.0) >= found.get(code, 0.0) > 0
        for name in LANGUAGES
    )


def search(text: str, reference_time: datetime) -> tuple[Span, int, int] | None:
    """The day that the longest date expression of the text names, and its place; None if none."""
    if len(text) > MAX_CHARACTERS:
        return None
    code = other_language(text)
    if code is None:
        return None
    from dateparser.search import search_dates

    found = search_dates(
        text,
        languages=[code],
        settings={
            "RELATIVE_BASE": reference_time.replace(tzinfo=None),
            "PREFER_DATES_FROM": "past",
            "RETURN_AS_TIMEZONE_AWARE": False,
        },
    )
    if not found:
        return None
    written, moment = max(found, key=lambda pair: len(pair[0]))
    dated = [word for word in _WORD.findall(written.lower()) if word in _words()]
    if not dated or all(_is_known(text, fold(word), code) for word in dated):
        return None
    start = text.find(written)
    if start < 0:
        return None
    day = moment.date()
    return Span(day, day, "day", 0.6, rule="dateparser"), start, start + len(written)
