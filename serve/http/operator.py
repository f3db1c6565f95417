"""Who runs the server: whoever brings the operator's key, a key with the scope `operator`, or sits
at the machine itself."""

from __future__ import annotations

import ipaddress
import secrets
from typing import Annotated

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from retrieval.store.tenants import DEFAULT_TENANT, Access
from serve.http.errors import Unauthorized
from serve.http.services import Given, Services, access_of, bearer


async def standing(request: Request, services: Services) -> tuple[Access | None, bool]:
    """What the request's key gives in a tenant, None for the operator's own key, which is no
    tenant's; and whether it is an operator's. Without keys everything is the default tenant's, and
    whoever sits at the machine is the operator unless there is a key of his.

    Unauthorized for a key that gives nothing; RateLimited where its address guesses keys."""
    settings = services.settings
    key = settings.server.operator_api_key
    given = bearer(request).encode()
    own = key is not None and secrets.compare_digest(given, key.get_secret_value().encode())
    if not settings.limits.require_api_key:
        return Access(DEFAULT_TENANT), own or (key is None and _alone(settings.server.host))
    if own:
        return None, True
    access = await access_of(request, services)
    return access, "operator" in access.scopes


def _alone(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _operator(request: Request, services: Given) -> None:
    try:
        _, operates = await standing(request, services)
    except Unauthorized:
        operates = False
    if not operates:
        raise HTTPException(404, "there is nothing at this address: /docs lists the API")


Operator = Annotated[None, Depends(_operator)]
"""For routes of the operator; to others they are not there."""
