"""Language models: what they are told, what they would extract, whether they answer."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from retrieval.consolidation import preview as consolidation
from retrieval.errors import InvalidInput
from retrieval.ingest.documents.planning import strategy
from retrieval.ingest.extract import preview
from retrieval.ingest.extract.by_model import Job
from retrieval.ingest.extract.section import ContentSection
from retrieval.store import banks, llm_calls
from serve.admission.controller import AdmissionController
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Given, Services, Tenant
from serve.http.wire.common import Natural
from serve.http.wire.llm import DryRunBody, PreviewBody
from serve.opening import llm
from serve.settings.llm import OPERATIONS

router = Router(tags=["language models"])

HEALTH_S = 20.0
"""How long a probe of health/llm may take."""
DRY_RUN_CHARS = 200_000


def waiting_for_models(services: Services) -> AdmissionController:
    """Whoever waits for a language model holds no place that writes need."""
    asks = services.llm.retain is not None
    return services.retain_admission if asks else services.write_admission


@router.post(f"{BANK}/memories/dry-run-extract", operation_id="dry_run_extract_memories")
async def dry_run_extract(
    bank_id: str, body: DryRunBody, tenant: Tenant, services: Given
) -> Response:
    """What a retain of this content would extract. Nothing is stored; a model is asked, if any."""
    if not services.settings.llm.enable_dry_run_extract:
        raise HTTPException(404, "dry runs of extraction are switched off on this server")
    if len(body.content) > DRY_RUN_CHARS:
        raise InvalidInput(f"content: at most {DRY_RUN_CHARS} characters in a dry run", "content")
    own = await preview.bank_settings(services.pool, services.settings.retain, tenant, bank_id)
    settings = strategy(own, body.strategy).with_overrides(body.overrides)
    timestamp = None
    if body.timestamp != "unset":
        timestamp = datetime.now(UTC)
        if body.timestamp is not None:
            timestamp = datetime.fromisoformat(body.timestamp)
    deadline = time.monotonic() + services.settings.recall.recall_timeout_s
    job = Job(tenant, bank_id, body.agent_name or bank_id, turn="reflect", deadline=deadline)
    async with waiting_for_models(services).enter(tenant, deadline):
        section = ContentSection(timestamp, body.context or None)
        found = await preview.dry_run(settings, services.llm.extractor, job, body.content, section)
    return json_response(found)


@router.post(f"{BANK}/prompts/preview", operation_id="preview_prompt")
async def preview_prompts(
    bank_id: str, body: PreviewBody, tenant: Tenant, services: Given
) -> Response:
    """What the model of an operation is told in this bank, block by block."""
    if body.operation == "reflect":
        return json_response(await services.reflector.preview(tenant, bank_id))
    own = await preview.bank_settings(services.pool, services.settings.retain, tenant, bank_id)
    if body.operation == "consolidation":
        head = await banks.head(services.pool, tenant, bank_id)
        settings = services.settings.consolidation.with_overrides(head.config)
        return json_response(
            consolidation.prompt_preview(
                settings, own.llm_output_language, needs_model=services.llm.consolidation is None
            )
        )
    needs_model = services.llm.retain is None
    return json_response(
        preview.prompt_preview(own, bank_id, body.strategy, needs_model=needs_model)
    )


@router.post(f"{BANK}/health/llm", operation_id="test_bank_llm")
async def bank_llm_health(bank_id: str, tenant: Tenant, services: Given) -> Response:
    """Asks the model of every operation for one word."""
    if not services.settings.llm.enable_bank_llm_health:
        raise HTTPException(404, "asking the language models is switched off on this server")
    await banks.head(services.pool, tenant, bank_id)
    async with waiting_for_models(services).enter(tenant, time.monotonic() + HEALTH_S):
        found = [await llm.health(services.llm, one, HEALTH_S) for one in OPERATIONS]
    return json_response({"bank_id": bank_id, "operations": found})


@router.get(f"{BANK}/llm-requests", operation_id="list_llm_requests")
async def list_llm_requests(
    bank_id: str,
    tenant: Tenant,
    services: Given,
    status: str | None = None,
    operation: str | None = None,
    scope: str | None = None,
    provider: str | None = None,
    trace_id: str | None = None,
    document_id: str | None = None,
    memory_id: str | None = None,
    call_type: str | None = None,
    group: bool = False,
    start_date: str | None = None,
    end_date: str | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    offset: Annotated[Natural, Query()] = 0,
) -> Response:
    """Calls to language models on behalf of this bank, newest first; none where nothing is kept."""
    shown = llm_calls.RequestFilter(
        status,
        operation,
        scope,
        provider,
        trace_id,
        document_id,
        memory_id,
        start_date,
        end_date,
        call_type,
    )
    return json_response(
        await llm_calls.list_requests(
            services.pool, tenant, bank_id, shown, grouped=group, limit=limit, offset=offset
        )
    )


@router.get(f"{BANK}/llm-requests/stats", operation_id="llm_request_stats")
async def llm_requests_stats(
    bank_id: str,
    tenant: Tenant,
    services: Given,
    period: str = "7d",
    operation: str | None = None,
    call_type: str | None = None,
) -> Response:
    """Calls per hour or day, by status, with their tokens."""
    return json_response(
        await llm_calls.stats(services.pool, tenant, bank_id, period=period, now=datetime.now(UTC))
    )
