"""One bank at one version, in memory: what every arm of a recall reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from retrieval.bank.columns import AliveSet, Bytes, Columns
from retrieval.bank.entities import Entities
from retrieval.bank.links import LinkRows, Links
from retrieval.bank.order import DocumentSequence, Timeline
from retrieval.bank.vectors.flat import VectorStore
from retrieval.keyword.postings import Postings
from retrieval.store.heads import BankHead
from retrieval.topk import distinct
from retrieval.types import Bools, Ints, Longs


@dataclass(slots=True)
class _Counted:
    """What is counted when it is first asked for, once per snapshot."""

    mentioning: int | None = None


@dataclass(frozen=True, slots=True)
class ResidentBank:
    """A consistent snapshot: exactly the writes up to `head.version`, immutable.

    All arrays are indexed by ordinal and read-only; any number of threads may search, also after
    the bank moved on or was evicted: a snapshot lives as long as somebody holds it.

    Where it is not `whole`, `vectors` and `postings` are empty: ranges elsewhere hold them, and a
    search is given what they say (`retrieval.bank.probe`).
    """

    head: BankHead
    population: AliveSet
    columns: Columns
    vectors: VectorStore
    postings: Postings
    entities: Entities
    links: Links
    timeline: Timeline
    sequence: DocumentSequence
    tags: Mapping[str, int]
    whole: bool = True
    _counted: _Counted = field(init=False, repr=False, compare=False, default_factory=_Counted)

    @property
    def size(self) -> int:
        """Ordinals in use, dead ones included."""
        return self.population.size

    @property
    def end(self) -> int:
        """One above the highest ordinal."""
        return self.size

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

    @property
    def subject(self) -> Ints:
        """The entity that each memory is about, int32 (size,); -1 none; merges followed."""
        return self.entities.surviving(self.columns.subject)

    @property
    def mentioning(self) -> int:
        """Live memories, without observations that mention nothing themselves."""
        if (known := self._counted.mentioning) is None:
            *facts, observations = self.population.rows
            of, _ = self.entities.of_units(observations)
            known = sum(map(len, facts)) + len(distinct(of))
            self._counted.mentioning = known
        return known

    def sources_of(self, ordinals: Ints) -> tuple[Ints, Ints]:
        """(index into `ordinals`, ordinal): the live memories that observations were made from."""
        return self.columns.sources.take(ordinals)

    def observations_of(self, ordinals: Ints) -> tuple[Ints, Ints]:
        """(index into `ordinals`, ordinal): the live observations made from each memory."""
        sources = self.columns.sources
        if not len(sources.values):
            return np.empty(0, np.int32), np.empty(0, np.int32)
        asked = np.full(self.size, -1, np.int32)
        asked[ordinals] = np.arange(len(ordinals), dtype=np.int32)
        holder = np.repeat(np.arange(len(sources), dtype=np.int32), sources.counts())
        index = asked[sources.values]
        found = (index >= 0) & self.live[holder]
        order = np.argsort(index[found], kind="stable")
        return index[found][order], holder[found][order]

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

    @property
    def host_nbytes(self) -> int:
        """Host memory of all parts."""
        return sum(self.nbytes.values())

    @property
    def device_nbytes(self) -> int:
        """Accelerator memory."""
        return self.vectors.device_nbytes
