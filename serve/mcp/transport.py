"""`/mcp` and `/mcp/{bank}`: the protocol's HTTP transport, behind the same limits as the HTTP API.

A request is looked at before the protocol sees it: where it comes from, whose it is, how large and
how deep its body is. What is refused here is answered with a status, and a body that says why both
as the HTTP API does and as the protocol's clients read it.

Nothing is kept between requests. The protocol's tasks are those of the one request, so there is
nothing to start with the application, any replica serves any request, and a client that goes away
ends all that was done for it.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from dataclasses import replace
from typing import Any

import anyio
import orjson
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INVALID_REQUEST, PARSE_ERROR
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retrieval.store import tenants
from serve.http import structure
from serve.http.bodies import SMALL_BYTES, Bodies
from serve.http.brake import Brake
from serve.http.errors import Unauthorized, json_response, refusal
from serve.http.guard import RequestGuard
from serve.http.routing import SMALL_BOUNDS, is_json
from serve.http.services import TENANT, admit, authenticate, bearer
from serve.mcp import server
from serve.mcp.calls import Collected
from serve.mcp.server import VISIT, Tools, Visit
from serve.settings import Settings

BODY_BYTES = 4 * 2**20
"""Of one message, decoded."""
BANK_HEADER = "x-bank-id"
CLIENT_HEADERS = (BANK_HEADER, "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id")
"""What clients that run in a page may send."""
PATH = "/mcp"

logging.getLogger("mcp.server").setLevel(logging.ERROR)
"""It has three lines for every request, and one for each that is malformed."""


class McpApplication:
    """The ASGI application of both addresses."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.mcp
        tools = Tools(settings.mcp, settings.server.base_path.rstrip("/"))
        self._server = server.server(settings.mcp, tools)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, begun = Request(scope, receive), time.monotonic()
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return  # nobody reads it
        except HTTPException as error:
            response = json_response({"detail": error.detail}, error.status_code, error.headers)
        except Exception as error:
            response = refusal(error)
        if response.status_code >= 400:
            _for_clients(response)
            brake: Brake = scope["app"].state.brake
            await brake.hold(scope.get(TENANT, ""), begun)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        tenant = await self._authenticate(request)
        if not is_json(request):
            raise HTTPException(415, "a message is JSON, sent with content-type application/json")
        visit = self._visit(request, tenant)
        shared: Bodies = request.app.state.bodies
        bodies = replace(shared, small_max=BODY_BYTES, large_max=BODY_BYTES)
        async with bodies.read(request, tenant, large=False) as body:
            if len(body) <= SMALL_BYTES:
                _check(body)
            else:
                await bodies.parsed(tenant, _check, body)
            await request.app.state.services.pace.turn(tenant)  # some 5 ms for the protocol
            return await self._exchange(request, visit, body)

    async def _authenticate(self, request: Request) -> str:
        """Whose request it is: by the key for MCP, if one is set, else as everywhere."""
        wanted = self._settings.mcp_auth_token
        if wanted is None:
            return await authenticate(request)
        if hmac.compare_digest(bearer(request).encode(), wanted.get_secret_value().encode()):
            access = tenants.Access(tenants.DEFAULT_TENANT)
            admit(request.scope, access)
            return access.tenant
        if not request.app.state.services.settings.limits.require_api_key:
            raise Unauthorized("the token for MCP is needed: send `Authorization: Bearer <token>`")
        return await authenticate(request)

    def _visit(self, request: Request, tenant: str) -> Visit:
        bank = request.path_params.get("bank_id")
        if bank is not None:
            return Visit(tenant, bank.replace("\0", "/"), one_bank=True)
        named = request.headers.get(BANK_HEADER, "").strip()
        return Visit(tenant, named or self._settings.mcp_bank_id, one_bank=False)

    async def _exchange(self, request: Request, visit: Visit, body: bytes) -> Response:
        """The protocol's answer to one message. ClientDisconnect where the client goes away."""
        headers = [
            (name, value)
            for name, value in request.scope["headers"]
            if name not in (b"accept", b"content-length", b"content-encoding")
        ]
        headers += [(b"accept", b"application/json, text/event-stream")]
        scope = {**request.scope, "headers": headers, VISIT: visit}
        left = [body]

        async def receive() -> Message:
            if left:
                return {"type": "http.request", "body": left.pop(), "more_body": False}
            return await asyncio.Future()

        answered = Collected()
        manager = StreamableHTTPSessionManager(
            self._server, json_response=True, stateless=True, max_request_body_size=BODY_BYTES
        )
        done = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_until_gone, request.receive, tasks.cancel_scope)
            async with manager.run():
                await manager.handle_request(scope, receive, answered)
            done = True
            tasks.cancel_scope.cancel()
        if not done:
            raise ClientDisconnect
        return answered.response()


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class _Malformed(HTTPException):
    """The body is not what the protocol or the bounds of the server allow."""


def _check(body: bytes) -> None:
    """_Malformed unless `body` is a message: JSON within bounds that asks or tells something."""
    try:
        found = structure.loads(body, SMALL_BOUNDS)
    except structure.JsonTooLarge as error:
        raise _Malformed(400, f"the message {error}") from None
    except orjson.JSONDecodeError as error:
        raise _Malformed(400, f"the message is not JSON: {error}") from None
    asks = isinstance(found, dict) and isinstance(found.get("method"), str)
    if not asks or not isinstance(found.get("id", 0), str | int):
        raise _Malformed(
            400,
            "the message is not a JSON-RPC request: one object with `jsonrpc`, `id` and `method`",
        )


def _for_clients(response: Response) -> None:
    """Puts the sentence of a refusal where the protocol's clients look for it, too."""
    found: Any = orjson.loads(response.body) if response.body else {}
    if not isinstance(found, dict) or "jsonrpc" in found:
        return
    code = PARSE_ERROR if response.status_code == 400 else INVALID_REQUEST
    error = {"code": code, "message": str(found.get("detail", "refused"))}
    response.body = orjson.dumps({"jsonrpc": "2.0", "id": None, "error": error, **found})
    response.headers["content-length"] = str(len(response.body))


def install(app: Starlette, settings: Settings) -> None:
    """Adds both addresses, with and without a final slash."""
    if not settings.mcp.mcp_enabled:
        return
    endpoint: ASGIApp = McpApplication(settings)
    if settings.limits.require_api_key:  # without keys the whole server is guarded so
        endpoint = RequestGuard(endpoint, hosts=None, origins=settings.server.cors_origins)
    base = settings.server.base_path.rstrip("/")
    for path in (PATH, f"{PATH}/", f"{PATH}/{{bank_id}}", f"{PATH}/{{bank_id}}/"):
        app.router.routes.append(
            Route(f"{base}{path}", endpoint, methods=["POST"], include_in_schema=False)
        )
