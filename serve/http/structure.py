"""JSON texts of strangers: measured before anything is built from them, and built in pieces.

A text of a few megabytes can be millions of empty objects, which cost a hundred times its size. And
the parser keeps the interpreter for as long as it runs, whatever thread it runs in, so a long text
is parsed in pieces between which other threads get their turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from retrieval.types import Ints

BLOCK_BYTES = 1 << 20
"""Measured in one go: about 2 ms, in which other threads run most of the time."""
PIECE_BYTES = 1 << 18
"""Parsed in one go: 5 ms where it is nothing but the shortest values."""
_PAIR_BYTES = 12
"""Of the longest escape: two halves of a character."""
_SECOND_HALVES = frozenset({b"\\udc", b"\\udd", b"\\ude", b"\\udf"})
_BLANK = b" \t\r\n"
_QUOTE, _OPEN, _CLOSE, _COMMA = 1, 2, 3, 4

_KINDS = np.zeros(256, np.uint8)
for _signs, _kind in ((b'"', _QUOTE), (b"[{", _OPEN), (b"]}", _CLOSE), (b",", _COMMA)):
    _KINDS[list(_signs)] = _kind


@dataclass(frozen=True, slots=True)
class JsonBounds:
    """What a JSON text may be at most."""

    depth: int
    containers: int
    """Objects and lists."""
    values: int
    """Members of all of them."""


class JsonTooLarge(ValueError):
    """A text beyond the bounds; str() says which."""


@dataclass(frozen=True, slots=True)
class _Outline:
    """The brackets and commas of a text that stand outside strings, in order."""

    at: Ints
    kind: Ints
    depth: Ints
    """How many containers are open after the sign."""


def loads(text: bytes, bounds: JsonBounds) -> Any:
    """What a JSON text says.

    JsonTooLarge where it goes beyond the bounds, which any bytes can: what is no JSON is measured
    as if it were. orjson.JSONDecodeError where it is not JSON.

    Best called in a thread where the text is long.
    """
    if len(text) > PIECE_BYTES:
        return _Pieces(text, outlined(text, bounds)).value(0, len(text))
    openings = text.count(b"[") + text.count(b"{")
    if openings > bounds.depth or text.count(b",") >= bounds.values:
        outlined(text, bounds)
    return orjson.loads(text)


def outlined(text: bytes, bounds: JsonBounds) -> _Outline:
    parts: list[tuple[Ints, Ints, Ints]] = []
    depth = containers = commas = 0
    for at, kind in _signs_outside_strings(text):
        opens = kind == _OPEN
        depths = depth + np.cumsum(opens.astype(np.int32) - (kind == _CLOSE))
        deepest, depth = int(depths.max(initial=depth)), int(depths[-1]) if len(depths) else depth
        containers += int(np.count_nonzero(opens))
        commas += int(np.count_nonzero(kind == _COMMA))
        if deepest > bounds.depth:
            raise JsonTooLarge(f"is nested deeper than {bounds.depth} levels")
        if containers > bounds.containers:
            raise JsonTooLarge(f"has more than {bounds.containers:,} objects and lists")
        if commas + 1 > bounds.values:
            raise JsonTooLarge(f"has more than {bounds.values:,} values")
        parts.append((at, kind, depths))
    return _Outline(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _signs_outside_strings(text: bytes) -> Iterator[tuple[Ints, Ints]]:
    """(places, kinds) of brackets and commas, a block of the text at a time."""
    quoted = start = 0
    while start < len(text):
        end = min(len(text), start + BLOCK_BYTES)
        block = text[start:end]
        if (len(block) - len(block.rstrip(b"\\"))) % 2:  # ends amid an escape
            end += 1
            block = text[start:end]
        kinds = _KINDS[np.frombuffer(_unescaped(block), np.uint8)]  # they stand in strings only
        at = np.flatnonzero(kinds)
        kinds = kinds[at]
        quotes = kinds == _QUOTE
        inside = (quoted + np.cumsum(quotes, dtype=np.int32)) & 1
        quoted = int(inside[-1]) if len(inside) else quoted
        bare = (inside == 0) & ~quotes
        yield start + at[bare], kinds[bare]
        start = end


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Parses parts of a text, none of them longer than a piece if it can be cut.

    Cuts are made at commas between the entries of a list or the members of an object. Each part is
    then parsed as a list or object of its own, so what is not JSON as a whole is not JSON in parts.
    """

    text: bytes
    outline: _Outline

    def value(self, start: int, end: int) -> Any:
        """What stands between two places, as one value."""
        at, depth = self.outline.at, self.outline.depth
        first, last = np.searchsorted(at, (start, end)).tolist()
        if end - start <= PIECE_BYTES or last - first < 2:
            return self._parsed(start, end)
        opening, closing = int(at[first]), int(at[last - 1])
        if last - first == 2 and not self.text[opening + 1 : closing].strip(_BLANK):
            return self._parsed(start, end)
        brackets = self.text[opening : opening + 1] + self.text[closing : closing + 1]
        around = self.text[start:opening].strip() + self.text[closing + 1 : end].strip()
        if around or brackets not in (b"[]", b"{}"):
            return self._parsed(start, end)
        inside = slice(first + 1, last - 1)
        commas = at[inside][(self.outline.kind[inside] == _COMMA) & (depth[inside] == depth[first])]
        if brackets == b"[]":
            entries: list[Any] = []
            for begin, stop, single in _runs(opening + 1, closing, commas):
                if single:
                    entries.append(self.value(begin, stop))
                else:
                    entries += self._parsed(begin, stop, b"[", b"]")
            return entries
        members: dict[str, Any] = {}
        for begin, stop, single in _runs(opening + 1, closing, commas):
            if single:
                members.update(self._member(begin, stop))
            else:
                members.update(self._parsed(begin, stop, b"{", b"}"))
        return members

    def _member(self, start: int, end: int) -> dict[str, Any]:
        """One long member of an object."""
        first, last = np.searchsorted(self.outline.at, (start, end)).tolist()
        opening = int(self.outline.at[first]) if first < last else end
        named = self._named(start, opening)
        if first == last and named is None:
            return dict(self._parsed(start, end, b"{", b"}"))
        if first == last and named is not None:
            return {named[0]: self._parsed(named[1], end)}
        if named is None or self.text[named[1] : opening].strip(_BLANK):
            self._parsed(start, opening, b"{", b"0}")  # says what is wrong
            raise orjson.JSONDecodeError("no name stands before it", "", opening)
        return {named[0]: self.value(opening, end)}

    def _named(self, start: int, end: int) -> tuple[str, int] | None:
        """A member's name, and where what is behind the colon begins; None where there is none."""
        opening = self.text.find(b'"', start, end)
        closing = _closing(self.text, opening, end) if opening >= 0 else -1
        behind = self.text[closing + 1 : end].lstrip(_BLANK)
        if closing < 0 or self.text[start:opening].strip(_BLANK) or behind[:1] != b":":
            return None
        return self._text(opening, closing + 1), end - len(behind) + 1

    def _text(self, start: int, end: int) -> str:
        """What stands between two quotes, parsed in pieces."""
        parts, at, last = [], start + 1, end - 1
        while at < last:
            cut = _between_signs(self.text, at, min(last, at + PIECE_BYTES), last)
            try:
                parts.append(orjson.loads(b'"' + self.text[at:cut] + b'"'))
            except orjson.JSONDecodeError as error:
                raise orjson.JSONDecodeError(error.msg, "", at + error.pos - 1) from None
            at = cut
        return "".join(parts)

    def _parsed(self, start: int, end: int, before: bytes = b"", after: bytes = b"") -> Any:
        part = self.text[start:end]
        if before and not part.strip():
            raise orjson.JSONDecodeError("a value is missing", "", start)
        if len(part) > PIECE_BYTES and not before:
            blank = len(part) - len(part.lstrip(_BLANK))
            part = part.strip(_BLANK)
            if len(part) > 1 and part[:1] == part[-1:] == b'"':
                return self._text(start + blank, start + blank + len(part))
        try:
            return orjson.loads(before + part + after if before else part)
        except orjson.JSONDecodeError as error:
            raise orjson.JSONDecodeError(error.msg, "", start + error.pos - len(before)) from None


def _runs(start: int, end: int, commas: Ints) -> Iterator[tuple[int, int, bool]]:
    """(begin, end, whether it is a single long one) of what commas separate: as many as a piece
    holds at a time."""
    while True:
        reach = int(np.searchsorted(commas, start + PIECE_BYTES, "right"))
        if end - start <= PIECE_BYTES:
            yield start, end, False
            return
        before = int(commas[reach - 1]) if reach else -1
        if before >= start:
            yield start, before, False
        else:
            before = int(commas[reach]) if reach < len(commas) else end
            yield start, before, True
            if before == end:
                return
        start = before + 1


def _closing(text: bytes, opening: int, end: int) -> int:
    """Where the text that begins with the quote at `opening` ends; -1 where it does not."""
    at = opening + 1
    while at < end:
        cut = _between_signs(text, at, min(end, at + PIECE_BYTES), end)
        if (found := _unescaped(text[at:cut]).find(b'"')) >= 0:
            return at + found
        at = cut
    return -1


def _unescaped(part: bytes) -> bytes:
    """The part with other signs in the place of escaped quotes and backslashes."""
    if b"\\" in part:  # escapes pair up from the left
        part = part.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    return part


def _between_signs(text: bytes, start: int, end: int, last: int) -> int:
    """The last place up to `end` that is not within a character or an escape, as `start` is not;
    `last` is where the text ends."""
    if end == last:
        return end
    for _ in range(3):
        end -= text[end] & 0xC0 == 0x80
    escape = text.rfind(b"\\", end - _PAIR_BYTES, end)
    if escape < 0 or not _begins_escape(text, start, escape):
        return end
    if text[escape : escape + 4].lower() in _SECOND_HALVES:
        first = escape - _PAIR_BYTES // 2
        if text[first : first + 2] == b"\\u" and _begins_escape(text, start, first):
            return first
    return escape


def _begins_escape(text: bytes, start: int, at: int) -> bool:
    """Does the backslash at `at` begin an escape, or is it the end of one?"""
    before = text[start:at]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 0
