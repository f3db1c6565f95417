"""When consolidation runs: operations that are queued with the writes that call for them.

One operation of a bank waits at most; while one runs, one more may wait behind it, and never do two
run (`operations.BANK_LANE`). A burst of writes is one run: each puts it off by a few seconds, up to
a limit. Where a run killed its processes none is queued until somebody asks for one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from retrieval.errors import FourfoldError, InvalidInput
from retrieval.settings.consolidation import ConsolidationSettings
from retrieval.store import banks, operations
from retrieval.store.database.pool import Connection, Pool, write
from retrieval.store.heads import BankHead
from retrieval.store.waiting import check_room
from retrieval.types import FactType

log = logging.getLogger(__name__)

TYPE = "consolidation"

PENDING = (
    "ordinal is not null and consolidated_at is null and consolidation_failed_at is null"
    f" and fact_type <> {int(FactType.OBSERVATION)}"
)
"""Which memories are to be consolidated, as SQL."""

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 5.0, 1800.0
"""A bank whose operation failed is left alone for so long, doubling with each failure."""


async def queue_after_write(
    connection: Connection, head: BankHead, settings: ConsolidationSettings
) -> None:
    """Queues a run for what a write left, or puts one that waits off; part of the write's own
    transaction, which holds the bank's lock."""
    own = settings.with_overrides(head.config)
    if not (own.enable_observations and own.enable_auto_consolidation):
        return
    quiet, longest = own.consolidation_debounce_s, own.consolidation_debounce_max_s
    waits = await connection.fetchval(
        "update operations set next_retry_at = case"
        "  when next_retry_at is null or error_message is not null then next_retry_at"
        "  else least(now() + $3 * interval '1 second', created_at + $4 * interval '1 second') end"
        " where bank = $1 and type = $2 and status = 'pending'"
        "  and payload->'observation_scopes' is null returning true",
        head.bank,
        TYPE,
        quiet,
        max(quiet, longest),
    )
    if not waits and not await operations.deadly(connection, head.bank, TYPE):
        await _create(connection, head.bank, {}, wait_s=quiet)


async def _create(
    connection: Connection, bank: int, payload: dict[str, Any], wait_s: float = 0.0
) -> UUID:
    made, _ = await operations.create(
        connection, bank, TYPE, payload, lanes=[operations.BANK_LANE], wait_s=wait_s
    )
    return made


async def next_round(
    connection: Connection, bank: int, payload: dict[str, Any], wait_s: float
) -> None:
    """Queues the round that goes on where one ends, unless one waits that will see to it."""
    waits = await connection.fetchval(
        "update operations set next_retry_at = case when $4 then next_retry_at end"
        " where bank = $1 and type = $2 and status = 'pending' and payload = $3"
        " and error_message is null returning true",
        bank,
        TYPE,
        payload,
        wait_s > 0,
    )
    if not waits:
        await _create(connection, bank, payload, wait_s)


async def submit(
    pool: Pool,
    tenant: str,
    bank_id: str,
    settings: ConsolidationSettings,
    scopes: Sequence[Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Queues a run that starts at once: {operation_id, deduplicated}.

    `scopes`: only memories that have all tags of one of these; none, or an empty one, is all. One
    that waits already is that run, and waits no longer.
    """
    wanted = sorted({tuple(sorted(set(scope))) for scope in scopes or ()})
    payload: dict[str, Any] = {}
    if wanted and () not in wanted:
        payload = {"observation_scopes": [list(scope) for scope in wanted]}

    async def work(connection: Connection) -> dict[str, Any]:
        head = await banks.lock(connection, tenant, bank_id)
        if not settings.with_overrides(head.config).enable_observations:
            raise InvalidInput("observations are switched off in this bank", "enable_observations")
        waits = await connection.fetchval(
            "update operations set next_retry_at = null, error_message = null, updated_at = now()"
            " where bank = $1 and type = $2 and status = 'pending'"
            "  and (payload = $3 or payload->'observation_scopes' is null)"
            " returning operation_id",
            head.bank,
            TYPE,
            payload,
        )
        if waits is None:
            await check_room(connection, head.bank)
        id = waits or await _create(connection, head.bank, payload)
        return {"operation_id": str(id), "deduplicated": waits is not None}

    return await write(pool, work)


async def recover(
    pool: Pool, tenant: str, bank_id: str, settings: ConsolidationSettings, able: bool
) -> dict[str, Any]:
    """Takes the failure marks of memories away and queues a run: {retried_count}."""

    async def work(connection: Connection) -> dict[str, Any]:
        head = await banks.lock(connection, tenant, bank_id)
        rows = await connection.fetch(
            "update memory_units set consolidation_failed_at = null, consolidation_error = null"
            " where bank = $1 and consolidation_failed_at is not null returning id",
            head.bank,
        )
        if rows and able and settings.with_overrides(head.config).enable_observations:
            await next_round(connection, head.bank, {}, 0.0)
        return {"retried_count": len(rows)}

    return await write(pool, work)


async def keep_queued(pool: Pool, settings: ConsolidationSettings) -> None:
    """Reconciles again and again, until cancelled."""
    while True:
        await asyncio.sleep(settings.consolidation_reconcile_interval_seconds)
        try:
            await reconcile(pool, settings)
        except FourfoldError as error:
            log.warning("memories that wait for consolidation were not looked for: %s", error)


async def reconcile(pool: Pool, settings: ConsolidationSettings, limit: int = 1_000) -> int:
    """Queues a run in banks that have memories to consolidate and nothing queued; in how many.

    A bank whose last operations failed is left alone for a while.
    """

    async def look(connection: Connection) -> Sequence[Any]:
        rows: Sequence[Any] = await connection.fetch(
            f"with waiting as (select distinct bank from memory_units where {PENDING})"
            " select b.tenant_id, b.bank_id from waiting join banks b using (bank)"
            " where b.state = 'open'"
            " and not exists (select from operations o where o.bank = b.bank and o.type = $1"
            "   and o.status in ('pending', 'processing'))"
            " and coalesce((select now() > max(f.updated_at) + interval '1 second'"
            "    * least($3, $2 * 2 ^ least(count(*), 20)) from operations f"
            "   where f.bank = b.bank and f.type = $1 and f.status = 'failed' and f.updated_at >"
            "    coalesce((select max(g.updated_at) from operations g where g.bank = b.bank"
            "     and g.type = $1 and g.status = 'completed'), '-infinity')), true) limit $4",
            TYPE,
            FIRST_BACKOFF_S / 2,
            LONGEST_BACKOFF_S,
            limit,
        )
        return rows

    rows = await write(pool, look)
    queued = 0
    for row in rows:

        async def work(connection: Connection, row: Any = row) -> bool:
            head = await banks.lock(connection, row["tenant_id"], row["bank_id"])
            own = settings.with_overrides(head.config)
            if not (own.enable_observations and own.enable_auto_consolidation):
                return False
            if await operations.deadly(connection, head.bank, TYPE):
                return False
            await next_round(connection, head.bank, {}, 0.0)
            return True

        try:
            queued += await write(pool, work)
        except Exception as error:
            log.info("bank %s is not queued for consolidation: %s", row["bank_id"], error)
    return queued
