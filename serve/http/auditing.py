"""Notes requests about banks in the audit log, once they are answered."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from fastapi import Request
from starlette.responses import Response

from retrieval.audit import redaction
from retrieval.audit.recorder import Recorder
from retrieval.store.audit import Entry
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


async def note(
    recorder: Recorder, request: Request, response: Response, action: str, started: datetime
) -> None:
    """Notes one request that was answered, if its bank's log wants it."""
    bank_id = request.path_params.get("bank_id")
    tenant = request.scope.get(TENANT)
    if not isinstance(bank_id, str) or not tenant or action in _OWN:
        return
    name = ACTIONS.get(action, action)
    if not await recorder.wants(tenant, bank_id, name):
        return
    settings = recorder.settings
    key = await recorder.key()
    metadata: dict[str, Any] = {
        "request_id": request.headers.get(REQUEST_ID, "")[:200] or str(uuid4()),
        "status": response.status_code,
    }
    if given := bearer(request):
        metadata["key_id"] = hashlib.sha256(given.encode()).digest()[:8].hex()
    if settings.addresses and request.client is not None:
        metadata["ip"] = request.client.host
    asked = redaction.kept(getattr(request, "noted", b""), settings.bodies, key)
    if request.query_params and settings.bodies != "none":
        query = redaction.value_of(dict(request.query_params), settings.bodies, key)
        asked = {**(asked or {}), "query_params": query}
    body = bytes(getattr(response, "body", b""))  # a stream has none
    entry = Entry(
        tenant,
        bank_id,
        name,
        request.scope.get(TRANSPORT, "http"),
        started,
        datetime.now(UTC),
        metadata,
        asked,
        redaction.kept(body, settings.bodies, key),
    )
    if request.method == "GET" or action in _READS or response.status_code >= 400:
        recorder.seen(entry)
    else:
        await recorder.changed(entry)
