"""Uploaded files: their text is retained, in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, Any

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.responses import Response

from retrieval.errors import InvalidInput
from retrieval.ingest.files import operation
from retrieval.ingest.files.detection import LOOKED_AT, Kind, Unread, detect, missing
from retrieval.ingest.files.operation import FileToRetain
from serve import metrics
from serve.http.bodies import Bodies
from serve.http.errors import TooLarge, json_response, wrong_at
from serve.http.routes.recall import BANK
from serve.http.routing import Router, streamed
from serve.http.services import Given, Services, Tenant
from serve.http.wire.files import FilesBody

router = Router(tags=["memory"])

PARSERS = frozenset({"markitdown"})
FORM_BYTES = 2 << 20
"""Room for what stands beside the files in a form."""
NAME_CHARS = 255

_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "additionalProperties": False,
                    "properties": {
                        "files": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                        },
                        "request": {
                            "type": "string",
                            "description": "JSON: {parser, files_metadata: [{document_id, context,"
                            " metadata, tags, timestamp, parser, strategy}]}",
                        },
                    },
                }
            }
        },
    }
}


@router.post(f"{BANK}/files/retain", operation_id="file_retain", openapi_extra=_FORM)
@streamed
async def retain_files(bank_id: str, request: Request, tenant: Tenant, services: Given) -> Response:
    """Retains the texts of files: text, Markdown, CSV, JSON, YAML, HTML, XML and code; with the
    extra `files` also pdf, docx, pptx and xlsx. What a file is, its content says, not its name.

    A form with `files` and, as wanted, `request`, a JSON text. One operation per file.
    """
    settings = services.settings.files
    if not settings.enable_file_upload_api:
        raise HTTPException(404, "uploading files is switched off (ENABLE_FILE_UPLOAD_API)")
    with metrics.measured("files"):
        async with _form(request, tenant, services) as form:
            uploads = await _uploads(form, settings.file_conversion_max_batch_size)
            async with services.write_admission.enter(tenant):
                with wrong_at("files_metadata", "body", "request"):
                    made = await operation.submit(
                        services.pool,
                        tenant,
                        bank_id,
                        uploads,
                        services.settings.retain,
                        waiting_bytes=settings.file_waiting_mb << 20,
                        keeps=not settings.file_delete_after_retain,
                    )
    return json_response({"operation_ids": made})


class _Form(MultiPartParser):
    """Knows whether a form came to its end."""

    ended = False

    def on_end(self) -> None:
        self.ended = True

    def close(self) -> None:
        for file in self._files_to_close_on_error:
            file.close()


@asynccontextmanager
async def _form(request: Request, tenant: str, services: Services) -> AsyncIterator[FormData]:
    """The form of a request, its files on disk until the block ends."""
    settings = services.settings.files
    most = settings.file_conversion_max_batch_size_mb << 20
    bodies: Bodies = request.app.state.bodies
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise _wrong("the body must be multipart/form-data with the field files", "body")
    parser = _Form(
        request.headers,
        bodies.stream(request, tenant, most + FORM_BYTES),
        max_files=settings.file_conversion_max_batch_size,
        max_fields=20,
        max_part_size=FORM_BYTES,
    )
    too_large = InvalidInput(f"files: more than {most >> 20} MB at once", "files")
    try:
        form = await parser.parse()
    except TooLarge as error:
        if str(most + FORM_BYTES) in str(error):
            raise too_large from None
        raise
    except MultiPartException as error:
        raise InvalidInput(f"files: {error.message}", "files") from None
    if not parser.ended:
        parser.close()
        raise InvalidInput("files: the form is cut off before its last boundary", "files")
    try:
        if (
            sum(file.size or 0 for file in form.getlist("files") if not isinstance(file, str))
            > most
        ):
            raise too_large
        yield form
    finally:
        await form.close()


def _wrong(sentence: str, *where: str | int) -> RequestValidationError:
    return RequestValidationError([{"type": "value_error", "loc": where, "msg": sentence}])


async def _uploads(form: FormData, most: int) -> list[FileToRetain]:
    found = form.getlist("files")
    files = [file for file in found if isinstance(file, UploadFile)]
    if not files or len(files) < len(found):
        raise _wrong("files: send at least one file, each with a filename", "body", "files")
    if len(files) > most:
        raise InvalidInput(f"files: {len(files)} files, at most {most} at once", "files")
    body = _body(form.get("request"))
    said = body.files_metadata
    if said is None:
        said = [{}] * len(files)
    if len(said) != len(files):
        raise InvalidInput(
            f"files_metadata: {len(said)} entries for {len(files)} files", "files_metadata"
        )
    for parser in (body.parser, *(one.pop("parser", None) for one in said)):
        _check_parser(parser)
    uploads = []
    for place, (file, one) in enumerate(zip(files, said, strict=True)):
        name = (file.filename or f"file {place}").replace("\0", "")[:NAME_CHARS]
        try:
            kind = await asyncio.to_thread(_kind, file.file)
        except Unread as error:
            raise _wrong(f"{name}: {error}", "body", "files", place) from None
        if missing(kind):
            raise HTTPException(
                501, f"{name}: reading {kind} needs the extra: pip install 'fourfold[files]'"
            )
        uploads.append(
            FileToRetain(file.file, name, file.size or 0, kind, one, file.content_type or "")
        )
    return uploads


def _kind(file: IO[bytes]) -> Kind:
    file.seek(0)
    head = file.read(LOOKED_AT)
    size = file.seek(0, 2)
    file.seek(max(0, size - LOOKED_AT))
    return detect(head, file.read(LOOKED_AT))


def _body(given: Any) -> FilesBody:
    if given is None or given == "":
        return FilesBody()
    if not isinstance(given, str):
        raise _wrong("request must be a JSON text, not a file", "body", "request")
    try:
        return FilesBody.model_validate(orjson.loads(given.replace("\\u0000", "")))
    except orjson.JSONDecodeError as error:
        raise _wrong(f"request is not JSON: {error.msg}", "body", "request") from None
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[:100]
        raise RequestValidationError(
            [{**problem, "loc": ("body", "request", *problem["loc"])} for problem in found]
        ) from None


def _check_parser(given: object) -> None:
    names = given if isinstance(given, list) else [] if given is None else [given]
    for name in names:
        if not isinstance(name, str) or name not in PARSERS:
            raise InvalidInput(
                f"parser {str(name)[:60]!r} is not known here: {', '.join(sorted(PARSERS))}",
                "parser",
            )
