"""Ranges of split banks, with several holders in this process."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.probe import Probe
from retrieval.bank.shards.shard import LocalShards, RangeReading
from retrieval.store.heads import BankHead
from retrieval.types import Floats, Ints


class Holders:
    """Range i is with holder i, counted round; questions and answers cross as bytes."""

    def __init__(self, holders: Sequence[LocalShards]) -> None:
        self._holders = holders

    async def read(
        self, head: BankHead, part: int, asked: Sequence[Probe], *, deadline: float | None = None
    ) -> Sequence[RangeReading]:
        there = self._holders[part % len(self._holders)]
        sent = pickle.loads(pickle.dumps((head, asked)))
        answer = pickle.dumps(await there.read(sent[0], part, sent[1], deadline=deadline))
        back: Sequence[RangeReading] = pickle.loads(answer)
        return back

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
        there = self._holders[part % len(self._holders)]
        return await there.nearest(head, part, vectors, types, k=k, floor=floor)

    async def rows(
        self, head: BankHead, part: int, ordinals: Ints, *, deadline: float | None = None
    ) -> Floats:
        return await self._holders[part % len(self._holders)].rows(head, part, ordinals)
