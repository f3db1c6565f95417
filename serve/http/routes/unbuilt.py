"""Endpoints of the public API that this server does not have: 501 with a sentence, never 404."""

from __future__ import annotations

from starlette.responses import Response

from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router

router = Router(tags=["not built"])

UNBUILT: tuple[tuple[str, str, str], ...] = (
    ("GET", f"{BANK}/attachments/{{attachment_id}}", "attachments are not built here"),
)
"""(method, path, why)."""


def _add(method: str, path: str, why: str) -> None:
    async def unbuilt() -> Response:
        return json_response({"detail": f"{why}."}, 501)

    router.add_api_route(path, unbuilt, methods=[method], include_in_schema=False)


for _entry in UNBUILT:
    _add(*_entry)
