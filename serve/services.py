"""What the endpoints call. Built by the composition root, one per process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from retrieval.recall import RecallResult
from retrieval.store import limits, tenants
from retrieval.store.pool import Pool
from retrieval.types import RecallQuery
from serve.door import Door
from serve.errors import Unauthorized
from serve.llm import LanguageModels
from serve.settings import Settings


class Recaller(Protocol):
    async def recall(self, query: RecallQuery) -> RecallResult: ...


class Writer(Protocol):
    """Every change to a bank's memories; in this process or behind a handle.

    Each call is one transaction: done when it returns, nothing done when it raises. Answers are
    dicts ready for JSON.
    """

    async def retain(
        self,
        tenant: str,
        bank_id: str,
        items: Sequence[Mapping[str, Any]],
        document_tags: Sequence[str],
    ) -> dict[str, Any]: ...

    async def retain_later(
        self,
        tenant: str,
        bank_id: str,
        items: Sequence[Mapping[str, Any]],
        document_tags: Sequence[str],
        operation_id: str | None,
    ) -> dict[str, Any]: ...

    async def import_memories(
        self, tenant: str, bank_id: str, memories: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]: ...

    async def patch_memory(
        self, tenant: str, bank_id: str, memory_id: str, changes: Mapping[str, Any]
    ) -> dict[str, Any]: ...

    async def delete_memory(self, tenant: str, bank_id: str, memory_id: str) -> dict[str, Any]: ...

    async def delete_derived(self, tenant: str, bank_id: str, memory_id: str) -> dict[str, Any]: ...

    async def clear(self, tenant: str, bank_id: str, kind: str | None) -> dict[str, Any]: ...

    async def delete_document(
        self, tenant: str, bank_id: str, document_id: str
    ) -> dict[str, Any]: ...

    async def patch_document(
        self,
        tenant: str,
        bank_id: str,
        document_id: str,
        tags: Sequence[str] | None,
        observation_scopes: Any,
    ) -> dict[str, Any]: ...

    async def merge_entities(
        self, tenant: str, bank_id: str, into: str, others: Sequence[str]
    ) -> dict[str, Any]: ...

    async def split_entity(
        self,
        tenant: str,
        bank_id: str,
        entity_id: str,
        name: str,
        memory_ids: Sequence[str] | None,
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    pool: Pool
    recaller: Recaller
    writer: Writer
    recall_door: Door
    write_door: Door
    llm: LanguageModels = field(default_factory=LanguageModels)
    """Language models that the endpoints ask themselves."""
    models: Mapping[str, Any] = field(default_factory=dict)
    """What the models are, for /health and /version."""
    parts: tuple[Any, ...] = ()
    """Models that run in this process; each has `check_health`."""
    started: float = field(default_factory=time.monotonic)


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Given = Annotated[Services, Depends(_services)]


async def _tenant(request: Request, services: Given) -> str:
    tenant = await _owner(request, services)
    limit = (await limits.of(services.pool, tenant)).max_body_bytes
    if limit and len(await request.body()) > limit:
        raise HTTPException(413, f"the request body is larger than this tenant's {limit} bytes")
    return tenant


async def _owner(request: Request, services: Services) -> str:
    """Whose key the request carries."""
    if not services.settings.limits.require_api_key:
        return tenants.DEFAULT_TENANT
    header = request.headers.get("authorization", "").strip()
    scheme, _, rest = header.partition(" ")
    key = rest.strip() if scheme.lower() == "bearer" else header
    if not key:
        raise Unauthorized("an API key is needed: send `Authorization: Bearer <key>`")
    tenant = await tenants.tenant_of(services.pool, key)
    if tenant is None:
        raise Unauthorized("this API key is not known or was revoked")
    return tenant


Tenant = Annotated[str, Depends(_tenant)]


async def most_items(services: Services, tenant: str, common: int) -> int:
    """How many items one write of the tenant may have."""
    own = (await limits.of(services.pool, tenant)).max_items
    return min(own, common) if own else common
