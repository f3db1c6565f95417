"""Reads handles out of an answer: which sentence rests on what, and the text without them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter

import regex

from retrieval.llm.grounding import sentences
from retrieval.reflect.evidence import EvidenceItem, EvidenceSet

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_HANDLE = rf"(?:\^?(?:id:?\s*)?[FOMfom]\d{{1,6}}|{_UUID})"
_BETWEEN = r"\s*(?:[,;、，/&–-]|and|und|et|y)\s*"
_MARK = rf"(?<![ \t\u00a0])[ \t\u00a0]*+[\[(（【]\s*{_HANDLE}(?:{_BETWEEN}{_HANDLE})*\s*[\])）】]"
_GROUP = re.compile(rf"{_MARK}(?:(?:[ \t]*+(?:[,;、，/&–-]|and|und|et|y|и|と))?+{_MARK})*")
_ONE = re.compile(rf"[FOMfom]\d{{1,6}}|{_UUID}")
_RANGE = re.compile(r"([FOMfom])(\d{1,6})\s*[–-]\s*\1(\d{1,6})")
_BARE = re.compile(rf"\b[FOM]\d{{1,4}}\b|{_UUID}")
_RANGE_MOST = 20
MOST_ITEMS = 12
"""Items that one sentence may rest on; a sentence that cites everything cites nothing."""

_HEADING = re.compile(
    r"\s{0,3}#{1,6}\s|\s*(?:[-*+]\s+)?(?:\*\*|__)[^*_.!?。！？]+(?:\*\*|__):?\s*$"
)
_SPACED = regex.compile(r"[\p{L}\p{N}--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]]", regex.V1)
_BLANK = re.compile(r"[ \t]*")
_SAYS = regex.compile(r"[\p{L}\p{N}]")


@dataclass(frozen=True, slots=True)
class Sentence:
    """Characters [start, end) of a text. `items`: what it cites; `unknown`: handles that were never
    shown. `title`: a heading or lead-in, which states nothing by itself."""

    start: int
    end: int
    text: str
    items: tuple[EvidenceItem, ...] = ()
    unknown: tuple[str, ...] = ()
    title: bool = False


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """A text without handles, and its sentences in order."""

    text: str
    sentences: tuple[Sentence, ...] = ()

    @property
    def items(self) -> tuple[EvidenceItem, ...]:
        """Everything that is cited, in the order of the text."""
        cited = {item.handle: item for one in self.sentences for item in one.items}
        return tuple(cited.values())

    def without(self, gone: Iterable[Sentence]) -> CitedAnswer:
        """The answer without some of its sentences; lines that hold nothing then go, too."""
        text, kept = self.text, bytearray(b"\1" * len(self.text))
        for one in gone:
            start, end = one.start, one.end
            while end < len(text) and text[end] in " \t":
                end += 1
            if end == len(text) or text[end] == "\n":
                while start and text[start - 1] in " \t":
                    start -= 1
            kept[start:end] = bytes(end - start)
        at = 0
        for line in text.splitlines(keepends=True):
            here = kept[at : at + len(line)]
            left = "".join(c for c, stays in zip(line, here, strict=True) if stays)
            if not all(here) and not _SAYS.search(left):
                kept[at : at + len(line)] = bytes(len(line))
            at += len(line)
        moved = [0, *accumulate(kept)]
        sentences = [
            replace(one, start=moved[one.start], end=moved[one.end])
            for one in self.sentences
            if kept[one.start]
        ]
        left = "".join(c for c, stays in zip(text, kept, strict=True) if stays)
        return CitedAnswer(left.rstrip(), tuple(sentences))


def parse(text: str, evidence: EvidenceSet) -> CitedAnswer:
    """An answer with handles, read."""
    bare, groups = _bare(text.strip())
    spans = sentences(bare)
    held: list[list[str]] = [[] for _ in spans]
    for place, handles in groups:
        if (owner := _owner(bare, spans, place)) is not None:
            held[owner] += handles
    titles = _titles(bare, spans)
    made = []
    for (start, end), handles, title in zip(spans, held, titles, strict=True):
        found = {handle: evidence.find(handle) for handle in handles}
        known = {item.handle: item for item in found.values() if item is not None}
        unknown = tuple(handle for handle, item in found.items() if item is None)
        cited = tuple(known.values())[:MOST_ITEMS]
        made.append(Sentence(start, end, bare[start:end], cited, unknown, title))
    return CitedAnswer(bare, tuple(made))


def says(text: str) -> bool:
    """Whether there is anything in a text beside handles and signs."""
    return bool(_SAYS.search(_GROUP.sub("", text)))


def _bare(text: str) -> tuple[str, list[tuple[int, list[str]]]]:
    """The text without groups of handles, and where in it each group stood."""
    bare, groups, at = "", [], 0
    for match in _GROUP.finditer(text):
        bare += text[at : match.start()]
        at = match.end()
        groups.append((len(bare), _handles(match[0])))
        if not bare or bare.endswith("\n"):
            at = _BLANK.match(text, at).end()  # type: ignore[union-attr]
        elif _SPACED.match(text[at : at + 1]):
            bare += " "
    return bare + text[at:], groups


def _handles(group: str) -> list[str]:
    found: list[str] = []
    for letter, first, last in _RANGE.findall(group):
        span = range(int(first), min(int(last), int(first) + _RANGE_MOST) + 1)
        found += (f"{letter}{number}" for number in span)
    found += _ONE.findall(_RANGE.sub("", group))
    return [one if "-" in one else one.upper() for one in found]


def _owner(text: str, spans: Sequence[tuple[int, int]], place: int) -> int | None:
    """The sentence that a group of handles at `place` belongs to: the one before it on the line,
    else the one behind it."""
    last = place - 1
    while last >= 0 and text[last] in " \t":
        last -= 1
    if last < 0 or text[last] == "\n":
        behind = bisect_right(spans, place, key=itemgetter(1))
        return behind if behind < len(spans) else None
    before = bisect_right(spans, last, key=itemgetter(0)) - 1
    return before if before >= 0 else None


def _titles(text: str, spans: Sequence[tuple[int, int]]) -> list[bool]:
    """Which sentences are headings, lead-ins, or the head of a table."""
    said = [text[start:end] for start, end in spans]
    found = []
    for place, one in enumerate(said):
        below = said[place + 1] if place + 1 < len(said) else ""
        head = one.startswith("|") and below.startswith("|") and not _SAYS.search(below)
        found.append(head or bool(_HEADING.match(one)) or one.endswith((":", "：")))
    return found


def names_handles(text: str, sources: Iterable[str]) -> bool:
    """Whether a text speaks of handles outside of brackets, such as "as F1 says"."""
    spoken = set(_BARE.findall(text))
    return bool(spoken) and not all(any(one in source for source in sources) for one in spoken)
