"""What a language model makes of the memories: answers, mental models, directives, pages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from serve.mcp.tool import Effect, Id, ListOf, Object, Offset, Page, Tool, in_bank

_Match = Literal["any", "all", "any_strict", "all_strict", "exact"]
_Tokens = Annotated[int, Field(ge=256, le=8192)]
_Detail = Literal["metadata", "content", "full"]


class _Modelled(Tool):
    NEEDS_MODEL = True


class Reflect(_Modelled):
    """Answer a question by reasoning over the memories, with the evidence for the answer. Slower
    than recall, which finds the memories alone."""

    NAME = "reflect"
    EFFECT = Effect.READS
    ROUTE = in_bank("POST", "/reflect")

    query: str
    """The question."""
    context: str | None = None
    """What the answer is for."""
    budget: Literal["low", "mid", "high"] = "low"
    """How far to search."""
    max_tokens: int = 4096
    """Of the answer."""
    response_schema: Object | None = None
    """JSON Schema of a structured answer beside the text."""
    tags: ListOf[str] | None = None
    tags_match: _Match = "any"
    include_based_on: bool = False
    """The memories that the answer rests on, too."""
    include_trace: bool = False
    """What was searched for, too."""

    def sent(self) -> dict[str, Any]:
        body = super().sent()
        wanted = {"facts": body.pop("include_based_on"), "tool_calls": body.pop("include_trace")}
        return {**body, "include": {part: {} for part, asked in wanted.items() if asked}}


class ListMentalModels(_Modelled):
    """Mental models: standing questions whose answers are kept up to date."""

    NAME = "list_mental_models"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/mental-models")

    tags: ListOf[str] | None = None
    detail: _Detail = "full"
    limit: Page = 100
    offset: Offset = 0


class GetMentalModel(_Modelled):
    """One mental model with its text."""

    NAME = "get_mental_model"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/mental-models/{mental_model_id}")

    mental_model_id: Id
    detail: _Detail = "full"


class CreateMentalModel(_Modelled):
    """Make a mental model: a question whose answer is written in the background and kept."""

    NAME = "create_mental_model"
    EFFECT = Effect.ADDS
    ROUTE = in_bank("POST", "/mental-models")

    name: str
    source_query: str
    """The question."""
    mental_model_id: Id | None = None
    """Lower case, digits and hyphens; absent: one is made."""
    tags: ListOf[str] | None = None
    tags_match: _Match | None = None
    """How the tags choose the memories that the answer is made from."""
    max_tokens: _Tokens = 2048
    trigger_refresh_after_consolidation: bool = False
    """Write it anew when observations have changed."""

    def sent(self) -> dict[str, Any]:
        body = super().sent()
        trigger = {"refresh_after_consolidation": body.pop("trigger_refresh_after_consolidation")}
        if match := body.pop("tags_match", None):
            trigger["tags_match"] = match
        if id := body.pop("mental_model_id", None):
            body["id"] = id
        return {**body, "trigger": trigger}


class UpdateMentalModel(_Modelled):
    """Change a mental model's name, question, length or tags; what is not given stays."""

    NAME = "update_mental_model"
    EFFECT = Effect.ADDS
    ROUTE = in_bank("PATCH", "/mental-models/{mental_model_id}")

    mental_model_id: Id
    name: str | None = None
    source_query: str | None = None
    max_tokens: _Tokens | None = None
    tags: ListOf[str] | None = None
    trigger_refresh_after_consolidation: bool | None = None

    def sent(self) -> dict[str, Any]:
        body = super().sent()
        after = body.pop("trigger_refresh_after_consolidation", None)
        return (
            body if after is None else {**body, "trigger": {"refresh_after_consolidation": after}}
        )


class DeleteMentalModel(_Modelled):
    """Delete a mental model and its text, for good."""

    NAME = "delete_mental_model"
    EFFECT = Effect.DESTROYS
    ROUTE = in_bank("DELETE", "/mental-models/{mental_model_id}")

    mental_model_id: Id


class RefreshMentalModel(_Modelled):
    """Write a mental model anew from the memories of now, in the background."""

    NAME = "refresh_mental_model"
    EFFECT = Effect.ADDS
    ROUTE = in_bank("POST", "/mental-models/{mental_model_id}/refresh")

    mental_model_id: Id


class ClearMentalModel(_Modelled):
    """Empty a mental model; its next refresh writes it from the start."""

    NAME = "clear_mental_model"
    EFFECT = Effect.DESTROYS
    ROUTE = in_bank("POST", "/mental-models/{mental_model_id}/clear")

    mental_model_id: Id


class ListDirectives(_Modelled):
    """Directives: rules that every reflect follows, the most important first."""

    NAME = "list_directives"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/directives")

    tags: ListOf[str] | None = None
    active_only: bool = True
    limit: Page = 100
    offset: Offset = 0


class CreateDirective(_Modelled):
    """Make a rule that every reflect follows."""

    NAME = "create_directive"
    EFFECT = Effect.ADDS
    ROUTE = in_bank("POST", "/directives")

    name: str
    content: str
    """The rule."""
    priority: int = 0
    """Higher ones come first."""
    is_active: bool = True
    tags: ListOf[str] | None = None
    """Only for reflects with these tags; absent: for all."""


class DeleteDirective(_Modelled):
    """Delete a directive, for good."""

    NAME = "delete_directive"
    EFFECT = Effect.DESTROYS
    ROUTE = in_bank("DELETE", "/directives/{directive_id}")

    directive_id: Id


class GetKnowledgeBaseTree(_Modelled):
    """The folders and pages of the knowledge base."""

    NAME = "get_knowledge_base_tree"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/knowledge-base/tree")

    tags: ListOf[str] | None = None
    tags_match: _Match | None = None


class SearchKnowledgeBase(_Modelled):
    """Pages of the knowledge base that answer a question, the best first."""

    NAME = "search_knowledge_base"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/knowledge-base/search")

    query: str
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    tags: ListOf[str] | None = None
    tags_match: _Match | None = None

    def sent(self) -> dict[str, Any]:
        found = super().sent()
        return {**found, "q": found.pop("query")}


class GetKnowledgePage(_Modelled):
    """One page of the knowledge base as Markdown."""

    NAME = "get_knowledge_page"
    EFFECT = Effect.READS
    ROUTE = in_bank("GET", "/knowledge-base/pages/{page_id}")

    page_id: Id


class CreateKnowledgeFolder(_Modelled):
    """Make a folder in the knowledge base."""

    NAME = "create_knowledge_folder"
    EFFECT = Effect.ADDS
    ROUTE = in_bank("POST", "/knowledge-base/folders")

    name: str
    parent_id: Id | None = None
    """The folder that it is in; absent: none."""


class CreateKnowledgePage(_Modelled):
    """Make a page that answers a question from the memories and is kept up to date."""

    NAME = "create_knowledge_page"
    EFFECT = Effect.ADDS
    ROUTE = in_bank("POST", "/knowledge-base/pages")

    name: str
    source_query: str
    """The question."""
    parent_id: Id | None = None
    """The folder that it is in; absent: none."""
    tags: ListOf[str] | None = None
    max_tokens: _Tokens = 4096


class UpdateKnowledgeNode(_Modelled):
    """Rename or move a folder or page, or give a page another question; what is not given stays."""

    NAME = "update_knowledge_node"
    EFFECT = Effect.ADDS
    ROUTE = in_bank("PATCH", "/knowledge-base/nodes/{node_id}")

    node_id: Id
    name: str | None = None
    parent_id: str | None = None
    """The folder to move it to; "" for none."""
    source_query: str | None = None
    tags: ListOf[str] | None = None

    def sent(self) -> dict[str, Any]:
        body = super().sent()
        return {**body, "parent_id": None} if self.parent_id == "" else body


class DeleteKnowledgeNode(_Modelled):
    """Delete a folder with all that is in it, or a page, for good."""

    NAME = "delete_knowledge_node"
    EFFECT = Effect.DESTROYS
    ROUTE = in_bank("DELETE", "/knowledge-base/nodes/{node_id}")

    node_id: Id


TOOLS: tuple[type[Tool], ...] = (
    Reflect,
    ListMentalModels,
    GetMentalModel,
    CreateMentalModel,
    UpdateMentalModel,
    DeleteMentalModel,
    RefreshMentalModel,
    ClearMentalModel,
    ListDirectives,
    CreateDirective,
    DeleteDirective,
    GetKnowledgeBaseTree,
    SearchKnowledgeBase,
    GetKnowledgePage,
    CreateKnowledgeFolder,
    CreateKnowledgePage,
    UpdateKnowledgeNode,
    DeleteKnowledgeNode,
)
