"""Long work on one bank, as an operation.

It shows in the bank's operations with its progress, runs once per bank and kind at a time, and is
taken over by another process when the one that does it dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

from retrieval.errors import Conflict, FourfoldError, InvalidInput, NotFound
from retrieval.keyword.backends.backend import BuildProgress
from retrieval.store import banks, operations
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.heads import BankHead
from retrieval.store.operations import LEASE_S, Claim
from retrieval.store.rebuilds import KINDS, OPEN, REINDEX


async def begin(
    pool: Pool,
    tenant: str,
    bank_id: str,
    kind: str,
    target: str,
    details: Mapping[str, Any] | None = None,
    lease_s: float = LEASE_S,
) -> Claim:
    """The bank's job of this kind, now ours: a new one, or one that nobody works on any more.

    A waiting job with another target is cancelled in favour of this one. Conflict while somebody
    else does one. A job that outlived DEATHS_MOST processes has failed: then a new one is begun.
    """
    payload = {"target": target, **(details or {})}

    async def work(connection: Connection) -> Claim:
        held = await banks.lock(connection, tenant, bank_id)
        await operations.give_up(connection, [kind])
        rows = await connection.fetch(
            "select operation_id, payload, status, retry_count, leased_until > now() as leased"
            f" from operations where bank = $1 and type = $2 and {OPEN} order by created_at",
            held.bank,
            kind,
        )
        for row in rows:
            if row["status"] == "processing" and row["leased"]:
                raise Conflict(
                    f"a {kind} of bank {bank_id!r} runs already (operation {row['operation_id']})"
                )
        same = [row for row in rows if row["payload"] == payload]
        await connection.execute(
            "update operations set status = 'cancelled', updated_at = now(),"
            " error_message = 'replaced by a later one', lease = null, leased_until = null"
            " where bank = $1 and operation_id = any($2)",
            held.bank,
            [row["operation_id"] for row in rows if row not in same[:1]],
        )
        if same:
            id, retries = same[0]["operation_id"], same[0]["retry_count"]
        else:
            id, _ = await operations.create(connection, held.bank, kind, payload)
            retries = 0
        lease = uuid4()
        await connection.execute(
            "update operations set status = 'processing', lease = $2, updated_at = now(),"
            " deaths = deaths + (status = 'processing')::int,"
            " leased_until = now() + $3 * interval '1 second'"
            " where operation_id = $1 and bank = $4",
            id,
            lease,
            lease_s,
            held.bank,
        )
        return Claim(id, tenant, bank_id, kind, payload, retries, lease)

    return await write(pool, work)


async def give_up(pool: Pool) -> None:
    """Ends jobs that outlived too many of those who worked on them."""
    await write(pool, lambda connection: operations.give_up(connection, KINDS))


async def waiting(pool: Pool, limit: int = 20) -> list[tuple[BankHead, str, str]]:
    """(bank, kind, target) of jobs that nobody works on, oldest first."""
    rows = await read(
        pool,
        lambda connection: connection.fetch(
            f"select {banks.HEAD_COLUMNS}, o.type, o.payload->>'target' as target from operations o"
            " join banks b using (bank) where o.type = any($1) and b.state = 'open'"
            " and ((o.status = 'pending' and coalesce(o.next_retry_at, now()) <= now())"
            "  or (o.status = 'processing' and o.leased_until <= now()))"
            " order by o.created_at limit $2",
            list(KINDS),
            limit,
        ),
    )
    return [(banks.as_head(row), row["type"], row["target"]) for row in rows]


async def changes(pool: Pool, head: BankHead) -> Mapping[str, Any]:
    """The settings that the bank's open reindex is to set; {} where there is none."""
    found = await read(
        pool,
        lambda connection: connection.fetchval(
            f"select payload->'changes' from operations where bank = $1 and type = $2 and {OPEN}"
            " order by created_at limit 1",
            head.bank,
            REINDEX,
        ),
    )
    return found or {}


async def report(pool: Pool, claimed: Claim, progress: BuildProgress) -> None:
    """Makes the progress public; Conflict if the job is not ours any more."""

    async def work(connection: Connection) -> None:
        held = await connection.fetchval(
            "update operations set progress = $3, items_count = $4, updated_at = now()"
            " where operation_id = $1 and lease = $2 and status = 'processing' returning true",
            claimed.operation_id,
            claimed.lease,
            {"done": progress.done, "total": progress.total},
            progress.total,
        )
        if not held:
            raise Conflict(f"operation {claimed.operation_id} was taken over or cancelled")

    await write(pool, work)


@asynccontextmanager
async def working(pool: Pool, claimed: Claim, lease_s: float = LEASE_S) -> AsyncIterator[None]:
    """Keeps the job ours while the block runs. A block that is stopped puts the job back into the
    queue, one that fails has it tried again later, or not where that would fail again."""
    keeping = asyncio.create_task(_keep(pool, claimed, lease_s))
    try:
        yield
    except (asyncio.CancelledError, GeneratorExit):
        with suppress(FourfoldError, OSError):
            await asyncio.shield(operations.release(pool, claimed))
        raise
    except (InvalidInput, NotFound) as error:
        await operations.fail(pool, claimed, str(error), again=False)
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}".rstrip(": ")
        with suppress(FourfoldError, OSError):
            await operations.fail(pool, claimed, message, again=True)
        raise
    finally:
        keeping.cancel()


async def _keep(pool: Pool, claimed: Claim, lease_s: float) -> None:
    while True:
        await asyncio.sleep(lease_s / 3)
        with suppress(FourfoldError):
            await operations.renew(pool, claimed, lease_s)
