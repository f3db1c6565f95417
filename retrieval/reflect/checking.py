"""Whether each sentence of an answer says only what it cites. Pure, and without a model.

What passes is not proved true; what fails is in none of the memories that it names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

import regex

from retrieval.ingest.entities import naming
from retrieval.llm import grounding
from retrieval.reflect.citing import CitedAnswer, Sentence, names_handles
from retrieval.reflect.declining import declines
from retrieval.reflect.evidence import EvidenceItem
from retrieval.text import language
from retrieval.text.folding import fold

AT_HAND = 0.35
"""From this similarity on a memory has to do with a question: sentence encoders of the kind served
here give unrelated pairs less than 0.25."""

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")
_LETTER = regex.compile(r"\p{L}")
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]")
_SHORT = 3
_SHARED = 0.5
"""Part of the longer words of a sentence that its memories must have, where nothing else ties it to
them than a list beside the answer."""
_PLEASANTRY_WORDS = 4
_ASKS = ("?", "？", "؟")


Known = Sequence[tuple[str, str]]
"""Names: folded, and as they are."""


@dataclass(frozen=True, slots=True)
class UnsupportedSentence:
    """A sentence that is not supported, and why; `about` says it to the model."""

    sentence: Sentence
    reason: str

    @property
    def about(self) -> str:
        shown = self.sentence.text if len(self.sentence.text) <= 200 else self.sentence.text[:200]
        return f'"{shown}": {self.reason}'


@dataclass(frozen=True, slots=True)
class Checked:
    """An answer that was looked at. `claims`: its sentences that state something."""

    answer: CitedAnswer
    claims: tuple[Sentence, ...]
    faults: tuple[UnsupportedSentence, ...]

    @property
    def supported(self) -> tuple[Sentence, ...]:
        faulty = {fault.sentence.start for fault in self.faults}
        return tuple(one for one in self.claims if one.start not in faulty)

    @property
    def declines(self) -> bool:
        """Whether all that it says is that nothing is known."""
        if any(one.items for one in self.claims):
            return False
        return any(declines(one.text) for one in self.answer.sentences)


def check(answer: CitedAnswer, names: Collection[str], question: str, now: datetime) -> Checked:
    """`names`: of entities that the run met; they may be said only where they are cited. Headings
    may say what the question does, and questions may name whoever was met. About a millisecond a
    sentence."""
    known_names: Known = [(fold(name).strip(), name) for name in names if name.strip()]
    met = "\n".join((question, *names))
    claims: list[Sentence] = []
    faults: list[UnsupportedSentence] = []
    for one in answer.sentences:
        stated = _states(one)
        reason = ""
        if stated and not one.items:
            reason = "it cites nothing that you were shown" if one.unknown else "it cites nothing"
        elif stated:
            reason = invention(one.text, one.items, known_names, now)
        elif one.title:
            reason = invention(one.text, answer.items, known_names, now, question)
        elif one.text.endswith(_ASKS):
            reason = invention(one.text, answer.items, known_names, now, met)
        if stated or reason:
            claims.append(one)
        if reason:
            faults.append(UnsupportedSentence(one, reason))
    return Checked(answer, tuple(claims), tuple(faults))


def _states(one: Sentence) -> bool:
    """Whether a sentence states something that needs a source."""
    if one.items:
        return True
    if one.title or not _LETTER.search(one.text):
        return False
    if declines(one.text) or one.text.endswith(_ASKS):
        return False
    few = len(_WORD.findall(one.text)) < _PLEASANTRY_WORDS and one.text.endswith(("!", "！"))
    return not few


def invention(
    text: str,
    items: Sequence[EvidenceItem],
    known_names: Known,
    now: datetime,
    also: str = "",
) -> str:
    """What a text says that neither these items nor `also` do; "" where there is nothing."""
    sources = [*(source for item in items for source in item.sources), also]
    if names_handles(text, sources):
        return "ids belong into square brackets behind the sentence, and nowhere else"
    dates = [moment for item in items for moment in item.dates]
    if numbers := _numbers(text, sources, items, dates):
        return f"{_list(numbers)} cannot be found in what it cites"
    if wrong := grounding.invented_dates(
        text,
        [*((source, item.said_at) for item in items for source in item.sources), (also, now)],
        dates,
        now,
    ):
        return f"{_list(wrong)} is not a date in what it cites"
    if strange := invented_names(text, known_names, sources):
        return f"{_list(strange)} cannot be found in what it cites"
    return ""


def _numbers(
    text: str, sources: Sequence[str], items: Sequence[EvidenceItem], dates: Sequence[datetime]
) -> set[str]:
    left = grounding.invented_numbers(text, sources, dates=dates)
    for item in items if left else ():
        # Words such as "tomorrow" of a memory mean a day that counts from when it was said.
        left &= grounding.invented_numbers(
            text, item.sources, reference_time=item.said_at, dates=item.dates
        )
    return left


def invented_names(text: str, known: Known, sources: Sequence[str]) -> list[str]:
    """Names in a text, known ones and those that its capitals tell, that no source has in any of
    their forms."""
    low = fold(text)
    candidates = [name for folded, name in known if folded in low]
    said = [*grounding.names_in(text, candidates), *naming.names(text)]
    if not said:
        return []
    held = "\n".join(sources)
    words = [fold(word) for word in _WORD.findall(held)]
    folded = fold(held)
    return [name for name in dict.fromkeys(said) if not _held(name, folded, words)]


def _held(name: str, text: str, words: Sequence[str]) -> bool:
    """Whether a name stands in a text, as it is or inflected."""
    if fold(name).strip() in text:
        return True
    return all(_inflected(fold(part), words) for part in _WORD.findall(name))


def _inflected(word: str, words: Sequence[str]) -> bool:
    stem = word[: max(3, len(word) - 3)]
    return any(
        other == word or (len(word) > 3 and other.startswith(stem) and len(other) < len(word) + 4)
        for other in words
    )


def content_words(text: str) -> set[str]:
    """The words of a text that say what it is about, by their beginnings; pairs of signs where
    there are no spaces."""
    low = language.fold(text)
    words = {word for word in _WORD.findall(low) if len(word) >= _SHORT}
    # The list that has most of the words is that of the text's language.
    stop = max(language.stop_words().values(), key=lambda one: len(words & one))
    signs = _UNSPACED.findall(low)
    return {word[: 4 if len(word) < 8 else 5] for word in words - stop} | {
        a + b for a, b in pairwise(signs)
    }


def resembles(text: str, items: Sequence[EvidenceItem]) -> bool:
    """Whether a text shares enough words with some items to be about them."""
    wanted = content_words(text)
    held = set().union(*(content_words(source) for item in items for source in item.sources))
    return bool(wanted) and len(wanted & held) >= _SHARED * len(wanted)


def attached(answer: CitedAnswer, items: Sequence[EvidenceItem]) -> CitedAnswer:
    """The answer with items that were listed beside it, at the sentences that they are about."""
    return replace(
        answer,
        sentences=tuple(
            replace(one, items=tuple(item for item in items if resembles(one.text, [item])))
            for one in answer.sentences
        ),
    )


def at_hand(question: str, items: Iterable[EvidenceItem]) -> list[EvidenceItem]:
    """The items that have to do with a question."""
    wanted = content_words(question)
    return [
        item
        for item in items
        if item.similarity >= AT_HAND
        or (wanted and len(wanted & content_words(item.text)) >= _SHARED * len(wanted))
    ]


def _list(found: Iterable[str]) -> str:
    return ", ".join(sorted(found)[:5])
