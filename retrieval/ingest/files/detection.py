"""What a file is, by its content: names and declared types are not believed.

Only looks at the first and the last bytes and opens nothing, so that a hostile file costs nothing
here. What it finds is tried in the process that converts.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Final, Literal, TypeAlias

from retrieval.errors import InvalidInput
from retrieval.ingest.files import text

Kind: TypeAlias = Literal["text", "html", "pdf", "docx", "pptx", "xlsx"]

LOOKED_AT: Final = 64 << 10
"""Bytes of the beginning, and of the end, that are looked at."""

NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "pdf": ("markitdown", "pdfminer"),
    "docx": ("markitdown", "mammoth"),
    "pptx": ("markitdown", "pptx"),
    "xlsx": ("markitdown", "openpyxl", "pandas"),
}
"""The modules of the extra `files` that each kind is converted with."""


class Unread(InvalidInput):
    """A kind of file that cannot be read here; the sentence says what is missing."""


_IMAGE: Final = "is an image: reading images needs text recognition, which is not built here"
_AUDIO: Final = "is a recording: reading it needs transcription, which is not built here"
_PACKED: Final = "is a packed archive: unpack it and send its files"
_PROGRAM: Final = "is a program or a database, not a text"
_OLD: Final = (
    "is an old or a protected Office file: save it without a password as docx, pptx or xlsx"
)

_MAGIC: Final = (
    (
        rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|8BPS|II\*\x00|MM\x00\*|\x00\x00\x01\x00[\x01-\x20]\x00",
        _IMAGE,
    ),
    (rb"RIFF....WEBP|....ftyp(?:heic|heix|mif1|avif)|BM....\x00\x00\x00\x00", _IMAGE),
    (rb"ID3[\x02-\x04]|\xff[\xf2\xf3\xfb]|OggS|fLaC|RIFF....WAVE|FORM....AIF|#!AMR", _AUDIO),
    (rb"....ftyp|\x1aE\xdf\xa3|RIFF....AVI |FLV\x01|\x00\x00\x01[\xba\xb3]", _AUDIO),
    (rb"\x1f\x8b|BZh[1-9]1AY|\xfd7zXZ\x00|7z\xbc\xaf\x27|Rar!\x1a|\x28\xb5\x2f\xfd", _PACKED),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _OLD),
    (rb"\x7fELF|\xca\xfe\xba\xbe|\xcf\xfa\xed\xfe|\x00asm|SQLite format 3\x00", _PROGRAM),
    (rb"MZ(?=[^\x00]{0,200}\x00)", _PROGRAM),
    (rb"\{\\rtf", "is rich text (RTF): save it as docx or as plain text"),
    (rb"%!PS", "is PostScript: save it as PDF"),
)
_KNOWN: Final = [(re.compile(magic, re.DOTALL), why) for magic, why in _MAGIC]
_OFFICE: Final = (
    (re.compile(rb"word/document\d*\.xml"), "docx"),
    (re.compile(rb"ppt/presentation\d*\.xml"), "pptx"),
    (re.compile(rb"xl/workbook\d*\.xml"), "xlsx"),
)
_HTML: Final = re.compile(
    r"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)


def detect(head: bytes, tail: bytes) -> Kind:
    """The kind of a file that begins with `head` and ends with `tail`. Unread says why not."""
    if not head.strip(b"\0 \t\r\n"):
        raise Unread("is empty")
    if b"%PDF-" in head[:1024]:
        return "pdf"
    if head.startswith((b"PK\3\4", b"PK\5\6")):
        return _zipped(head, tail)
    if head[257:262] == b"ustar":
        raise Unread(_PACKED)
    for magic, why in _KNOWN:
        if magic.match(head):
            raise Unread(why)
    try:
        beginning = text.decoded(head[:LOOKED_AT], whole=False)
    except text.NoText:
        raise Unread("is no text, and no kind of file that is known here") from None
    return "html" if _HTML.match(beginning) else "text"


def _zipped(head: bytes, tail: bytes) -> Kind:
    for name, kind in _OFFICE:
        if name.search(tail) or name.search(head):
            return kind  # type: ignore[return-value]
    raise Unread(_PACKED)


def missing(kind: Kind) -> bool:
    """Whether the extra `files` would have to be installed for this kind."""
    return any(find_spec(name) is None for name in NEEDS.get(kind, ()))
