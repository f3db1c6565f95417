"""Cutting content into chunks. Pure, and linear in the text whatever is in it.

Text is cut behind the most telling mark in reach: paragraph, line, sentence, clause, word; where
there is none, between two characters as a reader sees them. Lines of JSON objects are cut between
lines. The chunks of both, put together, are the text again, to the last blank. A conversation (a
JSON array of objects) is packed in whole turns, and each chunk is an array again.

Line ends are LF, CR LF, CR, and Unicode's NEL, LS and PS. Form feeds and the separators of ASCII
are not, nor is the middle of a CR LF.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json import JSONDecoder
from typing import Final, Literal

from retrieval.store.attachments import PLACEHOLDER

UNITS_MOST: Final = 100_000
"""A conversation or a log of more turns is cut as plain text."""

_PARAGRAPHS = ("\n\n", "\r\n\r\n", "\r\r", "\u2029")
_LINES = ("\n", "\r", "\x85", "\u2028")
_SENTENCES = (". ", "! ", "? ", "。", "！", "？", "؟ ", "। ")
_CLAUSES = ("; ", ", ", ": ", "；", "，", "、", "：")
_WORDS = (" ", "\t", "\u3000")
_LEVELS = (_PARAGRAPHS, _LINES, _SENTENCES, _CLAUSES, _WORDS)

_BLANK = " \t\r\n"
_JOINERS = frozenset("\u200d\ufe0e\ufe0f")
_CLUSTER_MOST = 64
"""Marks on one letter that a cut is moved for; longer piles are torn."""

_JSON = JSONDecoder()


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """One chunk: where it stands in the text, and its own text."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class TextLayout:
    """How a text is cut. `turns`: the places of a conversation's turns, ascending. `marks`: those
    of attachments; a chunk of plain text has at most `marks_most`."""

    text: str
    size: int
    unit_size: int
    kind: Literal["text", "lines", "turns", "whole"] = "text"
    turns: Sequence[tuple[int, int]] = ()
    marks: Sequence[int] = ()
    marks_most: int = 1

    def pieces(self, start: int, end: int) -> list[ChunkSpan]:
        """The chunks of the text from `start` to `end`, in order."""
        if start >= end:
            return []
        if self.kind == "turns":
            return list(self._packed(start, end))
        if self.kind == "whole" and start == 0 and end == len(self.text):
            return [ChunkSpan(start, end, self.text)]
        return list(self._tiles(start, end))

    def _tiles(self, start: int, end: int, kind: str = "") -> Iterator[ChunkSpan]:
        lines = (kind or self.kind) == "lines"
        while end - start > (reach := self._reach(start)):
            cut = self._line(start, end) if lines else 0
            cut = cut or _cut(self.text, start, start + reach, end)
            yield ChunkSpan(start, cut, self.text[start:cut])
            start = cut
        if start < end:
            yield ChunkSpan(start, end, self.text[start:end])

    def _reach(self, start: int) -> int:
        """Most characters of a chunk that begins here."""
        next = bisect_left(self.marks, start) + self.marks_most
        return min(self.size, self.marks[next] - start) if next < len(self.marks) else self.size

    def _line(self, start: int, end: int) -> int:
        """Behind the last whole line that fits, or behind the first if it may stand alone."""
        cut = self.text.rfind("\n", start, start + self.size) + 1
        if not cut:
            most = min(end, start + self.unit_size)
            cut = self.text.find("\n", start, most) + 1 or (end if end == most else 0)
        return cut

    def _packed(self, start: int, end: int) -> Iterator[ChunkSpan]:
        first = bisect_left(self.turns, (start, start))
        begin = stop = -1
        for at in range(first, len(self.turns)):
            left, right = self.turns[at]
            if right > end:
                break
            if right - left + 2 > max(self.unit_size, self.size):
                if begin >= 0:
                    yield self._array(begin, stop)
                begin = -1
                yield from self._tiles(left, right, "text")
                continue
            if begin >= 0 and right - begin + 2 > self.size:
                yield self._array(begin, stop)
                begin = -1
            begin, stop = (left if begin < 0 else begin), right
        if begin >= 0:
            yield self._array(begin, stop)

    def _array(self, start: int, end: int) -> ChunkSpan:
        return ChunkSpan(start, end, f"[{self.text[start:end]}]")


def layout(
    text: str, size: int, structured_size: int | None = None, *, attached_most: int | None = None
) -> TextLayout:
    """How `text` is cut into chunks of at most `size` characters.

    A single turn or line may have up to `structured_size` (default `size`) and stays whole. A CR LF
    is not cut apart, even where `size` is 1. `attached_most`: placeholders of attachments in a
    chunk of plain text.
    """
    size = max(size, 1)
    unit_size = max(structured_size or size, 1)
    if (turns := _turns(text)) is not None:
        return TextLayout(text, size, unit_size, "turns", turns)
    if len(text) <= unit_size and _ends_with(text, "{", "}") and _is_object(text):
        return TextLayout(text, size, unit_size, "whole")
    if len(text) > size and _are_objects(text):
        return TextLayout(text, size, unit_size, "lines")
    marks = [m.start() for m in PLACEHOLDER.finditer(text)] if attached_most and "⟦" in text else []
    return TextLayout(text, size, unit_size, marks=marks, marks_most=attached_most or 1)


def chunk(text: str, size: int, structured_size: int | None = None) -> list[str]:
    """The chunks of `text` in order: see `layout`. None of a text that is blank."""
    if not text.strip():
        return []
    return [piece.text for piece in layout(text, size, structured_size).pieces(0, len(text))]


def appended(old: str, new: str) -> str:
    """Two JSON arrays become one; other texts follow on a new line."""
    if not old:
        return new
    if _ends_with(old, "[", "]") and _ends_with(new, "[", "]"):
        first, second = _elements(old), _elements(new)
        if first is not None and second is not None:
            if not first or not second:
                return new if second else old
            body, more = old.rstrip(), new.lstrip()
            return f"{body[: first[-1][1]]},{more[second[0][0] - (len(new) - len(more)) :]}"
    return f"{old}\n{new}"


def _cut(text: str, start: int, most: int, end: int) -> int:
    """Where to cut text that goes on: behind the best mark between `start` and `most`.

    A mark in the first quarter is taken only where there is no other.
    """
    least = start + (most - start) // 4
    late = 0
    for marks in _LEVELS:
        at = max(_behind(text, mark, start, most) for mark in marks)
        if at > least:
            return at
        late = late or at
    return late or _between(text, start, most, end)


def _behind(text: str, mark: str, start: int, most: int) -> int:
    """Behind the last such mark, 0 if there is none; never inside a CR LF."""
    at = text.rfind(mark, start, most)
    while at >= 0 and mark[-1] == "\r" and text.startswith("\n", at + len(mark)):
        at = text.rfind(mark, start, at + len(mark) - 1)
    return at + len(mark) if at >= 0 else 0


def _between(text: str, start: int, most: int, end: int) -> int:
    """The last place up to `most` that parts no character as a reader sees it."""
    at = most
    for _ in range(_CLUSTER_MOST):
        if at <= start or not _inside(text, at):
            break
        at -= 1
    if at <= start or _inside(text, at):
        at = most
        if text[at - 1] == "\r" and text.startswith("\n", at):
            at = at - 1 if at - 1 > start else at + 1
    return min(at, end)


def _inside(text: str, at: int) -> bool:
    """Would a cut before `text[at]` part a letter from its marks, or CR from LF?"""
    here, before = text[at], text[at - 1]
    if here in _JOINERS or before == "\u200d" or (before == "\r" and here == "\n"):
        return True
    return ord(here) > 0x2FF and unicodedata.category(here)[0] == "M"


def _ends_with(text: str, first: str, last: str) -> bool:
    """Are these the outermost characters, blanks aside? Without copying the text."""
    left, right = 0, len(text) - 1
    while left < right and text[left] in _BLANK:
        left += 1
    while right > left and text[right] in _BLANK:
        right -= 1
    return left < right and text[left] == first and text[right] == last


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _elements(text: str, *, objects: bool = False) -> list[tuple[int, int]] | None:
    """Where the elements of a JSON array stand; None if it is none, or not one of `objects`."""
    at = _skip(text, 0)
    if not text.startswith("[", at):
        return None
    found: list[tuple[int, int]] = []
    at = _skip(text, at + 1)
    if text.startswith("]", at):
        return [] if _skip(text, at + 1) == len(text) else None
    while len(found) < UNITS_MOST:
        if objects and not text.startswith("{", at):
            return None
        end = _value(text, at)
        if end is None:
            return None
        found.append((at, end))
        at = _skip(text, end)
        if text.startswith("]", at):
            return found if _skip(text, at + 1) == len(text) else None
        if not text.startswith(",", at):
            return None
        at = _skip(text, at + 1)
    return None


def _value(text: str, at: int) -> int | None:
    """The end of the JSON value that begins there; None if there is none, or one too deep."""
    try:
        return _JSON.raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        return None


def _turns(text: str) -> list[tuple[int, int]] | None:
    if not _ends_with(text, "[", "]"):
        return None
    return _elements(text, objects=True) or None


def _is_object(text: str) -> bool:
    at = _skip(text, 0)
    end = _value(text, at)
    return end is not None and _skip(text, end) == len(text)


def _are_objects(text: str) -> bool:
    """Is every line a JSON object, or blank? At least two of them."""
    count = start = 0
    while (at := _skip(text, start)) < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        stop = _value(text, at) if text.startswith("{", at) else None
        if stop is None or stop > end or _skip(text, stop) < end or count >= UNITS_MOST:
            return False
        count += 1
        start = end + 1
    return count > 1
