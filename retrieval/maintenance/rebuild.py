"""One family of a bank's segments rebuilt beside the one that serves, then put in its place.

Two families can be rebuilt from the stored rows: `vectors`, when the embedding model changes, and
`postings`, when the analyser does. What is there of the new kind is kept, whoever made it, so a
rebuild that was stopped goes on where it was and writers may add to the new kind meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from numpy.typing import NDArray

from retrieval.keyword.backends.backend import BuildProgress
from retrieval.maintenance import jobs
from retrieval.store import banks, operations
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.heads import BankHead
from retrieval.store.operations import Claim
from retrieval.store.segments import table as segments
from retrieval.store.segments.format import pack

R = TypeVar("R")

Gap: TypeAlias = tuple[int, int]
"""(first, end) of ordinals that no segment covers."""

Settle: TypeAlias = Callable[[Connection, BankHead], Awaitable[None]]
"""What else belongs to the transaction that switches; it holds the bank's lock."""


class Maker(Protocol[R]):
    """Makes segments of one kind from the rows of memories."""

    @property
    def family(self) -> Literal["vectors", "postings"]: ...

    @property
    def target(self) -> str:
        """The name of what is made; the kind of its segments is '<family>:<target>'."""
        ...

    @property
    def batch(self) -> int:
        """Ordinals per step and segment."""
        ...

    @property
    def last(self) -> int:
        """At most this many ordinals are made while writers wait for the switch."""
        ...

    async def read(self, connection: Connection, bank: int, first: int, end: int) -> R:
        """The rows of the live memories with ordinals [first, end)."""
        ...

    async def make(self, rows: R, first: int, end: int) -> Mapping[str, NDArray[Any]]:
        """The segment of ordinals [first, end); those without a row have an empty place in it."""
        ...


_COLUMNS = {"vectors": "vector_set", "postings": "analyser"}


async def rebuild(
    pool: Pool, tenant: str, bank_id: str, maker: Maker[R], settle: Settle
) -> AsyncGenerator[BuildProgress, None]:
    """Makes `maker.target` the bank's. Progress in ordinals after every step.

    Steps hold the bank's lock only to insert what was made. The last one holds it while it makes
    up to `maker.last` ordinals, and then names the target, raises version and generation and drops
    the other segments of the family: a reader sees either the old ones or the new ones, whole.
    Where the target is the bank's already, gaps in its segments are filled.
    May be stopped at any time and run again. NotFound if the bank is gone.
    """
    kind = f"{maker.family}:{maker.target}"
    while True:
        head, open_ = await read(pool, lambda c: _state(c, tenant, bank_id, kind))
        left = _size(open_)
        if left <= maker.last:
            if await write(pool, lambda c: _switch(c, tenant, bank_id, kind, maker, settle)):
                yield BuildProgress(head.next_ordinal, head.next_ordinal)
                return
            continue
        first = open_[0][0]
        end = min(open_[0][1], first + maker.batch)
        payload = await _made(pool, head.bank, maker, first, end)
        put = partial(_put, head=head, kind=kind, gap=(first, end), payload=payload)
        if await write(pool, put):
            yield BuildProgress(head.next_ordinal - left + end - first, head.next_ordinal)


async def carry_out(
    pool: Pool, claimed: Claim, maker: Maker[R], settle: Settle | None = None
) -> AsyncGenerator[BuildProgress, None]:
    """`rebuild` as the job `claimed`: public progress, completed by the switch."""

    async def finish(connection: Connection, held: BankHead) -> None:
        if settle is not None:
            await settle(connection, held)
        await operations.finish(connection, claimed, {"memories": held.next_ordinal})

    steps = rebuild(pool, claimed.tenant, claimed.bank_id, maker, finish)
    async with jobs.working(pool, claimed), aclosing(steps):
        async for progress in steps:
            if progress.done < progress.total:
                await jobs.report(pool, claimed, progress)
            yield progress


async def gaps(connection: Connection, bank: int, kind: str, size: int) -> list[Gap]:
    """The ordinals below `size` that no segment of this kind covers."""
    rows = await connection.fetch(
        "select first_ordinal, first_ordinal + count from segments"
        " where bank = $1 and kind = $2 order by first_ordinal",
        bank,
        kind,
    )
    found: list[Gap] = []
    at = 0
    for first, end in [*((row[0], row[1]) for row in rows), (size, size)]:
        if first > at:
            found.append((at, min(first, size)))
        at = max(at, end)
    return found


def _size(found: Sequence[Gap]) -> int:
    return sum(end - first for first, end in found)


async def _state(
    connection: Connection, tenant: str, bank_id: str, kind: str
) -> tuple[BankHead, list[Gap]]:
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        head = await banks.head_of(connection, tenant, bank_id)
        return head, await gaps(connection, head.bank, kind, head.next_ordinal)


async def _made(pool: Pool, bank: int, maker: Maker[R], first: int, end: int) -> bytes:
    rows = await read(pool, lambda connection: maker.read(connection, bank, first, end))
    return await asyncio.to_thread(pack, await maker.make(rows, first, end))


async def _put(connection: Connection, head: BankHead, kind: str, gap: Gap, payload: bytes) -> bool:
    """Adds a segment; False, and nothing is done, if its ordinals mean something else by now."""
    held = await banks.lock(connection, head.tenant, head.bank_id)
    first, end = gap
    still = any(
        a <= first and end <= b
        for a, b in await gaps(connection, held.bank, kind, held.next_ordinal)
    )
    if not still or (held.bank, held.generation) != (head.bank, head.generation):
        return False
    await segments.append(connection, held.bank, kind, first, end - first, held.version, payload)
    return True


async def _switch(
    connection: Connection, tenant: str, bank_id: str, kind: str, maker: Maker[R], settle: Settle
) -> bool:
    """The last step; False, and nothing is done, if too much was written meanwhile."""
    held = await banks.lock(connection, tenant, bank_id)
    open_ = await gaps(connection, held.bank, kind, held.next_ordinal)
    if _size(open_) > maker.last:
        return False
    for first, end in open_:
        rows = await maker.read(connection, held.bank, first, end)
        payload = pack(await maker.make(rows, first, end))
        await segments.append(
            connection, held.bank, kind, first, end - first, held.version, payload
        )
    await settle(connection, held)
    await connection.execute(
        "delete from segments where bank = $1 and kind <> $2 and starts_with(kind, $3)",
        held.bank,
        kind,
        f"{maker.family}:",
    )
    column = _COLUMNS[maker.family]
    if open_ or getattr(held, column) != maker.target:
        # Replicas do not look below what they hold. Nor is the name enough to make them: one that
        # was idle while the bank had another family and then this one again sees the same name.
        await connection.execute(
            f"update banks set {column} = $2, version = version + 1,"
            " generation = generation + 1, updated_at = now() where bank = $1",
            held.bank,
            maker.target,
        )
    return True
