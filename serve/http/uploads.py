"""Files that are sent to a route: read as they come, within bounds, onto the disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO, Any

from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from retrieval.errors import InvalidInput
from serve.http.bodies import declared, parts
from serve.http.errors import TooLarge, UnsupportedEncoding

FIELDS_MOST = 16
FRAME_BYTES = 64 * 2**10
"""What a multipart body may have around its file."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that came whole: open at its beginning, gone when the request ends."""

    file: IO[bytes]
    name: str


MULTIPART: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {
                            "type": "string",
                            "format": "binary",
                            "description": "The archive.",
                        }
                    },
                }
            }
        },
    }
}
"""For the description of a route that takes one file."""


@asynccontextmanager
async def received(request: Request, limit: int) -> AsyncIterator[Upload]:
    """The body's part `file`, of at most `limit` bytes. InvalidInput where there is none."""
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise UnsupportedEncoding(request.headers["content-encoding"][:100])
    length = declared(request.headers)
    most = limit + FRAME_BYTES
    if length is not None and length > most:
        raise TooLarge(limit)
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise InvalidInput("send the archive as multipart/form-data, in a part `file`", "file")
    parser = MultiPartParser(
        request.headers,
        parts(request, most, ""),  # type: ignore[arg-type]
        max_files=1,
        max_fields=FIELDS_MOST,
        max_part_size=FRAME_BYTES,
    )
    try:
        form = await parser.parse()
    except (
        MultiPartException,
        FormParserError,
        KeyError,
        UnicodeDecodeError,
        AttributeError,
    ) as error:
        said = getattr(error, "message", "") or "its boundary is missing or wrong"
        raise InvalidInput(f"the multipart body cannot be read: {said}", "file") from None
    finally:
        if not parser.items:
            for left in parser._files_to_close_on_error:
                left.close()
    try:
        given = form.get("file")
        if not isinstance(given, UploadFile):
            raise InvalidInput("the body has no part `file` with a file in it", "file")
        yield Upload(given.file, given.filename or "")
    finally:
        await form.close()
