"""Bank templates: a bank's set-up as one manifest."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from retrieval.lifecycle.transfer import templates
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Changer, Given, Reader

router = Router(tags=["templates"])


class TemplateBody(BaseModel):
    """A manifest, as GET /v1/bank-template-schema has it; all its faults are named at once."""

    model_config = ConfigDict(frozen=True)

    version: Any = str(templates.VERSION)
    bank: Any = None
    mental_models: Any = None
    directives: Any = None


@router.get(f"{BANK}/export", operation_id="export_bank_template")
async def export_template(bank_id: str, tenant: Reader, services: Given) -> Response:
    """The bank's own settings, mental models and directives; no memories, no credentials."""
    return json_response(await templates.export(services.pool, tenant, bank_id))


@router.post(f"{BANK}/import", operation_id="import_bank_template")
async def import_template(
    bank_id: str, body: TemplateBody, tenant: Changer, services: Given, dry_run: bool = False
) -> Response:
    """Applies a manifest, or says what that would do; the bank is made if there is none."""
    done = await templates.apply(
        services.pool,
        tenant,
        bank_id,
        {name: value for name, value in body if value is not None},
        dry_run=dry_run,
        writes=services.documents is not None,
    )
    return json_response(done)


@router.get("/v1/bank-template-schema", operation_id="get_bank_template_schema")
async def template_schema() -> Response:
    """The JSON Schema of manifests. No key is needed."""
    return json_response(templates.schema())
