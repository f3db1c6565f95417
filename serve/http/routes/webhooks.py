"""Webhooks: who is told what happens in a bank."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from retrieval.errors import NotFound
from retrieval.lifecycle.webhooks import registry
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Changer, Given, Reader, Services
from serve.http.wire.pages import Offset, PageSize
from serve.http.wire.webhooks import WebhookBody, WebhookPatch

router = Router(tags=["webhooks"])
_WEBHOOK = f"{BANK}/webhooks/{{webhook_id}}"


def _of(services: Services) -> registry.WebhookRegistry:
    if services.webhooks is None:
        raise NotFound("this process has no webhooks")
    return services.webhooks


@router.get(f"{BANK}/webhooks", operation_id="list_webhooks")
async def list_webhooks(
    bank_id: str,
    tenant: Reader,
    services: Given,
    limit: PageSize = 100,
    offset: Offset = 0,
) -> Response:
    """The bank's webhooks, oldest first."""
    found = await _of(services).listed(tenant, bank_id, limit=limit, offset=offset)
    return json_response(found)


@router.post(f"{BANK}/webhooks", operation_id="create_webhook", status_code=201)
async def create_webhook(
    bank_id: str, body: WebhookBody, tenant: Changer, services: Given
) -> Response:
    """A new webhook; the bank is made if there is none."""
    return json_response(await _of(services).create(tenant, bank_id, body.fields), 201)


@router.patch(_WEBHOOK, operation_id="update_webhook")
async def update_webhook(
    bank_id: str, webhook_id: str, body: WebhookPatch, tenant: Changer, services: Given
) -> Response:
    """Changes what is given of a webhook."""
    return json_response(await _of(services).patch(tenant, bank_id, webhook_id, body.changes))


@router.delete(_WEBHOOK, operation_id="delete_webhook")
async def delete_webhook(
    bank_id: str, webhook_id: str, tenant: Changer, services: Given
) -> Response:
    """Ends a webhook, and what it was still to be told."""
    return json_response(await _of(services).delete(tenant, bank_id, webhook_id))


@router.get(f"{_WEBHOOK}/deliveries", operation_id="list_webhook_deliveries")
async def list_webhook_deliveries(
    bank_id: str,
    webhook_id: str,
    tenant: Reader,
    services: Given,
    limit: Annotated[int, Query(ge=1, le=registry.DELIVERIES_PAGE_MAX)] = 50,
    cursor: str | None = None,
) -> Response:
    """What a webhook was told and is to be told, newest first."""
    found = await _of(services).deliveries(
        tenant, bank_id, webhook_id, limit=limit, cursor=cursor or None
    )
    return json_response(found)


@router.post(f"{_WEBHOOK}/test", operation_id="test_webhook", status_code=202)
async def test_webhook(bank_id: str, webhook_id: str, tenant: Changer, services: Given) -> Response:
    """Tells a webhook something that means nothing; the delivery shows how that went."""
    return json_response(await _of(services).test(tenant, bank_id, webhook_id), 202)


@router.post(
    f"{_WEBHOOK}/deliveries/{{delivery_id}}/retry",
    operation_id="retry_webhook_delivery",
    status_code=202,
)
async def retry_webhook_delivery(
    bank_id: str, webhook_id: str, delivery_id: str, tenant: Changer, services: Given
) -> Response:
    """Sends a delivery that has ended once more."""
    found = await _of(services).retry(tenant, bank_id, webhook_id, delivery_id)
    return json_response(found, 202)
