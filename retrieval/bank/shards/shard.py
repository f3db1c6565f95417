"""Ranges of a bank that is too large for one process: vectors and postings of some ordinals.

Whoever holds a bank without them asks its ranges, all at the same time. A range answers for exactly
the version it is asked for, whatever it holds by now: within a generation an ordinal's content
never changes, and a range remembers when each of its memories died.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.cache import DeltaReader, ResidencySettings, SnapshotCache, in_thread
from retrieval.bank.columns import AliveSet
from retrieval.bank.loader import extended_postings, kinds, vector_rows
from retrieval.bank.probe import Probe
from retrieval.bank.vectors.flat import VectorBackend, VectorStore
from retrieval.errors import DeadlineExceeded, StaleSnapshot, Unavailable
from retrieval.keyword import bm25
from retrieval.keyword.bm25 import Evidence
from retrieval.keyword.postings import Postings
from retrieval.messages import message
from retrieval.store.database.pool import Pool
from retrieval.store.heads import BankHead
from retrieval.store.segments import delta as deltas
from retrieval.store.segments.delta import Delta
from retrieval.store.segments.format import unpack
from retrieval.types import Bools, Floats, Ints, Longs

_ALIVE = np.iinfo(np.int64).max


@message
@dataclass(frozen=True, slots=True)
class RangeReading:
    """What a range says to one question. `similarities` float32, one per ordinal of the range that
    the version has, NaN where a memory has no vector; None where the question had none.
    `evidence` holds ordinals of the bank."""

    similarities: Floats | None
    evidence: Evidence


class Ranges(Protocol):
    """Who holds ranges. Range `part` of a bank are the ordinals from part x size on.

    All calls raise StaleSnapshot where the bank's generation, vectors or analyser are no longer
    those of `head`, DeadlineExceeded, and Unavailable. They may be cancelled at any time.
    """

    async def read(
        self, head: BankHead, part: int, asked: Sequence[Probe], *, deadline: float | None = None
    ) -> Sequence[RangeReading]:
        """What the range says at `head.version`, a reading per question."""
        ...

    async def nearest(
        self,
        head: BankHead,
        part: int,
        vectors: Floats,
        types: NDArray[np.uint8],
        *,
        k: int,
        floor: float,
        deadline: float | None = None,
    ) -> tuple[Ints, Ints, Floats]:
        """`VectorStore.nearest` with ordinals of the bank. Only at the newest version: the caller
        holds the bank's row lock."""
        ...

    async def rows(
        self, head: BankHead, part: int, ordinals: Ints, *, deadline: float | None = None
    ) -> Floats:
        """Vectors (m, d) of these ordinals of the bank, zeros where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class ResidentRange:
    """The ordinals first .. first + size - 1 of a bank, immutable; arrays count from 0.

    `absent`: which have no vector; `died`: the version at which each died.
    """

    head: BankHead
    first: int
    population: AliveSet
    died: Longs
    vectors: VectorStore
    absent: Bools
    postings: Postings

    @property
    def size(self) -> int:
        return self.population.size

    @property
    def end(self) -> int:
        return self.first + self.size

    @property
    def host_nbytes(self) -> int:
        own = self.population.nbytes + self.died.nbytes + self.absent.nbytes
        return own + self.vectors.nbytes + self.postings.nbytes

    @property
    def device_nbytes(self) -> int:
        return self.vectors.device_nbytes

    def read(self, head: BankHead, asked: Sequence[Probe]) -> list[RangeReading]:
        """See Ranges.read. Array work: for a worker thread."""
        count = min(self.size, head.next_ordinal - self.first)
        live = self.live_at(head.version, count)
        return [
            RangeReading(
                similarities, _moved(bm25.evidence(self.postings, q.terms, live), self.first)
            )
            for q, similarities in zip(asked, self._similarities(asked, count), strict=True)
        ]

    def live_at(self, version: int, count: int) -> Bools:
        """Which of the first `count` were alive then; the rest count as dead."""
        if version == self.head.version:
            return self.population.live
        live = self.died > version
        live[count:] = False
        return live

    def _similarities(self, asked: Sequence[Probe], count: int) -> list[Floats | None]:
        ordinals = np.arange(count, dtype=np.int32)
        asking = [q.vector for q in asked if q.vector is not None]
        if not self.vectors.dimension:
            return [None if q.vector is None else np.full(count, np.nan, "f4") for q in asked]
        scans = iter(self.vectors.scan_many(np.stack(asking)) if asking else ())
        found: list[Floats | None] = []
        for question in asked:
            similarities = None if question.vector is None else next(scans).at(ordinals)
            if similarities is not None:
                similarities[self.absent[:count]] = np.nan
            found.append(similarities)
        return found


def next_range(
    held: ResidentRange | None,
    delta: Delta,
    first: int,
    vectors: VectorBackend,
    pause: Callable[[], None] = lambda: None,
) -> ResidentRange:
    """`held` with a delta of its ordinals applied, as `loader.next_snapshot` does with a bank.
    ValueError where segments leave a gap."""
    columns_kind, _, vectors_kind, postings_kind = kinds(delta.head)
    if held is None or delta.full:
        held = ResidentRange(
            delta.head,
            first,
            AliveSet.empty(),
            np.empty(0, np.int64),
            vectors.empty(),
            np.empty(0, np.bool_),
            Postings.empty(),
        )
    segments = {
        kind: [(start - first, count, payload) for start, count, payload in rows]
        for kind, rows in delta.segments.items()
    }
    size = held.size
    types = [np.empty(0, np.uint8)]
    end = size
    for start, count, payload in segments[columns_kind]:
        if start != end:
            raise ValueError(f"no columns for ordinals {first + end} to {first + start - 1}")
        types.append(unpack(payload)["fact_type"])
        end += count
    added = np.concatenate(types)
    dead = (delta.tombstones - np.int32(first)).astype(np.int32)
    if not len(added) and not len(dead):  # a write elsewhere in the bank
        return replace(held, head=delta.head)
    population = held.population.extended(added, dead)
    pause()
    died = np.concatenate([held.died, np.full(len(added), _ALIVE)])
    died[dead] = delta.died_at
    blocks, without = vector_rows(
        segments[vectors_kind], size, population.size, held.vectors.dimension
    )
    pause()
    store = held.vectors.extended(blocks, without, population)
    absent = np.concatenate([held.absent, without])
    pause()
    postings = extended_postings(held.postings, segments[postings_kind], size)
    if len(dead):
        postings = postings.with_live(population.live)
    return ResidentRange(delta.head, first, population, died, store, absent, postings)


class LocalShards(SnapshotCache[ResidentRange]):
    """`Ranges` in this process, each of `size` ordinals, in memory within a budget."""

    def __init__(
        self,
        pool: Pool,
        settings: ResidencySettings,
        size: int,
        *,
        threads: int = 2,
        load: DeltaReader = deltas.load,
    ) -> None:
        super().__init__(pool, settings, load=load)
        self._vectors = settings.vectors
        self._size = size
        self._readers = ThreadPoolExecutor(threads, "range-read")

    async def read(
        self, head: BankHead, part: int, asked: Sequence[Probe], *, deadline: float | None = None
    ) -> Sequence[RangeReading]:
        held = await self._at(head, part, deadline)
        return await in_thread(self._readers, partial(held.read, head, asked))

    async def nearest(
        self,
        head: BankHead,
        part: int,
        vectors: Floats,
        types: NDArray[np.uint8],
        *,
        k: int,
        floor: float,
        deadline: float | None = None,
    ) -> tuple[Ints, Ints, Floats]:
        held = await self._at(head, part, deadline)
        if held.head.version != head.version:
            raise Unavailable("bank", f"its version moved from {head.version} during a write")
        work = partial(held.vectors.nearest, vectors, types, k, floor)
        row, ordinal, similarity = await in_thread(self._readers, work)
        return row, ordinal + np.int32(held.first), similarity

    async def rows(
        self, head: BankHead, part: int, ordinals: Ints, *, deadline: float | None = None
    ) -> Floats:
        held = await self._at(head, part, deadline)
        return held.vectors.rows(ordinals - np.int32(held.first))

    async def close(self) -> None:
        await super().close()
        self._readers.shutdown()

    async def _at(self, head: BankHead, part: int, deadline: float | None) -> ResidentRange:
        """The range at `head.version` or later, of its generation, vectors and analyser."""
        if deadline is not None and time.monotonic() >= deadline:
            raise DeadlineExceeded("read_ranges")
        held = await self.open(head, part)
        same = held.head.generation == head.generation
        if not same or self._kinds(held.head) != self._kinds(head):
            raise StaleSnapshot("the bank", "its memories were rearranged")
        return held

    def _kinds(self, head: BankHead) -> tuple[str, ...]:
        return tuple(kind for kind in kinds(head) if kind != "links")

    def _span(self, part: int) -> tuple[int, int] | None:
        return part * self._size, (part + 1) * self._size

    def _next(
        self,
        held: ResidentRange | None,
        delta: Delta,
        part: int,
        pause: Callable[[], None],
    ) -> ResidentRange:
        return next_range(held, delta, part * self._size, self._vectors, pause)


def _moved(evidence: Evidence, first: int) -> Evidence:
    """With ordinals of the bank instead of those of a range."""
    return replace(evidence, document=evidence.document + np.int32(first))
