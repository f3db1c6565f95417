"""The seams of retrieval: what it needs from models, declared on its own side.

models/ satisfies these structurally and never imports this module. Every call is a coroutine
that may be cancelled at any await; a cancelled call's work is dropped before it reaches a device.
`deadline` is an absolute time on this process's `time.monotonic()` clock (None: no limit);
adapters that cross a process translate it into the time left.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from retrieval.store.heads import BankHead
from retrieval.types import Floats, Ints


@runtime_checkable
class Legible(Protocol):
    """What an embedder may be besides: one that knows how its tokeniser reads a text."""

    def legibility(self, text: str) -> float | None:
        """About how many letters of `text` the model takes at a time: 3 to 5 in a language that it
        knows, 1 where it spells, 0 where it knows nothing; None where that is not known. Of a text
        that embed_queries was just given; to be read as `model_id` is."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Text to unit vectors, float32 (n, dimension), rows in the order of `texts`.

    An embedder in another process may be replaced by one of another model. `model_id` and
    `dimension` are those of an answer when they are read as it comes: after the call, before
    anything else is awaited, and not across a task.
    """

    @property
    def model_id(self) -> str:
        """Names the weights; stored with the vectors. Empty while it is not known yet."""
        ...

    @property
    def dimension(self) -> int: ...

    async def embed_queries(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        """Query side (prompt included). Goes before bulk work of embed_passages."""
        ...

    async def embed_passages(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        """Passage side. Never delays queries."""
        ...


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """All pairs (query, document) of one recall."""

    query: str
    documents: Sequence[str]
    tenant: str = ""
    bank: str = ""
    deadline: float | None = None


class RerankScores(Protocol):
    """What a reranker answers for one query."""

    @property
    def scores(self) -> Floats | None:
        """float32 (n,) in the order of the documents; None from a passthrough member."""
        ...

    @property
    def scale(self) -> str:
        """ "logit", "probability", or "unknown" (then the batch decides, ranking.md 7)."""
        ...

    @property
    def member(self) -> str:
        """The provider that answered: local, tei, cohere, ..., rrf or fused."""
        ...

    @property
    def degraded(self) -> bool:
        """True where an earlier member of the chain failed, was late or had its circuit open."""
        ...

    @property
    def truncated(self) -> int:
        """How many documents were cut to the model's length."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Reads (query, document) pairs. Higher is better."""

    @property
    def reads_text(self) -> bool:
        """False where the first member is a passthrough: the caller may skip hydrating texts."""
        ...

    async def rerank(self, request: RerankRequest) -> RerankScores:
        """Scores for the documents, never fewer or more. Raises when every member failed.

        Where `reads_text` is False the caller may pass no documents; the answer then only names
        the passthrough member.
        """
        ...


class TokenUsage(Protocol):
    """Tokens of one call. `output_tokens` are the visible ones, `thoughts_tokens` the model's
    reasoning; `cached_tokens` are a part of `input_tokens`."""

    @property
    def input_tokens(self) -> int: ...

    @property
    def output_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def thoughts_tokens(self) -> int: ...


class ToolCall(Protocol):
    """A tool that the model wants called; `arguments` is JSON as it wrote it."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def arguments(self) -> str: ...


class Completion(Protocol):
    """A model's answer. `calls` is empty unless tools were offered."""

    @property
    def text(self) -> str: ...

    @property
    def calls(self) -> Sequence[ToolCall]: ...

    @property
    def usage(self) -> TokenUsage: ...

    @property
    def model(self) -> str: ...


@runtime_checkable
class LLM(Protocol):
    """A language model. All retries of transport, failover and budgets are behind it."""

    @property
    def model_id(self) -> str: ...

    async def chat(
        self,
        operation: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        turn: str = "retain",
        tenant: str = "",
        bank: str = "",
        schema: tuple[str, Mapping[str, Any]] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str = "auto",
        deadline: float | None = None,
        about: Mapping[str, str] | None = None,
    ) -> Completion:
        """One answer. Messages and tools are in the shape of chat completions.

        `schema`: a name and the JSON schema that the answer's text should follow; it may not: read
        it leniently. `turn`: who goes first where calls wait: reflect, retain, retain_later,
        consolidation, refresh. `about` (scope, trace_id, document_id) goes into traces. Never call
        while holding a lock or a database connection.

        Raises ModelRefused, ModelCut, ModelTooLong (this input); RateLimited (the tenant's
        budget); ModelExhausted, Overloaded, Unavailable, DeadlineExceeded.
        """
        ...


class BatchState(Protocol):
    """How far a batch is: `processed` of `total` questions; `ended`: no more answers come."""

    @property
    def ended(self) -> bool: ...

    @property
    def processed(self) -> int: ...

    @property
    def total(self) -> int: ...


class BatchLLM(Protocol):
    """Batches of a language model's provider: many questions at once, answered within a day for
    less. Calls are short, made once, and raise as those of LLM do, but for errors of the input."""

    @property
    def account(self) -> str:
        """Where batches go: provider and address. A batch can only be asked about there."""
        ...

    async def submit(
        self,
        operation: str,
        questions: Mapping[str, tuple[Sequence[Mapping[str, Any]], tuple[str, Mapping[str, Any]]]],
        *,
        max_tokens: int,
        tenant: str,
        bank: str,
        mark: str,
    ) -> str | None:
        """Sends questions (messages, schema) under names of at most 64 characters: the batch's id,
        or None where the provider takes none. Twice the same is two batches: see `find`.

        RateLimited where the tenant's budget is used up."""
        ...

    async def find(self, mark: str) -> str | None:
        """The batch that was submitted with the mark, if the provider knows one."""
        ...

    async def look(self, id: str) -> BatchState | None:
        """How far a batch is; None where the provider knows it no more."""
        ...

    def answers(
        self, id: str, operation: str, *, tenant: str, bank: str, about: Mapping[str, str]
    ) -> AsyncGenerator[tuple[str, Completion], None]:
        """The answers of a batch that has ended, by the names of their questions, booked as they
        are read. Questions that failed are missing; what was cut or refused has no text."""
        ...

    async def cancel(self, id: str) -> None:
        """Stops a batch; one that has ended stays as it is."""
        ...

    async def forget(self, id: str) -> None:
        """Drops what the provider keeps of a batch that has ended."""
        ...


@runtime_checkable
class Neighbours(Protocol):
    """Nearest stored memories of new vectors, for the semantic links of a write."""

    async def neighbours(
        self, head: BankHead, vectors: Floats, types: NDArray[np.uint8], *, k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        """(row into `vectors`, ordinal, similarity): the <= k best live memories of the same type
        with similarity >= floor per row, rows ascending, similarity descending within a row.

        Answers from the snapshot at exactly `head.version`: the caller holds the bank's row lock.
        """
        ...
