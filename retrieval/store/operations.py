"""Work that goes on in the background, as rows: a worker that dies loses nothing.

A worker claims one waiting operation at a time under a lease and renews it while it works. A lease
that ran out puts the operation back into the queue; `finish` is part of the transaction that does
the work, so it is done once. Tenants take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from retrieval.errors import Conflict, InvalidInput, NotFound
from retrieval.store import banks
from retrieval.store.edge import iso, listing, page
from retrieval.store.memories import as_uuid
from retrieval.store.pool import Connection, Pool, read, write

LEASE_S = 60.0
MAX_RETRIES = 3
RETRY_WAIT_S = 5.0
"""Wait before the first retry; it doubles with each."""

STATUSES = ("pending", "processing", "completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Claim:
    """An operation that is ours until its lease runs out. `retries`: earlier failures."""

    operation_id: UUID
    tenant: str
    bank_id: str
    type: str
    payload: Mapping[str, Any]
    retries: int
    lease: UUID
    document_id: str | None = None


async def create(
    connection: Connection,
    bank: int,
    type: str,
    payload: Mapping[str, Any],
    *,
    operation_id: UUID | None = None,
    items_count: int = 0,
    document_id: str | None = None,
) -> tuple[UUID, bool]:
    """(operation id, made now). An id that exists for the same bank and type is that operation;
    Conflict if it is something else."""
    id = operation_id or uuid4()
    made = await connection.fetchval(
        "insert into operations (operation_id, bank, type, payload, items_count, document_id)"
        " values ($1, $2, $3, $4, $5, $6) on conflict (operation_id) do nothing returning true",
        id,
        bank,
        type,
        dict(payload),
        items_count,
        document_id,
    )
    if not made:
        row = await connection.fetchrow(
            "select bank, type from operations where operation_id = $1", id
        )
        if row is None or (row["bank"], row["type"]) != (bank, type):
            raise Conflict(f"operation_id {id} is in use for something else")
    return id, bool(made)


async def claim(
    pool: Pool, lease_s: float = LEASE_S, *, types: Sequence[str] | None = None
) -> Claim | None:
    """The next operation that waits, now leased to the caller; None if there is none.

    `types`: what the caller can do; None for everything.

    Oldest first within a tenant; the tenant with the fewest running comes first.
    """
    lease = uuid4()

    async def work(connection: Connection) -> Claim | None:
        row = await connection.fetchrow(
            "with running as (select b.tenant_id, count(*) as n from operations o"
            "  join banks b using (bank) where o.status = 'processing' and o.leased_until > now()"
            "  group by b.tenant_id),"
            " next as (select o.operation_id from operations o join banks b using (bank)"
            "  left join running r on r.tenant_id = b.tenant_id"
            "  where ((o.status = 'pending' and coalesce(o.next_retry_at, now()) <= now())"
            "   or (o.status = 'processing' and o.leased_until <= now()))"
            "   and ($3::text[] is null or o.type = any($3))"
            "  order by coalesce(r.n, 0), o.created_at, o.operation_id"
            "  limit 1 for update of o skip locked)"
            " update operations o set status = 'processing', lease = $2,"
            "  leased_until = now() + $1 * interval '1 second', updated_at = now()"
            " from next, banks b where o.operation_id = next.operation_id and b.bank = o.bank"
            " returning o.*, b.tenant_id, b.bank_id",
            lease_s,
            lease,
            None if types is None else list(types),
        )
        if row is None:
            return None
        return Claim(
            row["operation_id"], row["tenant_id"], row["bank_id"], row["type"],
            row["payload"], row["retry_count"], lease, row["document_id"],
        )  # fmt: skip

    return await write(pool, work)


async def renew(pool: Pool, claimed: Claim, lease_s: float = LEASE_S) -> bool:
    """Keeps the operation ours; False if it no longer is."""

    async def work(connection: Connection) -> bool:
        held = await connection.fetchval(
            "update operations set leased_until = now() + $3 * interval '1 second'"
            " where operation_id = $1 and lease = $2 and status = 'processing' returning true",
            claimed.operation_id,
            claimed.lease,
            lease_s,
        )
        return bool(held)

    return await write(pool, work)


async def finish(
    connection: Connection, claimed: Claim, result: Mapping[str, Any] | None = None
) -> None:
    """Completes the operation inside the transaction that did its work.

    Conflict, which undoes that work, if the operation is not ours any more: somebody else does it.
    """
    done = await connection.fetchval(
        "update operations set status = 'completed', result_metadata = $3, error_message = null,"
        " leased_until = null, lease = null, updated_at = now()"
        " where operation_id = $1 and lease = $2 and status = 'processing' returning true",
        claimed.operation_id,
        claimed.lease,
        None if result is None else dict(result),
    )
    if not done:
        raise Conflict(f"operation {claimed.operation_id} was taken over")


async def release(pool: Pool, claimed: Claim) -> None:
    """Puts an operation that was not done back into the queue, at once."""

    async def work(connection: Connection) -> None:
        await connection.execute(
            "update operations set status = 'pending', leased_until = null, lease = null,"
            " updated_at = now()"
            " where operation_id = $1 and lease = $2 and status = 'processing'",
            claimed.operation_id,
            claimed.lease,
        )

    await write(pool, work)


async def fail(pool: Pool, claimed: Claim, message: str, *, again: bool) -> None:
    """Records a failure; with `again` it is tried anew later, MAX_RETRIES times."""
    retry = again and claimed.retries < MAX_RETRIES
    wait_s = RETRY_WAIT_S * 2**claimed.retries

    async def work(connection: Connection) -> None:
        await connection.execute(
            "update operations set status = $3, error_message = $4, leased_until = null,"
            " lease = null, updated_at = now(), retry_count = retry_count + $5,"
            " next_retry_at = case when $6 then now() + $7 * interval '1 second' end"
            " where operation_id = $1 and lease = $2 and status = 'processing'",
            claimed.operation_id,
            claimed.lease,
            "pending" if retry else "failed",
            message or "unknown error",
            1 if retry else 0,
            retry,
            wait_s,
        )

    await write(pool, work)


# The API's views


def _view(row: Mapping[str, Any]) -> dict[str, Any]:
    id = str(row["operation_id"])
    return {
        "id": id,
        "operation_id": id,
        "task_type": row["type"],
        "operation_type": row["type"],
        "items_count": row["items_count"],
        "document_id": row["document_id"],
        "created_at": iso(row["created_at"]),
        "updated_at": iso(row["updated_at"]),
        "status": row["status"],
        "error_message": row["error_message"],
        "retry_count": row["retry_count"],
        "next_retry_at": iso(row["next_retry_at"]),
        "progress": row["progress"],
    }


async def list_operations(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    status: str | None = None,
    type: str | None = None,
    limit: int = 20,
    offset: int = 0,
) -> dict[str, Any]:
    """{bank_id, total, limit, offset, operations}, newest first; limit 1 to 100."""
    if status is not None and status not in STATUSES:
        raise InvalidInput(f"status must be one of {', '.join(STATUSES)}", "status")
    if not 1 <= limit <= 100:
        raise InvalidInput("limit must be from 1 to 100", "limit")
    limit, offset = page(limit, offset)

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        where = (
            "bank = $1 and ($2::text is null or status = $2) and ($3::text is null or type = $3)"
        )
        total = await connection.fetchval(
            f"select count(*) from operations where {where}", bank, status, type
        )
        found = await connection.fetch(
            f"select * from operations where {where} order by created_at desc, operation_id"
            " limit $4 offset $5",
            bank,
            status,
            type,
            limit,
            offset,
        )
        rows = [_view(row) for row in found]
        return {"bank_id": bank_id, **listing("operations", rows, total, limit, offset)}

    return await read(pool, work)


async def get(
    pool: Pool, tenant: str, bank_id: str, operation_id: str, *, include_payload: bool = False
) -> dict[str, Any]:
    """One operation; an unknown id has status "not_found"."""
    id = as_uuid(operation_id, "operation_id")

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        row = await connection.fetchrow(
            "select * from operations where bank = $1 and operation_id = $2", bank, id
        )
        if row is None:
            return {"operation_id": str(id), "id": str(id), "status": "not_found"}
        view = {**_view(row), "result_metadata": row["result_metadata"], "child_operations": []}
        if row["status"] == "completed":
            view["completed_at"] = iso(row["updated_at"])
        if include_payload:
            view["task_payload"] = row["payload"]
        return view

    return await read(pool, work)


async def _settle(
    pool: Pool, tenant: str, bank_id: str, operation_id: str, sql: str, refused: str, message: str
) -> dict[str, Any]:
    id = as_uuid(operation_id, "operation_id")

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        row = await connection.fetchrow(
            "select status from operations where bank = $1 and operation_id = $2 for update",
            bank,
            id,
        )
        if row is None:
            raise NotFound(f"there is no operation {id}")
        if not await connection.fetchval(sql, bank, id):
            raise Conflict(f"operation {id} is {row['status']}: {refused}")
        return {"success": True, "message": message, "operation_id": str(id)}

    return await write(pool, work)


async def cancel(pool: Pool, tenant: str, bank_id: str, operation_id: str) -> dict[str, Any]:
    """Takes a waiting operation out of the queue; Conflict in any other status."""
    return await _settle(
        pool,
        tenant,
        bank_id,
        operation_id,
        "update operations set status = 'cancelled', updated_at = now()"
        " where bank = $1 and operation_id = $2 and status = 'pending' returning true",
        "only a pending one can be cancelled",
        "the operation was cancelled",
    )


async def retry(pool: Pool, tenant: str, bank_id: str, operation_id: str) -> dict[str, Any]:
    """Queues a failed or cancelled operation again; Conflict in any other status."""
    return await _settle(
        pool,
        tenant,
        bank_id,
        operation_id,
        "update operations set status = 'pending', retry_count = 0, next_retry_at = null,"
        " error_message = null, updated_at = now() where bank = $1 and operation_id = $2"
        " and status in ('failed', 'cancelled') returning true",
        "only a failed or cancelled one can be tried again",
        "the operation was queued again",
    )


async def delete(pool: Pool, tenant: str, bank_id: str, operation_id: str) -> dict[str, Any]:
    """Forgets an operation; Conflict while it is being worked on."""
    return await _settle(
        pool,
        tenant,
        bank_id,
        operation_id,
        "delete from operations where bank = $1 and operation_id = $2"
        " and status <> 'processing' returning true",
        "it cannot be deleted while it is being worked on",
        "the operation was deleted",
    )
