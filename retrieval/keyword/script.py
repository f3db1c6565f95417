"""Scripts written without spaces: a run of such text as overlapping pieces.

Han and kana give pairs of characters, hangul words give pairs of syllables and their stem without
the particle, Thai, Lao, Khmer and Myanmar give pairs of character clusters. Texts are indexed with
single characters too; a query uses a single character only where it stands alone, because one
character of a longer word says little. Function words divide a query's runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.resources import files

import regex

Cut = Callable[[str], Iterator[str]]

_KANA_SPLIT = regex.compile(
    r"(?P<han>[\p{Han}々〇〆ヵヶ]+)|(?P<hiragana>[\p{Hiragana}ゝゞ]+)|(?P<katakana>[\p{Katakana}ー]+)"
)

# Words that only hold a sentence together. Single Han characters only where they hardly ever stand
# inside a word.
FUNCTION_WORDS = (files(__package__) / "function_words.json").read_bytes()
_WORDS: dict[str, list[str]] = {
    name: sorted(words.split(), key=len, reverse=True)
    for name, words in json.loads(FUNCTION_WORDS).items()
}
_HAN_FUNCTION = regex.compile("|".join(_WORDS["han"]))
_HIRAGANA_FUNCTION = regex.compile("|".join(_WORDS["hiragana"]))
_HIRAGANA_PARTICLES = frozenset("をはがのにへともでやかね")
_THAI_FUNCTION = regex.compile("|".join(_WORDS["thai"]))
_HANGUL_FUNCTION = frozenset(_WORDS["hangul"])
_PARTICLE = regex.compile(f"(?:{'|'.join(_WORDS['hangul particles'])})$")
# One cluster: what stands on one consonant, with the vowels before, above, below and behind it.
_CLUSTER = regex.compile(r"[เแโใไເແໂໃໄ]?[\p{L}\p{N}](?:[ะาำๅະາຳຽ]|\p{M})*|\S")


def _pairs(units: str | list[str]) -> Iterator[str]:
    for i in range(len(units) - 1):
        yield units[i] + units[i + 1]


def east_asian(run: str, query: bool, cut: Cut | None) -> Iterator[str]:
    """Terms of a run of Han and kana. `cut`: a segmenter for Han, instead of pairs."""
    end_of_han = -1
    for match in _KANA_SPLIT.finditer(run):
        part, kind = match.group(), match.lastgroup
        if kind == "han":
            yield from _han(part, query, cut)
            end_of_han = match.end()
        elif kind == "katakana":
            yield part
            if len(part) > 2:
                yield from _pairs(part)
        else:
            if match.start() == end_of_han:
                yield run[end_of_han - 1 : end_of_han + 1]  # 食べ of 食べる
            if not query:
                yield from part
                yield from _pairs(part)
                continue
            for piece in _HIRAGANA_FUNCTION.split(_bare(part, match.start() > 0)):
                yield from _pairs(piece)


def _bare(hiragana: str, inside: bool) -> str:
    """Without the particles that bind it to what stands before (if anything does) and behind."""
    if inside and hiragana[0] in _HIRAGANA_PARTICLES:
        hiragana = hiragana[1:]
    if len(hiragana) > 2 and hiragana[-1] in _HIRAGANA_PARTICLES:
        hiragana = hiragana[:-1]
    return hiragana


def _han(run: str, query: bool, cut: Cut | None) -> Iterator[str]:
    if not query:
        yield from run
        yield from (word for word in cut(run) if len(word) > 1) if cut else _pairs(run)
        return
    for piece in _HAN_FUNCTION.split(run):
        if len(piece) == 1:
            yield piece
        elif piece:
            yield from cut(piece) if cut else _pairs(piece)


def hangul(word: str, query: bool) -> Iterator[str]:
    """Terms of one Korean word."""
    if query and word in _HANGUL_FUNCTION:
        return
    stem = _PARTICLE.sub("", word) or word
    if query:
        yield stem
        if len(stem) > 2:
            yield from _pairs(stem)
        return
    yield from word
    if len(word) > 1:
        yield from _pairs(word)
    yield from dict.fromkeys(form for form in (stem, word) if len(form) > 2)


def clustered(run: str, query: bool) -> Iterator[str]:
    """Terms of a run of Thai, Lao, Khmer or Myanmar."""
    for piece in _THAI_FUNCTION.split(run) if query else (run,):
        units = _CLUSTER.findall(piece)
        if len(units) > 1:
            yield from _pairs(units)
        if not query or len(units) == 1:
            yield from units
