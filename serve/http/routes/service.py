"""The service itself: health, version, metrics. No key is needed."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any

import orjson
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from retrieval.errors import FourfoldError
from retrieval.store.database.pool import read, refuses_writes
from serve import metrics
from serve.http import scopes
from serve.http.errors import Unauthorized, json_response
from serve.http.routing import Router
from serve.http.services import Given, Services, access_of, bearer
from serve.local import processes
from serve.version import program

API_VERSION = "0.9.1"
"""The line of the public API that is supported; our own build is in a header."""
BUILD_HEADER = "X-Fourfold-Version"
DATABASE_WAIT_S = 3.0

router = Router(tags=["service"])


async def _health(services: Services) -> Response:
    """200 while recalls can be served: `degraded`, with the reason, where writes cannot; 503
    before, as long as the server is `loading`."""
    report: dict[str, Any] = {"status": "healthy", "database": "connected", **services.models}
    try:
        async with asyncio.timeout(DATABASE_WAIT_S):
            refuses = await read(services.pool, refuses_writes)
    except (FourfoldError, TimeoutError) as error:
        reason = str(error) or "it does not answer"
        report |= {"status": "unhealthy", "database": reason}
        return json_response(report, 503, {"Retry-After": "1"})
    if refuses:
        await services.pool.give_up_all()  # by now another server may be the primary
    if why := refuses or services.pool.trouble:
        report |= {"status": "degraded", "database": f"connected; writes are refused: {why}"}
    elif processes.is_loading():
        return json_response(report | {"status": processes.LOADING}, 503, {"Retry-After": "1"})
    return json_response(report)


@router.get("/health", operation_id="health_endpoint_health_get")
async def health(services: Given) -> Response:
    """Can this process serve? Asks the database."""
    return await _health(services)


@router.get("/health/ready", operation_id="readiness_health_ready_get")
async def ready(services: Given) -> Response:
    """Can the whole server serve? Asks the database, of what schema and epoch it is, and every
    stage elsewhere: 503 without a retriever or a writer, `degraded` without another."""
    response, absent = await asyncio.gather(_health(services), services.absent())
    if response.status_code != 200:
        return response
    report: dict[str, Any] = orjson.loads(response.body)
    row = await read(services.pool, lambda connection: connection.fetchrow(_STATE))
    report |= {"schema": row["schema"], "epoch": row["epoch"]}
    if not absent:
        return json_response(report)
    report |= {"status": "degraded", "absent": list(absent)}
    if _NEEDED.isdisjoint(absent):
        return json_response(report)
    return json_response(report | {"status": "unhealthy"}, 503, {"Retry-After": "1"})


_NEEDED = frozenset({"retriever", "ingest"})
_STATE = (
    "select (select max(number) from schema_migrations) as schema,"
    " (select epoch from database_epoch) as epoch"
)


@router.get("/health/live", operation_id="liveness_health_live_get")
async def live(services: Given) -> Response:
    """Does this process run? Asks nobody."""
    uptime = time.monotonic() - services.started
    return json_response(
        {"status": "alive", "version": program(), "uptime_seconds": round(uptime, 3)}
    )


def features(services: Services) -> dict[str, bool]:
    """What of the API is switched on."""
    return {
        "observations": services.llm.consolidates
        and services.settings.consolidation.enable_observations,
        "mcp": services.settings.mcp.mcp_enabled,
        "worker": services.settings.worker.worker_enabled,
        "bank_config_api": services.settings.server.enable_bank_config_api,
        "bank_llm_health": services.settings.llm.enable_bank_llm_health,
        "file_upload_api": services.settings.files.enable_file_upload_api,
        "document_export_api": services.settings.transfer.enable_document_export_api,
        "document_import_api": services.settings.transfer.enable_document_import_api,
        "audit_log": services.settings.audit.audit_log_enabled,
        "llm_trace": services.settings.llm.trace_enabled,
        "store_document_text": services.settings.retain.store_document_text,
    }


@router.get("/version", operation_id="get_version")
async def version(services: Given) -> Response:
    """The API spoken, and what of it is switched on."""
    return json_response(
        {"api_version": API_VERSION, "features": features(services)},
        headers={BUILD_HEADER: program()},
    )


async def _see_all(request: Request, services: Services) -> None:
    """Figures of all tenants: for the key that the settings name for them, or an operator's; for
    everybody where neither that one nor keys are required."""
    own = services.settings.server.metrics_api_key
    given = bearer(request).encode()
    if own is not None and secrets.compare_digest(given, own.get_secret_value().encode()):
        return
    if own is None and not services.settings.limits.require_api_key:
        return
    if own is not None and not services.settings.limits.require_api_key:
        raise Unauthorized("metrics need a key: send `Authorization: Bearer <key>`")
    scopes.require(await access_of(request, services), "operator")


@router.get("/metrics", operation_id="metrics_endpoint_metrics_get")
async def scrape(request: Request, services: Given) -> Response:
    """Prometheus metrics of this node's processes."""
    server = services.settings.server
    if not server.enable_metrics:
        raise HTTPException(404, "metrics are switched off")
    await _see_all(request, services)
    return Response(metrics.render(), media_type=metrics.CONTENT_TYPE)
