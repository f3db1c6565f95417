"""Looking at single memories, and putting them right."""

from __future__ import annotations

from typing import Any, Literal

from serve.mcp.tool import Effect, Id, ListOf, Offset, Page, Tool, in_bank


class ListMemories(Tool):
    """Memories by filter, the latest first. To find what answers a question use recall."""

    NAME = "list_memories"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/memories/list")

    type: str | None = None
    """world, experience or observation."""
    q: str | None = None
    """A part of the text."""
    limit: Page = 100
    offset: Offset = 0
    tags: ListOf[str] | None = None
    tags_match: Literal["any", "all", "any_strict", "all_strict", "exact"] = "any"


class GetMemory(Tool):
    """One memory with its times, entities, tags and state."""

    NAME = "get_memory"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/memories/{memory_id}")

    memory_id: Id


class UpdateMemory(Tool):
    """Change a memory that is wrong. What is not given stays; "" takes a time away."""

    NAME = "update_memory"
    EFFECT = Effect.ADDS
    ROUTE = in_bank("PATCH", "/memories/{memory_id}")

    memory_id: Id
    text: str | None = None
    context: str | None = None
    occurred_start: str | None = None
    """When it began, ISO 8601."""
    occurred_end: str | None = None
    mentioned_at: str | None = None
    fact_type: Literal["world", "experience"] | None = None
    entities: ListOf[str] | None = None
    """Names of the people and things that it is about; in place of those it has."""
    resolve_entities: bool | None = None
    """False: take the names as they are, without looking for known entities."""


class InvalidateMemory(Tool):
    """Mark a memory as no longer true, so that it is not recalled any more; with restore, take that
    back."""

    NAME = "invalidate_memory"
    EFFECT = Effect.DESTROYS
    ROUTE = in_bank("PATCH", "/memories/{memory_id}")

    memory_id: Id
    reason: str | None = None
    """Why."""
    restore: bool = False

    def sent(self) -> dict[str, Any]:
        reason = {} if self.reason is None else {"reason": self.reason}
        return {"state": "valid" if self.restore else "invalidated", **reason}


TOOLS: tuple[type[Tool], ...] = (ListMemories, GetMemory, UpdateMemory, InvalidateMemory)
