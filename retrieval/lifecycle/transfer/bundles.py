"""What a merge reads: documents one by one with all that belongs to them, then what stands over
them. Two kinds of archives come as this: ours, and the peer's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from retrieval.ingest.facts import Fact
from retrieval.lifecycle.transfer.lines import Line
from retrieval.store.attachments import Attachment


@dataclass(frozen=True, slots=True)
class Incoming:
    """One memory on its way into a bank. fact: with the archive's id, if that has ids, and without
    chunk; chunk: the index of its chunk; marks: columns that are set once it is stored;
    invalidated: {at, reason} or None; history: its earlier states."""

    fact: Fact
    chunk: int | None = None
    marks: Mapping[str, Any] = field(default_factory=dict)
    invalidated: Mapping[str, Any] | None = None
    history: Sequence[Line] = ()


@dataclass(frozen=True, slots=True)
class Stated:
    """A link between two memories of an archive, by their ids there."""

    source: UUID
    target: UUID
    type: str
    weight: float


@dataclass(frozen=True, slots=True)
class Bundle:
    """A document, or some memories without one (`document` None). columns: of the document's row;
    chunks: rows with chunk_index, chunk_text, content_hash and more; links: those of which one end
    is here."""

    document: str | None
    columns: Line
    chunks: Sequence[Line]
    memories: Sequence[Incoming]
    links: Sequence[Stated] = ()
    attached: Sequence[Attachment] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """Lines of mental models, of the knowledge base, parents first, and of directives; and the
    bank's own fields."""

    models: Sequence[Line] = ()
    nodes: Sequence[Line] = ()
    directives: Sequence[Line] = ()
    bank: Mapping[str, Any] = field(default_factory=dict)


class BundleArchive(Protocol):
    """An archive as bundles. Blocking: for threads. BadArchive where it holds what it may not."""

    @property
    def total(self) -> int:
        """How many documents there are."""
        ...

    def bundles(self, skip: int) -> Iterator[Bundle]:
        """Those behind the first `skip`, always in the same order."""
        ...

    def observations(self, skip: int) -> Iterator[Sequence[Incoming]]:
        """Batches of observations that stand over the documents, behind the first `skip`."""
        ...

    def kept(self) -> Kept:
        """What is kept beside documents, as far as the archive brings it along with them."""
        ...

    def open(self) -> None: ...

    def close(self) -> None: ...
