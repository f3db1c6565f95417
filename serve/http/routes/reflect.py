"""Reflect."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import Header, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from retrieval.errors import FourfoldError
from retrieval.llm.asking import ModelUsage
from retrieval.reflect.query import Event, ReflectQuery, ReflectResult, ToolRecord
from serve import metrics
from serve.http import errors
from serve.http.routes.recall import BANK, DEGRADED_HEADER
from serve.http.routing import Router
from serve.http.services import Given, Services, Tenant
from serve.http.wire import reflect as wire
from serve.http.wire.reflect import ReflectBody

T = TypeVar("T")
STREAM = "text/event-stream"
PING_S = 15.0
"""A comment goes out after so long without an event, so that proxies keep the connection."""

router = Router(tags=["memory"])


@router.post(f"{BANK}/reflect", operation_id="reflect")
async def reflect(
    bank_id: str,
    body: ReflectBody,
    request: Request,
    tenant: Tenant,
    services: Given,
    x_request_timeout_s: Annotated[float | None, Header(gt=0, allow_inf_nan=False)] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    """An answer to a question out of the bank's memories, with what each sentence rests on.

    `X-Request-Timeout-S` shortens the time that it may take. `Accept: text/event-stream` gets
    searches, usage and the checked sentences as events, and the whole answer as the last one.
    """
    deadline, bound = None, ""
    if x_request_timeout_s is not None:
        deadline = time.monotonic() + x_request_timeout_s
        bound = f"X-Request-Timeout-S allows {x_request_timeout_s:g} s"
    query = body.to_query(tenant, bank_id, now=datetime.now(UTC), deadline=deadline, bound=bound)
    if STREAM in accept.lower():
        events = _events(services, query, body)
        first = await _while_connected(request, anext(events))  # refusals have their status
        return StreamingResponse(_with_first(first, events), media_type=STREAM, headers=_NO_CACHE)
    result = await _while_connected(request, _reflected(services, query, None))
    content = orjson.dumps(wire.answer(result, body.include), option=orjson.OPT_SERIALIZE_NUMPY)
    headers = {DEGRADED_HEADER: ", ".join(result.degraded)} if result.degraded else None
    return Response(content, headers=headers, media_type="application/json")


_NO_CACHE = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def _reflected(services: Services, query: ReflectQuery, listener: Any) -> ReflectResult:
    with metrics.measured("reflect"):
        async with services.reflect_admission.enter(query.tenant, query.deadline):
            result = await services.reflector.reflect(query, listener)
    for part in result.degraded:
        metrics.REFLECT_DEGRADED.labels(part.partition(":")[0]).inc()
    return result


async def _while_connected(request: Request, work: Awaitable[T]) -> T:
    """The outcome of some work, which is cancelled where the client goes away: ClientDisconnect."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.create_task(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    """Returns when the client is gone. The body was read already."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _with_first(first: bytes, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async with contextlib.aclosing(events) as rest:  # type: ignore[type-var]
        async for event in rest:
            yield event


async def _events(
    services: Services, query: ReflectQuery, body: ReflectBody
) -> AsyncIterator[bytes]:
    """Server-sent events of one reflect: tool, usage, sentence, and done or error."""
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    work = asyncio.ensure_future(_reflected(services, query, queue.put_nowait))
    work.add_done_callback(lambda _: queue.put_nowait(None))
    outputs = body.include.tool_calls is not None and body.include.tool_calls.output
    begun = False
    try:
        while True:
            try:
                async with asyncio.timeout(PING_S if begun else None):
                    event = await queue.get()
            except TimeoutError:
                yield b": still at work\n\n"
                continue
            if event is None:
                break
            begun = True
            yield _event(event, outputs)
        try:
            result = await work
        except FourfoldError as error:
            if not begun:
                raise
            refused = errors.refusal(error)
            yield _sent("error", {"status": refused.status_code, "detail": str(error)})
            return
        for one in _sentences(result):
            yield _sent("sentence", one)
        yield _sent("done", wire.answer(result, body.include))
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def _event(event: Event, outputs: bool) -> bytes:
    if isinstance(event, ToolRecord):
        return _sent("tool", wire.tool(event, outputs=outputs))
    assert isinstance(event, ModelUsage)
    return _sent("usage", event.wire())


def _sentences(result: ReflectResult) -> list[dict[str, Any]]:
    """The text in pieces that give it when they are joined, with what each rests on."""
    ends = [(one.start, one.end, one.items) for one in result.citations]
    pieces, at = [], 0
    for _, end, items in ends:
        pieces.append({"text": result.text[at:end], "ids": [item.id for item in items]})
        at = end
    if rest := result.text[at:]:
        pieces.append({"text": rest, "ids": []})
    return pieces


def _sent(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"
