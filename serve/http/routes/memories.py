"""Memories: list, read, change, delete; tags."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from starlette.responses import Response

from retrieval.errors import InvalidInput
from retrieval.store import memories, memory_graph, tags
from retrieval.store.keyset import searching
from retrieval.types import FactType, TagsMatch
from serve.http.errors import json_response, long_json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Drawer, Given, Reader, Tenant
from serve.http.wire.pages import Count, Cursor, Offset, PageSize
from serve.http.wire.tags import TagList
from serve.http.wire.writes import MemoryPatch

router = Router(tags=["memory"])


@router.get(f"{BANK}/memories/list", operation_id="list_memories")
async def list_memories(
    bank_id: str,
    tenant: Reader,
    services: Given,
    type: str | None = None,
    q: str | None = None,
    consolidation_state: str | None = None,
    state: str | None = None,
    document_id: str | None = None,
    entity_id: str | None = None,
    time_field: str | None = None,
    start_date: str | None = None,
    end_date: str | None = None,
    tags: TagList = None,
    tags_match: TagsMatch = TagsMatch.ANY,
    limit: PageSize = 100,
    offset: Offset = 0,
    cursor: Cursor = None,
    count: Count | None = None,
) -> Response:
    """Memories by filter, newest mention first; with a time field, by that."""
    async with searching(q, count):
        found = await memories.list_memories(
            services.pool,
            tenant,
            bank_id,
            type=type,
            q=q,
            consolidation_state=consolidation_state,
            state=state,
            document_id=document_id,
            entity_id=entity_id,
            time_field=time_field,
            start_date=start_date,
            end_date=end_date,
            tags=tags,
            tags_match=tags_match,
            limit=limit,
            offset=offset,
            cursor=cursor,
            count=count,
        )
    return await long_json_response(found)


@router.get(f"{BANK}/graph", operation_id="get_graph")
async def get_graph(
    bank_id: str,
    tenant: Drawer,
    services: Given,
    type: str | None = None,
    limit: Annotated[int, Query(ge=0, le=memory_graph.LIMIT_MAX)] = 1000,
    q: str | None = None,
    tags: TagList = None,
    tags_match: TagsMatch = TagsMatch.ALL_STRICT,
    document_id: str | None = None,
    chunk_id: str | None = None,
) -> Response:
    """Memories as nodes, and what links those that are shown."""
    return await long_json_response(
        await memory_graph.graph(
            services.pool,
            tenant,
            bank_id,
            type=type,
            q=q,
            tags=tags,
            tags_match=tags_match,
            document_id=document_id,
            chunk_id=chunk_id,
            limit=limit,
        )
    )


def fact_type(name: str) -> FactType:
    try:
        return FactType.of(name)
    except ValueError as error:
        raise InvalidInput(f"type: {error}", "type") from None


@router.get(f"{BANK}/memories/{{memory_id}}", operation_id="get_memory")
async def get_memory(bank_id: str, memory_id: str, tenant: Reader, services: Given) -> Response:
    """One memory."""
    found = await memories.get(services.pool, tenant, bank_id, memory_id)
    return json_response(found)


@router.get(f"{BANK}/memories/{{memory_id}}/history", operation_id="get_observation_history")
async def history(bank_id: str, memory_id: str, tenant: Reader, services: Given) -> Response:
    """How an observation changed."""
    found = await memories.history(services.pool, tenant, bank_id, memory_id)
    return json_response(found)


@router.patch(f"{BANK}/memories/{{memory_id}}", operation_id="update_memory")
async def patch_memory(
    bank_id: str, memory_id: str, body: MemoryPatch, tenant: Tenant, services: Given
) -> Response:
    """Changes, invalidates or restores one memory."""
    async with services.write_admission.enter(tenant):
        changed = await services.writer.patch_memory(tenant, bank_id, memory_id, body.changes)
    return json_response(changed)


@router.delete(f"{BANK}/memories/{{memory_id}}", operation_id="delete_memory")
async def delete_memory(bank_id: str, memory_id: str, tenant: Tenant, services: Given) -> Response:
    """Removes one memory, its links and what was derived from it."""
    async with services.write_admission.enter(tenant):
        return json_response(await services.writer.delete_memory(tenant, bank_id, memory_id))


@router.delete(
    f"{BANK}/memories/{{memory_id}}/observations", operation_id="clear_memory_observations"
)
async def delete_derived(bank_id: str, memory_id: str, tenant: Tenant, services: Given) -> Response:
    """Removes the observations built on one memory."""
    async with services.write_admission.enter(tenant):
        return json_response(await services.writer.delete_derived(tenant, bank_id, memory_id))


@router.delete(f"{BANK}/memories", operation_id="clear_bank_memories")
async def clear(bank_id: str, tenant: Tenant, services: Given, type: str | None = None) -> Response:
    """Removes all memories of a bank, or all of one type; the bank stays."""
    kind = None if type is None else fact_type(type).wire
    async with services.write_admission.enter(tenant):
        return json_response(await services.writer.clear(tenant, bank_id, kind))


@router.delete(f"{BANK}/observations", operation_id="clear_observations")
async def clear_observations(bank_id: str, tenant: Tenant, services: Given) -> Response:
    """Removes all observations of a bank."""
    async with services.write_admission.enter(tenant):
        return json_response(await services.writer.clear(tenant, bank_id, "observation"))


@router.get(f"{BANK}/observations/scopes", operation_id="list_observation_scopes")
async def observation_scopes(
    bank_id: str,
    tenant: Reader,
    services: Given,
    limit: PageSize = 100,
    offset: Offset = 0,
) -> Response:
    """The tag sets that observations have, most used first."""
    return json_response(
        await memories.observation_scopes(
            services.pool, tenant, bank_id, limit=limit, offset=offset
        )
    )


@router.get(f"{BANK}/tags", operation_id="list_tags")
async def list_tags(
    bank_id: str,
    tenant: Reader,
    services: Given,
    q: str | None = None,
    source: Literal["memories", "mental_models"] = "memories",
    limit: PageSize = 100,
    offset: Offset = 0,
) -> Response:
    """The bank's tags, most used first."""
    return json_response(
        await tags.list_tags(
            services.pool, tenant, bank_id, q=q, source=source, limit=limit, offset=offset
        )
    )
