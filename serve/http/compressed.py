"""Answers that are worth compressing, where the client takes gzip."""

from __future__ import annotations

import asyncio
import gzip

from starlette.requests import Request
from starlette.responses import Response

LEAST_BYTES = 4_096


async def compressed(request: Request, content: bytes) -> Response:
    """JSON, compressed off the event loop where that pays."""
    headers = {"Vary": "Accept-Encoding"}
    if len(content) >= LEAST_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        content = await asyncio.to_thread(gzip.compress, content, 5)
        headers["Content-Encoding"] = "gzip"
    return Response(content, headers=headers, media_type="application/json")
