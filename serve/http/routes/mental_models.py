"""Mental models: documents that a language model keeps up to date."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import Query
from starlette.responses import Response

from retrieval.mental import models
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Changer, Given, Reader, Tenant, needs_model
from serve.http.wire.mental_models import MentalModelBody, MentalModelPatch, RefreshBody
from serve.http.wire.pages import PAGE_MAX, Offset
from serve.http.wire.tags import TagList

router = Router(tags=["mental models"])
_MODEL = f"{BANK}/mental-models/{{mental_model_id}}"


@router.get(f"{BANK}/mental-models", operation_id="list_mental_models")
async def list_mental_models(
    bank_id: str,
    tenant: Reader,
    services: Given,
    tags: TagList = None,
    tags_match: Literal["any", "all", "exact"] = "any",
    detail: models.Detail = "metadata",
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    offset: Offset = 0,
    exclude_knowledge_pages: bool = False,
) -> Response:
    """The bank's mental models, newest first; with tags, those that carry them."""
    found = await models.listed(
        services.pool,
        tenant,
        bank_id,
        tags=tags,
        tags_match=tags_match,
        detail=detail,
        without_pages=exclude_knowledge_pages,
        limit=limit,
        offset=offset,
    )
    return json_response(found)


@router.post(f"{BANK}/mental-models", operation_id="create_mental_model")
async def create_mental_model(
    bank_id: str, body: MentalModelBody, tenant: Changer, services: Given
) -> Response:
    """A new mental model, its first refresh queued; the bank is made if there is none."""
    needs_model(services.documents is not None, "a mental model")
    made = await models.create(services.pool, tenant, bank_id, body.id, body.fields)
    return json_response(made)


@router.get(_MODEL, operation_id="get_mental_model")
async def get_mental_model(
    bank_id: str,
    mental_model_id: str,
    tenant: Reader,
    services: Given,
    detail: models.Detail = "full",
) -> Response:
    """One mental model."""
    return json_response(await models.get(services.pool, tenant, bank_id, mental_model_id, detail))


@router.patch(_MODEL, operation_id="update_mental_model")
async def update_mental_model(
    bank_id: str, mental_model_id: str, body: MentalModelPatch, tenant: Changer, services: Given
) -> Response:
    """Changes what is given of a mental model, of its trigger too."""
    changed = await models.patch(services.pool, tenant, bank_id, mental_model_id, body.changes)
    return json_response(changed)


@router.delete(_MODEL, operation_id="delete_mental_model")
async def delete_mental_model(
    bank_id: str, mental_model_id: str, tenant: Changer, services: Given
) -> Response:
    """Ends a mental model, and its page."""
    return json_response(await models.delete(services.pool, tenant, bank_id, mental_model_id))


@router.post(f"{_MODEL}/refresh", operation_id="refresh_mental_model")
async def refresh_mental_model(
    bank_id: str,
    mental_model_id: str,
    tenant: Changer,
    services: Given,
    body: RefreshBody | None = None,
) -> Response:
    """Queues a refresh, or joins the one that waits."""
    await models.require(services.pool, tenant, bank_id, mental_model_id)
    needs_model(services.documents is not None, "a refresh")
    full = body is not None and body.mode == "full"
    queued = await models.refresh(services.pool, tenant, bank_id, mental_model_id, full=full)
    return json_response(queued)


@router.post(f"{_MODEL}/clear", operation_id="clear_mental_model")
async def clear_mental_model(
    bank_id: str, mental_model_id: str, tenant: Changer, services: Given
) -> Response:
    """Empties the document; the next refresh is a full one."""
    return json_response(await models.clear(services.pool, tenant, bank_id, mental_model_id))


@router.post(f"{_MODEL}/dry-run-refresh", operation_id="dry_run_refresh_mental_model")
async def dry_run_refresh_mental_model(
    bank_id: str, mental_model_id: str, tenant: Tenant, services: Given
) -> Response:
    """What a refresh would make of the document, at its full cost; nothing is written."""
    await models.require(services.pool, tenant, bank_id, mental_model_id)
    needs_model(services.documents is not None, "a dry run")
    assert services.documents is not None
    deadline = time.monotonic() + services.settings.mental_models.mental_model_refresh_timeout_s
    async with services.write_admission.enter(tenant, deadline):
        found = await services.documents.preview(tenant, bank_id, mental_model_id, deadline)
    return json_response(found)


@router.get(f"{_MODEL}/history", operation_id="get_mental_model_history")
async def get_mental_model_history(
    bank_id: str, mental_model_id: str, tenant: Reader, services: Given
) -> Response:
    """What the document was before, newest first."""
    return json_response(await models.history(services.pool, tenant, bank_id, mental_model_id))
