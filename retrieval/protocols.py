"""The seams of retrieval: what it needs from models, declared on its own side.

models/ satisfies these structurally and never imports this module. Every call is a coroutine
that may be cancelled at any await; a cancelled call's work is dropped before it reaches a device.
`deadline` is an absolute time on this process's `time.monotonic()` clock (None: no limit);
adapters that cross a process translate it into the time left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from retrieval.store.heads import BankHead
from retrieval.types import Floats, Ints


@runtime_checkable
class Embedder(Protocol):
    """Text to unit vectors, float32 (n, dimension), rows in the order of `texts`."""

    @property
    def model_id(self) -> str:
        """Names the weights; stored with the vectors, compared at start."""
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
    """Reads (query, document) pairs. Higher is better. One call carries all pairs of a recall."""

    @property
    def reads_text(self) -> bool:
        """False where the first member is a passthrough: the caller may skip hydrating texts."""
        ...

    async def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        tenant: str = "",
        bank: str = "",
        deadline: float | None = None,
    ) -> RerankScores:
        """Scores for `documents`, never fewer or more. Raises when every member failed.

        Where `reads_text` is False the caller may pass no documents; the answer then only names
        the passthrough member.
        """
        ...


@runtime_checkable
class LLM(Protocol):
    async def complete(
        self, system: str, user: str, *, max_tokens: int, deadline: float | None = None
    ) -> str: ...


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
