"""When documents are refreshed by themselves, and the operation that does it.

Who changes observations marks the documents of the scopes (`scope_changed`), inside the same
transaction, so that a crash loses no refresh; when no consolidation of the bank waits or runs any
more, the marked ones that are stale are queued. Schedules are looked at in turns; a time that was
missed counts once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retrieval.errors import FourfoldError, Overloaded, Unavailable
from retrieval.ingest.context import WriteContext
from retrieval.ingest.operations.parking import Parked
from retrieval.ingest.operations.worker import Handler
from retrieval.ingest.write.transaction import Change
from retrieval.mental import keeping, staleness
from retrieval.mental.refresh import Refresher
from retrieval.mental.trigger import Trigger, following
from retrieval.settings.mental import MentalSettings
from retrieval.store import citations, mental_models, operations, refreshes
from retrieval.store.database.pool import Connection, Pool, write
from retrieval.store.operations import Claim
from retrieval.store.refreshes import REFRESH

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""How often marked documents are looked for."""
AT_ONCE = 200
"""Documents of one look."""


@dataclass(frozen=True, slots=True)
class Documents:
    """What keeps documents up to date, and shows what it would do."""

    refresher: Refresher
    settings: MentalSettings

    async def preview(
        self, tenant: str, bank_id: str, model_id: str, deadline: float | None = None
    ) -> dict[str, Any]:
        """A refresh that is not stored. Errors as of Refresher.run."""
        result = await self.refresher.run(
            tenant, bank_id, model_id, turn="reflect", deadline=deadline
        )
        return keeping.preview(result)

    async def refresh(self, claimed: Claim) -> None:
        """Carries out one operation. Parked while the model is not to be had."""
        pool, settings = self.refresher.pool, self.settings
        payload = claimed.payload
        try:
            result = await self.refresher.run(
                claimed.tenant,
                claimed.bank_id,
                payload["mental_model_id"],
                full=bool(payload.get("full")),
                deadline=time.monotonic() + settings.mental_model_refresh_timeout_s,
            )
        except (Overloaded, Unavailable) as error:
            raise Parked(str(error), max(1.0, error.retry_after_s)) from error
        told = keeping.details(result)
        if result.failed:

            async def ended(connection: Connection) -> None:
                await operations.end_failed(connection, claimed, result.message, told)

            await keeping.fail(pool, result, ended)
            log.info("a refresh failed: %s: %s", result.outcome, result.message)
            return

        async def finished(connection: Connection) -> None:
            await operations.finish(connection, claimed, told)

        await keeping.keep(pool, result, settings, finished)


def handler(documents: Documents) -> Handler:
    """For a worker."""

    async def handle(deps: WriteContext, claimed: Claim) -> None:
        await documents.refresh(claimed)

    return handle


async def scope_changed(change: Change, scopes: Collection[frozenset[str]]) -> None:
    """Marks the documents that are refreshed after a consolidation. Which of them it concerns is
    looked at when they are queued."""
    if scopes:
        await refreshes.mark(change.connection, change.bank)


async def keep_scheduled(pool: Pool, settings: MentalSettings) -> None:
    """Queues refreshes when they are due, until cancelled."""
    due_at = 0.0
    while True:
        try:
            await queue_marked(pool, settings)
            if time.monotonic() >= due_at:
                due_at = time.monotonic() + settings.mental_model_refresh_tick_seconds
                await queue_due(pool, settings)
        except FourfoldError as error:
            log.warning("refreshes could not be queued: %s", error)
        except Exception:
            log.exception("refreshes could not be queued")
        await asyncio.sleep(min(LOOK_S, settings.mental_model_refresh_tick_seconds))


async def queue_marked(pool: Pool, settings: MentalSettings) -> int:
    """Queues the marked documents that are stale, of banks where no consolidation is under way; how
    many."""

    async def work(connection: Connection) -> int:
        queued = 0
        for bank, id in await refreshes.marked(connection, AT_ONCE):
            row = await refreshes.claimed_row(connection, bank, id)
            if row is None:
                continue
            if await _wants(connection, row):
                await _queue(connection, row, settings, full=False)
                queued += 1
            else:
                await refreshes.unmark(connection, bank, id)
        return queued

    return await write(pool, work)


async def queue_due(pool: Pool, settings: MentalSettings) -> int:
    """Queues the documents whose schedule came round and that are stale; how many."""

    async def work(connection: Connection) -> int:
        queued = 0
        now: datetime = await connection.fetchval("select now()")
        for bank, id in await refreshes.due(connection, AT_ONCE):
            row = await refreshes.claimed_row(connection, bank, id)
            if row is None:
                continue
            whole = row["next_full_refresh_at"]
            if await _wants(connection, row):
                full = whole is not None and whole <= now
                await _queue(connection, row, settings, full=full)
                queued += 1
            trigger = Trigger.of(row["trigger"])
            await mental_models.schedule(
                connection,
                bank,
                id,
                following(trigger.refresh_cron, now),
                following(trigger.full_refresh_cron, now),
            )
        return queued

    return await write(pool, work)


async def _wants(connection: Connection, row: Any) -> bool:
    """Whether a refresh that nobody asks for is to be tried."""
    bank, id = row["bank"], row["id"]
    if id not in await staleness.stale(connection, bank, [row]):
        return False
    if await operations.deadly(connection, bank, REFRESH, id):
        return False
    parked: int | None = row["parked_at"]
    if parked is None:
        return True
    holds = staleness.ScopeFilter(staleness.of(row)).holds
    written = await citations.written_since(connection, bank, parked)
    return any(holds(tags, kind) for tags, kind, _ in written)


async def _queue(connection: Connection, row: Any, settings: MentalSettings, *, full: bool) -> None:
    bank = row["bank"]
    least = Trigger.of(row["trigger"]).min_refresh_interval_seconds
    if least is None:
        least = await refreshes.bank_interval(connection, bank)
    if least is None:
        least = settings.mental_model_min_refresh_interval_seconds
    wait_s = 0.0
    if row["last_refreshed_at"] is not None:
        now: datetime = await connection.fetchval("select now()")
        wait_s = max(0.0, least - (now - row["last_refreshed_at"]).total_seconds())
    await refreshes.queue_refresh(
        connection, bank, row["id"], full=full, wait_s=wait_s, asked=False
    )
    await refreshes.unpark(connection, bank, row["id"])
