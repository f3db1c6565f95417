"""Refreshes of mental models: queued, marked, and due.

On the caller's connection, inside its transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from retrieval.store import operations
from retrieval.store.database.pool import Connection
from retrieval.store.waiting import check_room

REFRESH = "refresh_mental_model"
"""The type of the operations that refresh one."""


async def forget_refreshes(connection: Connection, bank: int, ids: Sequence[str]) -> None:
    """Ends the refreshes of models that are gone."""
    await connection.execute(
        "with ended as (update operations set status = 'cancelled', lease = null,"
        "  leased_until = null, updated_at = now()"
        "  where bank = $1 and type = $2 and status in ('pending', 'processing')"
        "  and payload->>'mental_model_id' = any($3) returning operation_id)"
        " delete from operation_lanes l using ended e"
        " where l.bank = $1 and l.operation_id = e.operation_id",
        bank,
        REFRESH,
        list(ids),
    )


_CONSOLIDATES = "o.type = 'consolidation' and o.status in ('pending', 'processing')"
"""Is operation `o` a consolidation that waits or runs?"""


async def consolidating(connection: Connection, bank: int) -> bool:
    """Whether a consolidation of the bank waits or runs: its observations are about to change."""
    found: bool = await connection.fetchval(
        f"select exists (select from operations o where o.bank = $1 and {_CONSOLIDATES})",
        bank,
    )
    return found


async def queue_refresh(
    connection: Connection,
    bank: int,
    id: str,
    *,
    full: bool = False,
    wait_s: float = 0.0,
    asked: bool = True,
) -> UUID:
    """The operation that refreshes the model next: one that waits, or a new one. The model's row is
    locked.

    `asked`: somebody asks for it now, so what waits for its time goes at once; otherwise it begins
    in `wait_s` seconds, or when the waiting one does.
    """
    waiting: UUID | None = await connection.fetchval(
        "select operation_id from operations where bank = $1 and type = $2 and status = 'pending'"
        " and payload->>'mental_model_id' = $3 order by place limit 1 for update",
        bank,
        REFRESH,
        id,
    )
    if waiting is None:
        if asked:
            await check_room(connection, bank)
        waiting, _ = await operations.create(
            connection,
            bank,
            REFRESH,
            {"mental_model_id": id, "full": full, "asked": asked},
            items_count=1,
            lanes=[operations.model_lane(id)],
            wait_s=0.0 if asked else wait_s,
        )
    elif asked or full:
        await connection.execute(
            "update operations set payload = payload || $3,"
            " next_retry_at = case when $4 then null else next_retry_at end, updated_at = now()"
            " where bank = $1 and operation_id = $2",
            bank,
            waiting,
            {**({"full": True} if full else {}), **({"asked": True} if asked else {})},
            asked,
        )
    await connection.execute(
        "update mental_models set pending_refresh = false where bank = $1 and id = $2", bank, id
    )
    return waiting


async def unpark(connection: Connection, bank: int, id: str) -> None:
    """Takes up again what was given up after refreshes that failed."""
    await connection.execute(
        "update mental_models set parked_at = null, failed_deltas = 0, failed_fulls = 0"
        " where bank = $1 and id = $2 and parked_at is not null",
        bank,
        id,
    )


async def mark(connection: Connection, bank: int) -> None:
    """Notes that documents which follow the bank's observations may have to be refreshed."""
    await connection.execute(
        "update mental_models set pending_refresh = true where bank = $1 and not pending_refresh"
        " and trigger->'refresh_after_consolidation' = 'true'",
        bank,
    )


async def unmark(connection: Connection, bank: int, id: str) -> None:
    await connection.execute(
        "update mental_models set pending_refresh = false where bank = $1 and id = $2", bank, id
    )


async def marked(connection: Connection, limit: int) -> list[tuple[int, str]]:
    """(bank, id) of marked models in banks where no consolidation waits or runs."""
    rows = await connection.fetch(
        "select d.bank, d.id from mental_models d join banks b using (bank)"
        " where pending_refresh and b.state = 'open' and not exists ("
        f" select from operations o where o.bank = d.bank and {_CONSOLIDATES}) limit $1",
        limit,
    )
    return [(row["bank"], row["id"]) for row in rows]


async def due(connection: Connection, limit: int) -> list[tuple[int, str]]:
    """(bank, id) of models one of whose schedules came round."""
    rows = await connection.fetch(
        "select d.bank, d.id from mental_models d join banks b using (bank)"
        " where b.state = 'open'"
        " and (next_refresh_at is not null or next_full_refresh_at is not null)"
        " and least(next_refresh_at, next_full_refresh_at) <= now()"
        " order by least(next_refresh_at, next_full_refresh_at) limit $1",
        limit,
    )
    return [(row["bank"], row["id"]) for row in rows]


async def claimed_row(connection: Connection, bank: int, id: str) -> Mapping[str, Any] | None:
    """The row, locked; None where somebody else has it, or it is gone."""
    found: Mapping[str, Any] | None = await connection.fetchrow(
        "select * from mental_models where bank = $1 and id = $2 for update skip locked", bank, id
    )
    return found


async def bank_interval(connection: Connection, bank: int) -> int | None:
    """The least seconds between two refreshes, as the bank has it."""
    found = await connection.fetchval(
        "select config->'mental_model_min_refresh_interval_seconds' from banks where bank = $1",
        bank,
    )
    return found if isinstance(found, int) else None
