"""Storing: retain, and the import of structured memories."""

from __future__ import annotations

import time

from starlette.responses import Response

from retrieval.errors import InvalidInput
from serve import metrics
from serve.errors import json_response
from serve.routes.recall import BANK
from serve.routing import Router
from serve.services import Given, Tenant, most_items
from serve.wire.writes import ImportBody, RetainBody

router = Router(tags=["memory"])


@router.post(f"{BANK}/memories", operation_id="retain_memories")
async def retain(bank_id: str, body: RetainBody, tenant: Tenant, services: Given) -> Response:
    """Stores contents as memories; the bank is made by its first retain."""
    most = await most_items(services, tenant, services.settings.retain.retain_max_items)
    if len(body.items) > most:
        raise InvalidInput(f"items: {len(body.items)} items, at most {most} at once", "items")
    items = [item.model_dump(exclude_none=True) for item in body.items]
    tags = body.document_tags or []
    deadline = time.monotonic() + services.settings.database.db_acquire_timeout_s
    with metrics.measured("retain"):
        async with services.write_admission.enter(tenant, deadline):
            if body.is_async:
                accepted = await services.writer.retain_later(
                    tenant, bank_id, items, tags, body.operation_id
                )
            else:
                accepted = {"usage": await services.writer.retain(tenant, bank_id, items, tags)}
    return json_response(
        {
            "success": True,
            "bank_id": bank_id,
            "async": body.is_async,
            "items_count": len(items),
            **accepted,
        }
    )


@router.post(f"{BANK}/memories/import", operation_id="import_memories")
async def import_memories(
    bank_id: str, body: ImportBody, tenant: Tenant, services: Given
) -> Response:
    """Stores structured memories as they are: all of them or none.

    Item: `key` (your own id; the same key again replaces), `text`, `type`, `context`,
    `occurred_start`, `occurred_end`, `mentioned_at`, `entities`, `tags`, `metadata`,
    `document_id`, `proof_count`, `sources` (keys), `links` ({to: key, type, weight}).
    """
    most = await most_items(services, tenant, services.settings.retain.import_max_items)
    if len(body.memories) > most:
        raise InvalidInput(
            f"memories: {len(body.memories)} items, at most {most} at once", "memories"
        )
    deadline = time.monotonic() + services.settings.database.db_acquire_timeout_s
    with metrics.measured("import"):
        async with services.write_admission.enter(tenant, deadline):
            done = await services.writer.import_memories(tenant, bank_id, body.memories)
    return json_response(done)
