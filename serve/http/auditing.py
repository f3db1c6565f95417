"""Notes requests about banks in the audit log: what they are, and how they ended."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from fastapi import Request
from starlette.responses import Response

from retrieval.lifecycle.audit import redaction
from retrieval.lifecycle.audit.recorder import Recorder
from retrieval.store.audit import AuditEntry
from serve.http.services import TENANT, bearer

OFF_HEADER = "X-Audit-Log"
REQUEST_ID = "x-request-id"
TRANSPORT = "fourfold.transport"
"""Key of a request's scope: how it came, where it is not plain HTTP."""

_READS = frozenset({"recall_memories", "reflect", "preview_prompt", "dry_run_extract_memories"})
"""Operations that change nothing although they are posted."""
ACTIONS = {
    "recall_memories": "recall",
    "retain_memories": "retain",
    "create_or_update_bank": "create_bank",
    "purge_invalidated": "purge",
    "trigger_consolidation": "consolidation",
}
"""Operations -> the names of their actions, where these differ."""
_OWN = frozenset({"list_audit_logs", "get_audit_log", "audit_log_stats"})


async def begun(
    recorder: Recorder, request: Request, action: str, started: datetime, body: bytes
) -> AuditEntry | None:
    """The entry of a request whose sender is known, if its bank's log wants it."""
    bank_id = request.path_params.get("bank_id")
    tenant = request.scope.get(TENANT)
    if not isinstance(bank_id, str) or not tenant or action in _OWN:
        return None
    name = ACTIONS.get(action, action)
    if not await recorder.wants(tenant, bank_id, name):
        return None
    settings = recorder.settings
    bodies = settings.bodies
    if action == "erase" and bodies == "full":
        bodies = "redacted"  # it names what is to be forgotten
    key = await recorder.key()
    metadata: dict[str, Any] = {
        "request_id": request.headers.get(REQUEST_ID, "")[:200] or str(uuid4())
    }
    if given := bearer(request):
        metadata["key_id"] = hashlib.sha256(given.encode()).digest()[:8].hex()
    if settings.addresses and request.client is not None:
        metadata["ip"] = request.client.host
    asked = redaction.kept(body, bodies, key)
    if request.query_params and bodies != "none":
        query = redaction.value_of(dict(request.query_params), bodies, key)
        asked = {**(asked or {}), "query_params": query}
    transport = request.scope.get(TRANSPORT, "http")
    return AuditEntry(tenant, bank_id, name, transport, started, metadata=metadata, request=asked)


def changes(request: Request, action: str) -> bool:
    """Is it a request that may change something?"""
    return request.method != "GET" and action not in _READS


async def ended(
    recorder: Recorder, request: Request, response: Response, action: str, entry: AuditEntry
) -> None:
    """Notes how a request ended."""
    key = await recorder.key()
    body = bytes(getattr(response, "body", b""))  # a stream has none
    entry = replace(
        entry,
        ended_at=datetime.now(UTC),
        metadata={**entry.metadata, "status": response.status_code},
        response=redaction.kept(body, recorder.settings.bodies, key),
    )
    if changes(request, action) and response.status_code < 400:
        await recorder.changed(entry)
    else:
        recorder.seen(entry)
