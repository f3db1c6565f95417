"""What every write needs, put together once by the composition root."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from retrieval.ingest.extract.extraction import FactExtractor
from retrieval.ingest.progress import OperationProgress
from retrieval.keyword.analyser import Analyser
from retrieval.keyword.analysers import analyser_for
from retrieval.protocols import Embedder, Neighbours
from retrieval.settings import RetainSettings
from retrieval.store.database.pool import Connection, Pool
from retrieval.store.erasure import Note
from retrieval.store.heads import BankHead, made_by
from retrieval.store.turns import Turns as DocumentTurns

T = TypeVar("T")


def utc_now() -> datetime:
    return datetime.now(UTC)


_writers: weakref.WeakKeyDictionary[Pool, asyncio.Semaphore] = weakref.WeakKeyDictionary()
"""Per pool: no more writers than leave each a second connection."""


class BankLocks:
    """Whose turn it is to write a bank, inside this process.

    A waiting writer must not hold a connection: the one that writes needs more of them to read
    the bank's neighbours.
    """

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    @asynccontextmanager
    async def held(self, pool: Pool, tenant: str, bank_id: str) -> AsyncIterator[None]:
        writers = _writers.get(pool)
        if writers is None:
            writers = _writers[pool] = asyncio.Semaphore(max(1, pool.get_max_size() // 2))
        lock = self._locks.get((tenant, bank_id))
        if lock is None:
            lock = self._locks[tenant, bank_id] = asyncio.Lock()
        async with lock, writers:
            yield


class RunOffLoop(Protocol):
    """Runs a pure function where it does not hold up the event loop."""

    async def __call__(self, work: Callable[..., T], /, *args: Any) -> T: ...


async def in_thread(work: Callable[..., T], /, *args: Any) -> T:
    return await asyncio.to_thread(work, *args)


@dataclass(frozen=True, slots=True)
class WriteContext:
    """`run` is for the long pure work on texts: in a thread, or in a process of its own.
    `bank_locks` are those of a bank's writers, `documents` those of a document's.

    `extractor` may be None: chunks are then stored as they are. `committed` is told the head of
    a bank after each write to it; it must return at once. `ripens` is told inside the transaction
    of a write that leaves memories to be consolidated. `builds`: the bank that is written is still
    being built. `progress` is told how far a write is: an operation has its own, the rest nobody
    looks at. `note` keeps, outside of the database, what a deletion takes away; it is awaited
    before the commit."""

    pool: Pool
    embedder: Embedder
    neighbours: Neighbours
    settings: RetainSettings = field(default_factory=RetainSettings)
    extractor: FactExtractor | None = None
    analyser: Callable[[RetainSettings], Analyser] = analyser_for
    clock: Callable[[], datetime] = utc_now
    bank_locks: BankLocks = field(default_factory=BankLocks)
    documents: DocumentTurns = field(default_factory=DocumentTurns)
    run: RunOffLoop = in_thread
    committed: Callable[[BankHead], None] = lambda head: None
    ripens: Callable[[Connection, BankHead], Awaitable[None]] | None = None
    builds: bool = False
    progress: OperationProgress = field(default_factory=OperationProgress)
    note: Note | None = None

    @property
    def vector_set(self) -> str:
        """The name of the vectors this process makes."""
        return made_by(self.embedder)
