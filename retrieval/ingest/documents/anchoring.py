"""Which chunks of a document stand in its next text. Pure, and bounded for any texts.

Chunks are found by what they say, not by their number: those whose text occurs in the new one, in
their order, stay; only what lies between them is cut again. So a line on top of a long document is
one new chunk, and so is what is appended to it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final

from retrieval.ingest.documents.chunking import ChunkSpan, TextLayout

_OCCURRENCES: Final = 4
"""Places where a repeated chunk is tried."""

_SEARCHED: Final = 256
"""Characters that are searched per character of the text; what is not found by then is cut
again."""

_BLANK: Final = frozenset(" \t\r\n\x0b\x0c\x85\xa0\u2028\u2029\u3000")
_LINE_ENDS: Final = frozenset("\r\n\x85\u2028\u2029")
_SENTENCE_ENDS: Final = frozenset(".!?。！？؟।…")
_CLOSING: Final = frozenset("\"'”’»)]】」』")


@dataclass(frozen=True, slots=True)
class Known:
    """A stored chunk. `text` is empty where the bank keeps no texts; then only its hash tells."""

    index: int
    text: str
    hash: str


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A chunk of the new text; `known` is the index of the stored chunk that it is."""

    cut: ChunkSpan
    hash: str
    known: int | None


def content_hash(text: str) -> str:
    """What tells chunks apart: their text without the blanks around it."""
    return hashlib.sha256(text.strip().encode("utf-8", "surrogatepass")).hexdigest()


def place(layout: TextLayout, known: Sequence[Known]) -> list[PlacedChunk]:
    """The chunks of the layout's text, in order: stored ones where they stand, and new ones.

    `known` is in the order of the document; each stands at most once.
    """
    text = layout.text
    if not text.strip():
        return []
    if text == "".join(chunk.text for chunk in known):
        return _all(known)
    found = _anchors(layout, known)
    placed: list[PlacedChunk] = []
    at, before = 0, -1
    for i in [*sorted(found), len(known)]:
        start, end = found.get(i, (len(text), len(text)))
        if i < len(known):
            start, end = _with_blanks(layout, known[i].text, at, start, end)
        if not _is_blank(layout, at, start):
            placed += _anew(layout, at, start, known[before + 1 : i])
        elif layout.kind != "turns" and at < start:
            if start - at > layout.size:
                placed += _anew(layout, at, start, ())
            elif placed:
                placed[-1] = _until(layout, placed[-1], start)
            else:
                start = at
        if i < len(known):
            said = known[i].text if layout.kind == "turns" else text[start:end]
            placed.append(PlacedChunk(ChunkSpan(start, end, said), known[i].hash, known[i].index))
        at, before = end, i
    return placed


def _all(known: Sequence[Known]) -> list[PlacedChunk]:
    placed, at = [], 0
    for chunk in known:
        end = at + len(chunk.text)
        placed.append(PlacedChunk(ChunkSpan(at, end, chunk.text), chunk.hash, chunk.index))
        at = end
    return placed


def _with_blanks(
    layout: TextLayout, stored: str, least: int, start: int, end: int
) -> tuple[int, int]:
    """The place of a chunk with the blanks around it that were stored with it."""
    if layout.kind == "turns":
        return start, end
    text = layout.text
    front = len(stored) - len(stored.lstrip())
    if front and start - front >= least and text.startswith(stored[:front], start - front):
        start -= front
    back = len(stored) - len(stored.rstrip())
    if back and text.startswith(stored[-back:], end):
        end += back
    return start, end


def _until(layout: TextLayout, placed: PlacedChunk, end: int) -> PlacedChunk:
    """The same chunk with the blanks that follow it."""
    start = placed.cut.start
    return PlacedChunk(ChunkSpan(start, end, layout.text[start:end]), placed.hash, placed.known)


def _anew(
    layout: TextLayout, start: int, end: int, known: Sequence[Known]
) -> Iterator[PlacedChunk]:
    """The text between two anchors, cut again; what comes out as it was stored is that chunk."""
    cuts = layout.pieces(start, end)
    hashes = [content_hash(cut.text) for cut in cuts]
    places: dict[str, list[int]] = {}
    for i, chunk in enumerate(known):
        places.setdefault(chunk.hash, []).append(i)
    pairs = [
        (i, at, at + 1, len(cuts[at].text))
        for at, hash in enumerate(hashes)
        for i in places.get(hash, ())[:_OCCURRENCES]
    ]
    same = {at: known[i].index for i, at, _ in _chain(pairs, len(known))}
    for at, (cut, hash) in enumerate(zip(cuts, hashes, strict=True)):
        yield PlacedChunk(cut, hash, same.get(at))


# Finding


class _Search:
    """Looks for chunks in a text, for as long as the work stays in proportion to it."""

    def __init__(self, layout: TextLayout) -> None:
        self._text = layout.text
        self._left = _SEARCHED * max(len(layout.text), 1_000)
        turns = layout.turns if layout.kind == "turns" else ()
        self._starts = [start for start, _ in turns]
        self._ends = {end for _, end in turns}
        self._turns = layout.kind == "turns"

    def fits(self, start: int, end: int) -> bool:
        """In a conversation: does it begin and end with whole turns?"""
        if not self._turns:
            return True
        at = bisect_left(self._starts, start)
        return at < len(self._starts) and self._starts[at] == start and end in self._ends

    def places(self, needle: str, low: int, high: int, most: int) -> Iterator[tuple[int, int]]:
        while most and self._left > 0 and low < high:
            at = self._text.find(needle, low, high)
            self._left -= (high if at < 0 else at) - low + len(needle)
            if at < 0:
                return
            low = at + len(needle)
            most -= 1
            if self.fits(at, low):
                yield at, low


def _anchors(layout: TextLayout, known: Sequence[Known]) -> dict[int, tuple[int, int]]:
    """Where stored chunks stand, by their place in `known`, without the blanks around them."""
    text, search = layout.text, _Search(layout)
    needles = [_needle(layout, chunk.text) for chunk in known]
    skipped = _BLANK | frozenset("[,") if layout.kind == "turns" else _BLANK
    found: dict[int, tuple[int, int]] = {}
    first, low = 0, 0
    while first < len(needles) and (needle := needles[first]):
        at = low
        while at < len(text) and text[at] in skipped:
            at += 1
        end = at + len(needle)
        if not (text.startswith(needle, at) and search.fits(at, end)):
            break
        found[first] = at, end
        first, low = first + 1, end
    last, high = len(needles), len(text)
    skipped = _BLANK | frozenset("],") if layout.kind == "turns" else _BLANK
    while last > first and (needle := needles[last - 1]):
        end = high
        while end > low and text[end - 1] in skipped:
            end -= 1
        at = end - len(needle)
        if not (at >= low and text.startswith(needle, at) and search.fits(at, end)):
            break
        last, high = last - 1, at
        found[last] = at, end
    _between(search, needles, range(first, last), low, high, found)
    if layout.kind != "turns":
        _at_ends(text, found)
    return found


def _needle(layout: TextLayout, text: str) -> str:
    """What is looked for: the chunk without blanks; of a chunk of turns, those without brackets."""
    text = text.strip()
    if layout.kind == "turns":
        if not (text.startswith("[") and text.endswith("]")):
            return ""
        text = text[1:-1].strip()
    return text


def _between(
    search: _Search,
    needles: Sequence[str],
    wanted: range,
    low: int,
    high: int,
    found: dict[int, tuple[int, int]],
) -> None:
    """Adds the chunks between the known beginning and the known end of the document."""
    pairs = [
        (i, at, end, end - at)
        for i in wanted
        if needles[i]
        for at, end in search.places(needles[i], low, high, _OCCURRENCES)
    ]
    chained = _chain(pairs, len(needles))
    bounds = [(wanted.start - 1, low, low), *chained, (wanted.stop, high, high)]
    for (left, _, start), (right, end, _) in pairwise(bounds):
        for i in range(left + 1, right):
            if needles[i]:
                for place in search.places(needles[i], start, end, 1):
                    found[i] = place
                    start = place[1]
    found.update((i, (at, end)) for i, at, end in chained)


def _chain(pairs: Iterable[tuple[int, int, int, int]], size: int) -> list[tuple[int, int, int]]:
    """The heaviest run of (chunk, start, end, weight) in which both go on without overlap.

    Chunks are numbered below `size`. In n log n.
    """
    ordered = sorted(pairs, key=lambda pair: pair[1])
    tree: list[tuple[int, int]] = [(0, -1)] * (size + 1)  # best (weight, place) of lower chunks
    total: list[int] = []
    earlier: list[int] = []
    open_: list[tuple[int, int]] = []
    for place, (chunk, start, end, weight) in enumerate(ordered):
        while open_ and open_[0][0] <= start:
            _, done = heappop(open_)
            at = ordered[done][0] + 1
            while at <= size:
                tree[at] = max(tree[at], (total[done], done))
                at += at & -at
        best, at = (0, -1), chunk
        while at > 0:
            best = max(best, tree[at])
            at -= at & -at
        total.append(best[0] + weight)
        earlier.append(best[1])
        heappush(open_, (end, place))
    place = max(range(len(ordered)), key=total.__getitem__, default=-1)
    run: list[tuple[int, int, int]] = []
    while place >= 0:
        run.append(ordered[place][:3])
        place = earlier[place]
    return run[::-1]


def _at_ends(text: str, found: dict[int, tuple[int, int]]) -> None:
    """Drops chunks that go on where they ended before: "Room 10" does not stand in "Room 101".

    Where a chunk meets text that is cut again, a line or a sentence has to end.
    """
    order = sorted(found)
    dropped = []
    for place, i in enumerate(order):
        start, end = found[i]
        before = found[order[place - 1]][1] if place else 0
        after = found[order[place + 1]][0] if place + 1 < len(order) else len(text)
        if not (_parted(text, before, start) and _parted(text, end, after, behind=True)):
            dropped.append(i)
    for i in dropped:
        del found[i]


def _parted(text: str, start: int, end: int, *, behind: bool = False) -> bool:
    """Does something end where a chunk and the text between `start` and `end` meet?"""
    step = 1 if behind else -1
    at = start if behind else end - 1
    line = False
    while start <= at < end and text[at] in _BLANK:
        line = line or text[at] in _LINE_ENDS
        at += step
    if not start <= at < end:
        return True  # nothing but blanks up to the next chunk, or to the end
    if line:
        return True
    last = (start if behind else at + 1) - 1
    while last >= 0 and text[last] in _CLOSING:
        last -= 1
    blank = at != (start if behind else end - 1)
    mark = text[last] if last >= 0 else ""
    return mark in _SENTENCE_ENDS and bool(mark) and (blank or ord(mark) > 0x2FFF)


def _is_blank(layout: TextLayout, start: int, end: int) -> bool:
    """Nothing to cut: blanks, and in a conversation what stands between turns."""
    if layout.kind == "turns":
        at = bisect_left(layout.turns, (start, start))
        return at == len(layout.turns) or layout.turns[at][1] > end
    return not layout.text[start:end].strip()
