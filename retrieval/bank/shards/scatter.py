"""Banks too large for one process: asking their ranges, and joining what these say.

A bank above `rows` memories is held without vectors and postings (`ResidentBank.whole` is False).
Its ranges work out similarities and gather postings, which is nearly all that a search reads; what
comes back is four bytes per memory and the postings of the question's terms. Those are weighed
here against the statistics of the whole bank and searched here by all arms together, so an answer
is that of an unsplit bank.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.columns import AliveSet
from retrieval.bank.probe import Probe, ProbeResult
from retrieval.bank.resident import ResidentBank
from retrieval.bank.shards.placement import shard_ranges
from retrieval.bank.shards.shard import RangeReading, Ranges
from retrieval.bank.vectors.blind import Blind
from retrieval.bank.vectors.flat import Scan
from retrieval.keyword import bm25
from retrieval.keyword.bm25 import Evidence
from retrieval.settings import RecallSettings
from retrieval.store.heads import BankHead
from retrieval.topk import best, best_per_row, moments
from retrieval.types import Bools, FactType, Floats, Hits, Ints

T = TypeVar("T")


class ScatterGather:
    """The vectors and postings of all banks of more than `rows` memories, `rows` to a range."""

    def __init__(self, ranges: Ranges, rows: int) -> None:
        self._ranges = ranges
        self._rows = rows

    def takes(self, head: BankHead) -> bool:
        """Is the bank split at this state?"""
        return head.next_ordinal > self._rows

    async def readings(
        self,
        bank: ResidentBank,
        asked: Sequence[Probe],
        settings: RecallSettings,
        deadline: float | None = None,
        threads: Executor | None = None,
    ) -> list[ProbeResult]:
        """What the bank says to each question at exactly this snapshot. Raises StaleSnapshot where
        the snapshot is of a generation that is gone, Unavailable where a range cannot be asked.

        `threads`: where the answers are joined, a millisecond for every 50,000 memories; None joins
        them here.
        """
        answers = await _all(
            self._ranges.read(bank.head, part, asked, deadline=deadline)
            for part in range(self._parts(bank.head))
        )

        def joined() -> list[ProbeResult]:
            each = zip(asked, zip(*answers, strict=True), strict=True)
            return [_joined(bank, question, parts, settings) for question, parts in each]

        if threads is None:
            return joined()
        return await asyncio.get_running_loop().run_in_executor(threads, joined)

    async def nearest(
        self, head: BankHead, vectors: Floats, types: NDArray[np.uint8], *, k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        """`retrieval.protocols.Neighbours`."""
        parts = await _all(
            self._ranges.nearest(head, part, vectors, types, k=k, floor=floor)
            for part in range(self._parts(head))
        )
        row, ordinal, similarity = (np.concatenate(column) for column in zip(*parts, strict=True))
        return best_per_row(row, ordinal, similarity, k)

    async def rows(self, head: BankHead, ordinals: Ints, deadline: float | None = None) -> Floats:
        """Vectors (m, d) of these ordinals, zeros where there is none."""
        owner = ordinals // self._rows
        places = [np.flatnonzero(owner == part) for part in np.unique(owner)]
        found = await _all(
            self._ranges.rows(head, int(owner[at[0]]), ordinals[at], deadline=deadline)
            for at in places
        )
        out = np.zeros((len(ordinals), max((f.shape[1] for f in found), default=0)), np.float32)
        for at, vectors in zip(places, found, strict=True):
            out[at, : vectors.shape[1]] = vectors
        return out

    def _parts(self, head: BankHead) -> int:
        return len(shard_ranges(head.next_ordinal, self._rows))


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order. The first error is raised, and what is still under way cancelled."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _joined(
    bank: ResidentBank, question: Probe, parts: Sequence[RangeReading], settings: RecallSettings
) -> ProbeResult:
    evidence = Evidence.joined([part.evidence for part in parts])
    matches = bm25.weighed(
        evidence, question.terms, bank.size, k1=settings.bm25_k1, b=settings.bm25_b
    )
    known = [part.similarities for part in parts if part.similarities is not None]
    if not known:
        return ProbeResult(Blind(), matches)
    return ProbeResult(KnownScan.of(np.concatenate(known), bank.population), matches)


@dataclass(frozen=True, slots=True)
class KnownScan:
    """`Scan` over similarities that are known: float32 (size,), 0 where there is no vector; `rows`,
    by type, are the live memories that have one."""

    similarities: Floats
    rows: tuple[Ints, ...]

    @classmethod
    def of(cls, similarities: Floats, population: AliveSet) -> Scan:
        """similarities: NaN where there is no vector."""
        absent = np.isnan(similarities)
        if not absent.any():
            return cls(similarities, population.rows)
        rows = tuple(each[~absent[each]] for each in population.rows)
        return cls(np.where(absent, np.float32(0), similarities), rows)

    def top(self, k: int, allowed: Bools | None, fact_type: FactType) -> Hits:
        rows = self.rows[fact_type]
        if allowed is not None:
            rows = rows[allowed[rows]]
        return best(self.similarities[rows], rows, k)

    def at(self, ordinals: Ints) -> Floats:
        return self.similarities[ordinals]

    def moments(self, fact_type: FactType | None) -> tuple[float, float]:
        chosen = self.rows if fact_type is None else (self.rows[fact_type],)
        return moments(self.similarities[np.concatenate(chosen)])
