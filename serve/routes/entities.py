"""Entities and how they occur together."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from retrieval.store import entities
from serve.errors import json_response
from serve.routes.recall import BANK
from serve.routing import Router
from serve.services import Given, Tenant
from serve.wire.common import Natural

router = Router(tags=["entities"])


@router.get(f"{BANK}/entities", operation_id="list_entities")
async def list_entities(
    bank_id: str,
    tenant: Tenant,
    services: Given,
    limit: Annotated[Natural, Query()] = 100,
    offset: Annotated[Natural, Query()] = 0,
) -> Response:
    """The bank's entities, most mentioned first."""
    return json_response(
        await entities.list_entities(services.pool, tenant, bank_id, limit=limit, offset=offset)
    )


@router.get(f"{BANK}/entities/graph", operation_id="get_entity_graph")
async def graph(
    bank_id: str,
    tenant: Tenant,
    services: Given,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    min_count: Annotated[int, Query(ge=1, le=2**31 - 1)] = 1,
) -> Response:
    """Entities as nodes, common memories as edges."""
    return json_response(
        await entities.graph(services.pool, tenant, bank_id, limit=limit, min_count=min_count)
    )


@router.get(f"{BANK}/entities/{{entity_id}}", operation_id="get_entity")
async def get_entity(bank_id: str, entity_id: str, tenant: Tenant, services: Given) -> Response:
    """One entity."""
    found = await entities.get(services.pool, tenant, bank_id, entity_id)
    return json_response(found)


@router.post(
    f"{BANK}/entities/{{entity_id}}/regenerate",
    operation_id="regenerate_entity_observations",
    deprecated=True,
)
async def regenerate(bank_id: str, entity_id: str) -> Response:
    return json_response({"detail": "entities have no summaries any more"}, 410)
