"""Contents in blocks: texts, and the images and files between them, each where it stands.

Images and files are kept and shown, not read. In the text a placeholder stands in their place
(retrieval/store/attachments.py).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from retrieval.errors import TooMuch
from retrieval.ingest import fields
from retrieval.ingest.fields import fail
from retrieval.store.attachments import (
    BYTES_MOST,
    PER_ITEM_MOST,
    Attachment,
    Kind,
    placeholder,
)

_TOKEN: Final = r"[A-Za-z0-9!#$&^_.+-]{1,127}"
MEDIA_TYPE: Final = re.compile(rf"{_TOKEN}/{_TOKEN}")
FILENAME_CHARS: Final = 255
_UNSEEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def filename(value: str) -> str | None:
    """The name of a file without folders and what cannot be seen; None where nothing is left."""
    last = re.split(r"[/\\]", _UNSEEN.sub("", value))[-1].strip()
    return last[:FILENAME_CHARS] or None


def unfold(blocks: Sequence[Any], where: str, longest: int) -> tuple[str, tuple[Attachment, ...]]:
    """The text of a content in blocks, and what is attached to it, each once. InvalidInput names
    the block; TooMuch for too many, or one that is too large."""
    texts: list[str] = []
    found: dict[str, Attachment] = {}
    for i, block in enumerate(blocks):
        path = f"{where}.content[{i}]"
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "text":
            texts.append(_text(block.get("text"), f"{path}.text", longest))
        elif kind == "image" or kind == "file":
            one = _attached(kind, block, path)
            found.setdefault(one.id, one)
            texts.append(placeholder(one.id))
            if len(found) > PER_ITEM_MOST:
                raise TooMuch(f"{where}.content: more than {PER_ITEM_MOST} attachments", path)
        else:
            raise fail(path, "must be a block of type text, image or file")
    if found and not any(b.get("type") == "text" and b["text"].strip() for b in blocks):
        raise fail(
            f"{where}.content",
            "has no text: images and files are kept and shown with what is said about them, they"
            " are not read",
        )
    return "\n".join(texts), tuple(found.values())


def _text(value: Any, path: str, longest: int) -> str:
    if not isinstance(value, str):
        raise fail(path, "must be a string")
    return fields.short(value, path, longest)


def _attached(kind: Kind, block: Mapping[str, Any], path: str) -> Attachment:
    source = block.get("source")
    if not isinstance(source, Mapping) or source.get("type", "base64") != "base64":
        raise fail(f"{path}.source", "must be {type: base64, media_type, data}")
    media_type = source.get("media_type")
    if not isinstance(media_type, str) or not MEDIA_TYPE.fullmatch(media_type):
        raise fail(f"{path}.source.media_type", "must be a media type such as image/png")
    media_type = media_type.lower()
    if kind == "image" and not media_type.startswith("image/"):
        raise fail(f"{path}.source.media_type", "must be that of an image; else send a file block")
    data = _decoded(source.get("data"), f"{path}.source.data")
    name = block.get("filename") if kind == "file" else None
    if name is not None and not isinstance(name, str):
        raise fail(f"{path}.filename", "must be a text")
    return Attachment(
        kind,
        media_type,
        hashlib.sha256(data).digest(),
        len(data),
        None if name is None else filename(name),
        data,
    )


def _decoded(value: Any, path: str) -> bytes:
    if not isinstance(value, str) or not value:
        raise fail(path, "must be bytes in base64")
    if len(value) > 4 * BYTES_MOST // 3 + 1024:
        raise TooMuch(f"{path}: more than {BYTES_MOST >> 20} MB", path)
    try:
        data = base64.b64decode(value.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError):
        raise fail(path, "is no base64, without a data: prefix and line ends") from None
    if len(data) > BYTES_MOST:
        raise TooMuch(f"{path}: {len(data)} bytes, at most {BYTES_MOST >> 20} MB", path)
    return data


def kept_file(value: Any) -> Attachment:
    """An uploaded file whose bytes lie with the operation: see `told`."""
    return Attachment(
        "file", value["media_type"], bytes.fromhex(value["hash"]), value["bytes"], value["name"]
    )


def told(name: str, media_type: str, digest: bytes, size: int) -> dict[str, Any]:
    """What an item says of an uploaded file that is to be kept."""
    return {
        "name": filename(name),
        "media_type": media_type.lower() if MEDIA_TYPE.fullmatch(media_type)
        else "application/octet-stream",
        "hash": digest.hex(),
        "bytes": size,
    }  # fmt: skip
