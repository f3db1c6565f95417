"""What a model wrote, as JSON: leniently, but never more than it said.

Models wrap JSON in fences, thoughts and prose, use single quotes, leave commas. An answer that was
cut is another matter: a whole one cannot be made of it, so callers never read those.
"""

from __future__ import annotations

import re
from typing import Any

import json_repair
import orjson

REPAIRED_BYTES = 1 << 20
"""Longer texts are not repaired: it takes long."""

DEPTH = 32
"""Deeper values are no answer to anything that is asked here."""

_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```[\w-]*[ \t]*\r?\n(.*?)(?:\r?\n```|\Z)", re.DOTALL)


class NoJson(ValueError):
    """There is no JSON of the wanted kind in a text; str() says what is wrong, for the model."""


def thoughtless(text: str) -> str:
    """The text without what the model thought aloud."""
    return _THOUGHTS.sub("", text).strip()


def json_object(text: str) -> dict[str, Any]:
    """The object that `text` holds. NoJson where there is none, or it is nested too deep."""
    found = _value(thoughtless(text))
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], dict):
        found = found[0]
    if not isinstance(found, dict):
        raise NoJson("the answer is not a JSON object")
    if _deeper(found, DEPTH):
        raise NoJson(f"the answer is nested deeper than {DEPTH} levels")
    return found


def _value(text: str) -> Any:
    for candidate in _candidates(text):
        try:
            return orjson.loads(candidate)
        except orjson.JSONDecodeError:
            continue
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    if start < 0:
        raise NoJson("there is no JSON object in the answer")
    rest = text[start:]
    if len(rest) > REPAIRED_BYTES:
        raise NoJson("the answer is not valid JSON, and too long to repair")
    if re.search(rf"(?:[\[{{]\s*){{{DEPTH * 4}}}", rest):
        raise NoJson(f"the answer is nested deeper than {DEPTH} levels")
    try:
        return json_repair.loads(rest)
    except (RecursionError, ValueError):
        raise NoJson("the answer is not valid JSON") from None


def _candidates(text: str) -> list[str]:
    """Where the JSON may be, best guess first."""
    found = [text]
    if fenced := [match[1] for match in _FENCE.finditer(text)]:
        found.append(max(fenced, key=len))
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        found.append(text[start : end + 1])
    return found


def _deeper(value: Any, depth: int) -> bool:
    level = [value]
    while level and depth >= 0:
        depth -= 1
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def text_of(value: Any, limit: int) -> str:
    """A string that says something, at most `limit` characters; models write "N/A" for none.

    Control characters and lone surrogates are taken out.
    """
    if not isinstance(value, str):
        return ""
    value = value.encode("utf-8", "ignore").decode()
    value = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "", value).strip()
    if value.casefold().strip(".") in ("", "n/a", "none", "null", "nil", "unknown", "-"):
        return ""
    return str(value[:limit])


def list_of(value: Any) -> list[Any]:
    """The items of a list; one item that was not put into a list is a list of it; else none."""
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, str | dict) and value else []
