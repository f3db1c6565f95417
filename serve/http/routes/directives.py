"""Directives: rules that go into the answers of a bank."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from starlette.responses import Response

from retrieval.store import directives
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Changer, Given, Reader
from serve.http.wire.directives import DirectiveBody, DirectivePatch
from serve.http.wire.pages import PAGE_MAX, Offset
from serve.http.wire.tags import TagList

router = Router(tags=["directives"])
_DIRECTIVE = f"{BANK}/directives/{{directive_id}}"


@router.get(f"{BANK}/directives", operation_id="list_directives")
async def list_directives(
    bank_id: str,
    tenant: Reader,
    services: Given,
    tags: TagList = None,
    tags_match: Literal["any", "all", "exact"] = "any",
    active_only: bool = True,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    offset: Offset = 0,
) -> Response:
    """The bank's directives, higher priority first. With tags those of that scope, and the
    untagged ones, which are of every scope."""
    found = await directives.listed(
        services.pool,
        tenant,
        bank_id,
        tags=tags,
        tags_match=tags_match,
        active_only=active_only,
        limit=limit,
        offset=offset,
    )
    return json_response(found)


@router.post(f"{BANK}/directives", operation_id="create_directive")
async def create_directive(
    bank_id: str, body: DirectiveBody, tenant: Changer, services: Given
) -> Response:
    """A new directive; the bank is made if there is none."""
    made = await directives.create(services.pool, tenant, bank_id, body.model_dump())
    return json_response(made)


@router.get(_DIRECTIVE, operation_id="get_directive")
async def get_directive(
    bank_id: str, directive_id: str, tenant: Reader, services: Given
) -> Response:
    """One directive."""
    return json_response(await directives.get(services.pool, tenant, bank_id, directive_id))


@router.patch(_DIRECTIVE, operation_id="update_directive")
async def update_directive(
    bank_id: str, directive_id: str, body: DirectivePatch, tenant: Changer, services: Given
) -> Response:
    """Changes what is given of a directive."""
    changed = await directives.patch(services.pool, tenant, bank_id, directive_id, body.changes)
    return json_response(changed)


@router.delete(_DIRECTIVE, operation_id="delete_directive")
async def delete_directive(
    bank_id: str, directive_id: str, tenant: Changer, services: Given
) -> Response:
    """Ends a directive."""
    return json_response(await directives.delete(services.pool, tenant, bank_id, directive_id))
