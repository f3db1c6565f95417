"""The archive "fourfold.bank": what its parts are called, what its manifest says, what is too much.

A ZIP64 of parts. Rows are lines of JSON, sorted; arrays are little-endian. The manifest comes last
and names every part with its rows, bytes and SHA-256. Members and fields that are not known are
ignored, so that a later program may add some.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from retrieval.errors import InvalidInput

FORMAT: Final = "fourfold.bank"
VERSION: Final = 1
SCHEMA_VERSION: Final = 1001
"""The peer reads archives of schema_version 1 alone, and so refuses ours by its number."""
PEER_SCHEMA: Final = 1
MANIFEST: Final = "manifest.json"
BANK: Final = "bank.json"
BLOBS: Final = "blobs/"

PART_BYTES: Final = 4 << 20
"""Unpacked bytes of a part that we write, one line more at most."""
LINE_BYTES: Final = 16 << 20
MEMBERS_MOST: Final = 100_000
UNPACKED_MOST: Final = 32 << 30
EXPANSION_MOST: Final = 20
"""Unpacked bytes per packed byte of a whole archive; what we write stays below."""
SMALL_BYTES: Final = 1 << 20
"""No archive that unpacks to less is a bomb."""
MANIFEST_BYTES: Final = 32 << 20

DATA = (
    "documents", "chunks", "blobs", "attachments", "entities", "cooccurrences", "memories",
    "document-history",
)  # fmt: skip
"""Kinds of parts with lines that include_data brings; with memories come vectors and edges."""
CONFIG = ("mental-models", "knowledge", "directives", "webhooks")
"""Those of include_bank_config."""
HISTORY = ("history/operations", "history/llm-requests", "history/audit")
"""Those of include_history."""


class BadArchive(InvalidInput):
    """An archive that cannot be read, or not by this program; the message says why in one sentence
    and quotes no memory."""


@dataclass(frozen=True, slots=True)
class ArchiveContents:
    """What travels: the memories and what is behind them, settings and what is kept with them, and
    what was done."""

    data: bool = True
    bank_config: bool = True
    history: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        return (
            *(DATA if self.data else ()),
            *(CONFIG if self.bank_config else ()),
            *(HISTORY if self.history else ()),
        )

    def narrowed(self, other: ArchiveContents) -> ArchiveContents:
        return ArchiveContents(
            self.data and other.data,
            self.bank_config and other.bank_config,
            self.history and other.history,
        )


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """One part: bytes and hash of what it unpacks to. `details`: what only its kind has."""

    name: str
    rows: int
    bytes: int
    sha256: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`memories` of memories-00000.ndjson, `blobs` of blobs/<sha256>."""
        if self.name.startswith(BLOBS):
            return "blobs"
        return self.name.rpartition("-")[0] if "-" in self.name else self.name

    def wire(self) -> dict[str, Any]:
        found = asdict(self)
        details = found.pop("details")
        return {**found, **details}


_PART = ("name", "rows", "bytes", "sha256")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive says of itself. `counts`: rows by kind. `vectors`: {vector_set, dimension} or
    None."""

    bank_id: str
    exported_at: str
    bank_version: int
    producer: str
    include: ArchiveContents
    documents_only: bool
    parts: Sequence[ArchivePart]
    counts: Mapping[str, int]
    vectors: Mapping[str, Any] | None = None
    stored_bytes: int = 0
    aliases: Sequence[str] = ()
    version: int = VERSION

    def wire(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": self.version,
            "min_reader": 1,
            "schema_version": SCHEMA_VERSION,
            "producer": self.producer,
            "bank_id": self.bank_id,
            "exported_at": self.exported_at,
            "bank_version": self.bank_version,
            "flags": {
                "include_data": self.include.data,
                "include_bank_config": self.include.bank_config,
                "include_history": self.include.history,
                "documents_only": self.documents_only,
            },
            "counts": dict(self.counts),
            "vectors": None if self.vectors is None else dict(self.vectors),
            "stored_bytes": self.stored_bytes,
            "aliases": list(self.aliases),
            "parts": [part.wire() for part in self.parts],
            "digest": digest(self.parts),
        }

    def of(self, kind: str) -> list[ArchivePart]:
        """The parts of one kind, in their order."""
        return sorted((p for p in self.parts if p.kind == kind), key=lambda part: part.name)


def digest(parts: Iterable[ArchivePart]) -> str:
    """One hash for all that an archive holds, whatever the order of its parts."""
    return hashlib.sha256("".join(sorted(part.sha256 for part in parts)).encode()).hexdigest()


def parsed(content: Any) -> Manifest:
    """A manifest of ours; BadArchive for one that this program cannot read, or not whole."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadArchive("the archive's manifest is neither of format fourfold.bank nor the peer's")
    needs = content.get("min_reader")
    if not isinstance(needs, int) or isinstance(needs, bool) or needs < 1:
        raise BadArchive("the archive's manifest is not whole, or holds wrong values")
    if needs > VERSION:
        raise BadArchive(
            f"the archive has version {str(content.get('version'))[:40]} and needs a reader of"
            f" version {str(needs)[:40]}; this program reads version {VERSION}"
        )
    try:
        flags = content["flags"]
        found = Manifest(
            bank_id=_text(content["bank_id"]),
            exported_at=_text(content["exported_at"]),
            bank_version=_whole(content["bank_version"]),
            producer=_text(content.get("producer", "")),
            include=ArchiveContents(
                *(_flag(flags[f"include_{name}"]) for name in ("data", "bank_config", "history"))
            ),
            documents_only=_flag(flags.get("documents_only", False)),
            parts=[_part(each) for each in content["parts"]],
            counts={_text(k): _whole(v) for k, v in content["counts"].items()},
            vectors=content.get("vectors"),
            stored_bytes=_whole(content.get("stored_bytes", 0)),
            version=_whole(content["version"]),
        )
        if found.vectors is not None:
            _text(found.vectors["vector_set"])
            _whole(found.vectors["dimension"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadArchive("the archive's manifest is not whole, or holds wrong values") from None
    if content.get("digest") != digest(found.parts):
        raise BadArchive("the archive's manifest does not agree with itself: its digest is another")
    if len({part.name for part in found.parts}) != len(found.parts):
        raise BadArchive("the archive's manifest names a part twice")
    return found


def _part(content: Any) -> ArchivePart:
    details = {k: v for k, v in content.items() if k not in _PART}
    return ArchivePart(
        _text(content["name"]),
        _whole(content["rows"]),
        _whole(content["bytes"]),
        _text(content["sha256"]),
        details,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value
