"""Words of a language: folding, stop words, stems, and a guess which language a text is in.

Stems are Snowball's (PyStemmer). The stop words in stopwords.json are PostgreSQL's Snowball lists,
folded, and short lists of ours for languages that have none there and for English: words of time,
place, degree and modality say something about a memory, and scoring them gained 1 point of
recall@10 on LoCoMo turns over the long English list.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files

import regex
import Stemmer

from retrieval.errors import InvalidInput
from retrieval.text import folding

ACCENTS = (
    "(?<!и)[\u0300-\u036f]"  # й is a letter of its own, not an accented и
    "|[\u064b-\u065f\u0670\u06d6-\u06ed\u0640]"  # Arabic vowel signs, tatweel
    "|[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]"  # Hebrew points
)
"""A regular expression of Python and of PostgreSQL: the marks that folding takes away."""
LETTERS = {
    "ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i", "ß": "ss",
    "ة": "ه", "ٱ": "ا", "'": "",
}  # fmt: skip
"""Letters whose strokes are no marks, and what is typed for them."""
_WITHOUT_ACCENTS, _TYPED = regex.compile(ACCENTS), str.maketrans(LETTERS)

# Scripts that one of Snowball's languages stands for, whatever the bank's own language is.
_BY_SCRIPT = (
    (regex.compile(r"\p{Cyrillic}"), "russian"),
    (regex.compile(r"\p{Greek}"), "greek"),
    (regex.compile(r"\p{Arabic}"), "arabic"),
    (regex.compile(r"\p{Devanagari}"), "hindi"),
    (regex.compile(r"\p{Armenian}"), "armenian"),
    (regex.compile(r"\p{Tamil}"), "tamil"),
)
_SCRIPT_OF = {
    "russian": "russian", "serbian": "russian", "greek": "greek", "arabic": "arabic",
    "persian": "arabic", "hindi": "hindi", "nepali": "hindi", "armenian": "armenian",
    "tamil": "tamil",
}  # fmt: skip

NONE = "none"
AUTO = "auto"


def fold(text: str) -> str:
    """`retrieval.text.folding.fold`, without accents, vowel signs and apostrophes."""
    return bare(folding.fold(text))


def bare(folded: str) -> str:
    """What `retrieval.text.folding.fold` gave, without accents, vowel signs and apostrophes."""
    if folded.isascii():
        return folded.replace("'", "")
    plain = _WITHOUT_ACCENTS.sub("", unicodedata.normalize("NFD", folded))
    return unicodedata.normalize("NFC", plain).translate(_TYPED)


@cache
def stop_words() -> dict[str, frozenset[str]]:
    """Language to its folded stop words."""
    text = (files(__package__) / "stopwords.json").read_text(encoding="utf-8")
    return {name: frozenset(fold(words).split()) for name, words in json.loads(text).items()}


def check(language: str) -> str:
    """The name in lower case; InvalidInput if no text can be analysed in it."""
    name = language.lower()
    known = {AUTO, NONE, *Stemmer.algorithms()}
    if name not in known:
        raise InvalidInput(
            f"unknown language {language!r}: use one of {', '.join(sorted(known))}", "language"
        )
    return name


def stemmer(language: str) -> Callable[[str], str]:
    # No cache inside: whole chunks are cached above this, and the cache is not bounded in bytes.
    return Stemmer.Stemmer(language, 0).stemWord  # type: ignore[no-any-return]


class Words:
    """The terms of single words in one language; other scripts fall to their own language.

    Thread-safe: stemming holds the interpreter lock and keeps no state between words.
    """

    def __init__(self, language: str, *, exact: bool = False) -> None:
        """`exact`: every word also as it stands, for texts whose language was only guessed."""
        self.language = language
        self._exact = exact
        self._stop = stop_words().get(language, frozenset())
        self._stem = None if language == NONE else stemmer(language)
        self._others: dict[str, Words] = {}

    def is_stop(self, folded: str) -> bool:
        return folded in self._stop

    def of(self, word: str) -> Words:
        """The words of this word's script: self for Latin and every script without a stemmer."""
        if self._stem is None or word.isascii():
            return self
        for script, language in _BY_SCRIPT:
            if script.search(word):
                if _SCRIPT_OF.get(self.language) == _SCRIPT_OF.get(language, language):
                    return self
                found = self._others.get(language)
                if found is None:
                    found = self._others[language] = Words(language, exact=self._exact)
                return found
        return self

    def stems(self, accented: str) -> Sequence[str]:
        """The terms of one word that is no stop word, folded but for its accents.

        A word with accents has two where its stem depends on them, so that it is found by those
        who type it without.
        """
        folded = bare(accented)
        if self._stem is None or not folded.isalpha():
            return (folded,)
        terms = [bare(self._stem(folded))]
        if accented != folded:
            other = bare(self._stem(accented))
            if other not in terms:
                terms.append(other)
        if self._exact and folded not in terms:
            terms.append(folded)
        return terms


@cache
def _owners() -> dict[str, tuple[str, ...]]:
    """Stop word to the languages that have it."""
    owners: dict[str, tuple[str, ...]] = {}
    for language, words in stop_words().items():
        for word in words:
            owners[word] = (*owners.get(word, ()), language)
    return owners


_SPACED_WORD = regex.compile(r"[\p{L}\p{M}'’]+")


def guess(text: str) -> str:
    """The language whose stop words cover the most of a text's words; NONE below two of them."""
    owners = _owners()
    hits: dict[str, int] = {}
    for word in _SPACED_WORD.findall(folding.unified(text[:2000])):
        for language in owners.get(fold(word), ()):
            hits[language] = hits.get(language, 0) + 1
    best = max(hits, key=lambda language: (hits[language], language), default=NONE)
    return best if hits.get(best, 0) > 1 else NONE
