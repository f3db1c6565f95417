"""Text as the grammar sees it: folded, cut into pieces, every piece knowing where it came from.

Folding is per character, so that a place in the folded text leads back to the original:
compatibility forms become plain ones, case and accents go, every script's digits become ASCII, and
the Chinese characters that time words use become simplified ones.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from typing import NamedTuple

# Kept apart from its letter and never dropped: Swedish "år" is a year and "är" is "is".
_RING = "\u030a"
_SPECIAL = {
    "ı": "i",
    "ß": "ss",
    "æ": "ae",
    "ø": "o",
    "œ": "oe",
    "’": "'",
    "‘": "'",
    "ʼ": "'",
    "`": "'",
    "´": "'",
    "–": "-",
    "—": "-",
    "−": "-",
    "‐": "-",
    "‑": "-",
    "〜": "-",
    "～": "-",
    "~": "-",
    "ى": "ي",
    "ة": "ه",
    "ـ": "",
    "。": ".",
    "、": ",",
    "،": ",",
    "؟": "?",
    "؛": ";",
    _RING: _RING,
    "।": ".",
    "\u200b": "",
    "\u200c": "",
    "\u200d": "",
    "\u200e": "",
    "\u200f": "",
    "\xa0": " ",
    "º": "º",
    "ª": "ª",
}
_TRADITIONAL = dict(
    zip(
        "週禮個兩幾後這過來現倆內間號當數開時鐘鍾頭農曆舊陰臘閏節慶聖誕婦兒親師勞動國萬復軍黨書",
        "周礼个两几后这过来现俩内间号当数开时钟钟头农历旧阴腊闰节庆圣诞妇儿亲师劳动国万复军党书",
        strict=True,
    )
)
# Accents above, below and through a letter, the Indic nukta, Arabic vowel signs.
_DROPPED_CLASSES = frozenset({1, 7, 202, 220, 230, 27, 28, 29, 30, 31, 32, 33, 34, 35})


def _fold_character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character in _TRADITIONAL:
        return _TRADITIONAL[character]
    decimal = unicodedata.decimal(character, None)
    if decimal is not None:
        return str(decimal)
    apart = unicodedata.normalize("NFKD", character)
    kept = "".join(
        c for c in apart if c != _RING and unicodedata.combining(c) not in _DROPPED_CLASSES
    )
    whole = unicodedata.normalize("NFC", kept).lower() + _RING * (_RING in apart)
    return "".join(_TRADITIONAL.get(c, _SPECIAL.get(c, c)) for c in whole if c != "\u0307")


class _Table(dict[int, str]):
    """Filled as characters are met, so that translating is one pass in C."""

    def __missing__(self, code: int) -> str:
        folded = _fold_character(chr(code))
        if len(self) < 50_000:
            self[code] = folded
        return folded


_TABLE = _Table()


MAX_CHARACTERS = 20_000
"""A text is read up to here, runs of white space counted as one character: questions are short, and
the time that reading takes must be bounded."""

_WIDE = re.compile(r"\s{2,}")


class Folded:
    """A text and its folded form; `original_span` leads from the second to the first.

    White space of any length is one space in the folded form, and what lies behind `limit`
    characters of it (or behind 20 times as many of the original) is left out.
    """

    __slots__ = ("_kept", "_offsets", "_places", "original", "text")

    def __init__(self, original: str, limit: int = MAX_CHARACTERS) -> None:
        self.original = original
        self._places: list[tuple[int, int]] = [(0, 0)]
        kept = original[: 20 * limit]
        if _WIDE.search(kept) is not None:
            kept = self._narrowed(kept)
        self._kept = kept[:limit]
        self.text = self._kept.translate(_TABLE)
        self._offsets: list[int] | None = None

    def _narrowed(self, text: str) -> str:
        """The text with every run of white space as one space; `_places` notes where one was."""
        parts: list[str] = []
        done = length = 0
        for gap in _WIDE.finditer(text):
            parts.append(text[done : gap.start()])
            parts.append(" ")
            length += gap.start() - done + 1
            done = gap.end()
            self._places.append((length, done))
        parts.append(text[done:])
        return "".join(parts)

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """The characters of the original that gave the folded characters [start, end)."""
        if not (len(self.text) == len(self._kept) and self._kept.isascii()):
            if self._offsets is None:
                offsets: list[int] = []
                position = 0
                for character in self._kept:
                    offsets.append(position)
                    position += len(_TABLE[ord(character)])
                self._offsets = offsets
            start = bisect_right(self._offsets, start) - 1
            end = bisect_right(self._offsets, end - 1)
        return self._place(start), self._place(end - 1) + 1

    def _place(self, kept: int) -> int:
        """The place in the original of a character of what was kept of it."""
        before, original = self._places[bisect_right(self._places, (kept, len(self.original))) - 1]
        return original + kept - before

    def is_capital(self, place: int, base: int = 0) -> bool:
        """Whether the folded character there, counted from `base`, was a capital letter."""
        at = base + place
        return self.original[self.original_span(at, at + 1)[0]].isupper()


def fold(text: str) -> str:
    return text.translate(_TABLE)


class Piece(NamedTuple):
    """One word, number, unspaced character or mark of the folded text."""

    text: str
    start: int
    end: int


# Scripts written without spaces come character by character, so that the lexicon finds its words.
_PIECE = re.compile(
    r"[a-z\u00df-\u024f\u0250-\u02af\u030a\u0400-\u052f\u0590-\u065f\u066e-\u06d3\u06d5-\u06ff"
    r"\u0900-\u0963\u0970-\u097f]+"
    r"|\d+|[^\s]"
)
WORDS = re.compile(
    r"[a-z\u00df-\u024f\u030a\u0400-\u052f\u0620-\u065f\u066e-\u06d3\u0900-\u0963\u0970-\u097f]+"
)


def pieces(folded: str) -> list[Piece]:
    return [Piece(m.group(), m.start(), m.end()) for m in _PIECE.finditer(folded)]
