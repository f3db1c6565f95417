"""Which languages a text may be in, by its everyday words.

Many words are a time in one language and an everyday word in another: "hier" is yesterday in French
and here in German, "mar" March or Tuesday and the sea. So the words around it decide first, and a
time is read in their language.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache

from retrieval.text.language import stop_words
from retrieval.timex.engine.lexicon import LANGUAGES, lexicon
from retrieval.timex.engine.tables import word_lists
from retrieval.timex.engine.text import WORDS, fold

_SNOWBALL = {
    "en": "english", "es": "spanish", "fr": "french", "de": "german", "it": "italian",
    "pt": "portuguese", "nl": "dutch", "sv": "swedish", "tr": "turkish", "da": "danish",
    "nb": "norwegian", "fi": "finnish", "hu": "hungarian", "pl": "polish", "id": "indonesian",
}  # fmt: skip

_IN_CONTENTION = 0.5
"""A language is out where it has less than so much of the evidence that the likeliest has."""


_TIME_WORD = 0.4
"""What a time word says for its language, beside 1 for an everyday word."""


@cache
def everyday(language: str) -> frozenset[str]:
    """The everyday words of a language, folded; empty for one that is not known here."""
    words = stop_words().get(_SNOWBALL.get(language, ""), frozenset())
    known = lexicon(language).common | lexicon(language).links if language in LANGUAGES else ()
    found = (*words, *known, *_listed().get(language, ()))
    return frozenset(word for word in found if word.isalpha())


@cache
def _listed() -> Mapping[str, tuple[str, ...]]:
    return {
        language: tuple(WORDS.findall(fold(words)))
        for language, words in word_lists("everyday").items()
    }


@cache
def _weights() -> Mapping[str, tuple[tuple[str, float], ...]]:
    """Words with their languages; what several languages share says as much less for each."""
    owners: dict[str, list[str]] = {}
    for language in _listed():
        for word in everyday(language):
            owners.setdefault(word, []).append(language)
    found = {word: dict.fromkeys(spoken, 1 / len(spoken)) for word, spoken in owners.items()}
    timely: dict[str, list[str]] = {}
    for language in LANGUAGES:
        if lexicon(language).script == "latin":
            for word in lexicon(language).triggers:
                timely.setdefault(word, []).append(language)
    for word, languages in timely.items():
        for language in languages:
            own = found.setdefault(word, {})
            own[language] = own.get(language, 0.0) + _TIME_WORD / len(languages)
    return {word: tuple(weights.items()) for word, weights in found.items()}


def judged() -> frozenset[str]:
    """The languages whose everyday words are known."""
    return frozenset(_listed())


def evidence(words: frozenset[str], folded: str) -> Mapping[str, float]:
    """Languages (Latin script) to how much the words of a folded text speak for each.

    A single letter is a word only between spaces: not in "29e", "w/c" or "h2".
    """
    weights = _weights()
    found: dict[str, float] = {}
    spaced = f" {folded} "
    endings = frozenset(_ENDING.findall(folded)) if "'" in folded else frozenset()
    for word in words:
        if len(word) == 1 and f" {word} " not in spaced:
            continue
        if word in endings:
            spoken = tuple((language, 1.0) for language in _inflecting() if _ends(language, word))
        else:
            spoken = weights.get(word) or _inflected(word)
        for language, weight in spoken:
            found[language] = found.get(language, 0.0) + weight
    return found


# What stands behind a number and an apostrophe is an ending, and no word: Turkish "1990'li".
_ENDING = re.compile(r"\d'([a-z]+)")


@cache
def _inflecting() -> tuple[str, ...]:
    """The languages (Latin script) whose lists have endings."""
    return tuple(
        name for name in LANGUAGES if lexicon(name).suffixes and lexicon(name).script == "latin"
    )


def _ends(language: str, word: str) -> bool:
    return any(word == ending for ending, _ in lexicon(language).suffixes)


@lru_cache(maxsize=8_192)
def _inflected(word: str) -> tuple[tuple[str, float], ...]:
    """The languages in which the word is an inflected word of time."""
    found = [language for language in _inflecting() if lexicon(language).inflected(word)]
    return tuple((language, _TIME_WORD / len(found)) for language in found)


def forget_words() -> None:
    """Empties what is remembered of words."""
    _inflected.cache_clear()


def in_contention(found: Mapping[str, float], language: str) -> bool:
    """Whether a text with this evidence may be in the language; any, where nothing speaks."""
    return found.get(language, 0.0) >= _IN_CONTENTION * max(found.values(), default=0.0)
