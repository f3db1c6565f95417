"""A document as sections of blocks: what edits name, and what stays letter by letter.

Markdown is cut at its headings and blank lines; a fenced piece of code is one block. Rendering puts
the same blocks together with one blank line between them, so a block that no edit names is the same
text before and after.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")

SECTIONS_MOST, BLOCKS_MOST = 200, 2_000
HEADING_CHARS = 300


class BadDocument(ValueError):
    """What is stored is no document."""


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list, table or piece of code. `cites`: ids of the memories that it rests on;
    `as_of`: the newest time that one of them is about, ISO 8601; "" where none has one."""

    id: str
    text: str
    cites: tuple[str, ...] = ()
    as_of: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """`heading` without its marks, "" for what stands before the first one; `level` 1 to 6."""

    id: str
    heading: str
    blocks: tuple[Block, ...]
    level: int = 2

    @property
    def text(self) -> str:
        parts = [f"{'#' * self.level} {self.heading}"] if self.heading else []
        return "\n\n".join([*parts, *(block.text for block in self.blocks)])


@dataclass(frozen=True, slots=True)
class Document:
    """`next_id`: no section or block has had this number, so that ids are never given twice."""

    sections: tuple[Section, ...] = ()
    next_id: int = 1

    def blocks(self) -> Iterator[Block]:
        for section in self.sections:
            yield from section.blocks

    @property
    def cites(self) -> frozenset[str]:
        return frozenset(id for block in self.blocks() for id in block.cites)

    @property
    def text(self) -> str:
        """The document as markdown."""
        return "\n\n".join(part for section in self.sections if (part := section.text))

    def stored(self) -> dict[str, Any]:
        return {
            "next_id": self.next_id,
            "sections": [
                {
                    "id": section.id,
                    "heading": section.heading,
                    "level": section.level,
                    "blocks": [
                        {"id": b.id, "text": b.text, "cites": list(b.cites), "as_of": b.as_of}
                        for b in section.blocks
                    ],
                }
                for section in self.sections
            ],
        }


def of(stored: Any) -> Document:
    """A document from what `Document.stored` gave. BadDocument."""
    try:
        sections = tuple(
            Section(
                section["id"],
                section["heading"],
                tuple(
                    Block(b["id"], b["text"], tuple(b["cites"]), b["as_of"])
                    for b in section["blocks"]
                ),
                section["level"],
            )
            for section in stored["sections"]
        )
        return Document(sections, int(stored["next_id"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadDocument(f"the stored document cannot be read: {error!r}") from None


@dataclass(frozen=True, slots=True)
class MarkdownPiece:
    """A heading (level > 0) or block of a markdown text, at [start, end)."""

    text: str
    level: int
    start: int
    end: int


def pieces(markdown: str) -> list[MarkdownPiece]:
    """The headings and blocks of a text, in order."""
    found: list[MarkdownPiece] = []
    lines: list[str] = []
    start = at = 0
    fence = ""

    def close() -> None:
        text = "".join(lines).rstrip()
        if text.strip():
            lead = len(text) - len(text.lstrip("\n"))
            found.append(MarkdownPiece(text[lead:], 0, start + lead, start + len(text)))
        lines.clear()

    for line in markdown.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        mark = _FENCE.match(bare)
        if fence:
            lines.append(line)
            if mark and mark[1].startswith(fence):
                fence = ""
        elif mark:
            if not lines:
                start = at
            lines.append(line)
            fence = mark[1]
        elif heading := _HEADING.match(bare):
            close()
            found.append(MarkdownPiece(heading[2].strip(), len(heading[1]), at, at + len(bare)))
        elif not bare.strip():
            close()
        else:
            if not lines:
                start = at
            lines.append(line)
        at += len(line)
    close()
    return found


def parse(
    markdown: str,
    cited: Sequence[tuple[int, int, Sequence[str]]] = (),
    times: Mapping[str, str] = {},
) -> Document:
    """The document that a markdown text is. `cited`: (start, end, ids) of its characters; `times`:
    the time that a memory is about, by id."""
    sections: list[Section] = []
    number = 1
    heading, level, blocks = "", 2, list[Block]()

    def close() -> None:
        nonlocal number
        if heading or blocks:
            sections.append(Section(f"s{number}", heading, tuple(blocks), level))
            number += 1
        blocks.clear()

    for piece in pieces(markdown):
        if piece.level:
            close()
            heading, level = piece.text[:HEADING_CHARS], piece.level
            continue
        ids = [
            id for start, end, some in cited if start < piece.end and end > piece.start
            for id in some
        ]  # fmt: skip
        blocks.append(block(f"b{number}", piece.text, ids, times))
        number += 1
    close()
    return Document(tuple(sections), number)


def block(id: str, text: str, cites: Iterable[str], times: Mapping[str, str]) -> Block:
    kept = tuple(dict.fromkeys(cites))
    return Block(id, text, kept, max((times.get(one, "") for one in kept), default=""))


def without(document: Document, gone: frozenset[str]) -> Document:
    """The document without citations of memories that are gone; its text stays."""
    return replace(
        document,
        sections=tuple(
            replace(
                section,
                blocks=tuple(
                    replace(b, cites=tuple(id for id in b.cites if id not in gone))
                    for b in section.blocks
                ),
            )
            for section in document.sections
        ),
    )


def moved(document: Document, to: Mapping[str, str]) -> Document:
    """The document with citations of some memories led to others that say the same."""
    return replace(
        document,
        sections=tuple(
            replace(
                section,
                blocks=tuple(
                    replace(b, cites=tuple(dict.fromkeys(to.get(id, id) for id in b.cites)))
                    for b in section.blocks
                ),
            )
            for section in document.sections
        ),
    )
