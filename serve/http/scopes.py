"""Which scope of a key each route needs (`retrieval.store.tenants.SCOPES`)."""

from __future__ import annotations

from collections.abc import Collection

from retrieval import errors
from retrieval.store.tenants import Access

_ROOT = "/v1/default/banks/{bank_id}"
_ONLY_READ = (
    "/memories/recall",
    "/memories/recall/explain",
    "/memories/dry-run-extract",
    "/reflect",
    "/consolidation/preview",
    "/consolidation-strategies/preview",
    "/mental-models/{mental_model_id}/dry-run-refresh",
    "/prompts/preview",
    "/health/llm",
)
"""Addresses below a bank whose POST changes nothing."""
_OF_BANKS = ("", "/profile", "/background", "/config")
"""Addresses whose changes are a bank's settings, or its end."""
_SENDS = "/webhooks"
"""Addresses by which a bank's content leaves the server."""


class Forbidden(errors.FourfoldError):
    """The key is good, and may not do this (403)."""


def needed(methods: Collection[str], path: str) -> str:
    """The scope that the route of these methods and this template needs."""
    if "GET" in methods:
        return "read"
    _, _, place = path.partition(_ROOT)
    if place in _OF_BANKS or place.startswith(_SENDS):
        return "admin"
    return "read" if place in _ONLY_READ else "write"


def require(access: Access, scope: str) -> None:
    """Forbidden unless the key has the scope."""
    if scope not in access.scopes:
        own = ", ".join(sorted(access.scopes))
        raise Forbidden(f"this key may not do this: it needs the scope {scope!r}, and has {own}")
