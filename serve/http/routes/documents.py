"""Documents, their chunks and their history. Ids may contain slashes, encoded or not; one that ends
like the name of a part (`/chunks`) is told from it by encoding the slash."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from retrieval.errors import NotFound
from retrieval.ingest.operations import worker
from retrieval.store import chunks, documents, history
from retrieval.store.keyset import searching
from retrieval.types import TagsMatch
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Given, Reader, Services, Tenant
from serve.http.wire.pages import PAGE_MAX, Count, Cursor, Offset, PageSize
from serve.http.wire.tags import TagList
from serve.http.wire.writes import DocumentPatch

router = Router(tags=["documents"])
_DOCUMENT = f"{BANK}/documents/{{document_id:path}}"


async def _either(
    services: Services, tenant: str, bank_id: str, other: str, part: Awaitable[dict[str, Any]]
) -> Response:
    """The part of a document that the address names; where there is no such document, the one
    whose id the address is as a whole: ids may end like the names of parts."""
    try:
        return json_response(await part)
    except NotFound as error:
        try:
            return json_response(await documents.get(services.pool, tenant, bank_id, other))
        except NotFound:
            raise error from None


@router.get(f"{BANK}/documents", operation_id="list_documents")
async def list_documents(
    bank_id: str,
    tenant: Reader,
    services: Given,
    q: str | None = None,
    tags: TagList = None,
    tags_match: TagsMatch = TagsMatch.ANY_STRICT,
    time_field: str | None = None,
    start_date: str | None = None,
    end_date: str | None = None,
    limit: PageSize = 100,
    offset: Offset = 0,
    cursor: Cursor = None,
    count: Count | None = None,
) -> Response:
    """The bank's documents, last changed first; with a time field, latest by that."""
    async with searching(q, count):
        found = await documents.list_documents(
            services.pool,
            tenant,
            bank_id,
            q=q,
            tags=tags,
            tags_match=tags_match,
            time_field=time_field,
            start_date=start_date,
            end_date=end_date,
            limit=limit,
            offset=offset,
            cursor=cursor,
            count=count,
        )
    return json_response(found)


@router.get(f"{_DOCUMENT}/chunks", operation_id="list_document_chunks")
async def list_chunks(
    bank_id: str,
    document_id: str,
    tenant: Reader,
    services: Given,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    offset: Offset = 0,
) -> Response:
    """A document's chunks in order."""
    return await _either(
        services,
        tenant,
        bank_id,
        f"{document_id}/chunks",
        chunks.of_document(services.pool, tenant, bank_id, document_id, limit=limit, offset=offset),
    )


@router.post(f"{_DOCUMENT}/reprocess", operation_id="reprocess_document")
async def reprocess(bank_id: str, document_id: str, tenant: Tenant, services: Given) -> Response:
    """Rebuilds a document's memories from its stored text, in the background.

    With the bank's settings of today; edits of single memories do not outlive it.
    """
    async with services.write_admission.enter(tenant):
        return json_response(
            await worker.submit_reprocess(services.pool, tenant, bank_id, document_id)
        )


@router.get(f"{_DOCUMENT}/history", operation_id="get_document_history")
async def list_history(
    bank_id: str,
    document_id: str,
    tenant: Tenant,
    services: Given,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    offset: Offset = 0,
) -> Response:
    """What happened to a document, newest first."""
    return await _either(
        services,
        tenant,
        bank_id,
        f"{document_id}/history",
        history.of_document(
            services.pool, tenant, bank_id, document_id, limit=limit, offset=offset
        ),
    )


@router.get(_DOCUMENT, operation_id="get_document")
async def get_document(bank_id: str, document_id: str, tenant: Reader, services: Given) -> Response:
    """One document with its text."""
    return json_response(await documents.get(services.pool, tenant, bank_id, document_id))


@router.patch(_DOCUMENT, operation_id="update_document")
async def patch_document(
    bank_id: str, document_id: str, body: DocumentPatch, tenant: Tenant, services: Given
) -> Response:
    """Sets a document's tags or observation scopes, and those of its memories."""
    async with services.write_admission.enter(tenant):
        changed = await services.writer.patch_document(
            tenant, bank_id, document_id, body.tags, body.observation_scopes
        )
    return json_response(changed)


@router.delete(_DOCUMENT, operation_id="delete_document")
async def delete_document(
    bank_id: str, document_id: str, tenant: Tenant, services: Given
) -> Response:
    """Removes a document and its memories."""
    async with services.write_admission.enter(tenant):
        return json_response(await services.writer.delete_document(tenant, bank_id, document_id))


@router.get("/v1/default/chunks/{chunk_id:path}", operation_id="get_chunk")
async def get_chunk(chunk_id: str, tenant: Reader, services: Given) -> Response:
    """One chunk by its id, which names bank, document and place."""
    return json_response(await chunks.get(services.pool, tenant, chunk_id))
