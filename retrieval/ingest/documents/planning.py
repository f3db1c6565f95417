"""What a write does to one document, worked out from what is stored and what comes. Pure.

This is the long part of a retain that needs neither the database nor a model: it runs beside the
event loop, or in a process of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import orjson

from retrieval.errors import InvalidInput, TooMuch
from retrieval.ingest.documents.anchoring import Known, PlacedChunk, place
from retrieval.ingest.documents.chunking import TextLayout, appended, layout
from retrieval.ingest.extract.extraction import as_it_stands
from retrieval.ingest.extract.section import ContentSection
from retrieval.ingest.facts import ExtractedFact
from retrieval.ingest.items import DOCUMENT_LIMIT, RetainItem
from retrieval.settings import RetainSettings
from retrieval.store.attachments import Attachment
from retrieval.store.edge import iso

CHUNKS_LIMIT: Final = 50_000
"""Chunks of one document."""

TAGS_LIMIT: Final = 10_000
"""Tags of one document, which are those of all items that it is written from: one value of its row,
which the driver encodes in one go."""

LABELS_LIMIT: Final = 64 << 20
"""Bytes of context, tags, metadata and scopes that one write may store with its new memories."""


@dataclass(frozen=True, slots=True)
class Before:
    """A document as it is in the bank. `text`: only read where something is appended to it.

    mentioned: by chunk index, the time that the chunk's memories were made with.
    """

    content_hash: str | None
    text: str | None
    chunks: Sequence[Known]
    mentioned: Mapping[int, datetime | None]
    updated_at: datetime

    def same_as(self, other: Before) -> bool:
        """Is it still what a plan was made from?"""
        return self.content_hash == other.content_hash and self.state == other.state

    @property
    def state(self) -> list[tuple[int, str]]:
        return [(chunk.index, chunk.hash) for chunk in self.chunks]


@dataclass(frozen=True, slots=True)
class Reprocess:
    """Tells a retain to rebuild all memories of a document, changed or not.

    `sections`, by chunk index, are what is known of chunks that are cut as before; `updated_at` is
    the state of the document that they were read from.
    """

    updated_at: datetime
    sections: Mapping[int, ContentSection]


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """One chunk to be. `known`: the index of the stored chunk whose memories it keeps."""

    text: str
    hash: str
    section: ContentSection
    settings: RetainSettings
    known: int | None = None
    same: bool = True
    """Does it have the text that is stored, blanks included?"""


@dataclass(frozen=True, slots=True)
class DocumentPlan:
    """What a write does to one document.

    `found`: the facts of each piece, in the order of `pieces`; those of kept ones are empty, those
    that a model has to read are filled in later.
    """

    document_id: str
    before: Before | None
    text: str
    content_hash: str
    pieces: Sequence[PlannedChunk]
    last: RetainItem
    tags: tuple[str, ...]
    parts: Sequence[int]
    replaces: bool
    attached: Sequence[Attachment] = ()
    found: list[Sequence[ExtractedFact]] = field(default_factory=list)

    @property
    def kept(self) -> dict[int, int]:
        """The new index of each stored chunk that stays, by its old one."""
        return {p.known: i for i, p in enumerate(self.pieces) if p.known is not None}

    @property
    def params(self) -> dict[str, Any]:
        """What a later reprocessing needs; `parts` are the lengths of several items' texts."""
        item, section = self.last, self.last.section
        params = {
            "context": section.context,
            "event_date": iso(section.timestamp),
            "metadata": section.metadata,
            "strategy": item.strategy,
            "entities": [{"text": mention.name} for mention in section.mentions] or None,
            "resolve_entities": None if all(m.resolve for m in section.mentions) else False,
            "parts": self.parts if len(self.parts) > 1 else None,
        }
        return {key: value for key, value in params.items() if value is not None}


def strategy(settings: RetainSettings, name: str | None) -> RetainSettings:
    name = name or settings.retain_default_strategy
    if name is None:
        return settings
    bundle = (settings.retain_strategies or {}).get(name)
    if bundle is None:
        raise InvalidInput(f"the bank has no strategy {name!r}", "strategy")
    return settings.with_overrides(bundle)


def plans(
    items: Sequence[RetainItem],
    stored: Mapping[str, Before],
    settings: RetainSettings,
    anew: Reprocess | None,
    by_model: bool,
) -> list[DocumentPlan]:
    """One plan per document, in the order of the items; with the facts of what no model reads.

    InvalidInput for an unknown strategy, or an append where texts are not kept; TooMuch where the
    documents would take more than one write may store.
    """
    groups: dict[str, list[RetainItem]] = {}
    for item in items:
        groups.setdefault(item.document_id, []).append(item)
    made = [_plan(id, group, stored.get(id), settings, anew) for id, group in groups.items()]
    if (size := sum(map(_labels_size, made))) > LABELS_LIMIT:
        raise TooMuch(
            f"items: context, tags, metadata and scopes are stored with each chunk, {size} bytes in"
            f" all; at most {LABELS_LIMIT} are allowed: shorten them, or send less at once",
            "items",
        )
    for plan in made:
        for piece in plan.pieces:
            own = piece.settings.retain_extraction_mode == "chunks" or not by_model
            read = piece.known is None and own
            plan.found.append(
                as_it_stands(piece.text, piece.section, piece.settings) if read else ()
            )
    return made


def _labels_size(plan: DocumentPlan) -> int:
    """Bytes that the labels of new chunks take."""
    sizes: dict[int, int] = {}
    total = 0
    for piece in plan.pieces:
        if piece.known is None:
            section = piece.section
            if (size := sizes.get(id(section))) is None:
                labels = (section.tags, section.metadata, section.observation_scopes)
                size = len(orjson.dumps(labels)) + len((section.context or "").encode())
                sizes[id(section)] = size
            total += size
    return total


def _plan(
    document_id: str,
    items: Sequence[RetainItem],
    before: Before | None,
    settings: RetainSettings,
    anew: Reprocess | None,
) -> DocumentPlan:
    parts = _parts(items, before, settings)
    if (length := sum(len(text) + 1 for text, _ in parts) - 1) > DOCUMENT_LIMIT:
        raise TooMuch(
            f"content: document {document_id!r} would have {length} characters, at most"
            f" {DOCUMENT_LIMIT} are allowed: begin another document",
            "content",
        )
    text = "\n".join(part for part, _ in parts)
    pieces = _pieces(parts, before, settings, anew)
    if len(pieces) > CHUNKS_LIMIT:
        raise TooMuch(
            f"content: document {document_id!r} would have {len(pieces)} chunks, at most"
            f" {CHUNKS_LIMIT} are allowed: use larger chunks, or begin another document",
            "content",
        )
    tags = tuple(dict.fromkeys(tag for item in items for tag in item.section.tags))
    if len(tags) > TAGS_LIMIT:
        raise TooMuch(
            f"items: document {document_id!r} would have {len(tags)} tags, at most {TAGS_LIMIT}"
            " are allowed: give the items documents of their own (document_id)",
            "items",
        )
    return DocumentPlan(
        document_id,
        before,
        text,
        hashlib.sha256(text.encode()).hexdigest(),
        pieces,
        items[-1],
        tags,
        [len(part) for part, _ in parts],
        replaces=anew is None and not all(item.append for item in items),
        attached=tuple(one for item in items for one in item.attached),
    )


def _parts(
    items: Sequence[RetainItem], before: Before | None, settings: RetainSettings
) -> list[tuple[str, RetainItem]]:
    """The document's text in parts, each with the item that labels it."""
    parts: list[tuple[str, RetainItem]] = []
    for item in items:
        if item.append:
            if not settings.store_document_text:
                raise InvalidInput(
                    "append needs stored document texts, which this bank does not keep",
                    "update_mode",
                )
            old = "\n".join(text for text, _ in parts)
            if not parts and before is not None:
                if before.text is None and before.content_hash is not None:
                    raise InvalidInput(
                        f"the text of document {item.document_id!r} was not kept: nothing can be"
                        " appended to it",
                        "update_mode",
                    )
                old = before.text or ""
            parts = [(appended(old, item.content), item)]
        else:
            parts.append((item.content, item))
    return parts


def _pieces(
    parts: Sequence[tuple[str, RetainItem]],
    before: Before | None,
    settings: RetainSettings,
    anew: Reprocess | None,
) -> list[PlannedChunk]:
    known = list(before.chunks) if before else []
    texts = {chunk.index: chunk.text for chunk in known}
    pieces: list[PlannedChunk] = []
    for number, (text, item) in enumerate(parts):
        own = strategy(settings, item.strategy)
        cutting = layout(
            text,
            own.retain_chunk_size,
            own.retain_structured_chunk_size,
            attached_most=own.retain_max_attachments_per_chunk,
        )
        last = number == len(parts) - 1
        for placed in _placed(cutting, known, anew):
            section, old = item.section, placed.known
            if anew is not None:
                if old is not None:
                    section = anew.sections.get(old, section)
                old = None
            elif old is not None and before is not None and item.dated and not item.append:
                # Another time makes other memories of the same words.
                old = old if before.mentioned.get(old) == section.timestamp else None
            if placed.known is not None:
                known = [chunk for chunk in known if chunk.index > placed.known]
            pieces.append(PlannedChunk(placed.cut.text, placed.hash, section, own, old))
        if not last and pieces:  # the line end between two parts
            pieces[-1] = replace(pieces[-1], text=pieces[-1].text + "\n")
    return [
        replace(piece, same=False)
        if piece.known is not None and texts[piece.known] not in ("", piece.text)
        else piece
        for piece in pieces
    ]


def _placed(
    cutting: TextLayout, known: Sequence[Known], anew: Reprocess | None
) -> list[PlacedChunk]:
    """The chunks of one part of the document, with the stored ones that they are.

    Where everything is rebuilt the text is cut as if nothing were stored; what comes out as it was
    is still known, by its hash.
    """
    if anew is None:
        return place(cutting, known)
    return place(cutting, [Known(chunk.index, "", chunk.hash) for chunk in known])
