"""Storing and finding."""

from __future__ import annotations

from typing import Any, Literal

from serve.mcp.tool import Effect, Id, ListOf, Object, Tool, in_bank

_Match = Literal["any", "all", "any_strict", "all_strict", "exact"]


class SyncRetain(Tool):
    """Store something in long-term memory and wait until it can be recalled. Give whole sentences
    with names and dates; one call for one subject."""

    NAME = "sync_retain"
    EFFECT = Effect.ADDS
    ROUTE = in_bank("POST", "/memories")

    content: str
    """What to remember, as text."""
    context: str = "general"
    """What the content is about or where it comes from, such as "team meeting"."""
    timestamp: str | None = None
    """When it was said or happened, ISO 8601; absent: now; "unset": at no known time."""
    tags: ListOf[str] | None = None
    """Labels that recalls can be restricted to."""
    metadata: Object | None = None
    """Names and values that are kept with the memories."""
    document_id: Id | None = None
    """The document that the content is; the same id again replaces it."""
    strategy: str | None = None
    """Name of one of the bank's retain strategies."""

    def sent(self) -> dict[str, Any]:
        return {"items": [super().sent()]}

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        usage = {"usage": answer["usage"]} if answer.get("usage") else {}
        return {"status": "completed", "message": "the content was stored", **usage}


class Retain(SyncRetain):
    """Store something in long-term memory; it is taken in in the background. Give whole sentences
    with names and dates; one call for one subject. Use sync_retain to recall it right away."""

    NAME = "retain"

    update_mode: Literal["replace", "append"] | None = None
    """What to do where the document is there already; absent: replace."""

    def sent(self) -> dict[str, Any]:
        return {**super().sent(), "async": True}

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        return {
            "status": "accepted",
            "message": "the content will be stored; get_operation says when",
            "operation_id": answer.get("operation_id"),
        }


class Recall(Tool):
    """Search long-term memory with a question in plain words. Answers memories, the best first. Use
    it before you answer anything that may have come up earlier."""

    NAME = "recall"
    EFFECT = Effect.READS
    ROUTE = in_bank("POST", "/memories/recall")

    query: str
    """The question, or what to look for."""
    max_tokens: int = 4096
    """How many tokens of memories to answer at most."""
    budget: Literal["low", "mid", "high"] = "high"
    """How far to search."""
    types: ListOf[str] | None = None
    """Only these kinds: world, experience, observation."""
    prefer_observations: bool | None = None
    """Observations in place of the memories that they sum up."""
    tags: ListOf[str] | None = None
    """Only memories with these tags, matched as tags_match says."""
    tags_match: _Match = "any"
    """any, all: memories without tags match, too; any_strict, all_strict: they do not; exact: the
    tags and no others."""
    tag_groups: ListOf[dict[str, Any]] | None = None
    """Groups of tags, such as [{"or": [{"tags": ["a"]}, {"not": {"tags": ["b"]}}]}]; not with
    tags."""
    query_timestamp: str | None = None
    """The time that words such as "yesterday" are relative to, ISO 8601; absent: now."""
    min_scores: Object | None = None
    """Least scores: {"semantic", "keyword", "reranker", "final"}."""
    temporal_window: Object | None = None
    """The time that is asked about: {"start", "end"}, ISO 8601."""
    include_chunks: bool = False
    """The pieces of text that the memories come from, too."""
    max_chunk_tokens: int = 8192
    include_entities: bool = False
    """What is known of the people and things in the memories, too."""
    max_entity_tokens: int = 500
    include_source_facts: bool = False
    """The memories that observations rest on, too."""
    max_source_facts_tokens: int = 4096

    def sent(self) -> dict[str, Any]:
        body = super().sent()
        extras = (
            ("chunks", "include_chunks", "max_chunk_tokens"),
            ("entities", "include_entities", "max_entity_tokens"),
            ("source_facts", "include_source_facts", "max_source_facts_tokens"),
        )
        include = {}
        for extra, wanted, most in extras:
            tokens = body.pop(most)
            include[extra] = {"max_tokens": tokens} if body.pop(wanted) else None
        return {**body, "include": include}


TOOLS: tuple[type[Tool], ...] = (Retain, SyncRetain, Recall)
