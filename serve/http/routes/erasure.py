"""Complete deletion."""

from __future__ import annotations

from starlette.responses import Response

from retrieval.lifecycle.erasure import running
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Changer, Given
from serve.http.wire.erasure import EraseBody, PurgeBody

router = Router(tags=["erasure"])


@router.post(f"{BANK}/erase", operation_id="erase", status_code=202)
async def erase(bank_id: str, body: EraseBody, tenant: Changer, services: Given) -> Response:
    """Erases memories with all that was made from them, or says what that would be (200)."""
    if body.dry_run:
        found = await services.writer.preview_erasure(
            tenant, bank_id, body.selectors.wire(), body.observations
        )
        return json_response(found)
    queued = await running.submit(services.pool, tenant, bank_id, body.selectors, body.observations)
    return json_response(queued, 202)


@router.post(f"{BANK}/purge-invalidated", operation_id="purge_invalidated", status_code=202)
async def purge_invalidated(
    bank_id: str, body: PurgeBody, tenant: Changer, services: Given
) -> Response:
    """Erases memories that were invalidated."""
    queued = await running.submit(
        services.pool,
        tenant,
        bank_id,
        running.invalidated(body.older_than_days),
        kind=running.PURGE,
    )
    return json_response(queued, 202)
