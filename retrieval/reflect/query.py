"""What is asked of a reflect, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from retrieval.llm.asking import ModelUsage
from retrieval.reflect.evidence import EvidenceItem
from retrieval.reflect.scope import Scope
from retrieval.store.directives import Directive
from retrieval.types import Budget

Finish = Literal["done", "iterations", "time", "context", "budget"]
"""Why the run ended: the model was done, or a bound was reached and it had to answer."""


class TextForm(StrEnum):
    """What kind of text is written: an answer to somebody, or a document of sections."""

    ANSWER = "answer"
    DOCUMENT = "document"


@dataclass(frozen=True, slots=True)
class ReflectQuery:
    """One validated reflect.

    None of a search's tokens: as the bank has it. `turn` as in protocols.LLM. `deadline` is on
    time.monotonic(); None: the settings' alone; `bound` names what set it, for the error.
    """

    tenant: str
    bank_id: str
    text: str
    now: datetime
    context: str = ""
    budget: Budget = Budget.LOW
    max_tokens: int = 4096
    scope: Scope = field(default_factory=Scope)
    response_schema: Mapping[str, Any] | None = None
    apply_all_directives: bool = False
    observations_max_tokens: int | None = None
    observations_include_entities: bool | None = None
    recall_max_tokens: int | None = None
    recall_include_chunks: bool | None = None
    recall_chunks_max_tokens: int | None = None
    form: TextForm = TextForm.ANSWER
    turn: str = "reflect"
    deadline: float | None = None
    bound: str = ""


@dataclass(frozen=True, slots=True)
class Citation:
    """Characters [start, end) of the text rest on these items."""

    start: int
    end: int
    items: tuple[EvidenceItem, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """Characters [start, end) of the text rest on nothing that was shown, and why."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Grounding:
    """How many sentences state something, and which of them are not supported."""

    sentences: int = 0
    marks: tuple[Mark, ...] = ()

    @property
    def supported(self) -> int:
        return self.sentences - len(self.marks)


@dataclass(frozen=True, slots=True)
class ToolRecord:
    """One search. `iteration` 0: before the first call of the model."""

    tool: str
    input: Mapping[str, Any]
    output: Mapping[str, Any]
    seconds: float
    iteration: int


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of the model."""

    scope: str
    seconds: float


Event = ToolRecord | ModelUsage
Listener = Callable[[Event], None]
"""Told of every search, and of the usage after every call of the model."""


@dataclass(frozen=True, slots=True)
class ReflectResult:
    """`text` without handles; `citations` and `grounding` are about its characters.

    `seen`: all that was shown to the model; `based_on`: what is cited, in the order of the text.
    `directives` were applied, `directives_left_out` do not match the scope. `degraded`: what is
    less than it should be, and why.
    """

    text: str
    citations: tuple[Citation, ...] = ()
    grounding: Grounding = field(default_factory=Grounding)
    based_on: tuple[EvidenceItem, ...] = ()
    seen: tuple[EvidenceItem, ...] = ()
    directives: tuple[Directive, ...] = ()
    directives_left_out: tuple[Directive, ...] = ()
    usage: ModelUsage = field(default_factory=ModelUsage)
    tool_calls: tuple[ToolRecord, ...] = ()
    llm_calls: tuple[ModelCall, ...] = ()
    finish: Finish = "done"
    degraded: tuple[str, ...] = ()
    structured: Mapping[str, Any] | None = None
    structured_error: str | None = None
