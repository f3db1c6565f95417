"""Who writes a whole document: the seam, and the rules that stand in for a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from retrieval.llm.asking import ModelUsage
from retrieval.mental.trigger import Trigger
from retrieval.recall.engine import Recaller
from retrieval.text import tokens
from retrieval.types import Budget, Filters, Include, RecallQuery

QUESTION_TOKENS = 400
"""Of a source query, what a recall is asked with: it takes 500."""
EXTRACTIVE = "[extractive]"
"""What a text that rules wrote begins with."""
MODELS, DIRECTIVES = "mental-models", "directives"
"""Keys of `based_on` beside the fact types."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A document to be written about `question`, out of what is in `scope`.

    `now`: database time of the snapshot; nothing stored later is read where that can be helped.
    `turn` and `deadline` as in protocols.LLM.
    """

    tenant: str
    bank_id: str
    model_id: str
    question: str
    scope: Filters
    trigger: Trigger
    max_tokens: int
    now: datetime
    turn: str = "refresh"
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class GroundingSource:
    """Something that a text rests on. `kind`: a fact type, MODELS or DIRECTIVES; `fields`: what
    else is shown of it."""

    kind: str
    id: str
    text: str
    time: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_memory(self) -> bool:
        return self.kind not in (MODELS, DIRECTIVES)

    def view(self) -> dict[str, Any]:
        return {"id": self.id, "text": self.text, "type": self.kind, **self.fields}


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """`cited`: (start, end, ids) of the text's characters. `retrieved`: memories seen, by fact
    type. `tool_calls`, `llm_calls`: as a trace shows them."""

    text: str
    based_on: tuple[GroundingSource, ...] = ()
    cited: tuple[tuple[int, int, tuple[str, ...]], ...] = ()
    retrieved: Mapping[str, int] = field(default_factory=dict)
    usage: ModelUsage = field(default_factory=ModelUsage)
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    llm_calls: tuple[Mapping[str, Any], ...] = ()
    structured: Mapping[str, Any] | None = None
    structured_error: str | None = None
    degraded: tuple[str, ...] = ()

    @property
    def has_evidence(self) -> bool:
        """Whether it rests on something that the bank knows; directives say only how to write."""
        return any(source.kind != DIRECTIVES for source in self.based_on)


class DocumentWriter(Protocol):
    async def write(self, request: WriteRequest) -> GeneratedText:
        """Writes without a lock or a connection held. Errors as of protocols.LLM and of a
        recall."""
        ...


_TIMES = ("occurred_end", "occurred_start", "mentioned_at")
_SHOWN = (
    "context", "occurred_start", "occurred_end", "mentioned_at", "document_id", "chunk_id", "tags",
    "metadata",
)  # fmt: skip


def time_of(result: Mapping[str, Any]) -> str:
    """The time that a memory is about, ISO 8601; "" without one."""
    found = next((result[name] for name in _TIMES if result.get(name)), "")
    return found.isoformat() if isinstance(found, datetime) else str(found)


def source(result: Mapping[str, Any]) -> GroundingSource:
    """A result of a recall as a source."""
    shown = {name: _plain(result[name]) for name in _SHOWN if result.get(name) is not None}
    return GroundingSource(
        result["type"], str(result["id"]), result["text"], time_of(result), shown
    )


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def question(
    request: WriteRequest, *, max_tokens: int = 4096, limit: int | None = None
) -> RecallQuery:
    """The recall of what a document is about."""
    trigger = request.trigger
    return RecallQuery(
        tenant=request.tenant,
        bank_id=request.bank_id,
        text=tokens.cut(request.question, QUESTION_TOKENS),
        now=request.now,
        filters=request.scope,
        budget=Budget(trigger.budget or Budget.LOW),
        max_tokens=max_tokens,
        include=Include(entities=None),
        limit=limit,
        deadline=request.deadline,
    )


@dataclass(frozen=True, slots=True)
class RulesWriter:
    """The best memories, each a block, in the order of their times. Deterministic, no network."""

    recaller: Recaller

    async def write(self, request: WriteRequest) -> GeneratedText:
        wanted = request.trigger.recall_max_tokens or request.max_tokens
        found = await self.recaller.recall(question(request, max_tokens=wanted, limit=50))
        sources = list(map(source, found.body["results"]))
        if not sources:
            return GeneratedText("")
        chosen = {one.text.casefold(): one for one in reversed(sources)}.values()
        text, cited = EXTRACTIVE, []
        for one in sorted(chosen, key=lambda one: (one.time, one.text)):
            start = len(text) + 2
            text += f"\n\n{one.text}"
            cited.append((start, len(text), (one.id,)))
        error = "rules fill in no schema" if request.trigger.response_schema else None
        return GeneratedText(
            text,
            tuple(chosen),
            tuple(cited),
            counts(sources),
            structured_error=error,
            degraded=("extractive",),
        )


def counts(sources: Sequence[GroundingSource]) -> dict[str, int]:
    """How many sources there are of each kind."""
    found: dict[str, int] = {}
    for one in sources:
        found[one.kind] = found.get(one.kind, 0) + 1
    return found
