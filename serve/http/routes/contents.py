"""What a bank holds at a glance, and what changed in it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query
from starlette.responses import Response

from retrieval.errors import InvalidInput, NotFound
from retrieval.keyword.analysers import analyser_of
from retrieval.store import banks, changes, entities, glance, openings
from retrieval.store.edge import as_uuid, iso, parse_time
from retrieval.store.heads import vector_set
from retrieval.types import EPOCH, FactType, microseconds
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Given, Reader, Services, looking
from serve.http.wire.tags import TagList

router = Router(tags=["inspector"])


@router.get(f"{BANK}/overview", operation_id="bank_overview")
async def overview(bank_id: str, tenant: Reader, services: Given) -> Response:
    """What the bank holds in numbers, and whether this server's models are those it was made
    with."""
    head = await banks.head(services.pool, tenant, bank_id)
    held = await _look(services, "contents", tenant, bank_id)
    counts = await glance.counts(services.pool, head.bank)
    analyser = analyser_of(services.settings.retain, head).version
    embedder = services.embedder
    ours = None if embedder is None else vector_set(embedder.model_id, embedder.dimension)
    return json_response(
        {
            "bank_id": bank_id,
            **held,
            "first": _time(held["first"]),
            "last": _time(held["last"]),
            "top_entities": [
                {**entity, "id": str(UUID(hex=entity["id"]))} for entity in held["top_entities"]
            ],
            **counts,
            "vector_set": head.vector_set,
            "analyser": head.analyser,
            "matches_server": {
                "vectors": None if ours is None else head.vector_set in ("", ours),
                "keyword": head.analyser in ("", analyser),
            },
        }
    )


@router.get(f"{BANK}/timeline", operation_id="bank_timeline")
async def timeline(
    bank_id: str,
    tenant: Reader,
    services: Given,
    field: Literal["event", "occurred_start", "mentioned_at", "created_at"] = "event",
    start: Annotated[str | None, Query(alias="from")] = None,
    end: Annotated[str | None, Query(alias="to")] = None,
    buckets: Annotated[int, Query(ge=1, le=200)] = 100,
    types: Annotated[list[str] | None, Query(max_length=16)] = None,
    tags: TagList = None,
) -> Response:
    """How many memories of each type lie in each span of time; `to` is exclusive."""
    low, high = _micros(start, "from"), _micros(end, "to")
    if low is not None and high is not None and high <= low:
        raise InvalidInput("to must be after from", "to")
    found = await _look(
        services, "timeline", tenant, bank_id,
        field=field, buckets=buckets, tags=None if tags is None else tuple(tags),
        types=_types(types), **{"from": low, "to": high},
    )  # fmt: skip
    return json_response(_timeline(found))


def _types(names: list[str] | None) -> tuple[FactType, ...]:
    try:
        return tuple(FactType.of(name) for name in names or ())
    except ValueError as error:
        raise InvalidInput(f"types: {error}", "types") from None


@router.get(f"{BANK}/memories/{{memory_id}}/links", operation_id="memory_links")
async def links(
    bank_id: str,
    memory_id: str,
    tenant: Reader,
    services: Given,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """What is linked with a memory, by kind, the strongest first."""
    id = as_uuid(memory_id, "memory_id")
    head = await banks.head(services.pool, tenant, bank_id)
    found = await _look(services, "links", tenant, bank_id, id=id.bytes, limit=limit)
    rows = await openings.openings(services.pool, head.bank, [id], 0)
    if str(id) not in rows:
        raise NotFound(f"there is no memory {id}")
    found = found or {"links": [], "totals": {}, "version": head.version}
    over = await openings.superseding(services.pool, head.bank, id)
    found["links"] += [
        {"id": other.hex, "kind": "superseded_by", "direction": way, "weight": 1.0, "via": None}
        for other, way in over
    ]
    if over:
        found["totals"]["superseded_by"] = len(over)
    ids = [str(UUID(hex=link["id"])) for link in found["links"]]
    texts = await openings.openings(services.pool, head.bank, ids, 200)
    shown = [
        {**{k: v for k, v in link.items() if k != "ordinal"}, "id": own, **_opening(texts[own])}
        for own, link in zip(ids, found["links"], strict=True)
        if own in texts
    ]
    return json_response({**found, "links": shown})


@router.get(f"{BANK}/entities/{{entity_id}}/neighbours", operation_id="entity_neighbours")
async def neighbours(
    bank_id: str,
    entity_id: str,
    tenant: Reader,
    services: Given,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """The entities that are mentioned beside this one, as in `entities/graph`."""
    return json_response(
        await entities.neighbours(services.pool, tenant, bank_id, entity_id, limit=limit)
    )


@router.get(f"{BANK}/changes", operation_id="bank_changes")
async def bank_changes(
    bank_id: str,
    tenant: Reader,
    services: Given,
    cursor: Annotated[str | None, Query(max_length=1_000)] = None,
    kind: Annotated[list[changes.Kind] | None, Query(max_length=16)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """What was written, edited, invalidated or done, newest first; `next` continues it."""
    return json_response(
        await changes.changes(
            services.pool, tenant, bank_id, cursor=cursor, kinds=kind, limit=limit
        )
    )


async def _look(services: Services, name: str, tenant: str, bank_id: str, **arguments: Any) -> Any:
    return await looking(services).look(name, {"tenant": tenant, "bank_id": bank_id, **arguments})


def _opening(row: openings.Opening) -> dict[str, Any]:
    return {
        "text": row.text,
        "type": FactType(row.fact_type).wire,
        "date": iso(row.occurred_start or row.mentioned_at),
    }


def _timeline(found: Mapping[str, Any]) -> dict[str, Any]:
    names = [kind.wire for kind in FactType]
    return {
        "field": found["field"],
        "from": _time(found["from"]),
        "to": _time(found["to"]),
        "step_s": None if found["step"] is None else found["step"] // 1_000_000,
        "undated": found["undated"],
        "version": found["version"],
        "buckets": [
            {"time": _time(start), **dict(zip(names, counts, strict=True))}
            for start, *counts in found["buckets"]
        ],
    }


def _micros(value: str | None, field: str) -> int | None:
    return None if value is None else microseconds(parse_time(value, field))


def _time(value: int | None) -> str | None:
    if value is None:
        return None
    try:
        return iso(EPOCH + timedelta(microseconds=value))
    except OverflowError:
        return None
