"""Endpoints of the public API that this server does not have: 501 with a sentence, never 404."""

from __future__ import annotations

from starlette.responses import Response

from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router

router = Router(tags=["not built"])

_TRANSFER = "moving banks and documents between servers is not built here"

UNBUILT: tuple[tuple[str, str, str], ...] = (
    ("GET", "/v1/default/files/download/{key:path}", "stored files are not built here"),
    ("GET", f"{BANK}/graph", "the memory graph is not built here: see entities/graph"),
    ("GET", f"{BANK}/attachments/{{attachment_id}}", "attachments are not built here"),
    ("GET", f"{BANK}/aliases", "aliases of banks are not built here"),
    ("POST", f"{BANK}/aliases", "aliases of banks are not built here"),
    ("PATCH", f"{BANK}/aliases/{{alias}}", "aliases of banks are not built here"),
    ("DELETE", f"{BANK}/aliases/{{alias}}", "aliases of banks are not built here"),
    ("GET", "/v1/bank-template-schema", "bank templates are not built here"),
    ("GET", f"{BANK}/export", "bank templates are not built here"),
    ("POST", f"{BANK}/import", "bank templates are not built here: see memories/import"),
    ("POST", f"{BANK}/clone", _TRANSFER),
    ("POST", f"{BANK}/transfer/export", _TRANSFER),
    ("POST", f"{BANK}/transfer/import", _TRANSFER),
    ("GET", f"{BANK}/document-transfer", _TRANSFER),
    ("POST", f"{BANK}/document-transfer", _TRANSFER),
    ("POST", f"{BANK}/document-transfer/export", _TRANSFER),
    ("GET", f"{BANK}/audit-logs", "audit logs are not built here"),
    ("GET", f"{BANK}/audit-logs/stats", "audit logs are not built here"),
    ("GET", f"{BANK}/audit-logs/{{log_id}}", "audit logs are not built here"),
    ("GET", f"{BANK}/webhooks", "webhooks are not built here"),
    ("POST", f"{BANK}/webhooks", "webhooks are not built here"),
    ("PATCH", f"{BANK}/webhooks/{{webhook_id}}", "webhooks are not built here"),
    ("DELETE", f"{BANK}/webhooks/{{webhook_id}}", "webhooks are not built here"),
    ("GET", f"{BANK}/webhooks/{{webhook_id}}/deliveries", "webhooks are not built here"),
)
"""(method, path, why)."""


def _add(method: str, path: str, why: str) -> None:
    async def unbuilt() -> Response:
        return json_response({"detail": f"{why}."}, 501)

    router.add_api_route(path, unbuilt, methods=[method], include_in_schema=False)


for _entry in UNBUILT:
    _add(*_entry)
