"""Snapshots of banks in memory, within a budget of bytes: loads, deltas, eviction.

One event loop owns a cache; array work runs in threads of its own. A snapshot is handed out by
reference: eviction forgets it, and its memory goes when the last search that holds it is done.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeAlias, TypeVar

from retrieval.bank.vectors.flat import FlatBackend, VectorBackend
from retrieval.errors import StaleSnapshot, Unavailable
from retrieval.store.database.pool import Pool
from retrieval.store.heads import BankHead
from retrieval.store.segments import delta as deltas
from retrieval.store.segments.delta import Delta

R = TypeVar("R")

Key: TypeAlias = "tuple[int, int]"
"""(internal number of a bank, number of its part); a bank that is held as a whole is part 0."""


class DeltaReader(Protocol):
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
        span: tuple[int, int] | None,
    ) -> Awaitable[Delta]: ...


class Snapshot(Protocol):
    """A bank, or a part of one, at one version; immutable."""

    @property
    def head(self) -> BankHead: ...
    @property
    def end(self) -> int:
        """One above the highest ordinal that it covers."""
        ...

    @property
    def host_nbytes(self) -> int: ...
    @property
    def device_nbytes(self) -> int: ...


S = TypeVar("S", bound=Snapshot)


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
class _Load(Generic[S]):
    """One load under way, and how many wait for it."""

    task: asyncio.Task[S]
    stop: threading.Event
    waiting: int = 0

    def abandon(self) -> None:
        self.stop.set()
        self.task.cancel()


@dataclass(frozen=True, slots=True)
class _Held(Generic[S]):
    snapshot: S
    nbytes: int
    device_nbytes: int


class SnapshotCache(ABC, Generic[S]):
    """Snapshots in memory, least recently used ones leaving first.

    A subclass says what a snapshot is made of, and makes it.
    """

    def __init__(
        self, pool: Pool, settings: ResidencySettings, *, load: DeltaReader = deltas.load
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._load = load
        self._snapshots: OrderedDict[Key, _Held[S]] = OrderedDict()
        self._flights: dict[Key, _Load[S]] = {}
        self._bytes = 0
        self._device_bytes = 0
        self._counters = _Counters()
        self._closed = False
        self._slots = asyncio.Semaphore(settings.loads)
        # Apart, so that a fresh read never queues behind a cold load.
        self._loaders = ThreadPoolExecutor(settings.loads, "bank-load")
        self._workers = ThreadPoolExecutor(2, "bank-delta")

    @abstractmethod
    def _kinds(self, head: BankHead) -> tuple[str, ...]:
        """The kinds of segments that a snapshot of this bank, or of a part of it, is made of."""

    @abstractmethod
    def _span(self, part: int) -> tuple[int, int] | None:
        """The ordinals of a part; None where entities and tags belong to it: a whole bank."""

    @abstractmethod
    def _next(self, held: S | None, delta: Delta, part: int, pause: Callable[[], None]) -> S:
        """`held` with the delta applied; in a thread. See `loader.next_snapshot`."""

    async def open(self, head: BankHead, part: int = 0) -> S:
        """The snapshot at `head` or newer.

        Held at that version: at once, without giving up the event loop. Else what is missing is
        loaded, once for all who wait; the load stops when the last of them is cancelled.
        StaleSnapshot where another bank has the name of this one by now, or the database was
        restored.
        """
        key = (head.bank, part)
        held = self._snapshots.get(key)
        if held is not None and _covers(held.snapshot.head, head):
            self._counters.hits += 1
            self._snapshots.move_to_end(key)
            return held.snapshot
        if held is None:
            self._counters.misses += 1
        while not self._closed:
            own = key not in self._flights
            flight = self._flights.get(key) or self._start_load(head, part)
            flight.waiting += 1
            try:
                await asyncio.wait({flight.task})
            finally:
                flight.waiting -= 1
                if not flight.waiting and not flight.task.done():
                    flight.abandon()
            if flight.task.cancelled():
                continue  # given up by those who came before
            found = flight.task.result()
            if found.head.bank != head.bank:
                raise StaleSnapshot("the bank", "it was deleted and made again")
            if own and found.head.epoch != head.epoch:
                raise StaleSnapshot("the bank", "the database was restored")
            if _covers(found.head, head):
                return found
            if own:
                raise Unavailable("database", f"it answers with a state before {head.version}")
        raise Unavailable("the bank", "this replica is closing")

    def refresh(self, head: BankHead) -> None:
        """Start to bring a bank that is held up to `head`, and return at once.

        For whoever just committed a write here: the next recall then finds it applied. A bank that
        is not held is left alone; a failure is left to the next `open`.
        """
        held = self.held(head.bank)
        if held is None or _covers(held.head, head) or (head.bank, 0) in self._flights:
            return
        self._start_load(head, 0)

    @property
    def budget_bytes(self) -> int:
        """Host memory that snapshots may take."""
        return self._settings.budget_bytes

    def resize(self, budget_bytes: int) -> None:
        """From now on snapshots may take so much host memory; those used longest ago go at once."""
        self._settings = replace(self._settings, budget_bytes=budget_bytes)
        self._make_room()

    def held(self, bank: int, part: int = 0) -> S | None:
        """The snapshot in memory, whatever its version; its age is not touched."""
        held = self._snapshots.get((bank, part))
        return held.snapshot if held is not None else None

    def generations(self) -> dict[Key, int]:
        """What is held, and of which generation."""
        return {key: held.snapshot.head.generation for key, held in self._snapshots.items()}

    def evict(self, bank: int, part: int = 0) -> bool:
        """Forget a snapshot; True if it was held. Searches that hold it go on."""
        held = self._snapshots.pop((bank, part), None)
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
            mean = self._bytes / max(1, len(self._snapshots))
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
            resident_banks=len(self._snapshots),
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
        self._snapshots.clear()
        self._bytes = self._device_bytes = 0

    def _start_load(self, head: BankHead, part: int) -> _Load[S]:
        stop = threading.Event()
        flight = _Load(asyncio.create_task(self._fly(head, part, stop)), stop)
        flight.task.add_done_callback(lambda task: self._load_finished((head.bank, part), task))
        self._flights[head.bank, part] = flight
        return flight

    def _load_finished(self, key: Key, task: asyncio.Task[S]) -> None:
        del self._flights[key]
        if task.cancelled():
            self._counters.abandoned += 1
        else:
            task.exception()  # seen, also where nobody waits any more

    async def _fly(self, head: BankHead, part: int, stop: threading.Event) -> S:
        held = self.held(head.bank, part)
        if held is not None and self._serving(held.head) == self._serving(head):
            return await self._advance(held, head, part, stop)
        async with self._slots:
            return await self._read(head, part, stop)

    async def _read(self, head: BankHead, part: int, stop: threading.Event) -> S:
        start = time.perf_counter()
        delta = await self._lacking(None, head, part)
        snapshot = await self._build(self._loaders, None, delta, part, stop)
        self._counters.load_seconds += time.perf_counter() - start
        return snapshot

    async def _advance(self, held: S, head: BankHead, part: int, stop: threading.Event) -> S:
        start = time.perf_counter()
        delta = await self._lacking(held, head, part)
        snapshot = await self._build(self._workers, held, delta, part, stop)
        self._counters.deltas += 1
        self._counters.delta_versions += snapshot.head.version - held.head.version
        self._counters.delta_seconds += time.perf_counter() - start
        return snapshot

    async def _lacking(self, held: S | None, head: BankHead, part: int) -> Delta:
        """What `held` lacks. The bank may have moved on to other vectors or another analyser since
        `head` was read (its first write, a new model): then everything, of those kinds."""
        while True:
            delta = await self._load(
                self._pool,
                head,
                have_generation=-1 if held is None else held.head.generation,
                have_version=-1 if held is None else held.head.version,
                have_ordinal=0 if held is None else held.end,
                kinds=self._kinds(head),
                span=self._span(part),
            )
            if self._serving(delta.head) == self._serving(head):
                return delta
            held, head = None, delta.head

    def _serving(self, head: BankHead) -> tuple[tuple[str, ...], str, str, str]:
        """What a delta may lead from and to: the same history of the database, and the same kinds,
        of the same vectors and analyser. A new family changes more than its own segments: it comes
        with links of older memories."""
        return self._kinds(head), head.vector_set, head.analyser, head.epoch

    async def _build(
        self, threads: Executor, held: S | None, delta: Delta, part: int, stop: threading.Event
    ) -> S:
        def pause() -> None:
            if stop.is_set():
                raise _Given
            time.sleep(0)  # lets a search have the interpreter

        work = functools.partial(self._next, held, delta, part, pause)
        snapshot = await in_thread(threads, work, stop)
        self._keep((delta.head.bank, part), snapshot)
        return snapshot

    def _keep(self, key: Key, snapshot: S) -> None:
        self.evict(*key)
        held = _Held(snapshot, snapshot.host_nbytes, snapshot.device_nbytes)
        self._snapshots[key] = held
        self._bytes += held.nbytes
        self._device_bytes += held.device_nbytes
        self._make_room()

    def _make_room(self) -> None:
        while self._full() and len(self._snapshots) > 1:
            self.evict(*next(iter(self._snapshots)))
            self._counters.evictions += 1

    def _full(self) -> bool:
        s = self._settings
        return self._bytes > s.budget_bytes or self._device_bytes > s.device_budget_bytes


async def in_thread(
    threads: Executor, work: Callable[[], R], stop: threading.Event | None = None
) -> R:
    """The result of `work` in a thread. Cancelled, it sets `stop` and still waits for the thread to
    end: two threads must not extend one bank."""
    future = asyncio.get_running_loop().run_in_executor(threads, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if stop is not None:
            stop.set()
        await asyncio.wait({future})
        if not future.cancelled():
            future.exception()
        raise


def _covers(held: BankHead, wanted: BankHead) -> bool:
    return (
        held.epoch == wanted.epoch
        and held.generation >= wanted.generation
        and held.version >= wanted.version
    )
