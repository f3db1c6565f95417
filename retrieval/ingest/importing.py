"""Importing structured memories: facts that need no extraction.

An item is an object with `text` and, all optional:

key             the caller's own id, unique in the bank; the same key again replaces the memory
type            world (default), experience or observation
context         a label
occurred_start, occurred_end    when it happened
mentioned_at    when it was said. Absent: `occurred_start`, else now. null or "unset": never
entities        names, or {text}; without any, names are recognised if the bank is set to
tags, metadata  as in retain; other scalars become strings, nulls are dropped
document_id     the document it belongs to; items keep their order inside it
proof_count     of an observation; absent: the number of its live sources
sources         keys (or ids) of the memories an observation was made from
links           [{to: key or id, type, weight}]; types as in LinkType, weight 0 to 1 (1)

All items are stored or none. Keys may name items of the same call, before or after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from retrieval.errors import InvalidInput, NotFound, TooMuch
from retrieval.ingest import fields
from retrieval.ingest.collecting import held_off
from retrieval.ingest.context import WriteContext
from retrieval.ingest.entities.naming import names
from retrieval.ingest.facts import Fact, Link, Mention, Ref, new_ids
from retrieval.ingest.fields import fail, too_much, with_key
from retrieval.ingest.write.enrich import prepare
from retrieval.ingest.write.transaction import Change, write
from retrieval.settings import RetainSettings
from retrieval.store import banks
from retrieval.types import FactType, LinkType

_FIELDS = frozenset(
    ("key", "text", "type", "context", "occurred_start", "occurred_end", "mentioned_at",
     "entities", "tags", "metadata", "document_id", "proof_count", "sources", "links")
)  # fmt: skip
IMPORT_LINKS_LIMIT = 100_000
IMPORT_MENTIONS_LIMIT = 100_000
IMPORT_SOURCES_LIMIT = 100_000
"""Of all memories of one call together."""

_LINK_FIELDS = frozenset(("to", "type", "weight"))
_LINK_TYPES = {kind.wire: kind for kind in LinkType}


async def import_memories(
    deps: WriteContext, tenant: str, bank_id: str, memories: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Stores the items; {"imported": n, "ids": {key: uuid}}, keyed by place ("0") without a key.

    The bank is made if there is none. InvalidInput names the item and the field; then nothing
    has changed.
    """
    banks.check_id(bank_id)
    with held_off(len(memories)):
        return await _import(deps, tenant, bank_id, memories)


async def _import(
    deps: WriteContext, tenant: str, bank_id: str, memories: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    facts, links = await deps.run(parse, memories, deps.settings, deps.clock())
    if not facts:
        return {"imported": 0, "ids": {}}
    settings = await settings_of(deps, tenant, bank_id)
    if settings.retain_recognise_names:
        given = [item.get("entities") is not None for item in memories]
        facts = await deps.run(_with_names, facts, given)
    prepared = await prepare(deps, settings, facts, tenant)

    async def work(change: Change) -> list[UUID]:
        return await change.add(prepared, links)

    ids = await write(deps, tenant, bank_id, work, create=True)
    return {
        "imported": len(ids),
        "ids": {
            str(i) if fact.key is None else fact.key: str(id)
            for i, (fact, id) in enumerate(zip(facts, ids, strict=True))
        },
    }


def _with_names(facts: Sequence[Fact], given: Sequence[bool]) -> list[Fact]:
    """The facts with the names in their texts, where none were given."""
    return [
        fact
        if known or fact.fact_type is FactType.OBSERVATION
        else replace(fact, mentions=tuple(map(Mention, names(fact.text))))
        for fact, known in zip(facts, given, strict=True)
    ]


async def settings_of(deps: WriteContext, tenant: str, bank_id: str) -> RetainSettings:
    """The bank's own retain settings; the deployment's where there is no such bank yet."""
    try:
        head = await banks.head(deps.pool, tenant, bank_id)
    except NotFound:
        return deps.settings
    return deps.settings.with_overrides(head.config)


def parse(
    memories: object, settings: RetainSettings, now: datetime
) -> tuple[list[Fact], list[Link]]:
    """The checked items as facts and links; InvalidInput at the first thing that is wrong."""
    if isinstance(memories, str | bytes) or not isinstance(memories, Sequence):
        raise InvalidInput("memories must be a list of objects", "memories")
    if len(memories) > settings.import_max_items:
        raise TooMuch(
            f"memories: {len(memories)} items, at most {settings.import_max_items} at a time",
            "memories",
        )
    facts: list[Fact] = []
    links: list[Link] = []
    seen: dict[str, int] = {}
    mentions = sources = 0
    for i, (item, id) in enumerate(zip(memories, new_ids(len(memories)), strict=True)):
        where = f"memories[{i}]"
        if not isinstance(item, Mapping):
            raise fail(where, "must be an object")
        key = fields.identifier(item.get("key"), f"{where}.key")
        try:
            if key is not None:
                if key in seen:
                    raise fail(f"{where}.key", f"is the key of memories[{seen[key]}] too")
                seen[key] = i
            fact = _fact(item, id, key, where, now)
            links += _links(item.get("links"), id if key is None else key, f"{where}.links")
            facts.append(fact)
            _within("links", len(links), IMPORT_LINKS_LIMIT)
            mentions += len(fact.mentions)
            _within("entities", mentions, IMPORT_MENTIONS_LIMIT)
            sources += len(fact.sources)
            _within("sources", sources, IMPORT_SOURCES_LIMIT)
        except InvalidInput as error:
            raise with_key(error, key) from None
    return facts, links


def _within(what: str, count: int, most: int) -> None:
    if count > most:
        raise TooMuch(
            f"memories: more than {most} {what} in all: import in several calls", "memories"
        )


def _fact(item: Mapping[str, Any], id: UUID, key: str | None, where: str, now: datetime) -> Fact:
    if unknown := item.keys() - _FIELDS:
        name = min(map(str, unknown))
        raise fail(f"{where}.{name}", f"is not a field; known fields: {', '.join(sorted(_FIELDS))}")
    if "text" not in item:
        raise fail(f"{where}.text", "is missing")
    start = fields.time(item.get("occurred_start"), f"{where}.occurred_start")
    end = fields.time(item.get("occurred_end"), f"{where}.occurred_end")
    if start is not None and end is not None and end < start:
        raise fail(f"{where}.occurred_end", "is before occurred_start")
    if "mentioned_at" in item:
        mentioned = fields.time(item["mentioned_at"], f"{where}.mentioned_at")
    else:
        mentioned = start or now
    fact_type = _fact_type(item.get("type"), f"{where}.type")
    sources = _sources(item.get("sources"), f"{where}.sources")
    if sources and fact_type is not FactType.OBSERVATION:
        raise fail(f"{where}.sources", "only an observation has sources")
    return Fact(
        id=id,
        text=fields.text(item["text"], f"{where}.text"),
        fact_type=fact_type,
        key=key,
        context=fields.optional_text(item.get("context"), f"{where}.context", fields.CONTEXT_LIMIT),
        occurred_start=start,
        occurred_end=end,
        mentioned_at=mentioned,
        document_id=fields.document_id(item.get("document_id"), f"{where}.document_id"),
        tags=fields.tags(item.get("tags"), f"{where}.tags"),
        metadata=fields.metadata(item.get("metadata"), f"{where}.metadata"),
        proof_count=fields.whole(item.get("proof_count"), f"{where}.proof_count", 0),
        sources=sources,
        mentions=fields.mentions(item.get("entities"), f"{where}.entities"),
        where=where,
    )


def _fact_type(value: Any, path: str) -> FactType:
    if value is None:
        return FactType.WORLD
    if not isinstance(value, str):
        raise fail(path, "must be world, experience or observation")
    try:
        return FactType.of(value)
    except ValueError as error:
        raise fail(path, str(error)) from None


def _ref(value: Any, path: str) -> Ref:
    """A key or an id: which one, the bank knows."""
    ref = fields.identifier(value, path)
    if ref is None:
        raise fail(path, "must be a key")
    return ref


def _sources(value: Any, path: str) -> tuple[Ref, ...]:
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise fail(path, "must be a list of keys")
    if len(value) > fields.SOURCES_LIMIT:
        raise too_much(
            path, f"has {len(value)} entries, at most {fields.SOURCES_LIMIT} are allowed"
        )
    return tuple(_ref(entry, f"{path}[{i}]") for i, entry in enumerate(value))


def _links(value: Any, source: Ref, path: str) -> list[Link]:
    """The links of one item; `source` is its key if it has one: its id may be a stored one's."""
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise fail(path, "must be a list of objects")
    if len(value) > fields.LINKS_LIMIT:
        raise too_much(path, f"has {len(value)} entries, at most {fields.LINKS_LIMIT} are allowed")
    links = []
    for i, link in enumerate(value):
        where = f"{path}[{i}]"
        if not isinstance(link, Mapping) or "to" not in link:
            raise fail(where, "must be an object with `to` and optionally `type` and `weight`")
        if unknown := link.keys() - _LINK_FIELDS:
            raise fail(f"{where}.{min(map(str, unknown))}", "is not a field of a link")
        kind = link.get("type")
        if not isinstance(kind, str) or kind not in _LINK_TYPES:
            raise fail(f"{where}.type", "must be one of " + ", ".join(_LINK_TYPES))
        links.append(
            Link(
                source,
                _ref(link["to"], f"{where}.to"),
                _LINK_TYPES[kind],
                fields.weight(link.get("weight"), f"{where}.weight"),
                f"{where}.to",
            )
        )
    return links
