"""What keeps banks in shape while they are used.

Small segments are merged, banks with many dead ordinals compacted, entities that nobody mentions
forgotten, postings of an outdated analyser and of missing memories rebuilt, re-embeddings that a
dead process left behind are taken over, and the planner is told of banks that were filled fast.

One `Upkeep` per process. Banks fall into shards by their number; each shard is one process's at a
time, by an advisory lock, so that processes work side by side. Each chore is safe by itself: it may
be killed at any point. Between chores it rests as long as they took, and array
work runs in threads, so that recalls in the same process are not held up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

from retrieval.errors import Conflict, FourfoldError, NotFound
from retrieval.ingest.context import WriteContext
from retrieval.ingest.entities.curation import prune_entities
from retrieval.keyword.backends.backend import BuildProgress
from retrieval.lifecycle.erasure.settling import settle
from retrieval.maintenance import jobs
from retrieval.maintenance.health import BankHealth, examine, lately
from retrieval.maintenance.reembed import reembed
from retrieval.maintenance.reindex import reindex
from retrieval.store import audit, planner
from retrieval.store.database.pool import Connection, write
from retrieval.store.erasure import forget_ended
from retrieval.store.heads import BankHead
from retrieval.store.rebuilds import REEMBED
from retrieval.store.segments import table as segments

log = logging.getLogger(__name__)

_LOCK = 5
"""Class of our advisory lock; merging segments has 4."""


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """Every `period_s` at most `page` banks are looked at, those written lately first, and chores
    are done for `budget_s`. `rest`: seconds of rest per second of work. What was deleted is gone
    for good after `erase_after_s`. Operations that ended and audit logs are kept for so many days;
    0: for ever."""

    period_s: float = 5.0
    page: int = 500
    budget_s: float = 20.0
    rest: float = 1.0
    erase_after_s: float = 86_400.0
    operation_retention_days: float = 30.0
    audit_retention_days: float = 90.0


@dataclass(frozen=True, slots=True)
class UpkeepMetrics:
    """Counters since the start; `job` says what long work goes on in this process."""

    rounds: int = 0
    merged_segments: int = 0
    dropped_ordinals: int = 0
    pruned_entities: int = 0
    reindexed_banks: int = 0
    reembedded_banks: int = 0
    failures: int = 0
    work_seconds: float = 0.0
    job: str = ""


@dataclass(slots=True)
class _Seen:
    """What was found out about banks, so that nothing is retried needlessly: bank ->
    version."""

    merged: dict[int, int] = field(default_factory=dict)
    pruned: dict[int, int] = field(default_factory=dict)
    failed: dict[int, float] = field(default_factory=dict)
    known: dict[int, int] = field(default_factory=dict)
    """bank -> its size when the planner was told of it."""


TIDY_S = 3600.0
RETRY_S = 300.0
"""A bank whose upkeep failed is left alone for so long."""


class Upkeep:
    """Looks after the banks of one database. All calls from one event loop."""

    def __init__(
        self,
        deps: WriteContext,
        settings: UpkeepSettings | None = None,
        share: Callable[[], tuple[int, int]] = lambda: (0, 1),
    ) -> None:
        """`share`: (rank, number of processes that keep banks); a process sees to every bank whose
        number leaves its rank."""
        self._share = share
        self._deps = deps
        self._pool = deps.pool
        self._settings = settings or UpkeepSettings()
        self._metrics = UpkeepMetrics()
        self._seen = _Seen()
        self._after = 0
        self._tidy_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._job: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="upkeep")

    async def close(self) -> None:
        """Stops where it is: chores are undone, long work goes on from here another time."""
        tasks = [task for task in (self._task, self._job) if task is not None]
        self._task = self._job = None
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    def metrics(self) -> UpkeepMetrics:
        return self._metrics

    async def round(self) -> bool:
        """Looks once at the next banks and does their chores; False where another process does."""
        return await write(self._pool, self._lead)

    async def settled(self) -> None:
        """Waits for the long work that was begun by `round`."""
        if self._job is not None:
            await self._job

    async def _run(self) -> None:
        while True:
            begin = time.monotonic()
            try:
                await self.round()
            except FourfoldError as error:
                log.warning("upkeep is paused: %s", error)
            except Exception:
                log.exception("upkeep failed")
            await asyncio.sleep(max(0.0, self._settings.period_s - (time.monotonic() - begin)))

    async def _lead(self, connection: Connection) -> bool:
        """One round, if no other process is in one over the same banks. The transaction holds
        nothing but the lock."""
        rank, size = self._share()
        if not await connection.fetchval(
            "select pg_try_advisory_xact_lock($1, hashtext(current_schema()) # $2)", _LOCK, rank
        ):
            return False
        now = time.monotonic()
        self._seen.failed = {b: t for b, t in self._seen.failed.items() if now - t < RETRY_S}
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_S
            await self._tidy()
        written = await lately(connection, (rank, size))
        await self._inform(connection, written)
        await jobs.give_up(self._pool)  # before it is seen that the bank still wants them
        found, self._after = await examine(
            self._deps,
            written,
            self._after,
            self._settings.page,
            list(self._seen.failed),
            erase_after_s=self._settings.erase_after_s,
            share=(rank, size),
        )
        for health in found:
            if time.monotonic() - now > self._settings.budget_s:
                break
            await self._look_after(health)
        if self._job is None or self._job.done():
            long = [(c.head, c.work) for c in found if c.work]
            if long or (long := await self._left_behind()):
                self._job = asyncio.create_task(self._work_off(long), name="upkeep-job")
        self._count(rounds=1)
        return True

    async def _inform(self, connection: Connection, written: Sequence[int]) -> None:
        """Tells the planner of banks that were filled before PostgreSQL came to look at them."""
        known = self._seen.known
        sizes = await planner.unknown(connection, written)
        news = {bank: size for bank, size in sizes.items() if size >= 2 * known.get(bank, 0)}
        for bank, size in news.items():
            _remember(known, bank, size)
        if news:
            begin = time.monotonic()
            await planner.analyze(self._pool)
            await self._rest(time.monotonic() - begin)

    async def _tidy(self) -> None:
        """Lets go what is kept for some days."""

        async def work(connection: Connection) -> None:
            await forget_ended(connection, self._settings.operation_retention_days)
            await audit.forget(connection, self._settings.audit_retention_days)

        await write(self._pool, work)

    async def _look_after(self, found: BankHealth) -> None:
        head, seen = found.head, self._seen
        if found.fragmented and seen.merged.get(head.bank) != head.version:
            gone = await self._chore(head, lambda: segments.merge(self._pool, head.bank))
            self._count(merged_segments=gone)
            _remember(seen.merged, head.bank, head.version)
        if found.erases:
            gone = await self._chore(head, lambda: settle(self._deps, head.tenant, head.bank_id))
            self._count(dropped_ordinals=gone)
        elif found.sparse:
            gone = await self._chore(
                head, lambda: segments.compact(self._pool, head.tenant, head.bank_id)
            )
            self._count(dropped_ordinals=gone)
        if found.buried > seen.pruned.get(head.bank, -1):
            gone = await self._chore(
                head, lambda: prune_entities(self._deps, head.tenant, head.bank_id)
            )
            self._count(pruned_entities=gone)
            _remember(seen.pruned, head.bank, found.buried)

    async def _chore(self, head: BankHead, work: Callable[[], Awaitable[int]]) -> int:
        begin = time.monotonic()
        try:
            return await work()
        except NotFound:
            return 0
        except Exception as error:
            self._failed(head, error)
            return 0
        finally:
            await self._rest(time.monotonic() - begin)

    async def _rest(self, worked: float) -> None:
        self._count(work_seconds=worked)
        await asyncio.sleep(worked * self._settings.rest)

    def _failed(self, head: BankHead, error: Exception) -> None:
        log.warning("upkeep of bank %r failed: %s: %s", head.bank_id, type(error).__name__, error)
        self._seen.failed[head.bank] = time.monotonic()
        self._count(failures=1)

    # Long work

    async def _left_behind(self) -> list[tuple[BankHead, str]]:
        """Jobs that nobody works on and that this process can do."""
        return [
            (head, kind)
            for head, kind, target in await jobs.waiting(self._pool)
            if head.bank not in self._seen.failed
            and (kind != REEMBED or target == self._deps.vector_set)
        ]

    async def _work_off(self, work: Sequence[tuple[BankHead, str]]) -> None:
        for head, kind in work:
            self._metrics = replace(self._metrics, job=f"{kind} {head.bank_id}")
            try:
                await self._do(head, kind)
            except (Conflict, NotFound) as error:  # another process was faster
                log.info("%s", error)
            except Exception as error:
                self._failed(head, error)
            finally:
                self._metrics = replace(self._metrics, job="")

    async def _do(self, head: BankHead, kind: str) -> None:
        pool, settings = self._pool, self._deps.settings
        tenant, bank_id = head.tenant, head.bank_id
        steps: AsyncGenerator[BuildProgress, None]
        if kind == REEMBED:
            steps = reembed(pool, self._deps.embedder, tenant, bank_id, settings=settings)
        else:
            changes = await jobs.changes(pool, head)
            steps = reindex(
                pool, settings, tenant, bank_id, changes=changes, analysers=self._deps.analyser
            )
        begin = time.monotonic()
        async with aclosing(steps):
            async for _ in steps:
                await self._rest(time.monotonic() - begin)
                begin = time.monotonic()
        if kind == REEMBED:
            self._count(reembedded_banks=1)
        else:
            self._count(reindexed_banks=1)

    def _count(self, **more: float) -> None:
        sums = {name: getattr(self._metrics, name) + value for name, value in more.items()}
        self._metrics = replace(self._metrics, **sums)


def _remember(seen: dict[int, int], bank: int, at: int) -> None:
    if len(seen) > 100_000:
        seen.clear()
    seen[bank] = at
