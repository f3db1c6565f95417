"""One bank at one version, in memory: what every arm of a recall reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from retrieval.bank.columns import Bytes, Columns, Population
from retrieval.bank.entities import Entities
from retrieval.bank.links import LinkRows, Links
from retrieval.bank.order import Sequence as DocumentSequence
from retrieval.bank.order import Timeline
from retrieval.bank.vectors import VectorStore
from retrieval.keyword.postings import Postings
from retrieval.store.heads import BankHead
from retrieval.types import Bools, Ints, Longs


@dataclass(frozen=True, slots=True)
class ResidentBank:
    """A consistent snapshot: exactly the writes up to `head.version`, immutable.

    All arrays are indexed by ordinal and read-only; any number of threads may search, also after
    the bank moved on or was evicted: a snapshot lives as long as somebody holds it.
    """

    head: BankHead
    population: Population
    columns: Columns
    vectors: VectorStore
    postings: Postings
    entities: Entities
    links: Links
    timeline: Timeline
    sequence: DocumentSequence
    tags: Mapping[str, int]

    @property
    def size(self) -> int:
        """Ordinals in use, dead ones included."""
        return self.population.size

    @property
    def live(self) -> Bools:
        """Which ordinals are memories of the bank, (size,)."""
        return self.population.live

    @property
    def event_date(self) -> Longs:
        """occurred_start, else mentioned_at, else NO_TIME; int64 µs (size,)."""
        return self.columns.event_date

    @property
    def previous(self) -> Ints:
        """The live memory before each in its document, int32 (size,); -1 none."""
        return self.sequence.previous

    @property
    def next(self) -> Ints:
        """The live memory after each in its document, int32 (size,); -1 none."""
        return self.sequence.next

    def tag_numbers(self, tags: Sequence[str]) -> Ints:
        """The number of each tag as in `columns.tags`, int32; -1 where the bank has no such tag."""
        return np.array([self.tags.get(t, -1) for t in tags], np.int32)

    def ordinal_of(self, ids: Bytes) -> Ints:
        """The live ordinal of each 16-byte id, u1 (m, 16) -> int32 (m,); -1 unknown or dead."""
        return self.columns.ordinal_of(ids, self.live)

    def temporal_neighbours(self, ordinals: Ints, limit: int = 20) -> LinkRows:
        """Edges to memories near in event date, at most 24 h away: see `Timeline.neighbours`."""
        return self.timeline.neighbours(ordinals, limit)

    @property
    def nbytes(self) -> Mapping[str, int]:
        """Host memory by part, bytes in use (spare room of growing buffers not counted)."""
        return {
            "columns": self.columns.nbytes + self.population.nbytes,
            "vectors": self.vectors.nbytes,
            "postings": self.postings.nbytes,
            "entities": self.entities.nbytes,
            "links": self.links.nbytes,
            "orders": self.timeline.nbytes + self.sequence.nbytes,
            # A tag as a string and as an entry of a dict.
            "tags": 120 * len(self.tags),
        }
