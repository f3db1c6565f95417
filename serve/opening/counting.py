"""Who does how much: counted in the process, added to the table `usage` every minute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from retrieval.store import usage
from retrieval.store.database.pool import Pool
from retrieval.store.usage import TenantUsage
from serve import metrics

log = logging.getLogger(__name__)

FLUSH_S = 60.0
END_S = 2.0
"""How long the last counts may hold up the end of a process."""
TENANTS_MAX = 10_000
OTHERS = "(others)"
"""Stands for those beyond TENANTS_MAX in a minute."""
OPERATIONS = {"recall": "recalls", "write": "writes", "read": "reads"}


class Counting:
    """Counts of this minute. All calls from one event loop."""

    def __init__(self) -> None:
        self._of: dict[str, TenantUsage] = {}

    def tenant(self, name: str) -> TenantUsage:
        """The counts of a tenant, to be raised."""
        found = self._of.get(name)
        if found is None:
            name = name if len(self._of) < TENANTS_MAX else OTHERS
            found = self._of.setdefault(name, TenantUsage())
        return found

    def visited(self, controller: str) -> Callable[[str, float], None]:
        """What a controller calls with the tenant of each visit and its seconds."""
        field = OPERATIONS[controller]

        def count(tenant: str, seconds: float) -> None:
            own = self.tenant(tenant)
            setattr(own, field, getattr(own, field) + 1)
            own.busy_ms += 1000.0 * seconds

        return count

    def refused(self, controller: str) -> Callable[[str, str], None]:
        """What a controller calls with the tenant and the reason of each refusal."""
        by_reason = metrics.refusals(controller)

        def count(tenant: str, reason: str) -> None:
            self.tenant(tenant).refused += 1
            by_reason(reason)

        return count

    def taken(self) -> dict[str, TenantUsage]:
        """What was counted since it was last taken."""
        taken, self._of = self._of, {}
        return taken


def keep(pool: Pool, counting: Counting, first: Callable[[], bool], stack: AsyncExitStack) -> None:
    """Adds what is counted to the table every minute, and at the end, until the stack closes. The
    process that is the `first` one also removes what is old."""

    async def flush(within_s: float = FLUSH_S) -> None:
        taken = counting.taken()
        try:
            async with asyncio.timeout(within_s):
                await usage.add(pool, datetime.now(UTC).replace(second=0, microsecond=0), taken)
                if first():
                    await usage.forget(pool)
        except Exception as error:  # a minute that is not counted harms nobody
            log.warning("usage of %d tenants could not be kept: %s", len(taken), error)

    async def go_on() -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            await flush()

    stack.push_async_callback(flush, END_S)
    stack.callback(asyncio.create_task(go_on()).cancel)
