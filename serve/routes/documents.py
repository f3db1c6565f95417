"""Documents and their chunks. Ids of both may contain slashes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from retrieval.ingest import worker
from retrieval.store import chunks, documents
from retrieval.types import TagsMatch
from serve.errors import json_response
from serve.routes.recall import BANK
from serve.routing import Router
from serve.services import Given, Reader, Tenant
from serve.wire.pages import PAGE_MAX, Offset, PageSize
from serve.wire.tags import TagList
from serve.wire.writes import DocumentPatch

router = Router(tags=["documents"])
_DOCUMENT = f"{BANK}/documents/{{document_id:path}}"


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
) -> Response:
    """The bank's documents, last changed first; with a time field, latest by that."""
    return json_response(
        await documents.list_documents(
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
        )
    )


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
    return json_response(
        await chunks.of_document(
            services.pool, tenant, bank_id, document_id, limit=limit, offset=offset
        )
    )


@router.post(f"{_DOCUMENT}/reprocess", operation_id="reprocess_document")
async def reprocess(bank_id: str, document_id: str, tenant: Tenant, services: Given) -> Response:
    """Makes a document's memories anew from its stored text, in the background.

    With the bank's settings of today; edits of single memories do not outlive it.
    """
    async with services.write_admission.enter(tenant):
        return json_response(
            await worker.submit_reprocess(services.pool, tenant, bank_id, document_id)
        )


@router.get(f"{_DOCUMENT}/history", include_in_schema=False)
async def history(bank_id: str, document_id: str) -> Response:
    return json_response({"detail": "the history of documents is not built here."}, 501)


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
