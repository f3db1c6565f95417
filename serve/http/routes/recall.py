"""Recall."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated

import orjson
from fastapi import Header, Request
from starlette.responses import Response

from retrieval import zones
from retrieval.errors import DeadlineExceeded, InvalidInput, Overloaded, RateLimited, Unavailable
from retrieval.store import banks
from serve import metrics, trace
from serve.http.following import SlowLog
from serve.http.guard import arrived
from serve.http.routing import Router
from serve.http.services import Given, Services, Tenant
from serve.http.wire.recall import RecallBody

DEGRADED_HEADER = "X-Degraded"
BANK = "/v1/default/banks/{bank_id}"

router = Router(tags=["memory"])


@router.post(f"{BANK}/memories/recall", operation_id="recall_memories")
async def recall(
    request: Request,
    bank_id: str,
    body: RecallBody,
    tenant: Tenant,
    services: Given,
    x_request_timeout_s: Annotated[float | None, Header(gt=0, allow_inf_nan=False)] = None,
) -> Response:
    """The memories that answer a question, best first, within a token budget.

    `X-Request-Timeout-S` shortens the time that the request may take.
    """
    most = services.settings.recall.recall_timeout_s
    came = arrived(request.scope)
    deadline = came + min(x_request_timeout_s or most, most)
    now = asked_at(body.query_timestamp)
    query = body.to_query(tenant, bank_id, now=now, deadline=deadline)
    begin = time.perf_counter()
    slow_log: SlowLog = request.app.state.slow_log
    with metrics.measured("recall"), trace.span("recall") as traced:
        try:
            async with recalling(services, tenant, deadline, came):
                if body.nothing_asked:
                    await banks.head(services.pool, tenant, bank_id)
                    return Response(b'{"results":[]}', media_type="application/json")
                result = await services.recaller.recall(query)
        except (DeadlineExceeded, Unavailable) as error:
            if not traced:
                finished = getattr(error, "finished", {})
                trace.keep("recall", "failed", time.perf_counter() - begin, finished)
            raise
        content = orjson.dumps(result.body, option=orjson.OPT_SERIALIZE_NUMPY)
    spent, served = time.perf_counter() - begin, len(result.body["results"])
    services.activity.finished(
        tenant, bank_id, spent, result.seconds, served, bool(result.degraded)
    )
    if result.degraded:
        services.counting.tenant(tenant).degraded += 1
    slow_log.recalled(spent, dict(result.seconds), result.degraded, served)
    if not traced and (result.degraded or spent >= slow_log.above_s):
        trace.keep("recall", "degraded" if result.degraded else "slow", spent, result.seconds)
    metrics.recalled(result.seconds, result.degraded, len(result.body["results"]))
    headers = dict(result.headers)
    if result.degraded:
        headers[DEGRADED_HEADER] = ", ".join(result.degraded)
    return Response(content, headers=headers, media_type="application/json")


@asynccontextmanager
async def recalling(
    services: Services, tenant: str, deadline: float, since: float
) -> AsyncIterator[None]:
    """Inside, a place of recalls is held; a tenant that gets none finds that in its activity. The
    wait for it counts from `since`."""
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(
                services.recall_admission.enter(tenant, deadline, since)
            )
        except (RateLimited, Overloaded):
            services.activity.refused(tenant)
            raise
        yield


def asked_at(timestamp: str | None) -> datetime:
    """The time that a question is asked at. InvalidInput."""
    if timestamp is None:
        return datetime.now(UTC)
    try:
        return zones.written(timestamp)
    except ValueError as error:
        raise InvalidInput(f"query_timestamp: {error}", "query_timestamp") from None
