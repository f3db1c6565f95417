"""The words of one language, read from its data file, and the tokens they make of a text.

A data file (languages/<code>.toml) has a table for each kind of word, from values to words:
`[MONTH]` with `5 = "may"`, `[PREV]` with `"" = "last"` where the kind says it all.
Alternatives are divided by "|"; a phrase of several words is written with spaces. `[meta]` says how
the language is recognised and read:

- `script`: latin, cyrillic, han, kana, hangul, devanagari, arabic
- `day_first`: 3/7/2017 is 3 July
- `common`: everyday words by which the language is recognised
- `signal`: a regular expression of more that makes a text worth reading
- `marks`: strings that occur in this language only, of those with its script
- `ordinal`: what follows digits to make an ordinal
- `options`: names of habits that rules ask for
- `compound`: number words are written together, joined by these words
- `[suffixes]`: endings that are cut off a word, each with the kind of token that it becomes
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Union

from retrieval.timex.engine.grammar import (
    OTHER,
    Context,
    Token,
    Value,
    chars_of,
    composite,
    kind_of,
)
from retrieval.timex.engine.numerals import (
    HAN_DIGITS,
    HANGUL_DIGITS,
    compound_number,
    han_number,
    hangul_year,
    merge_numbers,
)
from retrieval.timex.engine.tables import word_lists
from retrieval.timex.engine.text import WORDS, Piece, fold, pieces
from retrieval.timex.rules.chinese import is_ago
from retrieval.timex.rules.numeric import numeric_tokens

LANGUAGES = (
    "en", "es", "fr", "de", "it", "pt", "nl", "sv", "pl", "tr", "ru", "zh", "ja", "ko", "hi", "ar",
)  # fmt: skip

_MARKS = {
    ",": "COMMA", ".": "DOT", "-": "DASH", "/": "SLASH", "'": "APOSTROPHE", "(": "OPEN",
    ")": "CLOSE", "?": "STOP", "!": "STOP", ";": "STOP", ":": "COLON", "|": "STOP", "&": "AND",
}  # fmt: skip
# Kinds that can carry a time by themselves: without one of them in a text there is nothing to find.
_CARRIERS = frozenset([
    "MONTH", "WMONTH", "DAY", "DAYS", "WDAY", "REL", "UDAY", "UWEEK", "UMONTH", "UYEAR",
    "UQUARTER", "UHALF", "UWEEKEND", "UDECADE", "UCENTURY", "UWORKDAY", "UWORKWEEK", "UFORTNIGHT",
    "UHOUR", "UMINUTE", "SEASON", "SEASONS", "HOLIDAY", "DECADE", "PART", "RECENT", "FISCAL",
    "QN", "HN", "PERIOD", "YEAROFF", "MONTHOFF", "WEEKOFF", "WEEKENDOFF", "YMARK", "MDAY",
    "ADJACENT", "EITHER", "LONESEASON", "WEEKPHASE", "MONTHPHASE", "QUARTERPHASE", "YEARPHASE",
    "INWEEKS", "HALFHOUR", "VOID", "ERA", "LUNAR", "LUNARMONTH", "HALFMONTH", "HALFWEEK",
    "YEARTODATE", "ENDOF", "AMOUNT", "PREVDAY", "PREVSEASON", "HUNDREDS", "FYEAR", "FYEAROFF",
])  # fmt: skip

_MONTHS, _FEASTS = chars_of("MON"), chars_of("HOLIDAY")
# What a written ordinal such as "1." counts.
_COUNTED = frozenset().union(*map(chars_of, ["UNIT", "WEEKDAY", "HALFWORD"]))

Node = dict[str, Union["Node", tuple[str, Value]]]


@dataclass(frozen=True)
class Lexicon:
    language: str
    script: str
    day_first: bool
    common: frozenset[str]
    links: frozenset[str]
    marks: tuple[str, ...]
    ordinal: frozenset[str]
    options: frozenset[str]
    tree: Node
    triggers: frozenset[str]
    phrases: dict[str, tuple[frozenset[str], ...]]
    numbers: tuple[tuple[str, int], ...]
    number_words: tuple[str, ...]
    joints: tuple[str, ...] | None
    suffixes: tuple[tuple[str, str], ...]
    prefixes: tuple[tuple[str, str], ...]
    unspaced: re.Pattern[str] | None

    def tokens(self, context: Context, folded: str) -> list[Token]:
        """Every piece of the text as a token; pieces that say nothing of time are X."""
        found = list(self._raw_tokens(context, folded))
        return merge_numbers(found, "free" in self.options)

    def _raw_tokens(self, context: Context, folded: str) -> Iterator[Token]:
        runs = numeric_tokens(context, folded, self._is_month)
        cut = pieces(folded)
        at = 0
        count = len(cut)
        previous: Piece | None = None
        while at < count:
            piece = cut[at]
            if at + 1 < count and self._is_ending(piece, cut[at + 1]):
                previous = piece
                at += 1
                continue
            if piece.start in runs:
                made = runs[piece.start]
                yield from made
                end = made[-1].end
                while at < count and cut[at].start < end:
                    previous = cut[at]
                    at += 1
                continue
            if self.script == "hangul" and (said := self._han(cut, at)) is not None:
                token, used = said
                yield token
                previous = cut[at + used - 1]
                at += used
                continue
            loose = not _is_symbol(previous, piece) and not self._is_ending(previous, piece)
            hit = self._longest(cut, at) if loose else None
            if hit is not None and previous is not None and is_ago(piece, hit[0], previous):
                hit = (*(self._stem(piece.text) or hit[:2]), 1)
            if hit is not None:
                kind, value, used = hit
                yield Token(kind, value, piece.start, cut[at + used - 1].end)
                previous = cut[at + used - 1]
                at += used
                continue
            if piece.text.isdigit():
                token, used = self._digits(cut, at, previous)
                yield token
                at += used
            else:
                han = self._han(cut, at)
                if han is not None:
                    token, used = han
                    yield token
                    at += used
                else:
                    yield from self._word(piece, previous)
                    at += 1
            previous = cut[at - 1]

    def _is_ending(self, previous: Piece | None, piece: Piece) -> bool:
        """A case ending after an apostrophe, as Turkish writes it."""
        return (
            bool(self.suffixes)
            and previous is not None
            and previous.text == "'"
            and previous.end == piece.start
            and any(piece.text == ending for ending, _ in self.suffixes)
        )

    def _longest(self, cut: list[Piece], at: int) -> tuple[str, Value, int] | None:
        node: Node = self.tree
        best: tuple[str, Value, int] | None = None
        used = 0
        while at + used < len(cut):
            step = node.get(cut[at + used].text)
            if not isinstance(step, dict):
                if used and self.suffixes:
                    best = self._inflected_end(node, cut[at + used].text, used) or best
                break
            node = step
            used += 1
            leaf = node.get("")
            following = cut[at + used].text if at + used < len(cut) else ""
            if isinstance(leaf, tuple) and best is not None and self._begins_feast(cut, at + used):
                break  # 2024年中秋节: 年 and the feast, no 年中
            # Japanese 次の日 is "the next day", but not in 次の日曜日, "next Sunday".
            if isinstance(leaf, tuple) and (following != "曜" or used == 1):
                best = (leaf[0], leaf[1], used)
        return best

    def _begins_feast(self, cut: list[Piece], at: int) -> bool:
        """Whether the piece before this place begins a feast's name that goes on here."""
        if self.script not in ("han", "kana") or cut[at - 1].text not in self.tree:
            return False
        node, place, found = self.tree, at - 1, False
        while place < len(cut) and isinstance(step := node.get(cut[place].text), dict):
            node, place = step, place + 1
            leaf = node.get("")
            found = found or (isinstance(leaf, tuple) and leaf[0] in _FEASTS and place > at)
        return found

    def _inflected_end(self, node: Node, word: str, used: int) -> tuple[str, Value, int] | None:
        """A phrase whose last word has an ending: Turkish "yılbaşı gecesinde"."""
        for ending, _ in self.suffixes:
            if word.endswith(ending):
                step = node.get(word[: -len(ending)])
                leaf = step.get("") if isinstance(step, dict) else None
                if isinstance(leaf, tuple):
                    return leaf[0], leaf[1], used + 1
        return None

    def _digits(self, cut: list[Piece], at: int, previous: Piece | None) -> tuple[Token, int]:
        piece = cut[at]
        following = cut[at + 1] if at + 1 < len(cut) else None
        glued_left = (
            previous is not None
            and previous.end == piece.start
            and (previous.text in "$€£#@°_\\" or _is_word(previous.text))
            and previous.text not in self.tree
        )
        size = len(piece.text)
        if glued_left or size > 6:
            return Token(OTHER, None, piece.start, piece.end), 1
        value = int(piece.text)
        spaced = 1 if "spaced_ordinals" in self.options else 0
        used = self._ordinal(cut, at)
        if used:
            kind = "YEAR" if size == 4 else "ORD"
            return Token(
                kind_of(kind), value, piece.start, cut[at + used - 1].end, piece.text
            ), used
        if following is not None and following.start <= piece.end + spaced:
            if following.text in self.ordinal:
                return Token(kind_of("ORD"), value, piece.start, following.end, piece.text), 2
            if following.start > piece.end:
                kind = "YEAR" if size == 4 else "NUM"
                return Token(kind_of(kind), value, piece.start, piece.end, piece.text), 1
            known = following.text in self.tree or any(
                following.text == ending for ending, _ in self.suffixes
            )
            if (_is_word(following.text) and not known) or following.text in "%°":
                return Token(OTHER, None, piece.start, piece.end), 1
        kind = "YEAR" if size == 4 else "NUM"
        return Token(kind_of(kind), value, piece.start, piece.end, piece.text), 1

    def _ordinal(self, cut: list[Piece], at: int) -> int:
        """How many pieces make the number an ordinal by a mark: 3:e, 21-го, "1. Quartal"; or 0."""
        if at + 2 >= len(cut) or cut[at + 1].start != cut[at].end:
            return 0
        mark, word = cut[at + 1], cut[at + 2]
        if mark.text in ":-" and word.start == mark.end and word.text in self.ordinal:
            planted = self.tree.get(mark.text)
            return 0 if isinstance(planted, dict) and word.text in planted else 3
        if mark.text == "." and word.start > mark.end and "dotted_ordinals" in self.options:
            stems = [word.text]
            stems.extend(word.text[: -len(e)] for e, _ in self.suffixes if word.text.endswith(e))
            found = (self._stem(stem) for stem in stems)
            return 2 if any(leaf is not None and leaf[0] in _COUNTED for leaf in found) else 0
        return 0

    def _hangul(self, cut: list[Piece], at: int) -> tuple[Token, int] | None:
        """A Korean year in words, up to its 년."""
        end = at
        while end < min(len(cut), at + 9) and cut[end].text in HANGUL_DIGITS:
            end += 1
        if end - at < 2 or end >= len(cut) or cut[end].text != "년":
            return None
        year = hangul_year("".join(piece.text for piece in cut[at:end]))
        made = Token(kind_of("YEAR"), year, cut[at].start, cut[end - 1].end, str(year))
        return None if year is None else (made, end - at)

    def _han(self, cut: list[Piece], at: int) -> tuple[Token, int] | None:
        if self.script == "hangul" and cut[at].text in HANGUL_DIGITS:
            return self._hangul(cut, at)
        if self.script not in ("han", "kana") or cut[at].text not in HAN_DIGITS:
            return None
        end = at
        while (
            end < len(cut)
            and cut[end].text in HAN_DIGITS
            and (end == at or cut[end].start == cut[end - 1].end)
        ):
            end += 1
        written = "".join(p.text for p in cut[at:end])
        value = han_number(written)
        if value is None:
            return None
        kind = "YEAR" if len(written) == 4 and value >= 1000 and "十" not in written else "NUM"
        return Token(kind_of(kind), value, cut[at].start, cut[end - 1].end), end - at

    def _word(self, piece: Piece, previous: Piece | None) -> Iterator[Token]:
        text = piece.text
        mark = _MARKS.get(text)
        if mark is not None:
            yield Token(kind_of(mark), None, piece.start, piece.end)
            return
        if previous is not None and previous.text == "'" and previous.end == piece.start:
            for ending, kind in self.suffixes:
                if text == ending:
                    yield Token(kind_of(kind), None, piece.start, piece.end)
                    return
        if len(text) > 2:
            if self.joints is not None:
                number = compound_number(text, self.numbers, self.joints)
                if number is not None:
                    value, ordinal = number
                    kind = "ORD" if ordinal else "YEAR" if 1000 <= value <= 2999 else "NUM"
                    yield Token(kind_of(kind), value, piece.start, piece.end)
                    return
            for ending, kind in self.suffixes:
                leaf = self._stem(text[: -len(ending)]) if text.endswith(ending) else None
                if leaf is not None:
                    middle = piece.end - len(ending)
                    yield Token(leaf[0], leaf[1], piece.start, middle)
                    yield Token(kind_of(kind), None, middle, piece.end)
                    return
            for beginning, kind in self.prefixes:
                leaf = self._stem(text[len(beginning) :]) if text.startswith(beginning) else None
                if leaf is not None:
                    middle = piece.start + len(beginning)
                    yield Token(kind_of(kind), None, piece.start, middle)
                    yield Token(leaf[0], leaf[1], middle, piece.end)
                    return
        yield Token(OTHER, None, piece.start, piece.end, text)

    def _is_month(self, word: str) -> bool:
        leaf = self._stem(word)
        return leaf is not None and leaf[0] in _MONTHS

    def _stem(self, stem: str) -> tuple[str, Value] | None:
        node = self.tree.get(stem)
        leaf = node.get("") if isinstance(node, dict) else None
        return leaf if isinstance(leaf, tuple) else None

    def has_trigger(self, words: frozenset[str], folded: str) -> bool:
        """Whether anything in the text could carry a time in this language."""
        if self.unspaced is not None and self.unspaced.search(folded):
            return True
        if not self.triggers.isdisjoint(words):
            return True
        rare = self.phrases.keys() & words
        if rare and any(phrase <= words for word in rare for phrase in self.phrases[word]):
            return True
        if self.joints is not None and any(self._is_year(word) for word in words):
            return True
        return bool(self.suffixes or self.prefixes) and any(self.inflected(w) for w in words)

    def places(self, folded: str) -> list[int]:
        """Where in the text something could carry a time, in no order."""
        found = [m.start() for m in self.unspaced.finditer(folded)] if self.unspaced else []
        found.extend(
            m.start()
            for m in WORDS.finditer(folded)
            if m.group() in self.phrases or self.has_trigger(frozenset({m.group()}), "")
        )
        return found

    def _is_year(self, word: str) -> bool:
        if len(word) < 12 or not word.startswith(self.number_words):
            return False
        return compound_number(word, self.numbers, self.joints or ()) is not None

    def inflected(self, word: str) -> bool:
        """Whether the word is a word of time with one of the language's endings."""
        triggers, endings, beginnings = self.triggers, self._endings, self._beginnings
        # By length: nearly no word leaves a word of time behind, and few lengths are to be tried.
        for length, known in endings:
            if word[:-length] in triggers and word[-length:] in known:
                return True
        for length, known in beginnings:
            if word[length:] in triggers and word[:length] in known:
                return True
        return False

    @cached_property
    def _endings(self) -> tuple[tuple[int, frozenset[str]], ...]:
        return _by_length(self.suffixes)

    @cached_property
    def _beginnings(self) -> tuple[tuple[int, frozenset[str]], ...]:
        return _by_length(self.prefixes)


def _by_length(affixes: Iterable[tuple[str, str]]) -> tuple[tuple[int, frozenset[str]], ...]:
    found: dict[int, set[str]] = {}
    for affix, _ in affixes:
        found.setdefault(len(affix), set()).add(affix)
    return tuple((length, frozenset(known)) for length, known in sorted(found.items()))


def _is_symbol(previous: Piece | None, piece: Piece) -> bool:
    """A name such as $DEC or #may."""
    return previous is not None and previous.end == piece.start and previous.text in "$#@_"


def _is_word(text: str) -> bool:
    return "a" <= text[0] <= "z"


@cache
def lexicon(language: str) -> Lexicon:
    """The lexicon of one of LANGUAGES, loaded once."""
    raw = word_lists(language)
    meta: dict[str, Any] = raw.pop("meta", {})
    suffixes = _affixes(raw.pop("suffixes", {}))
    prefixes = _affixes(raw.pop("prefixes", {}))
    script = str(meta.get("script", "latin"))
    signal = str(meta.get("signal", ""))
    tree: Node = {}
    triggers: set[str] = set()
    links: set[str] = set()
    longer: dict[str, set[frozenset[str]]] = {}
    unspaced: set[str] = set()
    numbers: dict[str, int] = {}
    for kind, entries in raw.items():
        table = entries if isinstance(entries, dict) else {"": entries}
        for key, phrases in table.items():
            value = _value(key)
            for phrase in str(phrases).split("|"):
                folded = fold(phrase.strip())
                if not folded:
                    continue
                words = [p.text for p in pieces(folded)]
                _plant(tree, words, kind_of(kind), value)
                if kind == "NUM" and isinstance(value, int) and len(words) == 1:
                    numbers[folded] = value
                if kind not in _CARRIERS and len(words) == 1:
                    links.add(folded)
                if kind in _CARRIERS:
                    if _is_unspaced(words[-1]):
                        if len(words) > 1 or script != "hangul":
                            unspaced.add("".join(w for w in words if not w.isdigit()))
                    elif len(words) == 1:
                        triggers.add(folded)
                    else:
                        rare = max(words, key=len)
                        longer.setdefault(rare, set()).add(frozenset(WORDS.findall(folded)))
    return Lexicon(
        language,
        script,
        bool(meta.get("day_first", True)),
        frozenset(fold(w) for w in str(meta.get("common", "")).split() if len(w) > 1),
        frozenset(links - triggers),
        tuple(fold(w) for w in str(meta.get("marks", "")).split()),
        frozenset(fold(w) for w in str(meta.get("ordinal", "")).split()),
        frozenset(str(meta.get("options", "")).split()),
        tree,
        frozenset(triggers),
        {rare: tuple(found) for rare, found in longer.items() if rare not in triggers},
        tuple(sorted(numbers.items(), key=lambda item: -len(item[0]))),
        tuple(numbers),
        tuple(fold(w) for w in meta["compound"].split()) if "compound" in meta else None,
        suffixes,
        prefixes,
        _alternatives(unspaced, signal),
    )


def _value(key: str) -> Value:
    if not key:
        return None
    return int(key) if key.lstrip("+-").isdigit() else key


def _affixes(table: dict[str, str]) -> tuple[tuple[str, str], ...]:
    found = [(fold(affix), kind) for kind, affixes in table.items() for affix in affixes.split("|")]
    return tuple(sorted(found, key=lambda pair: -len(pair[0])))


def _plant(tree: Node, words: list[str], kind: str, value: Value) -> None:
    node = tree
    for word in words:
        step = node.setdefault(word, {})
        assert isinstance(step, dict)
        node = step
    known = node.get("")
    if isinstance(known, tuple) and known[0] != kind:
        both = composite(known[0], kind)
        if both is None:
            raise ValueError(f"{' '.join(words)!r} is of two kinds that no rule takes together")
        kind, value = both, known[1] if value is None else value
    node[""] = (kind, value)


def _is_unspaced(word: str) -> bool:
    return word[0] >= "\u3040"


def _alternatives(words: set[str], signal: str) -> re.Pattern[str] | None:
    """One pattern for a set of unspaced words; a word that holds another one is redundant."""
    short = {
        word
        for word in words
        if not any(
            word[a:b] in words
            for a in range(len(word))
            for b in range(a + 1, len(word) + 1)
            if b - a < len(word)
        )
    }
    single = "".join(sorted(w for w in short if len(w) == 1))
    parts = [re.escape(w) for w in sorted(short) if len(w) > 1]
    if single:
        parts.insert(0, f"[{single}]")
    if signal:
        parts.append(signal)
    return re.compile("|".join(parts)) if parts else None
