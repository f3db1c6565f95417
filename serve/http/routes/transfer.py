"""Banks and documents that leave, come in, or are copied; and the archives that were made."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from retrieval.errors import InvalidInput, NotFound
from retrieval.lifecycle.transfer import jobs
from retrieval.lifecycle.transfer.archive import ArchiveContents
from retrieval.lifecycle.transfer.exporting import Wanted
from retrieval.lifecycle.transfer.jobs import ImportRequest
from retrieval.store import stored_files as files
from retrieval.store.edge import one_of
from serve.http.downloads import Download, answer, named
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router, streamed
from serve.http.services import Changer, Given, Reader, Services, Tenant
from serve.http.uploads import MULTIPART, received

router = Router(tags=["transfer"])

DOCUMENTS_MOST = 1_000
_KEY = re.compile(r"[A-Za-z0-9._/-]{1,300}")

DocumentIds = Annotated[list[str] | None, Query(max_length=DOCUMENTS_MOST)]


def _open(allowed: bool, what: str) -> None:
    if not allowed:
        raise HTTPException(404, f"{what} is switched off")


def _may_export(services: Services) -> None:
    _open(services.settings.transfer.enable_document_export_api, "exporting")


def _may_import(services: Services) -> None:
    _open(services.settings.transfer.enable_document_import_api, "importing")


@router.post(f"{BANK}/transfer/export", operation_id="export_bank_transfer", status_code=202)
async def export_bank(
    bank_id: str,
    tenant: Changer,
    services: Given,
    include_data: bool = True,
    include_bank_config: bool = True,
    include_history: bool = False,
    document_id: DocumentIds = None,
    format: str = "fourfold",
    include_vectors: bool = False,
) -> Response:
    """Queues an archive of the bank, of one moment. Its operation says where it can be fetched."""
    _may_export(services)
    include = ArchiveContents(include_data, include_bank_config, include_history)
    if not (include_data or include_bank_config or include_history):
        raise InvalidInput("include_data, include_bank_config and include_history are all false")
    if document_id and (include_bank_config or include_history or not include_data):
        raise InvalidInput(
            "document_id goes with include_data alone: set include_bank_config and include_history"
            " to false",
            "document_id",
        )
    wanted = Wanted(
        include,
        documents=document_id or None,
        observations=not document_id,
        documents_only=bool(document_id),
        vectors=include_vectors,
    )
    return await _submitted(services, tenant, bank_id, wanted, format)


async def _submitted(
    services: Services, tenant: str, bank_id: str, wanted: Wanted, format: str
) -> Response:
    one_of(format, ("fourfold", "hindsight"), "format")
    if format == "hindsight" and wanted.vectors:
        raise InvalidInput("include_vectors: the peer's format has none", "include_vectors")
    kind: jobs.Format = "hindsight" if format == "hindsight" else "fourfold"
    return json_response(
        await jobs.submit_export(services.pool, tenant, bank_id, wanted, kind), 202
    )


@router.post(
    f"{BANK}/transfer/import",
    operation_id="import_bank_transfer",
    status_code=202,
    openapi_extra=MULTIPART,
)
@streamed
async def import_bank(
    bank_id: str,
    tenant: Tenant,
    services: Given,
    request: Request,
    mode: str = "restore",
    target_bank_id: str | None = None,
    document_conflict: str = "skip",
    include_data: bool = True,
    include_bank_config: bool = True,
    include_history: bool = False,
) -> Response:
    """Takes an archive in: as a bank of its own (restore), or beside what this bank holds (merge).
    The operation belongs to this bank, which may be missing where it is itself made."""
    _may_import(services)
    include = ArchiveContents(include_data, include_bank_config, include_history)
    if mode == "merge" and include != ArchiveContents():
        raise InvalidInput("a merge takes documents alone: leave the include flags out", "mode")
    asked = ImportRequest(
        _mode(mode), target_bank_id, _rule(document_conflict, "document_conflict"), include
    )
    return await _taken(services, tenant, bank_id, asked, request)


def _mode(value: str) -> jobs.Mode:
    one_of(value, ("restore", "merge"), "mode")
    return "merge" if value == "merge" else "restore"


def _rule(value: str, field: str) -> jobs.Rule:
    one_of(value, ("skip", "replace", "new-id"), field)
    return "replace" if value == "replace" else "new-id" if value == "new-id" else "skip"


async def _taken(
    services: Services, tenant: str, bank_id: str, asked: ImportRequest, request: Request
) -> Response:
    """What can be said before the archive comes is said then: it may be large."""
    settings = services.settings.transfer
    await jobs.check_import(services.pool, tenant, bank_id, asked)
    async with (
        services.upload_admission.enter(tenant),
        received(request, settings.transfer_max_bytes) as upload,
    ):
        made = await jobs.submit_import(
            services.pool, tenant, bank_id, upload.file, asked, settings=settings
        )
    return json_response(made, 202)


@router.post(f"{BANK}/clone", operation_id="clone_bank", status_code=202)
async def clone_bank(
    bank_id: str,
    target_bank_id: str,
    tenant: Changer,
    services: Given,
    include_data: bool = True,
    include_bank_config: bool = True,
    include_history: bool = False,
) -> Response:
    """Queues a copy of the bank as it is when the copy is made; nothing is embedded again."""
    _may_export(services)
    _may_import(services)
    include = ArchiveContents(include_data, include_bank_config, include_history)
    made = await jobs.submit_clone(services.pool, tenant, bank_id, target_bank_id, include)
    return json_response(made, 202)


@router.post(f"{BANK}/document-transfer/export", operation_id="export_documents", status_code=202)
async def export_documents(
    bank_id: str,
    tenant: Changer,
    services: Given,
    document_id: DocumentIds = None,
    include_observations: bool = False,
    include_knowledge_base: bool = False,
    format: str = "fourfold",
) -> Response:
    """Queues an archive of documents, to be put beside others."""
    _may_export(services)
    if document_id and (include_observations or include_knowledge_base):
        raise InvalidInput(
            "observations and the knowledge base stand over all documents: leave document_id out",
            "document_id",
        )
    wanted = Wanted(
        ArchiveContents(True, False, False),
        documents=document_id or None,
        observations=include_observations,
        knowledge_base=include_knowledge_base,
        documents_only=True,
    )
    return await _submitted(services, tenant, bank_id, wanted, format)


@router.post(
    f"{BANK}/document-transfer",
    operation_id="import_documents",
    status_code=202,
    openapi_extra=MULTIPART,
)
@streamed
async def import_documents(
    bank_id: str, tenant: Tenant, services: Given, request: Request, on_conflict: str = "skip"
) -> Response:
    """Puts the documents of an archive beside what the bank holds, which is made if missing."""
    _may_import(services)
    asked = ImportRequest("merge", None, _rule(on_conflict, "on_conflict"))
    return await _taken(services, tenant, bank_id, asked, request)


@router.get(f"{BANK}/document-transfer", operation_id="export_documents_sync_removed")
async def export_documents_sync(bank_id: str, tenant: Reader, services: Given) -> Response:
    """Gone: an export may take long."""
    raise HTTPException(410, "send POST to document-transfer/export: exports run as operations")


@router.get("/v1/default/files/download/{key:path}", operation_id="download_file")
async def download(
    key: str,
    tenant: Reader,
    services: Given,
    range: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
    if_range: Annotated[str | None, Header()] = None,
) -> Response:
    """An archive that an operation made, whole or from where a download broke off."""
    if not _KEY.fullmatch(key):
        raise NotFound("there is no such file, or its time is over")
    stored = await files.find(services.pool, tenant, key)
    file = Download(
        stored.media_type, stored.byte_size, stored.sha256, named(stored.name),
        lambda begin, end: files.chunks(services.pool, stored, begin, end), {},
    )  # fmt: skip
    return answer(file, range, if_none_match, if_range)
