"""What is to be told of a bank: events, written in the transaction of what they tell of.

An event becomes one row for each webhook that wants it. Where no webhook does, it costs one read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import orjson

from retrieval.store.database.copying import execute_many
from retrieval.store.database.pool import Connection
from retrieval.store.heads import BankHead

EVENTS = (
    "retain.completed", "consolidation.completed", "memory_defense.triggered", "document.deleted",
    "bank.deleted", "transfer.completed", "erase.completed",
)  # fmt: skip
"""What a webhook may ask for. Nothing here defends memories, so that one is never told."""

BODY_BYTES_MAX = 256 * 2**10


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """Something that happened in a bank. `data` holds ids, counts and tags, never a memory's text.

    `status`: completed or failed.
    """

    type: str
    data: Mapping[str, Any]
    operation_id: UUID | None = None
    status: str = "completed"


async def emit(connection: Connection, head: BankHead, events: Sequence[OutboxEvent]) -> None:
    """Queues the events for the bank's webhooks and for that of all banks."""
    if not events:
        return
    hooks = await connection.fetch(
        "select id, url, receiver, event_types, secret, previous_secret, http_config from webhooks"
        " where bank = $1 and enabled and event_types && $2::text[]"
        " union all select null, url, receiver, event_types, null, null, null from webhook_of_all"
        " where event_types && $2::text[]",
        head.bank,
        list({event.type for event in events}),
    )
    if not hooks:
        return
    now = datetime.now(UTC).isoformat()
    rows = []
    for event in events:
        id = uuid4()
        content = body(head.bank_id, event, id, now)
        rows += [
            _row(head, event, id, content, hook)
            for hook in hooks
            if event.type in hook["event_types"]
        ]
    await execute_many(
        connection,
        "insert into webhook_deliveries (tenant_id, bank_id, id, webhook_id, event_id, event_type,"
        " url, receiver, body, secret, previous_secret, http_config)"
        " values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        rows,
    )


def _row(
    head: BankHead, event: OutboxEvent, id: UUID, content: bytes, hook: Mapping[str, Any]
) -> tuple[Any, ...]:
    ends = event.type == "bank.deleted"  # and the webhook with it
    own = [hook[name] if ends else None for name in ("secret", "previous_secret", "http_config")]
    return (
        head.tenant, head.bank_id, uuid4(), hook["id"], id, event.type, hook["url"],
        hook["receiver"], content, *own,
    )  # fmt: skip


def body(bank_id: str, event: OutboxEvent, event_id: UUID, timestamp: str) -> bytes:
    """The JSON that is signed and sent: without nulls, BODY_BYTES_MAX at most; tags give way."""
    content = {
        "event": event.type,
        "event_id": str(event_id),
        "bank_id": bank_id,
        "operation_id": None if event.operation_id is None else str(event.operation_id),
        "status": event.status,
        "timestamp": timestamp,
        "data": dict(event.data),
    }
    packed = orjson.dumps(_without_nulls(content))
    if len(packed) > BODY_BYTES_MAX and "tags" in event.data:
        content["data"] = {**event.data, "tags": [], "tags_left_out": True}
        packed = orjson.dumps(_without_nulls(content))
    return packed


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(one) for one in value if one is not None]
    return value
