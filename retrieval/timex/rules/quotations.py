"""Times that are only quoted: titles of songs and books, and what somebody said.

Who asks for the author of \u201cThe Day After Tomorrow\u201d asks for no day, and who asks
for him who said \u201csee you tomorrow\u201d not for the day after the question.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from retrieval.timex.engine.text import Folded, fold
from retrieval.timex.expression import TimeExpression
from retrieval.timex.rules.events import MAX_CHARACTERS

_LONGEST = 200
_INSIDE = rf"{{1,{_LONGEST}}}"
_QUOTED = re.compile(
    rf'"[^"\n]{_INSIDE}"|\u201c[^\u201c\u201d\n]{_INSIDE}\u201d|\u201e[^\u201e\u201c\u201d\n]{_INSIDE}[\u201c\u201d]'
    rf"|\xab[^\xab\xbb\n]{_INSIDE}\xbb|\u300c[^\u300c\u300d\n]{_INSIDE}\u300d"
    rf"|\u300e[^\u300e\u300f\n]{_INSIDE}\u300f|\u300a[^\u300a\u300b\n]{_INSIDE}\u300b"
)
_PLAIN, _TITLES = frozenset('"\u201c\u201e'), frozenset("\u300e\u300a")
"""Marks that also set off what is no title, and those of titles alone."""

_PAIRS = frozenset(('""', "\u201c\u201d", "\u201e\u201c", "\u201e\u201d", "\xab\xbb"))
_LED = re.compile(
    r"\b(?:on|in|since|until|by|am|im|seit|bis|en|au|le|el|los|em|na|no|op|sinds|i|på|w|od|do"
    r"|в|с) .$",
    re.IGNORECASE,
)
"""What stands before a day or month, whatever marks it is in."""
_WORDED = re.compile(
    r"\b(?:means?|words?|phrase|term|bedeutet|heißt|Wort|Begriff|signifie|mot|significa|palabra|"
    r"palavra|parola|betekent|woord|betyder|ordet|oznacza|słowo|означает|слово) $"
)
"""What says that a quotation is about its words."""
_WORD = re.compile(r"\w")


def without_quoted(text: str, found: list[TimeExpression]) -> list[TimeExpression]:
    """The expressions without those that stand in quotation marks among other words; a full date
    stays one there, and so do the times of a text that is quoted as a whole."""
    if not found:
        return found
    read = text[: found[-1].end + _LONGEST + 2]
    marks = [hit.span() for hit in _QUOTED.finditer(read)]
    if not marks:
        return found
    starts = [start for start, _ in marks]
    opening, closing = _WORD.search(read), _last_word(read)

    def is_quoted(one: TimeExpression) -> bool:
        at = bisect_right(starts, one.start) - 1
        if at < 0 or one.end > marks[at][1] or (one.explicit and one.granularity == "day"):
            return False
        start, end = marks[at]
        among = text[start : one.start] + text[one.end : end]
        if _WORDED.search(text, max(0, start - 24), start) is not None:
            return True
        title = text[start] not in _PLAIN or one.text == one.text.title()
        title = title and (" " in one.text or text[start] in _TITLES or _is_entitled(text, one))
        outside = opening is not None and (opening.start() < start or closing >= end)
        return outside and (title or _WORD.search(among) is not None)

    return [one for one in found if not is_quoted(one)]


def _is_entitled(text: str, one: TimeExpression) -> bool:
    """Whether one word is a title: with a capital and alone between its marks, as in Russian
    «Накануне» and English "September"; but not in: on "Monday"."""
    before, after = text[one.start - 2 : one.start].strip(), text[one.end : one.end + 2].strip()
    alone = (before[-1:] + after[:1]) in _PAIRS
    led = _LED.search(text, max(0, one.start - 8), one.start) if alone else None
    return alone and one.text[:1].isupper() and led is None


def _last_word(text: str) -> int:
    """Where the last letter or digit stands; -1 where there is none."""
    at = len(text) - 1
    while at >= 0 and not text[at].isalnum():
        at -= 1
    return at


_MEANING = re.compile(
    r"\bwhat (?:does|do) (?:the (?:word|name|term) )?\w{1,40}(?: \w{1,40})? (?:mean|stand for)"
    r"(?= in |\s?[?.!]|\s?$)"
    r"|\b(?:was (?:bedeutet|heisst)|wat betekent|que veut dire|que significa|o que significa|"
    r"(?:cosa|che) significa|vad betyder|co znaczy|что (?:значит|означает)) "
    r"\w{1,40}(?: \w{1,40})?\s?(?:[?.!]|$)"
    r"|\bne (?:demek|anlama)\b|是什么意思|の意味は|とはどういう意味|무슨 (?:뜻|의미)|"
    + fold("का (?:मतलब|अर्थ) क्या")
)


def asks_for_a_meaning(text: str) -> bool:
    """Whether a question is what a word or name means: it gets no window."""
    return _MEANING.search(Folded(text, MAX_CHARACTERS).text) is not None
