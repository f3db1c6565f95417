"""The protocol's server: which tools a visitor sees, and what a call of one does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    ToolAnnotations,
)
from mcp_types import Tool as Described
from pydantic import ValidationError
from starlette.types import Scope

from retrieval.errors import FourfoldError, NotFound
from retrieval.store import banks
from serve.http.errors import refusal
from serve.http.services import Services
from serve.mcp import calls, results, schemas
from serve.mcp.tool import Effect, Tool, problems
from serve.mcp.tools import MEMORY, TOOLS
from serve.settings.model import MCP
from serve.version import program

VISIT = "fourfold.mcp"
"""Key of a request's scope: the visit that it is."""
_ABOUT = (
    "Long-term memory. Use recall before answering anything that may have come up earlier, and"
    " retain for what is worth knowing next time: facts, decisions, preferences."
)
_ALSO_ON = frozenset({"retain", "sync_retain", "recall"})
"""Tools whose description takes the deployment's instructions: few clients show the server's."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request: whose it is, and the bank that its address or headers name."""

    tenant: str
    bank_id: str
    one_bank: bool
    """The address names the bank: no other can be reached."""


class Tools:
    """The tools of one application."""

    def __init__(self, settings: MCP, base: str) -> None:
        self._base = base
        allowed = settings.mcp_enabled_tools or None
        self._allowed = {
            name: tool
            for name, tool in TOOLS.items()
            if (allowed is None or name in allowed)
            and (settings.mcp_toolset == "all" or name in MEMORY)
        }
        self._described = {
            one_bank: {
                name: _described(tool, settings.mcp_instructions, one_bank)
                for name, tool in self._allowed.items()
                if not (one_bank and tool.ALL_BANKS)
            }
            for one_bank in (True, False)
        }

    async def shown(self, services: Services, visit: Visit) -> list[Described]:
        """What the visitor may use."""
        own = await _own_choice(services, visit.tenant, visit.bank_id)
        return [
            described
            for name, described in self._described[visit.one_bank].items()
            if (own is None or name in own or not TOOLS[name].OF_BANK)
            and (_has_model(services) or not TOOLS[name].NEEDS_MODEL)
        ]

    async def call(
        self, services: Services, visit: Visit, scope: Scope, name: str, given: Mapping[str, Any]
    ) -> CallToolResult:
        """The result of a tool, whatever it is; MCPError where there is no such tool."""
        tool = TOOLS.get(name)
        if tool is None or (visit.one_bank and tool.ALL_BANKS):
            raise MCPError(INVALID_PARAMS, f"there is no tool {name[:100]!r} here: see tools/list")
        try:
            return await self._call(services, visit, scope, tool, given)
        except Exception as error:  # by the table: a sentence, and the log has what is unexpected
            return results.refused(calls.read(refusal(error)))

    async def _call(
        self,
        services: Services,
        visit: Visit,
        scope: Scope,
        tool: type[Tool],
        given: Mapping[str, Any],
    ) -> CallToolResult:
        named = given.get(schemas.BANK_ARGUMENT)
        bank_id = visit.bank_id if named is None or not tool.OF_BANK else named
        if not isinstance(bank_id, str) or not bank_id.strip():
            return results.failed(f"{schemas.BANK_ARGUMENT}: must be the id of a bank")
        if visit.one_bank and bank_id != visit.bank_id:
            return results.failed(
                f"{schemas.BANK_ARGUMENT}: this connection is to the bank {visit.bank_id!r} alone;"
                " leave it out"
            )
        if tool.NAME not in self._allowed:
            return results.failed(f"the tool {tool.NAME} is switched off on this server")
        if tool.OF_BANK:
            own = await _own_choice(services, visit.tenant, bank_id)
            if own is not None and tool.NAME not in own:
                return results.failed(f"the tool {tool.NAME} is switched off for this bank")
        try:
            made = tool.model_validate(given)
        except ValidationError as error:
            return results.failed(problems(error))
        content: dict[str, Any] = {}
        for one in made.calls(bank_id):
            answer = await calls.answer(one, scope, visit.tenant, self._base)
            if answer.status >= 400:
                return results.refused(answer)
            found = answer.content
            content |= found if isinstance(found, dict) else {"items": found}
        result = await asyncio.to_thread(results.result, made.told(content))
        await services.pace.turn(visit.tenant)
        return result


def _has_model(services: Services) -> bool:
    return services.llm.reflect is not None or "reflect" in services.llm.by_rules


async def _own_choice(services: Services, tenant: str, bank_id: str) -> frozenset[str] | None:
    """The tools that the bank's settings allow; None: all."""
    try:
        async with services.read_admission.enter(tenant):
            own = (await banks.head(services.pool, tenant, bank_id)).config
    except NotFound:
        return None
    names = own.get("mcp_enabled_tools")
    return None if names is None else frozenset(names)


def _described(tool: type[Tool], instructions: str | None, one_bank: bool) -> Described:
    about = " ".join((tool.__doc__ or "").split())
    if instructions and tool.NAME in _ALSO_ON:
        about = f"{about} {instructions}"
    return Described(
        name=tool.NAME,
        description=about,
        input_schema=schemas.of(tool, bank=tool.OF_BANK and not one_bank),
        annotations=ToolAnnotations(
            read_only_hint=tool.EFFECT is Effect.READS,
            destructive_hint=tool.EFFECT is Effect.DESTROYS,
            open_world_hint=False,
        ),
    )


def server(settings: MCP, tools: Tools) -> Server[Any]:
    """The protocol's server. It has no state: every request names its visit in its scope."""

    def place(context: ServerRequestContext[Any, Any]) -> tuple[Services, Visit, Scope]:
        assert context.request is not None
        scope: Scope = context.request.scope
        return scope["app"].state.services, scope[VISIT], scope

    async def list_tools(
        context: ServerRequestContext[Any, Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        services, visit, _ = place(context)
        try:
            return ListToolsResult(tools=await tools.shown(services, visit))
        except FourfoldError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult:
        services, visit, scope = place(context)
        return await tools.call(services, visit, scope, params.name, params.arguments or {})

    about = f"{_ABOUT} {settings.mcp_instructions}" if settings.mcp_instructions else _ABOUT
    return Server(
        "fourfold",
        version=program(),
        title="Fourfold",
        instructions=about,
        get_tool_input_schema=lambda _name: None,  # no argument travels in a header
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
