"""What the endpoints call. Built by the composition root, one per process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request
from starlette.types import Scope

from retrieval.errors import NeedsModel, Unavailable
from retrieval.lifecycle.audit.recorder import Recorder
from retrieval.lifecycle.webhooks.registry import WebhookRegistry
from retrieval.mental.schedule import Documents
from retrieval.pacing import Pace
from retrieval.protocols import Embedder, Reranker
from retrieval.recall.engine import Recaller
from retrieval.recall.explaining import Explainer
from retrieval.reflect.query import Listener, ReflectQuery, ReflectResult
from retrieval.store import limits, tenants
from retrieval.store.answers import Key
from retrieval.store.database.pool import Pool
from retrieval.store.erasure import Note
from retrieval.store.turns import Line
from serve.admission.controller import AdmissionController, LimitShare
from serve.admission.wrong_keys import WrongKeys
from serve.http import scopes
from serve.http.activity import Activity
from serve.http.errors import Unauthorized
from serve.http.feed import OperationFeed
from serve.http.guard import arrived
from serve.opening.counting import Counting
from serve.opening.hot import HotSettings
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
        limit_s: float | None = None,
    ) -> dict[str, Any]:
        """`key`: the same again has the same answer. `left_s`: how long to wait for others who
        write the same documents. `limit_s`: how long reading by a language model may take."""
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

    async def preview_erasure(
        self, tenant: str, bank_id: str, selectors: Mapping[str, Any], observations: str
    ) -> dict[str, Any]:
        """What an erasure would do; it changes nothing."""
        ...


async def _nothing() -> Sequence[str]:
    return ()


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
    drawing_admission: AdmissionController = field(
        default_factory=lambda: AdmissionController(2, 16, wait_max_s=30.0)
    )
    """Graphs and long pages, which hold a place of reads, too: one of each tenant at a time."""
    reflect_admission: AdmissionController = field(
        default_factory=lambda: AdmissionController(32, 64, wait_max_s=30.0)
    )
    """Reflects: they wait for language models, and hold no place of recalls meanwhile."""
    upload_admission: AdmissionController = field(
        default_factory=lambda: AdmissionController(4, 8, wait_max_s=30.0)
    )
    """Archives on their way in: they take long to come, and lie on the disk meanwhile."""
    explainer: Explainer | None = None
    """Explains recalls, and looks at banks where their arrays are; None: this server cannot."""
    explain_admission: AdmissionController = field(
        default_factory=lambda: AdmissionController(2, 8, wait_max_s=30.0)
    )
    """Explained recalls, which hold a place of recalls, too."""
    activity: Activity = field(default_factory=Activity)
    feed: OperationFeed = field(default_factory=OperationFeed)
    retain_admission: AdmissionController = field(
        default_factory=lambda: AdmissionController(128, 64)
    )
    """Retains that wait for a language model."""
    line: Line = field(default_factory=Line)
    """Retains that wait for others who write the same documents: they hold no place meanwhile."""
    pace: Pace = field(default_factory=Pace)
    """Turns at the event loop, for what holds it for some milliseconds."""
    llm: LanguageModels = field(default_factory=LanguageModels)
    """Language models that the endpoints ask themselves."""
    documents: Documents | None = None
    """What keeps mental models up to date; None where nobody could write one."""
    webhooks: WebhookRegistry | None = None
    """Who is told what happens; None: nobody can be."""
    recorder: Recorder | None = None
    """Notes requests in the audit log."""
    note: Note | None = None
    """Keeps deletions outside of the database."""
    embedder: Embedder | None = None
    """Makes vectors for what the endpoints search themselves, where this process can."""
    reranker: Reranker | None = None
    """What orders results, for /health."""
    counting: Counting = field(default_factory=Counting)
    """What each tenant does."""
    hot: HotSettings | None = None
    """Settings that change while this process runs."""
    share: Callable[[], LimitShare] = LimitShare
    """This process among those that let requests in."""
    parts: tuple[Any, ...] = ()
    """Models that run in this process; each has `check_health`."""
    wrong_keys: WrongKeys = field(default_factory=lambda: WrongKeys(0))
    """Who tries wrong keys."""
    absent: Callable[[], Awaitable[Sequence[str]]] = _nothing
    """The stages elsewhere of which no replica answers."""
    started: float = field(default_factory=time.monotonic)

    @property
    def models(self) -> Mapping[str, str]:
        """What the models are, for /health; one elsewhere says so once it answered."""
        embedder = "in the retriever" if self.embedder is None else self.embedder.model_id
        return {"embedder": embedder or "remote", "reranker": getattr(self.reranker, "name", "")}


def looking(services: Services) -> Explainer:
    """What looks at banks. Unavailable where nothing does."""
    if services.explainer is None:
        raise Unavailable("the retriever", "this process cannot look at banks")
    return services.explainer


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Given = Annotated[Services, Depends(_services)]


TENANT = "fourfold.tenant"
"""Key of a request's scope: whose it is, found out before its body is read."""
SCOPES = "fourfold.scopes"
"""Key of a request's scope: what the key may do."""


async def authenticate(request: Request) -> str:
    """Whose request it is, by its key; noted in its scope. Unauthorized.

    What the process asks itself for somebody whom it knows (serve/mcp/calls.py) has it noted.
    """
    if TENANT in request.scope:
        return await tenant_of(request)
    access = await _access(request, request.app.state.services)
    admit(request.scope, access)
    return access.tenant


def admit(scope: Scope, access: tenants.Access) -> None:
    """Notes whose request it is, and what the key may do."""
    scope[TENANT], scope[SCOPES] = access.tenant, access.scopes


def require(request: Request, scope: str) -> None:
    """Forbidden unless the request's key has the scope."""
    scopes.require(tenants.Access(request.scope[TENANT], request.scope[SCOPES]), scope)


async def tenant_of(request: Request) -> str:
    """Whose request it is, once it was authenticated."""
    tenant: str = request.scope[TENANT]
    return tenant


async def _access(request: Request, services: Services) -> tenants.Access:
    if not services.settings.limits.require_api_key:
        return tenants.Access(tenants.DEFAULT_TENANT, frozenset(tenants.SCOPES))
    return await access_of(request, services)


async def access_of(request: Request, services: Services) -> tenants.Access:
    """What the request's key gives. Unauthorized; RateLimited where its address guesses keys."""
    key = bearer(request)
    if not key:
        raise Unauthorized("an API key is needed: send `Authorization: Bearer <key>`")
    address = client_address(request)
    if not tenants.remembered(services.pool, key):
        services.wrong_keys.check(address)
    access = await tenants.access(services.pool, key)
    if access is None:
        services.wrong_keys.wrong(address)
        raise Unauthorized("this API key is not known, is over, or was revoked")
    return access


def client_address(request: Request) -> str:
    """Where the request comes from: as our proxy on this machine says, or the other end of the
    connection. What a client writes into that header itself stands before the proxy's word."""
    peer = request.client.host if request.client is not None else ""
    if not peer.startswith("127.") and peer != "::1":
        return peer
    said = request.headers.getlist("x-forwarded-for")
    return said[-1].rpartition(",")[2].strip() if said else peer


def bearer(request: Request) -> str:
    """The key that a request carries, behind `Bearer` or bare; empty if none."""
    header = request.headers.get("authorization", "").strip()
    scheme, _, rest = header.partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else header


Tenant = Annotated[str, Depends(tenant_of)]
"""Whose request it is, for routes that see to their admission themselves."""


async def _reading(request: Request, tenant: Tenant, services: Given) -> AsyncIterator[str]:
    async with services.read_admission.enter(tenant, since=arrived(request.scope)):
        yield tenant


async def _changing(request: Request, tenant: Tenant, services: Given) -> AsyncIterator[str]:
    async with services.write_admission.enter(tenant, since=arrived(request.scope)):
        yield tenant


Reader = Annotated[str, Depends(_reading, scope="function")]
"""The tenant, admitted among those that read, until the endpoint is done. What a request waited
since it came counts in this line and the next."""


async def _drawing(request: Request, tenant: Reader, services: Given) -> AsyncIterator[str]:
    async with services.drawing_admission.enter(tenant, since=arrived(request.scope)):
        yield tenant


Drawer = Annotated[str, Depends(_drawing, scope="function")]
"""As Reader, for answers of thousands of rows."""
Changer = Annotated[str, Depends(_changing, scope="function")]
"""The tenant, admitted among those that write, until the endpoint is done."""


def needs_model(able: bool, what: str) -> None:
    """NeedsModel where no language model could do `what`."""
    if not able:
        raise NeedsModel.to(what)


async def largest_body(services: Services, tenant: str) -> int:
    """Bytes that a body of the tenant may have by its own limits; 0: no limit of its own."""
    return (await limits.of_tenant(services.pool, tenant)).max_body_bytes or 0


async def most_items(services: Services, tenant: str, common: int) -> int:
    """How many items one write of the tenant may have."""
    own = (await limits.of_tenant(services.pool, tenant)).max_items
    return min(own, common) if own else common
