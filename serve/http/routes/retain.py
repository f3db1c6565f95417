"""Storing: retain, and the import of structured memories."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import Header, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from retrieval.errors import InvalidInput, TooMuch
from retrieval.store import answers
from serve import metrics
from serve.http.errors import json_response, wrong_at
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Given, Tenant, most_items
from serve.http.wire.writes import ImportBody, RetainBody

router = Router(tags=["memory"])


TURN_WAIT_S, TURN_WAIT_S_MOST = 30.0, 600.0
"""How long a retain waits, unless it says otherwise, for others who write the same documents; and
how long at most."""

IdempotencyKey = Annotated[
    str | None, Header(alias=answers.FIELD, min_length=1, max_length=answers.KEY_LIMIT)
]
TimeoutS = Annotated[float | None, Header(gt=0, allow_inf_nan=False)]


@router.post(f"{BANK}/memories", operation_id="retain_memories")
async def retain(
    bank_id: str,
    body: RetainBody,
    tenant: Tenant,
    services: Given,
    request: Request,
    idempotency_key: IdempotencyKey = None,
    x_request_timeout_s: TimeoutS = None,
) -> Response:
    """Stores contents as memories; the bank is made by its first retain.

    With an `Idempotency-Key` the same request again, within a day, has the same answer and does
    nothing. `X-Request-Timeout-S`: how long to wait for others who write the same documents, and
    for a language model.
    """
    begin = time.monotonic()
    until = begin + min(x_request_timeout_s or TURN_WAIT_S, TURN_WAIT_S_MOST)
    key = None
    if idempotency_key is not None:
        key = answers.Key(answers.checked(idempotency_key), request.state.digest)
    if services.llm.batches is not None and not body.is_async:
        raise InvalidInput(
            "async: this server has content read in batches (RETAIN_BATCH_ENABLED), within a day:"
            " send async: true",
            "async",
        )
    most = await most_items(services, tenant, services.settings.retain.retain_max_items)
    if len(body.items) > most:
        raise TooMuch(f"items: {len(body.items)} items, at most {most} at once", "items")
    if not services.settings.retain.attachments_enabled:
        _texts_only(body)
    items, tags = body.items, body.document_tags or []
    named = [] if body.is_async else _named(items)
    with wrong_at("items", "body"), metrics.measured("retain"):
        # Whoever waits for others who write the same document has no place that others need.
        async with services.line.of(tenant, bank_id, named, until), AsyncExitStack() as places:
            deadline = time.monotonic() + services.settings.database.db_acquire_timeout_s
            await places.enter_async_context(services.write_admission.enter(tenant, deadline))
            if body.is_async:
                accepted = await services.writer.retain_later(
                    tenant, bank_id, items, tags, body.operation_id, key
                )
            else:
                if services.llm.retain is not None:
                    # It had its turn among the writes; waiting for a model it is in nobody's way.
                    await places.aclose()
                    await places.enter_async_context(services.retain_admission.enter(tenant))
                spent_s = time.monotonic() - begin
                limit_s = None if x_request_timeout_s is None else x_request_timeout_s - spent_s
                left_s = max(0.0, until - time.monotonic())
                usage = await services.writer.retain(
                    tenant, bank_id, items, tags, key, left_s, limit_s
                )
                accepted = {"usage": usage}
    return json_response(
        {
            "success": True,
            "bank_id": bank_id,
            "async": body.is_async,
            "items_count": len(items),
            **accepted,
        }
    )


def _texts_only(body: RetainBody) -> None:
    for i, item in enumerate(body.items):
        content = item.get("content")
        blocks = content if isinstance(content, list) else ()
        kinds = (block.get("type") for block in blocks if isinstance(block, dict))
        if kind := next((kind for kind in kinds if kind in ("image", "file")), None):
            said = (
                f"a content block of type {kind!r}: only text blocks are stored here"
                " (ATTACHMENTS_ENABLED keeps images and files)"
            )
            where = ("body", "items", i, "content")
            raise RequestValidationError([{"type": "value_error", "loc": where, "msg": said}])


def _named(items: Sequence[Mapping[str, Any]]) -> list[str]:
    ids = (item.get("document_id") for item in items)
    return [id for id in ids if isinstance(id, str)]


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
        raise TooMuch(f"memories: {len(body.memories)} items, at most {most} at once", "memories")
    deadline = time.monotonic() + services.settings.database.db_acquire_timeout_s
    with metrics.measured("import"):
        async with services.write_admission.enter(tenant, deadline):
            done = await services.writer.import_memories(tenant, bank_id, body.memories)
    return json_response(done)
