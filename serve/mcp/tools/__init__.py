"""The tools, by name."""

from __future__ import annotations

from collections.abc import Mapping

from serve.mcp.tool import Tool
from serve.mcp.tools import banks, curation, documents, memory, operations, reflection

_GROUPS = (memory, curation, documents, operations, banks, reflection)

TOOLS: Mapping[str, type[Tool]] = {tool.NAME: tool for group in _GROUPS for tool in group.TOOLS}

MEMORY = frozenset(
    {"retain", "sync_retain", "recall", "list_memories", "get_memory", "invalidate_memory"}
)
"""The toolset `memory`: enough to remember, find and correct, in little of a model's context."""
