"""Edits of a document by the names of its sections and blocks: asked for, checked one by one,
applied.

Whoever proposes edits proposes only: an edit that names what is not there, rests on nothing that
was shown, states what its facts do not, or puts older news in the place of newer is skipped, with
the reason. What no applied edit names stays letter by letter."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from retrieval.llm.grounding import (
    has_machinery,
    invented_names,
    invented_numbers,
    main_script,
    scripts,
)
from retrieval.llm.reading import list_of, text_of
from retrieval.mental.document import (
    BLOCKS_MOST,
    HEADING_CHARS,
    SECTIONS_MOST,
    Block,
    Document,
    Section,
    block,
    pieces,
)

OPERATIONS = (
    "add_section", "remove_section", "rename_section", "replace_section_blocks", "append_block",
    "insert_block", "replace_block", "remove_block",
)  # fmt: skip
EDITS_MOST = 100
"""Of one answer."""
BLOCK_CHARS = 8_000
_ITEM = re.compile(r"^[ \t]*\d{1,3}[.)][ \t]", re.MULTILINE)
"""The number of a list's item, which is no statement."""


@dataclass(frozen=True, slots=True)
class ShownFact:
    """A memory that was shown with the document. `handle`: what edits call it."""

    handle: str
    id: str
    text: str
    time: str = ""


@dataclass(frozen=True, slots=True)
class Material:
    """What edits may rest on: facts that are new or changed, and `known`, the texts of those that
    the document cites already, by id. `gone`: ids that it cites and that are no more. `names`:
    entities of the bank that stand in any of these texts or in the document."""

    facts: Mapping[str, ShownFact] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    max_chars: int = 60_000


@dataclass(frozen=True, slots=True)
class EditedDocument:
    """The document after the edits; those that were applied, and those skipped, with the reason.
    `used`: ids of the facts that applied edits rest on."""

    document: Document
    applied: tuple[Mapping[str, Any], ...] = ()
    skipped: tuple[Mapping[str, Any], ...] = ()
    used: frozenset[str] = frozenset()


class EditRefused(Exception):
    """This edit cannot be applied; str() says why."""


def apply(document: Document, edits: Sequence[Any], material: Material) -> EditedDocument:
    """Applies the edits in their order, each to what those before it left."""
    applied: list[Mapping[str, Any]] = []
    skipped: list[Mapping[str, Any]] = []
    used: set[str] = set()
    for place, given in enumerate(edits):
        try:
            if place >= EDITS_MOST:
                raise EditRefused(f"more than {EDITS_MOST} edits")
            if not isinstance(given, Mapping):
                raise EditRefused("it is no object")
            edit = _Edit(given, document, material)
            document = edit.done()
        except EditRefused as error:
            skipped.append({**_shown(given), "reason": str(error)})
        else:
            applied.append(_shown(given))
            used |= edit.cites
    return EditedDocument(document, tuple(applied), tuple(skipped), frozenset(used))


def retract(document: Document, gone: frozenset[str]) -> tuple[Document, list[str]]:
    """(the document without the blocks that rest on nothing but what is gone, ids of those that
    rest on something of it). A section whose last block goes, goes too."""
    unsaid = {b.id for b in document.blocks() if b.cites and gone.issuperset(b.cites)}
    mixed = [b.id for b in document.blocks() if b.id not in unsaid and not gone.isdisjoint(b.cites)]
    sections = []
    for section in document.sections:
        kept = tuple(b for b in section.blocks if b.id not in unsaid)
        if kept or not section.blocks:
            sections.append(replace(section, blocks=kept))
    return replace(document, sections=tuple(sections)), mixed


class _Edit:
    """One proposed edit, read and checked against the document as it is."""

    def __init__(self, given: Mapping[str, Any], document: Document, material: Material) -> None:
        self._given, self._document, self._material = given, document, material
        self._name = given.get("op")
        facts = []
        for said in list_of(given.get("facts")):
            for handle in re.split(r"[\s,;\[\]]+", str(said).strip()):
                if handle and handle not in material.facts:
                    raise EditRefused(f"{handle[:40]!r} is no fact that was shown")
                if handle:
                    facts.append(material.facts[handle])
        self._facts = facts
        self.cites = frozenset(fact.id for fact in facts)

    def done(self) -> Document:
        if self._name not in OPERATIONS:
            raise EditRefused(f"there is no operation {str(self._name)[:40]!r}")
        found: Document = getattr(self, f"_{self._name}")()
        return found

    # What an edit names

    def _section(self) -> int:
        wanted = self._given.get("section_id")
        for place, section in enumerate(self._document.sections):
            if section.id == wanted:
                return place
        raise EditRefused(f"there is no section {str(wanted)[:40]!r}")

    def _block(self, name: str = "block_id") -> tuple[int, int]:
        wanted = self._given.get(name)
        for s, section in enumerate(self._document.sections):
            for b, one in enumerate(section.blocks):
                if one.id == wanted:
                    return s, b
        raise EditRefused(f"there is no block {str(wanted)[:40]!r}")

    def _heading(self) -> str:
        heading = text_of(self._given.get("heading"), HEADING_CHARS)
        heading = " ".join(heading.lstrip("#").split())
        if not heading:
            raise EditRefused("it has no heading")
        if has_machinery(heading):
            raise EditRefused("the heading holds names of blocks or facts")
        return heading

    def _texts(self) -> list[str]:
        """The blocks that the edit brings: each piece of its texts is one."""
        given = self._given.get("blocks")
        if given is None or given == []:
            given = self._given.get("text")
        texts = [text_of(one, BLOCK_CHARS + 1) for one in list_of(given)]
        if any(len(text) > BLOCK_CHARS for text in texts):
            raise EditRefused(f"a block has at most {BLOCK_CHARS:,} characters")
        found = [piece for text in texts for piece in pieces(text)]
        if any(piece.level for piece in found):
            raise EditRefused("a block has no heading: add a section")
        if not found:
            raise EditRefused("it has no text")
        return [piece.text for piece in found]

    # What it may say

    def _blocks(self, before: Sequence[Block], number: int) -> tuple[Block, ...]:
        """The new blocks, grounded in the edit's facts and in what stood there and still holds."""
        texts = self._texts()
        gone = self._material.gone
        rest = [id for one in before for id in one.cites if id not in gone]
        sources = [fact.text for fact in self._facts]
        sources += [self._material.known[id] for id in rest if id in self._material.known]
        if all(gone.isdisjoint(one.cites) for one in before):
            sources += [one.text for one in before]
        if not sources:
            raise EditRefused("it rests on no fact")
        for text in texts:
            self._grounded(text, sources)
        times = {fact.id: fact.time for fact in self._facts}
        times |= {id: one.as_of for one in before for id in rest if id in one.cites}
        cites = [*rest, *(fact.id for fact in self._facts)]
        return tuple(block(f"b{number + i}", t, cites, times) for i, t in enumerate(texts))

    def _grounded(self, text: str, sources: Sequence[str]) -> None:
        if has_machinery(text) and not any(map(has_machinery, sources)):
            raise EditRefused("the text holds names of blocks or facts, or control characters")
        times = [datetime.fromisoformat(fact.time) for fact in self._facts if fact.time]
        if numbers := invented_numbers(_ITEM.sub("", text), sources, dates=times):
            raise EditRefused(f"its facts do not say {', '.join(sorted(numbers)[:5])}")
        if names := invented_names(text, self._material.names, sources):
            raise EditRefused(f"its facts do not name {', '.join(names[:5])}")
        script = main_script(text)
        if script and script not in scripts(sources):
            raise EditRefused("it is written in another script than its facts")

    def _newer(self, before: Sequence[Block]) -> None:
        """What is replaced may not rest on newer news than what replaces it."""
        if any(not self._material.gone.isdisjoint(one.cites) for one in before):
            return
        if not self._facts:
            raise EditRefused("it takes something back without a fact that says so")
        held = max((one.as_of for one in before), default="")
        brought = max((fact.time for fact in self._facts), default="")
        if held and brought and brought < held:
            raise EditRefused("its facts are older than what stands there")

    # The operations

    def _add_section(self) -> Document:
        document, heading = self._document, self._heading()
        if len(document.sections) >= SECTIONS_MOST:
            raise EditRefused(f"a document has at most {SECTIONS_MOST} sections")
        number = document.next_id
        blocks = self._blocks((), number + 1)
        made = Section(f"s{number}", heading, blocks)
        sections = [*document.sections]
        place = len(sections)
        if self._given.get("section_id"):
            place = self._section() + 1
        sections.insert(place, made)
        return self._within(replace(document, sections=tuple(sections)), 1 + len(blocks))

    def _remove_section(self) -> Document:
        place = self._section()
        self._newer(self._document.sections[place].blocks)
        sections = [s for i, s in enumerate(self._document.sections) if i != place]
        if not sections:
            raise EditRefused("nothing would be left of the document")
        return replace(self._document, sections=tuple(sections))

    def _rename_section(self) -> Document:
        place, heading = self._section(), self._heading()
        return self._changed(place, lambda section: replace(section, heading=heading))

    def _replace_section_blocks(self) -> Document:
        place = self._section()
        before = self._document.sections[place].blocks
        self._newer(before)
        blocks = self._blocks(before, self._document.next_id)
        changed = self._changed(place, lambda section: replace(section, blocks=blocks))
        return self._within(changed, len(blocks))

    def _append_block(self) -> Document:
        if not self._document.sections and not self._given.get("section_id"):
            number = self._document.next_id
            blocks = self._blocks((), number + 1)
            made = Section(f"s{number}", "", blocks)
            return self._within(replace(self._document, sections=(made,)), 1 + len(blocks))
        place = self._section()
        blocks = self._blocks((), self._document.next_id)
        return self._within(
            self._changed(place, lambda s: replace(s, blocks=(*s.blocks, *blocks))), len(blocks)
        )

    def _insert_block(self) -> Document:
        """Behind `block_id`, or first in `section_id`."""
        if self._given.get("block_id"):
            place, at = self._block()
            at += 1
        else:
            place, at = self._section(), 0
        blocks = self._blocks((), self._document.next_id)
        return self._within(
            self._changed(
                place, lambda s: replace(s, blocks=(*s.blocks[:at], *blocks, *s.blocks[at:]))
            ),
            len(blocks),
        )

    def _replace_block(self) -> Document:
        place, at = self._block()
        before = self._document.sections[place].blocks[at]
        self._newer([before])
        blocks = self._blocks([before], self._document.next_id)
        return self._within(
            self._changed(
                place, lambda s: replace(s, blocks=(*s.blocks[:at], *blocks, *s.blocks[at + 1 :]))
            ),
            len(blocks),
        )

    def _remove_block(self) -> Document:
        place, at = self._block()
        section = self._document.sections[place]
        self._newer([section.blocks[at]])
        if sum(len(s.blocks) for s in self._document.sections) == 1:
            raise EditRefused("nothing would be left of the document")
        if len(section.blocks) == 1:
            sections = [s for i, s in enumerate(self._document.sections) if i != place]
            return replace(self._document, sections=tuple(sections))
        return self._changed(
            place, lambda s: replace(s, blocks=(*s.blocks[:at], *s.blocks[at + 1 :]))
        )

    def _changed(self, place: int, change: Callable[[Section], Section]) -> Document:
        sections = list(self._document.sections)
        sections[place] = change(sections[place])
        return replace(self._document, sections=tuple(sections))

    def _within(self, document: Document, numbers: int) -> Document:
        """The document with the numbers of its new blocks spent; EditRefused if it is too large."""
        if sum(len(section.blocks) for section in document.sections) > BLOCKS_MOST:
            raise EditRefused(f"a document has at most {BLOCKS_MOST:,} blocks")
        size = len(document.text)
        if size > self._material.max_chars and size > len(self._document.text):
            raise EditRefused(
                f"the document would have more than {self._material.max_chars:,} characters"
            )
        return replace(document, next_id=document.next_id + numbers)


_SHOWN = ("op", "section_id", "block_id", "heading", "text", "blocks", "facts")


def _shown(given: Any) -> dict[str, Any]:
    """An edit as a trace shows it, cut to size."""
    if not isinstance(given, Mapping):
        return {"op": str(given)[:100]}
    found: dict[str, Any] = {}
    for name in _SHOWN:
        value = given.get(name)
        if isinstance(value, str):
            found[name] = text_of(value, 2_000)
        elif isinstance(value, list):
            found[name] = [text_of(one, 2_000) for one in value[:50] if isinstance(one, str)]
    return found
