"""Facts on their way into a bank: frozen values between the stages of a write."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from retrieval.types import FactType, Floats, Ints, LinkType

Ref: TypeAlias = "UUID | str"
"""A memory: by id, or by the importer's own key."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A name in a fact. With `resolve` off it is taken literally, but for its case."""

    name: str
    resolve: bool = True
    label: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """One memory to write. `position` None: after the last one of its document.

    `valid_from` to `valid_until` is when what an observation says held, and `superseded_by` the
    one that says what held then. `where` names the item in messages, such as "memories[3]".
    """

    id: UUID
    text: str
    fact_type: FactType = FactType.WORLD
    key: str | None = None
    context: str | None = None
    occurred_start: datetime | None = None
    occurred_end: datetime | None = None
    mentioned_at: datetime | None = None
    document_id: str | None = None
    chunk_id: str | None = None
    position: int | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] | None = None
    proof_count: int | None = None
    sources: tuple[Ref, ...] = ()
    mentions: tuple[Mention, ...] = ()
    observation_scopes: Any = None
    created_at: datetime | None = None
    edited_at: datetime | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    superseded_by: UUID | None = None
    where: str = ""

    @property
    def event_date(self) -> datetime | None:
        return self.occurred_start or self.mentioned_at


@dataclass(frozen=True, slots=True)
class ExtractedFact:
    """One fact of a chunk. `links`: (place of an earlier fact of the chunk, type). `tags` are its
    own, beside those of its item. `raw`: the chunk as it stands, where extraction failed."""

    text: str
    fact_type: FactType = FactType.WORLD
    occurred_start: datetime | None = None
    occurred_end: datetime | None = None
    mentions: tuple[Mention, ...] = ()
    links: tuple[tuple[int, LinkType], ...] = ()
    tags: tuple[str, ...] = ()
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """An edge that somebody stated. `where` names it in messages."""

    source: Ref
    target: Ref
    type: LinkType
    weight: float = 1.0
    where: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Facts with all that can be computed before the bank is locked.

    vectors float32 (n, d) unit length, of the model that `vector_set` names; postings: the arrays
    of their segment, by the analyser of that version; tokens int32 (n,); signals: per fact the
    names and dates that only the keyword arm reads.
    """

    facts: Sequence[Fact]
    vectors: Floats
    vector_set: str
    postings: Mapping[str, NDArray[Any]]
    tokens: Ints
    signals: Sequence[str | None]
    analyser: str

    def __len__(self) -> int:
        return len(self.facts)

    def with_facts(self, facts: Sequence[Fact]) -> Prepared:
        """The same, for facts that differ in nothing that was prepared."""
        return replace(self, facts=facts)

    @property
    def types(self) -> NDArray[np.uint8]:
        return np.fromiter((fact.fact_type for fact in self.facts), np.uint8, len(self.facts))


def new_ids(n: int) -> list[UUID]:
    """n random (version 4) ids."""
    raw = np.frombuffer(os.urandom(16 * n), np.uint8).reshape(n, 16).copy()
    raw[:, 6] = raw[:, 6] & 0x0F | 0x40
    raw[:, 8] = raw[:, 8] & 0x3F | 0x80
    return [UUID(bytes=row.tobytes()) for row in raw]
