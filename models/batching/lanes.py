"""Who is next: waiting calls by tenant and deadline, cut into batches. Pure: no clock, no loop.

Between tenants, fair turns (deficit round robin: Shreedhar and Varghese, 1995): a turn takes up
to an eighth of a batch from the tenant that was served least. Between one tenant's calls, and
between tenants at par, the earliest deadline first. Inside a call, longest first, so that
neighbours in a batch have similar lengths.

A lane is bounded in tokens, and a tenant may queue at most as much as is still free (dynamic
thresholds: Choudhury and Hahne, 1998): one tenant's flood leaves room for the others.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

TURNS = 8  # turns in a full batch: up to this many tenants share every batch


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """Bounds of a batcher, in tokens and items.

    A batch holds at most `batch_tokens` and `batch_items`, but never less than one item. With
    `padded` it costs items x longest instead of the sum. `ahead` batches are handed over while
    one runs, so that preparing overlaps running; each costs a newcomer one batch's time, so it
    pays only where a batch takes a few milliseconds.
    """

    batch_tokens: int = 16_384
    bulk_batch_tokens: int = 16_384
    batch_items: int = 1_000_000
    queued_tokens: int = 262_144
    padded: bool = False
    ahead: int = 0
    reserved: int = 0


@dataclass(slots=True, eq=False)
class QueuedCall(Generic[T, R]):
    """One caller's items. `order` lists them longest first; the first `taken` left the queue."""

    items: Sequence[T]
    lengths: Sequence[int]
    tenant: str
    deadline: float
    future: asyncio.Future[list[R]]
    order: list[int] = field(init=False)
    queued: int = field(init=False)
    missing: int = field(init=False)
    results: dict[int, R] = field(default_factory=dict)
    taken: int = 0
    started: float | None = None

    def __post_init__(self) -> None:
        self.order = sorted(range(len(self.items)), key=self.lengths.__getitem__, reverse=True)
        self.queued = sum(self.lengths)
        self.missing = len(self.items)

    @property
    def waiting(self) -> bool:
        return self.taken < len(self.order) and not self.future.done()


Slice: TypeAlias = tuple[QueuedCall[T, R], list[int]]
"""A call and which of its items are in the batch."""


@dataclass(slots=True)
class _Tenant(Generic[T, R]):
    served: float
    queued: int = 0
    done: int = 0
    calls: list[tuple[float, int, QueuedCall[T, R]]] = field(default_factory=list)

    def head(self) -> tuple[float, int, QueuedCall[T, R]] | None:
        while self.calls and not self.calls[0][2].waiting:
            heapq.heappop(self.calls)
        return self.calls[0] if self.calls else None

    def forget_done(self) -> None:
        """Keeps the memory of cancelled calls below that of waiting ones."""
        self.done += 1
        if 2 * self.done > len(self.calls):
            self.calls = [entry for entry in self.calls if entry[2].waiting]
            heapq.heapify(self.calls)
            self.done = 0


class Lane(Generic[T, R]):
    """The waiting calls of one priority."""

    def __init__(self, limits: LaneLimits, batch_tokens: int) -> None:
        self._limits = limits
        self._budget = batch_tokens
        self._tenants: dict[str, _Tenant[T, R]] = {}
        self._sequence = itertools.count()
        self._floor = 0.0
        self.queued = 0

    def batches_before(self, tenant: str) -> float:
        """How many batches would run before a new call of this tenant has its turn."""
        own = self._tenants[tenant].queued if tenant in self._tenants else 0
        return min(self.queued, own * len(self._tenants)) / self._budget

    def offer(self, call: QueuedCall[T, R]) -> bool:
        """Queues the call, or says that there is no room."""
        tenant = self._tenants.get(call.tenant) or _Tenant(self._floor)
        if tenant.queued + call.queued > self._limits.queued_tokens - self.queued:
            return False
        self._tenants[call.tenant] = tenant
        heapq.heappush(tenant.calls, (call.deadline, next(self._sequence), call))
        self._move(tenant, call.queued)
        return True

    def discard(self, call: QueuedCall[T, R]) -> None:
        """Forgets what still waits of a call whose future is done."""
        tenant = self._tenants.get(call.tenant)
        if tenant is None or call.taken == len(call.order):
            return
        self._move(tenant, -call.queued)
        call.queued = 0
        tenant.forget_done()
        if not tenant.queued:
            del self._tenants[call.tenant]

    def take(self) -> list[Slice[T, R]]:
        """The next batch; empty if nothing waits."""
        turns = [
            (self._round(tenant), head[0], head[1], name)
            for name, tenant in self._tenants.items()
            if (head := tenant.head())
        ]
        heapq.heapify(turns)
        batch: list[Slice[T, R]] = []
        count = cost = longest = 0
        while turns:
            name = turns[0][3]
            tenant = self._tenants[name]
            call = tenant.calls[0][2]
            picked: list[int] = []
            used = 0
            full = False
            while call.taken < len(call.order) and used * TURNS < self._budget:
                length = call.lengths[call.order[call.taken]]
                longest = max(longest, length)
                grown = (count + 1) * longest if self._limits.padded else cost + length
                full = bool(count) and (grown > self._budget or count == self._limits.batch_items)
                if full:
                    break
                picked.append(call.order[call.taken])
                call.taken, count, cost, used = call.taken + 1, count + 1, grown, used + length
            if picked:
                batch.append((call, picked))
                call.queued -= used
                self._move(tenant, -used)
                tenant.served += used
                self._floor = max(self._floor, min(t.served for t in self._tenants.values()))
            head = tenant.head()
            if not head:
                heapq.heappop(turns)
                # Calls that are done may still await their `discard`.
                if not tenant.queued:
                    del self._tenants[name]
            elif full:
                break
            else:
                heapq.heapreplace(turns, (self._round(tenant), head[0], head[1], name))
        return batch

    def _round(self, tenant: _Tenant[T, R]) -> int:
        return int(tenant.served * TURNS / self._budget)

    def _move(self, tenant: _Tenant[T, R], tokens: int) -> None:
        tenant.queued += tokens
        self.queued += tokens
