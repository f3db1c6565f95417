"""Checking what callers hand in. Every check raises InvalidInput with the field's path.

Text is cleaned on the way (no NUL characters); times without an offset are UTC.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from retrieval.errors import InvalidInput, TooMuch
from retrieval.ingest.entities.mentions import NAME_LIMIT, distinct
from retrieval.ingest.facts import Mention
from retrieval.store.edge import clean, parse_local, parse_time
from retrieval.store.metadata import cut_off
from retrieval.text import folding

TEXT_LIMIT = 200_000  # characters of one memory
CONTEXT_LIMIT = 20_000
ID_LIMIT = 1_024  # bytes of a key or document id: they are indexed
TAG_LIMIT = 512
TAGS_LIMIT = 500
TAGS_SIZE_LIMIT = 32_768  # characters of all tags of a memory
ENTITIES_LIMIT = 100  # each pair of them is a neighbourhood
METADATA_LIMIT = 500
METADATA_VALUE_LIMIT = 20_000
METADATA_SIZE_LIMIT = 131_072  # characters of all keys and values of a memory
SCOPES_LIMIT = 100
LINKS_LIMIT = 2_000
SOURCES_LIMIT = 10_000
SCOPES = ("per_tag", "combined", "all_combinations", "shared")


def fail(path: str, problem: str) -> InvalidInput:
    return InvalidInput(f"{path}: {problem}", path)


def too_much(path: str, problem: str) -> TooMuch:
    return TooMuch(f"{path}: {problem}", path)


def with_key(error: InvalidInput, key: str | None) -> InvalidInput:
    """The error with the key of the item it is about."""
    return error if key is None else type(error)(f"{error} (key {key!r})", error.field)


def text(value: Any, path: str, limit: int = TEXT_LIMIT) -> str:
    """A string with something in it besides white space."""
    if not isinstance(value, str):
        raise fail(path, "must be a string")
    found = short(clean(value), path, limit)
    if not found.strip():
        raise fail(path, "must not be blank")
    return found


def optional_text(value: Any, path: str, limit: int) -> str | None:
    """A string; null and blank are None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise fail(path, "must be a string or null")
    found = short(clean(value), path, limit)
    return found if found.strip() else None


def short(value: str, path: str, limit: int) -> str:
    """The text; TooMuch where it is longer than `limit`."""
    if len(value) > limit:
        raise too_much(path, f"has {len(value)} characters, at most {limit} are allowed")
    return value


def identifier(value: Any, path: str) -> str | None:
    """A caller's own id, as given; null is None."""
    if value is None:
        return None
    if not isinstance(value, str) or not (found := clean(value)).strip():
        raise fail(path, "must be a string that is not empty, or null")
    if len(found.encode()) > ID_LIMIT:
        raise fail(path, f"is longer than {ID_LIMIT} bytes")
    return found


def document_id(value: Any, path: str) -> str | None:
    """As `identifier`; not `.` or `..`, which clients take out of an address: nobody could read or
    delete such a document."""
    found = identifier(value, path)
    if found in (".", ".."):
        raise fail(path, "must not be `.` or `..`")
    return found


def time(value: Any, path: str) -> datetime | None:
    """A time in UTC; null, "" and "unset" are None."""
    found = local_time(value, path)
    return None if found is None else parse_time(found, path)


def local_time(value: Any, path: str) -> datetime | None:
    """As `time`, with the offset that it was written with, if any."""
    if value is None:
        return None
    if isinstance(value, str) and value.strip().lower() in ("", "unset"):
        return None
    if not isinstance(value, str | datetime):
        raise fail(path, "must be an ISO 8601 time such as 2024-05-31T12:00:00Z, or null")
    return parse_local(value, path)


def tags(value: Any, path: str) -> tuple[str, ...]:
    """Distinct tags in their order; a plain string is one tag."""
    if value is None:
        return ()
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Sequence):
        raise fail(path, "must be a list of strings")
    if len(value) > TAGS_LIMIT:
        raise too_much(path, f"has {len(value)} tags, at most {TAGS_LIMIT} are allowed")
    found: dict[str, None] = {}
    for i, tag in enumerate(value):
        if not isinstance(tag, str) or not (tag := clean(tag)).strip():
            raise fail(f"{path}[{i}]", "must be a string that is not empty")
        if len(tag) > TAG_LIMIT:
            raise fail(f"{path}[{i}]", f"is longer than {TAG_LIMIT} characters")
        found[tag] = None
    _sized(path, sum(map(len, found)), TAGS_SIZE_LIMIT)
    return tuple(found)


def _sized(path: str, size: int, limit: int) -> None:
    if size > limit:
        raise too_much(path, f"has {size} characters in all, at most {limit} are allowed")


def metadata(value: Any, path: str) -> dict[str, str] | None:
    """String values as they are, other scalars as JSON writes them; nulls are dropped."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise fail(path, "must be an object")
    if len(value) > METADATA_LIMIT:
        raise too_much(path, f"has {len(value)} keys, at most {METADATA_LIMIT} are allowed")
    found = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise fail(path, "must have strings as keys")
        if item is None:
            continue
        if isinstance(item, bool):
            item = "true" if item else "false"
        elif isinstance(item, int | float):
            if cut_off(item):
                raise fail(
                    f"{path}.{key}", "has more digits than a number keeps: give it as a text"
                )
            item = str(item)
        elif not isinstance(item, str):
            raise fail(f"{path}.{key}", "must be a string, a number, true or false")
        if len(item) > METADATA_VALUE_LIMIT:
            raise fail(f"{path}.{key}", f"is longer than {METADATA_VALUE_LIMIT} characters")
        found[clean(key)] = clean(item)
    _sized(path, sum(len(key) + len(item) for key, item in found.items()), METADATA_SIZE_LIMIT)
    return found or None


def mentions(value: Any, path: str, resolve: bool = True) -> tuple[Mention, ...]:
    """Names, or {text, type} objects; tidied, each once."""
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise fail(path, "must be a list of names")
    if len(value) > ENTITIES_LIMIT:
        raise too_much(path, f"has {len(value)} entities, at most {ENTITIES_LIMIT} are allowed")
    found = []
    for i, entry in enumerate(value):
        name = entry.get("text", entry.get("name")) if isinstance(entry, Mapping) else entry
        if not isinstance(name, str):
            raise fail(f"{path}[{i}]", 'must be a name or {"text": name}')
        name = clean(name)
        if len(name) > NAME_LIMIT or len(folding.key(name)) > NAME_LIMIT:
            where = f"{path}[{i}].text" if isinstance(entry, Mapping) else f"{path}[{i}]"
            raise fail(where, f"is longer than {NAME_LIMIT} characters")
        found.append(Mention(name, resolve))
    return distinct(found)


def whole(value: Any, path: str, low: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**31:
        raise fail(path, f"must be a whole number from {low}, or null")
    return value


def weight(value: Any, path: str) -> float:
    """0 to 1; null is 1."""
    if value is None:
        return 1.0
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not 0 <= value <= 1:
        raise fail(path, "must be a number from 0 to 1")
    return float(value)


def scopes(value: Any, path: str) -> Any:
    """How the memory's observations are scoped: a name, or lists of tags."""
    if value is None or (isinstance(value, str) and value in SCOPES):
        return value
    if not isinstance(value, list):
        raise fail(path, f"must be one of {', '.join(SCOPES)}, or a list of lists of tags")
    if len(value) > SCOPES_LIMIT:
        raise too_much(path, f"has {len(value)} lists, at most {SCOPES_LIMIT} are allowed")
    found = []
    for i, group in enumerate(value):
        if not isinstance(group, list):
            raise fail(f"{path}[{i}]", "must be a list of tags")
        found.append(list(tags(group, f"{path}[{i}]")))
    _sized(path, sum(len(tag) for group in found for tag in group), TAGS_SIZE_LIMIT)
    return found
