"""A bridge for clients that speak over stdin and stdout: each message is a request to a server.

It knows nothing of tools and keeps nothing but the version of the protocol that was agreed on.
"""

from __future__ import annotations

from typing import Any

import anyio
import httpx
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
)
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import SessionMessage

from serve.mcp.snippets import ClientTarget

ANSWER_S, CONNECT_S = 900.0, 10.0
"""How long an answer may take, and a connection: a reflect with a slow model takes minutes."""
AT_ONCE = 64
"""Requests on their way; a client that sends more has them wait."""
LINGER_S = 10.0
"""How long what was asked before stdin ended is waited for."""


async def run(to: ClientTarget) -> None:
    """Bridges until stdin ends."""
    headers = {"Accept": "application/json, text/event-stream", **to.headers}
    async with (
        httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=AT_ONCE),
        ) as http,
        stdio_server() as (incoming, outgoing),
        outgoing,
        anyio.create_task_group() as tasks,
    ):
        bridge = Bridge(http, to.url, outgoing, tasks)
        async for message in incoming:
            await bridge.take(message)
        tasks.cancel_scope.deadline = anyio.current_time() + LINGER_S


class Bridge:
    """Sends messages to `address`, and what it answers to `outgoing`. One event loop."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        address: str,
        outgoing: WriteStream[SessionMessage],
        tasks: TaskGroup,
    ) -> None:
        self._http = http
        self._address = address
        self._outgoing = outgoing
        self._tasks = tasks
        self._version: str | None = None
        self._under_way: dict[types.RequestId, anyio.CancelScope] = {}

    async def take(self, given: SessionMessage | Exception) -> None:
        """One message from the client; its answer is sent when it is there."""
        if isinstance(given, Exception):
            await self._fail(None, types.PARSE_ERROR, "the line is not a JSON-RPC message")
            return
        message = given.message
        if isinstance(message, types.JSONRPCRequest):
            scope = self._under_way[message.id] = anyio.CancelScope()
            self._tasks.start_soon(self._ask, message, scope)
        elif (
            isinstance(message, types.JSONRPCNotification)
            and message.method == "notifications/cancelled"
        ):
            self._cancel(message)  # other notifications tell a server without state nothing

    def _cancel(self, message: types.JSONRPCNotification) -> None:
        id = cancelled_request_id_from_params(message.params)
        if id is not None and (scope := self._under_way.get(id)) is not None:
            scope.cancel()

    async def _ask(self, message: types.JSONRPCRequest, scope: anyio.CancelScope) -> None:
        """Sends a request and its answer. Cancelled it closes the connection, and the server stops
        what it does."""
        try:
            with scope:
                await self._exchange(message)
        finally:
            if self._under_way.get(message.id) is scope:
                del self._under_way[message.id]

    async def _exchange(self, message: types.JSONRPCRequest) -> None:
        body = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        try:
            answer = await self._http.post(
                self._address, json=body, headers=_headers(message, self._version)
            )
        except httpx.TimeoutException:
            sentence = f"the server at {self._address} did not answer in time"
            await self._fail(message.id, types.INTERNAL_ERROR, sentence)
            return
        except httpx.HTTPError as error:
            sentence = f"no server answers at {self._address} ({error})"
            await self._fail(message.id, types.INTERNAL_ERROR, sentence)
            return
        try:
            found = types.jsonrpc_message_adapter.validate_json(answer.content, by_name=False)
        except ValueError:
            sentence = f"{self._address} answered {answer.status_code}, and no JSON-RPC message"
            await self._fail(message.id, types.INTERNAL_ERROR, sentence)
            return
        if isinstance(found, types.JSONRPCError):
            found = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=found.error)
        elif isinstance(found, types.JSONRPCResponse) and message.method == "initialize":
            version = found.result.get("protocolVersion")
            self._version = version if isinstance(version, str) else None
        await self._outgoing.send(SessionMessage(found))

    async def _fail(self, id: types.RequestId | None, code: int, sentence: str) -> None:
        error = types.ErrorData(code=code, message=sentence)
        await self._outgoing.send(
            SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=id, error=error))
        )


def _headers(message: types.JSONRPCRequest, agreed: str | None) -> dict[str, str]:
    """What the protocol wants to have in headers: the version, and since 2026 what is asked."""
    params: dict[str, Any] = message.params or {}
    meta = params.get("_meta")
    own = meta.get(types.PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
    if not isinstance(own, str):
        known = agreed if message.method != "initialize" else None
        return {} if known is None else {MCP_PROTOCOL_VERSION_HEADER: known}
    found = {MCP_PROTOCOL_VERSION_HEADER: own, MCP_METHOD_HEADER: message.method}
    if isinstance(name := params.get("name"), str):
        found[MCP_NAME_HEADER] = encode_header_value(name)
    return found
