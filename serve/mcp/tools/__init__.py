"""The tools, by name. Those whose routes are not built are left out until they are."""

from __future__ import annotations

from collections.abc import Mapping

from serve.http.routes.unbuilt import UNBUILT
from serve.mcp.tool import Tool
from serve.mcp.tools import banks, curation, documents, memory, operations, reflection

_UNBUILT = {(method, path) for method, path, _ in UNBUILT}
_GROUPS = (memory, curation, documents, operations, banks, reflection)

TOOLS: Mapping[str, type[Tool]] = {
    tool.NAME: tool
    for group in _GROUPS
    for tool in group.TOOLS
    if (tool.ROUTE.method, tool.ROUTE.path) not in _UNBUILT
}

MEMORY = frozenset(
    {"retain", "sync_retain", "recall", "list_memories", "get_memory", "invalidate_memory"}
)
"""The toolset `memory`: enough to remember, find and correct, in little of a model's context."""
