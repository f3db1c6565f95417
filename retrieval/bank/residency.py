"""Which banks a process holds, within a budget of bytes.

A bank that is too large for one process is held without its vectors and postings: those lie in
ranges elsewhere (`retrieval.bank.shards.scatter`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.cache import DeltaReader, ResidencySettings, SnapshotCache, in_thread
from retrieval.bank.loader import kinds, next_snapshot
from retrieval.bank.resident import ResidentBank
from retrieval.bank.shards.scatter import ScatterGather
from retrieval.errors import Unavailable
from retrieval.store.database.pool import Pool
from retrieval.store.heads import BankHead
from retrieval.store.segments import delta as deltas
from retrieval.store.segments.delta import Delta
from retrieval.types import Floats, Ints


class Residency(SnapshotCache[ResidentBank]):
    """Banks in memory, least recently used ones leaving first.

    `split`: who holds the vectors and postings of banks above its size; None where every bank is
    held whole.
    """

    def __init__(
        self,
        pool: Pool,
        settings: ResidencySettings,
        *,
        load: DeltaReader = deltas.load,
        split: ScatterGather | None = None,
    ) -> None:
        super().__init__(pool, settings, load=load)
        self._vectors = settings.vectors
        self.split = split

    async def neighbours(
        self, head: BankHead, vectors: Floats, types: NDArray[np.uint8], *, k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        """`retrieval.protocols.Neighbours`: nearest live memories at exactly `head.version`."""
        if self._splits(head):
            assert self.split is not None
            return await self.split.nearest(head, vectors, types, k=k, floor=floor)
        bank = await self.open(head)
        if (bank.head.generation, bank.head.version) != (head.generation, head.version):
            raise Unavailable("bank", f"its version moved from {head.version} during a write")
        work = partial(bank.vectors.nearest, vectors, types, k, floor)
        return await in_thread(self._workers, work)

    def _splits(self, head: BankHead) -> bool:
        return self.split is not None and self.split.takes(head)

    def _kinds(self, head: BankHead) -> tuple[str, ...]:
        return kinds(head, whole=not self._splits(head))

    def _span(self, part: int) -> tuple[int, int] | None:
        return None

    def _next(
        self,
        held: ResidentBank | None,
        delta: Delta,
        part: int,
        pause: Callable[[], None],
    ) -> ResidentBank:
        whole = not self._splits(delta.head)
        return next_snapshot(held, delta, self._vectors, pause, whole=whole)
