"""Turns of those who write a document: one at a time, before they read it.

A turn lasts as long as its writer does, which may be minutes where a model reads the text. So no
connection is held: inside a process writers queue in memory, between processes a row with a lease
says whose turn it is. Several documents are taken in one order, so that nobody waits for
somebody who waits for him. A turn only avoids wasted work; what is written is checked again
while the bank is locked.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from uuid import UUID, uuid4

from retrieval.errors import Conflict, FourfoldError, Overloaded
from retrieval.store.database.pool import Connection, Pool, write

log = logging.getLogger(__name__)

LEASE_S = 15.0
LATER_S = 1.0
"""When to come back where too many wait."""
POLL_S = (0.02, 0.25)
"""Wait between looks at a turn that another process has: the first, and the longest."""


class Busy(Conflict):
    """Others write the document, and the time to wait for them is over."""


class Line:
    """Who in one process waits for documents, in the order in which they came. At most `most` of a
    tenant wait. All calls from one event loop."""

    def __init__(self, most: float = math.inf) -> None:
        self._most = most
        self._waiting: Counter[str] = Counter()
        self._locks: weakref.WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    @asynccontextmanager
    async def of(
        self, tenant: str, bank_id: str, documents: Iterable[str], deadline: float | None = None
    ) -> AsyncIterator[None]:
        """Inside nobody else of this line has any of the documents. Busy at `deadline`
        (time.monotonic()); Overloaded where too many of the tenant wait."""
        wanted = sorted(set(documents))
        locks = [self._lock(tenant, bank_id, document) for document in wanted]
        async with AsyncExitStack() as stack:
            if any(lock.locked() for lock in locks) and self._waiting[tenant] >= self._most:
                raise Overloaded(
                    f"{self._waiting[tenant]} requests of this tenant wait for documents", LATER_S
                )
            self._waiting[tenant] += 1
            try:
                async with asyncio.timeout(_left(deadline)):
                    for lock in locks:
                        await stack.enter_async_context(lock)
            except TimeoutError:
                raise _busy(wanted) from None
            finally:
                self._waiting[tenant] -= 1
                if not self._waiting[tenant]:
                    del self._waiting[tenant]
            yield

    def _lock(self, tenant: str, bank_id: str, document: str) -> asyncio.Lock:
        key = tenant, bank_id, document
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock


class Turns:
    """The turns of one process. All calls from one event loop."""

    def __init__(self, lease_s: float = LEASE_S) -> None:
        self._lease_s = lease_s
        self._line = Line()

    @asynccontextmanager
    async def of(
        self,
        pool: Pool,
        tenant: str,
        bank_id: str,
        documents: Iterable[str],
        deadline: float | None = None,
    ) -> AsyncIterator[None]:
        """Inside it is the caller's turn to write these documents.

        Busy if others have it and it does not come before `deadline` (time.monotonic()).
        """
        wanted = sorted(set(documents))
        if not wanted:
            yield
            return
        async with self._line.of(tenant, bank_id, wanted, deadline):
            try:
                holder = await self._take(pool, tenant, bank_id, wanted, deadline)
            except TimeoutError:
                raise _busy(wanted) from None
            keeping = asyncio.create_task(self._keep(pool, holder))
            try:
                yield
            finally:
                keeping.cancel()
                await asyncio.shield(_give_back(pool, holder))

    async def _take(
        self, pool: Pool, tenant: str, bank_id: str, wanted: list[str], deadline: float | None
    ) -> UUID:
        """Waits until no other process has a turn at any of them; TimeoutError at the deadline."""
        holder = uuid4()

        async def work(connection: Connection) -> None:
            taken = await connection.fetch(
                "insert into document_turns as t"
                " (tenant_id, bank_id, document_id, holder, leased_until)"
                " select $1, $2, d, $4, now() + $5 * interval '1 second' from unnest($3::text[]) d"
                " on conflict (tenant_id, bank_id, document_id) do update"
                " set holder = excluded.holder, leased_until = excluded.leased_until"
                " where t.leased_until < now() or t.holder = excluded.holder returning 1",
                tenant,
                bank_id,
                wanted,
                holder,
                self._lease_s,
            )
            if len(taken) < len(wanted):
                raise _Taken

        wait_s, longest_s = POLL_S
        while True:
            try:
                await write(pool, work)
                return holder
            except _Taken:
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError from None
                await asyncio.sleep(wait_s * (0.5 + random.random()))
                wait_s = min(2 * wait_s, longest_s)
            except asyncio.CancelledError:
                await asyncio.shield(_give_back(pool, holder))  # it may have been committed
                raise

    async def _keep(self, pool: Pool, holder: UUID) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            with suppress(FourfoldError, OSError):
                await write(
                    pool,
                    lambda connection: connection.execute(
                        "update document_turns set leased_until = now() + $2 * interval '1 second'"
                        " where holder = $1",
                        holder,
                        self._lease_s,
                    ),
                )


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()


def _busy(wanted: list[str]) -> Busy:
    which = repr(wanted[0]) if len(wanted) == 1 else f"one of {len(wanted)} documents"
    return Busy(
        f"others are writing document {which} and the time to wait for them is over: try again"
    )


class _Taken(Exception):
    """Another process has the turn."""


async def _give_back(pool: Pool, holder: UUID) -> None:
    try:
        await write(
            pool,
            lambda connection: connection.execute(
                "delete from document_turns where holder = $1", holder
            ),
        )
    except (FourfoldError, OSError) as error:
        log.info("a turn is left to run out: %s", error)


async def let_go(pool: Pool) -> None:
    """Forgets turns of writers that died."""
    await write(
        pool,
        lambda connection: connection.execute(
            "delete from document_turns where leased_until < now() - interval '1 hour'"
        ),
    )
