"""The items of a retain, read: the one place that checks what an item says.

What comes over HTTP, from an agent's tool, with a file, out of a queued operation or out of a
stored document gets here as it was sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import orjson

from retrieval import zones
from retrieval.errors import InvalidInput, TooMuch
from retrieval.ingest import fields
from retrieval.ingest.attached import kept_file, unfold
from retrieval.ingest.extract.section import ContentSection
from retrieval.ingest.fields import fail
from retrieval.ingest.scopes import check_combinations
from retrieval.store.attachments import Attachment

CONTENT_LIMIT = 5_000_000  # characters of one item
DOCUMENT_LIMIT = 10_000_000  # of one document, with all that was appended to it


@dataclass(frozen=True, slots=True)
class RetainItem:
    """One checked item of a retain."""

    content: str
    document_id: str
    section: ContentSection
    dated: bool
    strategy: str | None = None
    append: bool = False
    named: bool = False
    """Did the caller name the document?"""
    attached: tuple[Attachment, ...] = ()


def parse(
    items: object,
    document_tags: Sequence[str] | None,
    now: datetime,
    most: int,
    longest: int = CONTENT_LIMIT,
) -> list[RetainItem]:
    """The checked items; those without a document id share a new one.

    InvalidInput names the item and the field; TooMuch above `most` items, or `longest` characters
    in one.
    """
    if isinstance(items, str | bytes) or not isinstance(items, Sequence):
        raise InvalidInput("items must be a list of objects", "items")
    if len(items) > most:
        raise TooMuch(f"items: {len(items)}, at most {most} at a time", "items")
    common = fields.tags(document_tags, "document_tags")
    fallback = str(uuid4())
    found = []
    for i, item in enumerate(items):
        where = f"items[{i}]"
        if not isinstance(item, Mapping):
            raise fail(where, "must be an object")
        found.append(_item(item, where, common, fallback, now, longest))
    return found


def placed(items: Sequence[RetainItem], timezone: str | None) -> list[RetainItem]:
    """The items with times that say whose days their words mean: without an offset, and where there
    was none and it is now, those of the time zone; None is UTC."""
    where = zones.zone(timezone)
    found = []
    for i, item in enumerate(items):
        time = item.section.timestamp
        if time is not None:
            time = zones.placed(time, where) if item.dated else zones.seen(time, where)
            fields.time(time, f"items[{i}].timestamp")
            item = replace(item, section=replace(item.section, timestamp=time))
        found.append(item)
    return found


def _item(
    item: Mapping[str, Any],
    where: str,
    common: tuple[str, ...],
    fallback: str,
    now: datetime,
    longest: int,
) -> RetainItem:
    if (given := item.get("content")) is None:
        raise fail(f"{where}.content", "is missing")
    attached: tuple[Attachment, ...] = ()
    if isinstance(given, list):
        given, attached = unfold(given, where, longest)
    content = fields.text(given, f"{where}.content", longest)
    if item.get("kept_file") is not None:
        attached = (*attached, kept_file(item["kept_file"]))
    document_id = fields.document_id(item.get("document_id"), f"{where}.document_id")
    mode = item.get("update_mode")
    if mode not in (None, "replace", "append"):
        raise fail(f"{where}.update_mode", "must be replace or append")
    if mode == "append" and document_id is None:
        path = f"{where}.document_id"
        raise InvalidInput(f"{path}: is needed to append to a document", path, together=True)
    time = item.get("timestamp")
    dated = time is not None and not (isinstance(time, str) and not time.strip())
    resolve = item.get("resolve_entities")
    if not isinstance(resolve, bool | None):
        raise fail(f"{where}.resolve_entities", "must be true or false")
    tags = tuple(dict.fromkeys((*_tags(item.get("tags"), f"{where}.tags"), *common)))
    scopes = fields.scopes(item.get("observation_scopes"), f"{where}.observation_scopes")
    check_combinations(scopes, tags, f"{where}.observation_scopes")
    section = ContentSection(
        timestamp=fields.local_time(time, f"{where}.timestamp") if dated else now,
        context=fields.optional_text(item.get("context"), f"{where}.context", fields.CONTEXT_LIMIT),
        mentions=fields.mentions(item.get("entities"), f"{where}.entities", resolve is not False),
        tags=tags,
        metadata=fields.metadata(item.get("metadata"), f"{where}.metadata"),
        observation_scopes=scopes,
        assumed=not dated,
    )
    strategy = fields.optional_text(item.get("strategy"), f"{where}.strategy", fields.TAG_LIMIT)
    return RetainItem(
        content,
        document_id or fallback,
        section,
        dated,
        strategy,
        mode == "append",
        document_id is not None,
        attached,
    )


def _tags(value: Any, path: str) -> tuple[str, ...]:
    """A list, one tag, or a list written as a JSON string."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(orjson.JSONDecodeError):
            value = orjson.loads(value)
    return fields.tags(value, path)
