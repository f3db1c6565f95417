"""What the endpoints call. Built by the composition root, one per process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request

from retrieval.mental.schedule import Documents
from retrieval.protocols import Embedder, Reranker
from retrieval.recall.engine import Recaller
from retrieval.reflect.query import Listener, ReflectQuery, ReflectResult
from retrieval.store import limits, tenants
from retrieval.store.answers import Key
from retrieval.store.database.pool import Pool
from serve.admission.controller import AdmissionController
from serve.http.errors import Unauthorized
from serve.opening.llm import LanguageModels
from serve.settings import Settings


class Reflector(Protocol):
    async def reflect(
        self, query: ReflectQuery, listener: Listener | None = None
    ) -> ReflectResult: ...

    async def preview(self, tenant: str, bank_id: str) -> dict[str, Any]: ...


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
        key: Key | None = None,
        left_s: float | None = None,
    ) -> dict[str, Any]:
        """`key`: the same again has the same answer. `left_s`: how long to wait for others who
        write the same documents."""
        ...

    async def retain_later(
        self,
        tenant: str,
        bank_id: str,
        items: Sequence[Mapping[str, Any]],
        document_tags: Sequence[str],
        operation_id: str | None,
        key: Key | None = None,
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

    async def preview_consolidation(
        self,
        tenant: str,
        bank_id: str,
        scopes: Sequence[Sequence[str]] | None,
        run: bool,
        left_s: float | None = None,
    ) -> dict[str, Any]:
        """What a consolidation would do and cost; it changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    pool: Pool
    recaller: Recaller
    writer: Writer
    reflector: Reflector
    recall_admission: AdmissionController
    write_admission: AdmissionController
    read_admission: AdmissionController = field(default_factory=lambda: AdmissionController(4, 32))
    """Lists, statistics, single reads."""
    reflect_admission: AdmissionController = field(
        default_factory=lambda: AdmissionController(32, 64, wait_max_s=30.0)
    )
    """Reflects: they wait for language models, and hold no place of recalls meanwhile."""
    llm: LanguageModels = field(default_factory=LanguageModels)
    """Language models that the endpoints ask themselves."""
    documents: Documents | None = None
    """What keeps mental models up to date; None where nobody could write one."""
    embedder: Embedder | None = None
    """Makes vectors for what the endpoints search themselves, where this process can."""
    reranker: Reranker | None = None
    """What orders results, for /health."""
    parts: tuple[Any, ...] = ()
    """Models that run in this process; each has `check_health`."""
    started: float = field(default_factory=time.monotonic)

    @property
    def models(self) -> Mapping[str, str]:
        """What the models are, for /health; one elsewhere says so once it answered."""
        embedder = "in the retriever" if self.embedder is None else self.embedder.model_id
        return {"embedder": embedder or "remote", "reranker": getattr(self.reranker, "name", "")}


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Given = Annotated[Services, Depends(_services)]


TENANT = "fourfold.tenant"
"""Key of a request's scope: whose it is, found out before its body is read."""


async def authenticate(request: Request) -> str:
    """Whose request it is, by its key; noted in its scope. Unauthorized.

    What the process asks itself for somebody whom it knows (serve/mcp/calls.py) has it noted.
    """
    if TENANT in request.scope:
        return await tenant_of(request)
    tenant = await _owner(request, request.app.state.services)
    request.scope[TENANT] = tenant
    return tenant


async def tenant_of(request: Request) -> str:
    """Whose request it is, once it was authenticated."""
    tenant: str = request.scope[TENANT]
    return tenant


async def _owner(request: Request, services: Services) -> str:
    if not services.settings.limits.require_api_key:
        return tenants.DEFAULT_TENANT
    key = bearer(request)
    if not key:
        raise Unauthorized("an API key is needed: send `Authorization: Bearer <key>`")
    tenant = await tenants.tenant_of(services.pool, key)
    if tenant is None:
        raise Unauthorized("this API key is not known or was revoked")
    return tenant


def bearer(request: Request) -> str:
    """The key that a request carries, behind `Bearer` or bare; empty if none."""
    header = request.headers.get("authorization", "").strip()
    scheme, _, rest = header.partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else header


Tenant = Annotated[str, Depends(tenant_of)]
"""Whose request it is, for routes that see to their admission themselves."""


async def _reading(tenant: Tenant, services: Given) -> AsyncIterator[str]:
    async with services.read_admission.enter(tenant):
        yield tenant


async def _changing(tenant: Tenant, services: Given) -> AsyncIterator[str]:
    async with services.write_admission.enter(tenant):
        yield tenant


Reader = Annotated[str, Depends(_reading, scope="function")]
"""The tenant, admitted among those that read, until the endpoint is done."""
Changer = Annotated[str, Depends(_changing, scope="function")]
"""The tenant, admitted among those that write, until the endpoint is done."""


async def largest_body(services: Services, tenant: str) -> int:
    """Bytes that a body of the tenant may have by its own limits; 0: no limit of its own."""
    return (await limits.of_tenant(services.pool, tenant)).max_body_bytes or 0


async def most_items(services: Services, tenant: str, common: int) -> int:
    """How many items one write of the tenant may have."""
    own = (await limits.of_tenant(services.pool, tenant)).max_items
    return min(own, common) if own else common
