"""A recall with everything that led to its answer."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from fastapi import Header, Request
from starlette.responses import Response

from retrieval.recall.explaining import TEXT_CHARACTERS, checked_settings
from retrieval.store import banks
from serve import metrics
from serve.http.compressed import compressed
from serve.http.guard import arrived
from serve.http.routes.recall import BANK, asked_at, recalling
from serve.http.routing import Router
from serve.http.services import Given, Tenant, looking
from serve.http.wire.explain import ExplainBody

router = Router(tags=["inspector"])

ANSWER_BYTES = 2**20
"""Most bytes of an explanation: beyond it texts become shorter, then lists."""


@router.post(f"{BANK}/memories/recall/explain", operation_id="explain_recall")
async def explain(
    bank_id: str,
    body: ExplainBody,
    request: Request,
    tenant: Tenant,
    services: Given,
    x_request_timeout_s: Annotated[float | None, Header(gt=0, allow_inf_nan=False)] = None,
) -> Response:
    """A recall, and what each of its steps saw and decided: `answer` is what the recall says.

    It counts as a recall of the tenant; two run at once in a process.
    """
    most = services.settings.recall.recall_timeout_s
    begin, came = time.monotonic(), arrived(request.scope)
    deadline = came + min(x_request_timeout_s or most, most)
    asked = body.asked
    checked_settings(asked.settings)
    query = body.to_query(tenant, bank_id, now=asked_at(body.query_timestamp), deadline=deadline)
    with metrics.measured("explain"):
        async with (
            services.explain_admission.enter(tenant, deadline, came),
            recalling(services, tenant, deadline, came),
        ):
            waited = time.monotonic() - begin
            if body.nothing_asked:
                await banks.head(services.pool, tenant, bank_id)
                return await compressed(request, b'{"answer":{"results":[]}}')
            result, account = await looking(services).explain(query, asked)
    account["spans"] = _with_admission(account["spans"], waited)
    account["made_at"] = datetime.now(UTC)
    return await compressed(request, _within({"answer": result.body, **account}))


def _with_admission(spans: list[dict[str, Any]], waited: float) -> list[dict[str, Any]]:
    """The spans behind the wait for a turn."""
    later = [{**span, "start": round(span["start"] + waited, 7)} for span in spans]
    root = next(span for span in later if span["parent"] is None)
    root["start"], root["seconds"] = 0.0, round(root["seconds"] + waited, 7)
    admission = {
        "name": "admission",
        "parent": root["name"],
        "start": 0.0,
        "seconds": round(waited, 7),
    }
    return [root, admission, *(span for span in later if span is not root)]


def _within(body: dict[str, Any]) -> bytes:
    """The explanation as JSON, cut to ANSWER_BYTES beside the answer itself."""
    room = ANSWER_BYTES + len(_json(body["answer"]))
    length = TEXT_CHARACTERS
    while len(content := _json(body)) > room and length > 20:
        length //= 3
        body["memories"] = [_shorter(memory, length) for memory in body["memories"]]
        for arm in body["arms"]:
            arm["list"] = arm["list"][: max(20, len(arm["list"]) // 2)]
    return content


def _shorter(memory: dict[str, Any], length: int) -> dict[str, Any]:
    text = memory["text"]
    context = (memory.get("context") or "")[:length] or None
    return {**memory, "text": text[:length], "cut": memory["cut"] or len(text) > length,
            "context": context, "tags": memory["tags"][:20]}  # fmt: skip


def _json(content: Any) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
