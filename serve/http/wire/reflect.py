"""The body of a reflect, its translation into the engine's query, and the answer as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from retrieval.reflect.evidence import FACT_FIELDS, EvidenceItem
from retrieval.reflect.query import ReflectQuery, ReflectResult, ToolRecord
from retrieval.reflect.scope import Scope
from retrieval.reflect.structured import ResponseSchema
from retrieval.settings import SearchTokens
from retrieval.store.edge import clean
from retrieval.store.tag_groups import tag_groups
from retrieval.types import Budget, FactType, Filters, TagsMatch
from serve.http.wire.common import Body
from serve.http.wire.recall import MAX_QUERY_CHARACTERS, checked_groups, checked_query
from serve.http.wire.tags import Tags

MAX_CONTEXT_CHARACTERS = 200_000
MAX_ANSWER_TOKENS = 32_768


class ToolCallsBody(Body):
    output: bool = True
    """Whether the trace has what the searches found."""


class IncludeBody(BaseModel):
    """What goes along with the text. Null, or absent, leaves it out."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    facts: dict[str, Any] | None = None
    """Anything, `{}`: `based_on`, what the answer cites."""
    tool_calls: ToolCallsBody | None = None
    """`trace`: searches and calls of the model."""


def _types(value: list[str]) -> list[str]:
    if not value:
        raise ValueError("give at least one fact type, or leave the field out")
    for name in value:
        FactType.of(name)
    return value


def _schema(value: dict[str, Any]) -> dict[str, Any]:
    ResponseSchema(value)
    return value


class ReflectBody(Body):
    query: Annotated[str, Field(max_length=MAX_QUERY_CHARACTERS), AfterValidator(checked_query)]
    budget: Budget = Budget.LOW
    context: Annotated[str, Field(max_length=MAX_CONTEXT_CHARACTERS)] = ""
    """What the question is asked amid; better part of the query itself."""
    max_tokens: Annotated[int, Field(ge=1, le=MAX_ANSWER_TOKENS)] = 4096
    """Most cl100k tokens of the text."""
    include: IncludeBody = IncludeBody()
    response_schema: Annotated[dict[str, Any], AfterValidator(_schema)] | None = None
    """JSON schema of an object that is answered in `structured_output`, beside the text."""
    tags: Tags | None = None
    tags_match: TagsMatch = TagsMatch.ANY
    tag_groups: Annotated[list[Any], AfterValidator(checked_groups)] | None = None
    apply_all_directives: bool = False
    """Apply directives whatever their tags."""
    fact_types: (
        Annotated[list[str], Field(max_length=64, fail_fast=True), AfterValidator(_types)] | None
    ) = None
    exclude_mental_models: bool = False
    exclude_mental_model_ids: Annotated[tuple[str, ...], Field(max_length=1_000)] = ()
    reflect_search_observations_max_tokens: SearchTokens | None = None
    reflect_search_observations_include_entities: bool | None = None

    @model_validator(mode="after")
    def _exclusive(self) -> ReflectBody:
        if self.tags is not None and self.tag_groups is not None:
            raise ValueError("give tags or tag_groups, not both")
        return self

    def to_query(
        self, tenant: str, bank_id: str, *, now: datetime, deadline: float | None, bound: str
    ) -> ReflectQuery:
        """The query for the engine; `bound` names what set the deadline."""
        types = tuple(dict.fromkeys(FactType.of(name) for name in self.fact_types or ()))
        return ReflectQuery(
            tenant=tenant,
            bank_id=bank_id,
            text=clean(self.query),
            now=now,
            context=clean(self.context),
            budget=self.budget,
            max_tokens=self.max_tokens,
            scope=Scope(
                Filters(
                    types=types or tuple(FactType),
                    tags=None if self.tags is None else tuple(map(clean, self.tags)),
                    tags_match=self.tags_match,
                    tag_groups=None if self.tag_groups is None else tag_groups(self.tag_groups),
                ),
                models=not self.exclude_mental_models,
                without_models=frozenset(self.exclude_mental_model_ids),
            ),
            response_schema=self.response_schema,
            apply_all_directives=self.apply_all_directives,
            observations_max_tokens=self.reflect_search_observations_max_tokens,
            observations_include_entities=self.reflect_search_observations_include_entities,
            deadline=deadline,
            bound=bound,
        )


def answer(result: ReflectResult, include: IncludeBody) -> dict[str, Any]:
    """The answer's body."""
    shown: dict[str, Any] = {
        "text": result.text,
        "usage": result.usage.wire(),
        "citations": [
            {"start": one.start, "end": one.end, "ids": [item.id for item in one.items]}
            for one in result.citations
        ],
        "grounding": {
            "sentences": result.grounding.sentences,
            "supported": result.grounding.supported,
            "unsupported": len(result.grounding.marks),
            "marks": [
                {"start": mark.start, "end": mark.end, "reason": mark.reason}
                for mark in result.grounding.marks
            ],
        },
        "finish": result.finish,
    }
    if result.degraded:
        shown["degraded"] = list(result.degraded)
    if result.structured is not None:
        shown["structured_output"] = result.structured
    if result.structured_error is not None:
        shown["structured_output_error"] = result.structured_error
    if include.facts is not None:
        shown["based_on"] = based_on(result)
    if include.tool_calls is not None:
        shown["trace"] = trace(result, outputs=include.tool_calls.output)
    return shown


def based_on(result: ReflectResult) -> dict[str, Any]:
    memories = [_fact(item) for item in result.based_on if item.kind != "model"]
    models = [
        {"id": item.id, "text": item.text, "context": item.fields.get("name")}
        for item in result.based_on
        if item.kind == "model"
    ]
    return {
        "memories": memories,
        "mental_models": models,
        "directives": [
            {"id": one.id, "name": one.name, "content": one.content} for one in result.directives
        ],
    }


def _fact(item: EvidenceItem) -> dict[str, Any]:
    fields = {key: item.fields[key] for key in FACT_FIELDS if key in item.fields}
    return {"id": item.id, "text": item.text, "type": item.fields.get("type"), **fields}


def trace(result: ReflectResult, *, outputs: bool) -> dict[str, Any]:
    return {
        "tool_calls": [tool(record, outputs=outputs) for record in result.tool_calls],
        "llm_calls": [
            {"scope": call.scope, "duration_ms": round(call.seconds * 1000)}
            for call in result.llm_calls
        ],
        "directives_left_out": [
            {"id": one.id, "name": one.name} for one in result.directives_left_out
        ],
    }


def tool(record: ToolRecord, *, outputs: bool) -> dict[str, Any]:
    shown = {
        "tool": record.tool,
        "input": dict(record.input),
        "duration_ms": round(record.seconds * 1000),
        "iteration": record.iteration,
    }
    return {**shown, "output": dict(record.output)} if outputs else shown
