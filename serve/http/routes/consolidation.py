"""Consolidation: memories become observations."""

from __future__ import annotations

import time

from starlette.responses import Response

from retrieval.consolidation import preview, queue
from retrieval.store import banks
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Changer, Given, Reader, Services, Tenant, needs_model
from serve.http.wire.consolidation import ConsolidateBody, PreviewBody, StrategiesBody

router = Router(tags=["consolidation"])


async def _able(services: Services, tenant: str, bank_id: str) -> None:
    """NeedsModel where there is nobody to ask; NotFound for an unknown bank then."""
    if not services.llm.consolidates:
        await banks.head(services.pool, tenant, bank_id)
    needs_model(services.llm.consolidates, "consolidation")


@router.post(f"{BANK}/consolidate", operation_id="trigger_consolidation")
async def consolidate(
    bank_id: str, tenant: Changer, services: Given, body: ConsolidateBody | None = None
) -> Response:
    """Queues a run that starts at once; one that waits already is that run."""
    await _able(services, tenant, bank_id)
    return json_response(
        await queue.submit(
            services.pool,
            tenant,
            bank_id,
            services.settings.consolidation,
            None if body is None else body.observation_scopes,
        )
    )


@router.post(f"{BANK}/consolidation/recover", operation_id="recover_consolidation")
async def recover(bank_id: str, tenant: Changer, services: Given) -> Response:
    """Has memories tried again whose consolidation failed."""
    return json_response(
        await queue.recover(
            services.pool,
            tenant,
            bank_id,
            services.settings.consolidation,
            services.llm.consolidates,
        )
    )


@router.post(f"{BANK}/consolidation/preview", operation_id="preview_consolidation")
async def preview_consolidation(
    bank_id: str, tenant: Tenant, services: Given, body: PreviewBody | None = None
) -> Response:
    """What waits to be consolidated, in how many calls and tokens. Nothing is written."""
    await _able(services, tenant, bank_id)
    asked = body or PreviewBody()
    left = services.settings.recall.recall_timeout_s
    async with services.write_admission.enter(tenant, time.monotonic() + left):
        return json_response(
            await services.writer.preview_consolidation(
                tenant, bank_id, asked.observation_scopes, asked.run, left
            )
        )


@router.post(
    f"{BANK}/consolidation-strategies/preview", operation_id="preview_consolidation_strategies"
)
async def preview_strategies(
    bank_id: str, body: StrategiesBody, tenant: Reader, services: Given
) -> Response:
    """Which scopes strategies would take."""
    return json_response(
        await preview.strategies(services.pool, tenant, bank_id, body.drafts, body.sample_limit)
    )
