"""Entities and how they occur together."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from retrieval.store import entities
from retrieval.store.keyset import searching
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Drawer, Given, Reader, Tenant
from serve.http.wire.pages import Count, Cursor, Offset, PageSize
from serve.http.wire.tags import Counted
from serve.http.wire.writes import MergeBody, SplitBody

router = Router(tags=["entities"])


@router.get(f"{BANK}/entities", operation_id="list_entities")
async def list_entities(
    bank_id: str,
    tenant: Reader,
    services: Given,
    wanted: Counted,
    q: str | None = None,
    limit: PageSize = 100,
    offset: Offset = 0,
    cursor: Cursor = None,
    count: Count | None = None,
) -> Response:
    """The bank's entities, most mentioned first.

    With a tag filter only memories that match count: for what is there, how often, and when. `q`:
    a part of the name, or of another one that led to the entity.
    """
    async with searching(q, count):
        found = await entities.list_entities(
            services.pool,
            tenant,
            bank_id,
            q=q,
            wanted=wanted,
            limit=limit,
            offset=offset,
            cursor=cursor,
            count=count,
        )
    return json_response(found)


@router.get(f"{BANK}/entities/graph", operation_id="get_entity_graph")
async def graph(
    bank_id: str,
    tenant: Drawer,
    services: Given,
    wanted: Counted,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    min_count: Annotated[int, Query(ge=1, le=2**31 - 1)] = 1,
) -> Response:
    """Entities as nodes, common memories as edges; of the memories that match a tag filter."""
    return json_response(
        await entities.graph(
            services.pool, tenant, bank_id, wanted=wanted, limit=limit, min_count=min_count
        )
    )


@router.get(f"{BANK}/entities/{{entity_id}}", operation_id="get_entity")
async def get_entity(
    bank_id: str, entity_id: str, tenant: Reader, services: Given, wanted: Counted
) -> Response:
    """One entity, as seen in the memories that match a tag filter."""
    found = await entities.get(services.pool, tenant, bank_id, entity_id, wanted=wanted)
    return json_response(found)


@router.post(f"{BANK}/entities/{{entity_id}}/merge", operation_id="merge_entities")
async def merge(
    bank_id: str, entity_id: str, body: MergeBody, tenant: Tenant, services: Given
) -> Response:
    """Makes other entities the same as this one, which keeps its id and name; answers it."""
    async with services.write_admission.enter(tenant):
        merged = await services.writer.merge_entities(tenant, bank_id, entity_id, body.others)
    return json_response(merged)


@router.post(f"{BANK}/entities/{{entity_id}}/split", operation_id="split_entity")
async def split(
    bank_id: str, entity_id: str, body: SplitBody, tenant: Tenant, services: Given
) -> Response:
    """Gives memories of this entity to the one called `name`, which it answers.

    Without `memory_ids`: the memories that call it so. What was merged under that name is apart
    again.
    """
    async with services.write_admission.enter(tenant):
        other = await services.writer.split_entity(
            tenant, bank_id, entity_id, body.name, body.memory_ids
        )
    return json_response(other)


@router.post(
    f"{BANK}/entities/{{entity_id}}/regenerate",
    operation_id="regenerate_entity_observations",
    deprecated=True,
)
async def regenerate(bank_id: str, entity_id: str) -> Response:
    return json_response({"detail": "entities have no summaries any more"}, 410)
