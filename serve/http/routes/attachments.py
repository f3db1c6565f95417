"""Files that came with contents, as they were sent."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header
from starlette.responses import Response

from retrieval.store import attachments
from serve.http.downloads import Download, answer, named
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Given, Reader

router = Router(tags=["memory"])

_PICTURES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"}
)
"""What a browser shows and cannot be made to run."""


@router.get(f"{BANK}/attachments/{{attachment_id}}", operation_id="get_bank_attachment")
async def get_attachment(
    bank_id: str,
    attachment_id: str,
    tenant: Reader,
    services: Given,
    range: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
    if_range: Annotated[str | None, Header()] = None,
) -> Response:
    """An image or a file that a content came with, of the type that was declared. Pictures are
    shown, all else is downloaded."""
    held = await attachments.find(services.pool, tenant, bank_id, attachment_id)
    shown = held.kind == "image" and held.media_type in _PICTURES
    file = Download(
        held.media_type,
        held.byte_size,
        held.hash,
        named(held.filename or held.id, inline=shown),
        lambda begin, end: attachments.chunks(services.pool, held, begin, end),
        {
            "Cache-Control": "private, max-age=31536000, immutable",
            "Content-Security-Policy": "default-src 'none'; sandbox",
        },
    )
    return answer(file, range, if_none_match, if_range)
