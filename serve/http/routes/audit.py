"""Audit logs: who read or changed what."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Query
from starlette.responses import Response

from retrieval.store import audit
from serve.http.auditing import OFF_HEADER
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Given, Reader, Services
from serve.http.wire.pages import Offset

router = Router(tags=["audit"])


async def _off(services: Services, tenant: str, bank_id: str) -> dict[str, str]:
    """Says that nothing is noted, where nothing is."""
    recorder = services.recorder
    on = recorder is not None and await recorder.on(tenant, bank_id)
    return {} if on else {OFF_HEADER: "off"}


@router.get(f"{BANK}/audit-logs", operation_id="list_audit_logs")
async def list_audit_logs(
    bank_id: str,
    tenant: Reader,
    services: Given,
    action: str | None = None,
    transport: Literal["http", "mcp", "system"] | None = None,
    start_date: str | None = None,
    end_date: str | None = None,
    limit: Annotated[int, Query(ge=1, le=audit.PAGE_MAX)] = 50,
    offset: Offset = 0,
) -> Response:
    """Requests about the bank, newest first. The header X-Audit-Log says `off` where none are
    noted."""
    found = await audit.listed(
        services.pool,
        tenant,
        bank_id,
        action=action,
        transport=transport,
        start_date=start_date,
        end_date=end_date,
        limit=limit,
        offset=offset,
    )
    return json_response(found, headers=await _off(services, tenant, bank_id))


@router.get(f"{BANK}/audit-logs/stats", operation_id="audit_log_stats")
async def audit_log_stats(
    bank_id: str,
    tenant: Reader,
    services: Given,
    action: str | None = None,
    period: str = "7d",
) -> Response:
    """Requests per day and action."""
    found = await audit.stats(
        services.pool, tenant, bank_id, action=action, period=period, now=datetime.now(UTC)
    )
    return json_response(found, headers=await _off(services, tenant, bank_id))


@router.get(f"{BANK}/audit-logs/{{log_id}}", operation_id="get_audit_log")
async def get_audit_log(bank_id: str, log_id: str, tenant: Reader, services: Given) -> Response:
    """One request with what is kept of its bodies."""
    return json_response(await audit.get(services.pool, tenant, bank_id, log_id))
