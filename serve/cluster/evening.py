"""Keeps the banks of Retrievers even: one process works out which share of its banks each slot
takes, and tells all routers through the hot settings."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import AsyncExitStack

import numpy as np

from retrieval.bank.shards import evenness
from retrieval.bank.shards.placement import key_of
from retrieval.store import hot_settings, sizes
from retrieval.store.database.pool import Pool
from serve.admission.controller import LimitShare
from serve.cluster.bank_router import even_out
from serve.opening.hot import SHARES, HotSettings

log = logging.getLogger(__name__)

STAGE = "Retriever"
PERIOD_S = 300.0
WORTH_BYTES = 256 * 2**20
"""A mean slot holds at least so much: below it no move of a bank is worth its load."""


class Evener:
    """`slots` are those that this process knows; of the processes, the first one works."""

    def __init__(
        self,
        pool: Pool,
        hot: HotSettings,
        slots: Callable[[], list[int]],
        share: Callable[[], LimitShare],
        worth_bytes: float = WORTH_BYTES,
    ) -> None:
        self._pool = pool
        self._hot = hot
        self._slots = slots
        self._share = share
        self._worth = worth_bytes

    def start(self, stack: AsyncExitStack) -> None:
        """Follows what is told, and works where it is this process's turn, until the stack
        closes."""
        self._hot.tell(lambda: even_out(STAGE, self._hot.shares(STAGE)))
        working = asyncio.create_task(self._go_on())
        stack.callback(working.cancel)

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S * random.uniform(0.8, 1.2))
            if self._share().rank:
                continue
            try:
                await self.even()
            except Exception as error:  # the next round says it again
                log.warning("banks could not be evened out: %s", error)

    async def even(self) -> bool:
        """One round; True where it told new shares."""
        slots = self._slots()
        if len(slots) < 2:
            return False
        names, held = await sizes.of_banks(self._pool)
        if sum(held) < self._worth * len(slots):
            return False
        before = self._hot.shares(STAGE)

        def work() -> dict[int, float]:
            keys = np.fromiter(map(key_of, names), dtype=np.uint64, count=len(names))
            return evenness.shares(slots, keys, np.asarray(held, dtype=np.float64), before)

        told = await asyncio.to_thread(work)
        if told == before:
            return False
        stored = {str(slot): part for slot, part in told.items()}
        await hot_settings.put(self._pool, SHARES, {STAGE: stored})
        log.info("the shares of %d slots were updated", len(slots))
        return True
