"""Who runs the server: whoever brings the operator's key, or sits at the machine itself."""

from __future__ import annotations

import ipaddress
import secrets
from typing import Annotated

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from serve.http.services import Given, bearer
from serve.settings import Settings


def is_operator(request: Request, settings: Settings) -> bool:
    """Does the request bring the operator's key? Without one being set: does the server ask for
    no keys, and listen to this machine alone?"""
    key = settings.server.operator_api_key
    if key is None:
        return not settings.limits.require_api_key and _alone(settings.server.host)
    return secrets.compare_digest(bearer(request).encode(), key.get_secret_value().encode())


def _alone(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _operator(request: Request, services: Given) -> None:
    if not is_operator(request, services.settings):
        raise HTTPException(404, "there is nothing at this address: /docs lists the API")


Operator = Annotated[None, Depends(_operator)]
"""For routes of the operator; to others they are not there."""
