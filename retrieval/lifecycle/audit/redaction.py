"""What the log may keep of a request and its answer."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Any, Final, Literal, TypeAlias

import orjson

Bodies: TypeAlias = Literal["none", "redacted", "full"]

BODY_BYTES: Final = 32 * 2**10
"""Of longer ones only the length and a hash are kept."""
_HASH_CHARS = 16
_SECRET = re.compile(
    r"secret|password|passwd|token$|api_?key|authorization|headers|credential", re.I
)
_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.I)
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?)?")
_LEVELS = 32


def kept(content: bytes, how: Bodies, key: bytes) -> dict[str, Any] | None:
    """A JSON body as the log keeps it; None where it keeps none, or there was none."""
    if how == "none" or not content:
        return None
    if len(content) > BODY_BYTES:
        return {"bytes": len(content), "hash": _hash(content, key)}
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {"bytes": len(content), "hash": _hash(content, key)}
    shown = value_of(value, how, key)
    return shown if isinstance(shown, dict) else {"value": shown}


def value_of(value: Any, how: Bodies, key: bytes, level: int = 0) -> Any:
    """A value without secrets and, redacted, with length and keyed hash in the place of a text:
    equal texts stay equal, and nobody without the key can try out what they were."""
    if level > _LEVELS:
        return None
    if isinstance(value, dict):
        return {
            _name(name, how, key): value_of(one, how, key, level + 1)
            for name, one in value.items()
            if not _SECRET.search(name)
        }
    if isinstance(value, list):
        return [value_of(one, how, key, level + 1) for one in value]
    if not isinstance(value, str) or how == "full" or _plain(value):
        return value
    return {"chars": len(value), "hash": _hash(value.encode(), key)}


def _name(name: str, how: Bodies, key: bytes) -> str:
    """Names of fields are ours; long or odd ones are a caller's text."""
    if how == "full" or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name):
        return name
    return f"hash:{_hash(name.encode(), key)}"


def _plain(text: str) -> bool:
    return len(text) <= 40 and bool(_ID.fullmatch(text) or _TIME.fullmatch(text))


def _hash(content: bytes, key: bytes) -> str:
    return hmac.new(key, content, hashlib.sha256).hexdigest()[:_HASH_CHARS]
