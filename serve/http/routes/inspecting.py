"""What the inspector's pages know of the server: who asks, what can be set, what was slow."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from retrieval.store import limits, tenants
from serve.http import catalogue
from serve.http.errors import json_response
from serve.http.operator import standing
from serve.http.routes.service import features
from serve.http.routing import Router
from serve.http.services import Given, Reader, Tenant, bearer
from serve.version import program

router = Router(tags=["inspector"])


@router.get("/v1/default/settings-schema", operation_id="settings_schema")
async def settings_schema(tenant: Tenant, services: Given) -> Response:
    """What a bank may set for itself: kinds, bounds, defaults of this server, meanings."""
    return json_response(catalogue.settings_of_banks(*services.settings.of_banks))


@router.get("/v1/default/activity", operation_id="activity")
async def activity(tenant: Reader, services: Given) -> Response:
    """The tenant's last recalls in this process: how long, where, never what was asked."""
    workers = services.settings.server.workers
    return json_response(services.activity.of(tenant, workers))


@router.get("/v1/default/whoami", operation_id="whoami")
async def whoami(request: Request, services: Given) -> Response:
    """Whose key this is, and what it may do. Unauthorized for a key that may nothing."""
    access, operates = await standing(request, services)
    required = services.settings.limits.require_api_key
    tenant = None if access is None else access.tenant
    may = {"operator"} if operates else set()
    may |= set() if access is None else access.scopes
    own: dict[str, Any] = {}
    if tenant is not None:
        found = await limits.of_tenant(services.pool, tenant)
        own = {n: v for n in limits.NAMES if (v := getattr(found, n)) is not None}
    return json_response(
        {
            "tenant": tenant,
            "key_id": tenants.key_id(bearer(request)) if required and tenant is not None else None,
            "scopes": [scope for scope in tenants.SCOPES if scope in may],
            "key_required": required,
            "limits": own,
            "build": program(),
            "models": dict(services.models),
            "features": features(services),
            "docs": services.settings.server.enable_docs,
        }
    )
