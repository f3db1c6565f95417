"""Background operations."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.responses import Response, StreamingResponse

from retrieval.store import operation_views
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Changer, Given, Reader, Tenant
from serve.http.wire.pages import Offset

router = Router(tags=["operations"])
FOLLOWED = 50
"""Newest operations that event streams follow."""
_OPERATION = f"{BANK}/operations/{{operation_id}}"


@router.get(f"{BANK}/operations", operation_id="list_operations")
async def list_operations(
    bank_id: str,
    tenant: Reader,
    services: Given,
    status: str | None = None,
    type: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    offset: Offset = 0,
    exclude_parents: bool = False,
) -> Response:
    """The bank's operations, newest first."""
    return json_response(
        await operation_views.list_operations(
            services.pool, tenant, bank_id, status=status, type=type, limit=limit, offset=offset
        )
    )


@router.get(f"{BANK}/operations/events", include_in_schema=False)  # it does not end
async def events(
    bank_id: str,
    tenant: Tenant,
    services: Given,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    """Server-sent events: `operation`, with one entry of the list, whenever one changes."""

    async def look() -> list[dict[str, Any]]:
        found = await operation_views.list_operations(
            services.pool, tenant, bank_id, limit=FOLLOWED
        )
        newest: list[dict[str, Any]] = found["operations"]
        return newest

    stream = services.feed.follow(tenant, bank_id, look, last_event_id)
    first = await anext(stream)  # refusals have their status

    async def all() -> AsyncIterator[bytes]:
        yield first
        async with contextlib.aclosing(stream) as rest:
            async for chunk in rest:
                yield chunk

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(all(), media_type="text/event-stream", headers=headers)


@router.get(_OPERATION, operation_id="get_operation_status")
async def get_operation(
    bank_id: str,
    operation_id: str,
    tenant: Reader,
    services: Given,
    include_payload: bool = False,
) -> Response:
    """One operation; an id that is not known has the status not_found."""
    return json_response(
        await operation_views.get(
            services.pool,
            tenant,
            bank_id,
            operation_id,
            include_payload=include_payload,
        )
    )


@router.delete(_OPERATION, operation_id="cancel_operation")
async def cancel(bank_id: str, operation_id: str, tenant: Changer, services: Given) -> Response:
    """Cancels an operation that has not ended; one that runs stops before it stores anything."""
    return json_response(await operation_views.cancel(services.pool, tenant, bank_id, operation_id))


@router.post(f"{_OPERATION}/retry", operation_id="retry_operation")
async def retry(bank_id: str, operation_id: str, tenant: Changer, services: Given) -> Response:
    """Queues a failed operation again."""
    return json_response(await operation_views.retry(services.pool, tenant, bank_id, operation_id))


@router.delete(f"{_OPERATION}/delete", operation_id="delete_operation")
async def delete(bank_id: str, operation_id: str, tenant: Changer, services: Given) -> Response:
    """Forgets an operation that has ended."""
    return json_response(await operation_views.delete(services.pool, tenant, bank_id, operation_id))
