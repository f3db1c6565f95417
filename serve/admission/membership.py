"""The ingress processes of one database, and the part of every tenant's limits that falls to each.

A limit holds for all of them together. Each counts for itself, by its share: no request waits for
a count that lies elsewhere. A process that comes or goes is noticed within `BEAT_S`, one that died
within `FRESH_S`; of more than `COUNTED_AT_ONCE`, that much later.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import AsyncExitStack
from uuid import uuid4

from retrieval.store import heartbeats
from retrieval.store.database.pool import Pool
from serve.admission.controller import LimitShare

log = logging.getLogger(__name__)

BEAT_S = 2.0
FRESH_S = 7.0
"""Three beats, and a second for a slow one."""
FORGET_S = 600.0
COUNTED_AT_ONCE = 50
"""Up to so many processes each beats every BEAT_S; of n, every n / COUNTED_AT_ONCE times that."""


class Membership:
    """This process among the others, once `join` was called."""

    def __init__(
        self,
        pool: Pool,
        beat_s: float = BEAT_S,
        fresh_s: float = FRESH_S,
        role: str = heartbeats.INGRESS,
    ) -> None:
        """`role`: those of one role are counted together."""
        self._pool = pool
        self._role = role
        self._beat_s = beat_s
        self._fresh_s = fresh_s
        self._id = uuid4()
        self._share = LimitShare()
        self._said = math.inf
        self._wary_until = -math.inf

    def share(self) -> LimitShare:
        """What was found last; all, as long as nothing was."""
        return self._share

    def place(self) -> tuple[int, int]:
        """(rank, how many there are)."""
        return self._share.rank, self._share.world_size

    def part(self, whole: int) -> int:
        """What falls to this process of what all have together; at least 1."""
        return max(1, self._share.count(whole))

    async def join(self, stack: AsyncExitStack) -> None:
        """Counts this process in until the stack closes, and looks for the others."""
        stack.push_async_callback(self._leave)
        await self._beat()
        beating = asyncio.create_task(self._go_on())
        stack.callback(beating.cancel)

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(self._beat_s * self._slower())
            await self._beat()

    async def _beat(self) -> None:
        fresh_s = self._fresh_s * self._slower()
        try:
            found = LimitShare(*await heartbeats.beat(self._pool, self._id, fresh_s, self._role))
        except Exception as error:  # whatever it is, requests go on by the last count
            log.warning("the other processes could not be counted: %s", error)
            return
        now = time.monotonic()
        if now - self._said > fresh_s:
            # Nobody heard of us; the others may be there as well, and not have got through yet.
            self._wary_until = now + fresh_s
        self._said = now
        if found.world_size < self._share.world_size and now < self._wary_until:
            return
        if found.world_size != self._share.world_size:
            log.info("tenants' limits are shared by %d processes", found.world_size)
        self._share = found

    def _slower(self) -> float:
        """Each beat reads a row of every process: large companies count themselves less often."""
        return max(1.0, self._share.world_size / COUNTED_AT_ONCE)

    async def _leave(self) -> None:
        try:
            await heartbeats.leave(self._pool, self._id, FORGET_S)
        except Exception as error:
            log.info("could not say that this process goes: %s", error)
