"""Which banks a process holds, within a budget of bytes.

One event loop owns a `Residency`; array work runs in threads of its own. A snapshot is handed out
by reference: eviction forgets it, and its memory goes when the last search that holds it is done.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.loader import kinds, next_snapshot
from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors import FlatBackend, VectorBackend
from retrieval.errors import Unavailable
from retrieval.store import deltas
from retrieval.store.deltas import Delta
from retrieval.store.heads import BankHead
from retrieval.store.pool import Pool
from retrieval.types import Floats, Ints

P = ParamSpec("P")
R = TypeVar("R")


class Load(Protocol):
    """Reads what a snapshot lacks, in one database snapshot at least as new as `head`."""

    def __call__(
        self,
        pool: Pool,
        head: BankHead,
        *,
        have_generation: int,
        have_version: int,
        have_ordinal: int,
        kinds: Sequence[str],
    ) -> Awaitable[Delta]: ...


@dataclass(frozen=True, slots=True)
class ResidencySettings:
    """`budget_bytes` of host memory and `device_budget_bytes` of the vector backend's device, for
    all banks together; `loads`: how many banks are read from nothing at a time."""

    budget_bytes: int = 4 << 30
    device_budget_bytes: int = 64 << 30
    loads: int = 2
    vectors: VectorBackend = field(default_factory=FlatBackend)


@dataclass(frozen=True, slots=True)
class ResidencyMetrics:
    """Counters since the start, and what is held now. Times in seconds."""

    resident_banks: int
    resident_bytes: int
    device_bytes: int
    loading: int
    hits: int
    misses: int
    deltas: int
    delta_versions: int
    evictions: int
    abandoned: int
    load_seconds: float
    delta_seconds: float


@dataclass(slots=True)
class _Counters:
    hits: int = 0
    misses: int = 0
    deltas: int = 0
    delta_versions: int = 0
    evictions: int = 0
    abandoned: int = 0
    load_seconds: float = 0.0
    delta_seconds: float = 0.0


class _Given(Exception):
    """Nobody waits for this load any more."""


@dataclass(slots=True)
class _Flight:
    """One load under way, and how many wait for it."""

    task: asyncio.Task[ResidentBank]
    stop: threading.Event
    waiting: int = 0

    def abandon(self) -> None:
        self.stop.set()
        self.task.cancel()


@dataclass(frozen=True, slots=True)
class _Held:
    bank: ResidentBank
    nbytes: int
    device_nbytes: int


class Residency:
    """Banks in memory, least recently used ones leaving first."""

    def __init__(
        self, pool: Pool, settings: ResidencySettings, *, load: Load = deltas.load
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._load = load
        self._banks: OrderedDict[int, _Held] = OrderedDict()
        self._flights: dict[int, _Flight] = {}
        self._bytes = 0
        self._device_bytes = 0
        self._counters = _Counters()
        self._closed = False
        self._slots = asyncio.Semaphore(settings.loads)
        # Apart, so that a fresh read never queues behind a cold load.
        self._loaders = ThreadPoolExecutor(settings.loads, "bank-load")
        self._workers = ThreadPoolExecutor(2, "bank-delta")

    async def open(self, head: BankHead) -> ResidentBank:
        """The bank at `head` or newer.

        Held at that version: at once, without giving up the event loop. Else what is missing is
        loaded, once for all who wait; the load stops when the last of them is cancelled.
        """
        held = self._banks.get(head.bank)
        if held is not None and _covers(held.bank.head, head):
            self._counters.hits += 1
            self._banks.move_to_end(head.bank)
            return held.bank
        if held is None:
            self._counters.misses += 1
        while not self._closed:
            own = head.bank not in self._flights
            flight = self._flights.get(head.bank) or self._take_off(head)
            flight.waiting += 1
            try:
                await asyncio.wait({flight.task})
            finally:
                flight.waiting -= 1
                if not flight.waiting and not flight.task.done():
                    flight.abandon()
            if flight.task.cancelled():
                continue  # given up by those who came before
            bank = flight.task.result()
            if _covers(bank.head, head):
                return bank
            if own:
                raise Unavailable("database", f"it answers with a state before {head.version}")
        raise Unavailable("the bank", "this replica is closing")

    def refresh(self, head: BankHead) -> None:
        """Start to bring a bank that is held up to `head`, and return at once.

        For whoever just committed a write here: the next recall then finds it applied. A bank that
        is not held is left alone; a failure is left to the next `open`.
        """
        held = self._banks.get(head.bank)
        if held is None or _covers(held.bank.head, head) or head.bank in self._flights:
            return
        self._take_off(head)

    def held(self, bank: int) -> ResidentBank | None:
        """The snapshot in memory, whatever its version; its age is not touched."""
        held = self._banks.get(bank)
        return held.bank if held is not None else None

    def evict(self, bank: int) -> bool:
        """Forget a bank; True if it was held. Searches that hold its snapshot go on."""
        held = self._banks.pop(bank, None)
        if held is None:
            return False
        self._bytes -= held.nbytes
        self._device_bytes -= held.device_nbytes
        return True

    async def warm(self, heads: Iterable[BankHead]) -> int:
        """Load these banks, most important first, as long as there is room for one of mean size.

        Returns how many are resident. A bank that cannot be loaded is passed over.
        """
        warmed = 0
        for head in heads:
            mean = self._bytes / max(1, len(self._banks))
            if self._bytes + mean > self._settings.budget_bytes:
                break
            try:
                await self.open(head)
            except (Unavailable, ValueError):
                continue
            warmed += 1
        return warmed

    def metrics(self) -> ResidencyMetrics:
        c = self._counters
        return ResidencyMetrics(
            resident_banks=len(self._banks),
            resident_bytes=self._bytes,
            device_bytes=self._device_bytes,
            loading=len(self._flights),
            hits=c.hits,
            misses=c.misses,
            deltas=c.deltas,
            delta_versions=c.delta_versions,
            evictions=c.evictions,
            abandoned=c.abandoned,
            load_seconds=c.load_seconds,
            delta_seconds=c.delta_seconds,
        )

    async def neighbours(
        self, head: BankHead, vectors: Floats, types: NDArray[np.uint8], *, k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        """`retrieval.protocols.Neighbours`: nearest live memories at exactly `head.version`."""
        bank = await self.open(head)
        if (bank.head.generation, bank.head.version) != (head.generation, head.version):
            raise Unavailable("bank", f"its version moved from {head.version} during a write")
        return await self._in_thread(
            self._workers, threading.Event(), bank.vectors.nearest, vectors, types, k, floor
        )

    async def close(self) -> None:
        """Stop loads and threads; snapshots handed out stay usable."""
        self._closed = True
        flights = [*self._flights.values()]
        for flight in flights:
            flight.abandon()
        if flights:
            await asyncio.wait({f.task for f in flights})
        self._loaders.shutdown()
        self._workers.shutdown()
        self._banks.clear()
        self._bytes = self._device_bytes = 0

    def _take_off(self, head: BankHead) -> _Flight:
        stop = threading.Event()
        flight = _Flight(asyncio.create_task(self._fly(head, stop)), stop)
        flight.task.add_done_callback(lambda task: self._landed(head.bank, task))
        self._flights[head.bank] = flight
        return flight

    def _landed(self, bank: int, task: asyncio.Task[ResidentBank]) -> None:
        del self._flights[bank]
        if task.cancelled():
            self._counters.abandoned += 1
        else:
            task.exception()  # seen, also where nobody waits any more

    async def _fly(self, head: BankHead, stop: threading.Event) -> ResidentBank:
        held = self.held(head.bank)
        if held is not None and kinds(held.head) == kinds(head):
            return await self._advance(held, head, stop)
        async with self._slots:
            return await self._read(head, stop)

    async def _read(self, head: BankHead, stop: threading.Event) -> ResidentBank:
        start = time.perf_counter()
        delta = await self._lacking(None, head)
        bank = await self._build(self._loaders, None, delta, stop)
        self._counters.load_seconds += time.perf_counter() - start
        return bank

    async def _advance(
        self, held: ResidentBank, head: BankHead, stop: threading.Event
    ) -> ResidentBank:
        start = time.perf_counter()
        delta = await self._lacking(held, head)
        bank = await self._build(self._workers, held, delta, stop)
        self._counters.deltas += 1
        self._counters.delta_versions += bank.head.version - held.head.version
        self._counters.delta_seconds += time.perf_counter() - start
        return bank

    async def _lacking(self, held: ResidentBank | None, head: BankHead) -> Delta:
        """What `held` lacks. The bank may have moved on to other vectors or another analyser since
        `head` was read (its first write, a new model): then everything, of those kinds."""
        while True:
            asked = kinds(head)
            delta = await self._load(
                self._pool,
                head,
                have_generation=-1 if held is None else held.head.generation,
                have_version=-1 if held is None else held.head.version,
                have_ordinal=0 if held is None else held.size,
                kinds=asked,
            )
            if kinds(delta.head) == asked:
                return delta
            held, head = None, delta.head

    async def _build(
        self, threads: Executor, held: ResidentBank | None, delta: Delta, stop: threading.Event
    ) -> ResidentBank:
        def pause() -> None:
            if stop.is_set():
                raise _Given
            time.sleep(0)  # lets a search have the interpreter

        bank = await self._in_thread(
            threads, stop, next_snapshot, held, delta, self._settings.vectors, pause
        )
        self._keep(bank)
        return bank

    async def _in_thread(
        self,
        threads: Executor,
        stop: threading.Event,
        work: Callable[P, R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """The result of `work` in a thread. Cancelled, it still waits for the thread to end: two
        threads must not extend one bank."""
        future = asyncio.get_running_loop().run_in_executor(threads, lambda: work(*args, **kwargs))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait({future})
            if not future.cancelled():
                future.exception()
            raise

    def _keep(self, bank: ResidentBank) -> None:
        self.evict(bank.head.bank)
        held = _Held(bank, sum(bank.nbytes.values()), bank.vectors.device_nbytes)
        self._banks[bank.head.bank] = held
        self._bytes += held.nbytes
        self._device_bytes += held.device_nbytes
        while self._full() and len(self._banks) > 1:
            self.evict(next(iter(self._banks)))
            self._counters.evictions += 1

    def _full(self) -> bool:
        s = self._settings
        return self._bytes > s.budget_bytes or self._device_bytes > s.device_budget_bytes


def _covers(held: BankHead, wanted: BankHead) -> bool:
    return held.generation >= wanted.generation and held.version >= wanted.version
