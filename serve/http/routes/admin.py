"""Tenants, their limits and their keys: for whoever runs the server."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import Field, StringConstraints
from starlette.responses import Response

from retrieval.store import limits, tenants
from serve.http.errors import json_response
from serve.http.operator import Operator
from serve.http.routing import Router
from serve.http.services import Given
from serve.http.wire.common import Body

router = Router(tags=["admin"])


class LimitsBody(Body):
    limits: Annotated[dict[str, Any], Field(max_length=64)]
    """Limits by name; null takes one away."""


class KeyBody(Body):
    tenant: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    label: Annotated[str, StringConstraints(max_length=200)] = ""
    scopes: Annotated[
        list[str],
        Field(min_length=1, max_length=8, default_factory=lambda: list(tenants.TENANTS_SCOPES)),
    ]
    """What the key may do: read, write, admin, operator."""
    days: Annotated[int | None, Field(ge=1, le=36_500)] = None
    """How long it works; None: until it is revoked."""


@router.get("/v1/admin/tenants", include_in_schema=False)
async def list_tenants(operator: Operator, services: Given) -> Response:
    """All tenants, with how many valid keys they have and their limits."""
    found = await limits.listed(services.pool)
    return json_response(
        [{"tenant": tenant, "keys": keys, "limits": own} for tenant, keys, own in found]
    )


@router.patch("/v1/admin/tenants/{tenant}", include_in_schema=False)
async def limit_tenant(
    tenant: str, body: LimitsBody, operator: Operator, services: Given
) -> Response:
    """Sets limits of a tenant, all that are given or none; in force within seconds."""
    own = await limits.change(services.pool, tenant, body.limits)
    return json_response({"tenant": tenant, "limits": own})


@router.get("/v1/admin/keys", include_in_schema=False)
async def list_keys(operator: Operator, services: Given) -> Response:
    """The keys of all tenants, newest first: what names them, never the keys."""
    found = await tenants.list_keys(services.pool)
    return json_response([_shown(asdict(key)) for key in found])


@router.post("/v1/admin/keys", include_in_schema=False)
async def create_key(body: KeyBody, operator: Operator, services: Given) -> Response:
    """A new key, shown this once; its tenant is made if need be."""
    end = None if body.days is None else datetime.now(UTC) + timedelta(days=body.days)
    key = await tenants.create_key(
        services.pool, body.tenant, body.label, scopes=body.scopes, expires_at=end
    )
    return json_response({"key_id": tenants.key_id(key), "key": key})


@router.delete("/v1/admin/keys/{key_id}", include_in_schema=False)
async def revoke_key(key_id: str, operator: Operator, services: Given) -> Response:
    """Ends a key, in force within seconds."""
    await tenants.revoke_key(services.pool, key_id)
    return json_response({"success": True})


def _shown(key: dict[str, Any]) -> dict[str, Any]:
    tenant = key.pop("tenant_id")
    return {**key, "tenant": tenant}
