"""Operations as their owner sees them: listed, looked at, cancelled, tried again, forgotten."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from retrieval.errors import Conflict, InvalidInput, NotFound
from retrieval.store import banks, operations
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.edge import as_uuid, iso, listing, page
from retrieval.store.waiting import check_room

STATUSES = ("pending", "processing", "completed", "failed", "cancelled")


_SHOWN = (
    "operation_id, type, items_count, document_id, created_at, updated_at, status, error_message,"
    " retry_count, next_retry_at, progress"
)
"""All but the payload, which may be megabytes."""


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
        bank = await banks.number_of(connection, tenant, bank_id)
        where = (
            "bank = $1 and ($2::text is null or status = $2) and ($3::text is null or type = $3)"
        )
        total = await connection.fetchval(
            f"select count(*) from operations where {where}", bank, status, type
        )
        found = await connection.fetch(
            f"select {_SHOWN} from operations where {where}"
            " order by created_at desc, place desc"
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
        bank = await banks.number_of(connection, tenant, bank_id)
        row = await connection.fetchrow(
            f"select {_SHOWN}, result_metadata, coalesce(payload->>'mental_model_id',"
            "  result_metadata->>'mental_model_id') as mental_model_id from operations"
            " where bank = $1 and operation_id = $2",
            bank,
            id,
        )
        if row is None:
            return {"operation_id": str(id), "id": str(id), "status": "not_found"}
        result = row["result_metadata"]
        view = {**_view(row), "result_metadata": result, "child_operations": []}
        if row["mental_model_id"] is not None:
            view["mental_model_id"] = row["mental_model_id"]
            if result and "outcome" in result:
                names = ("operation_type", "outcome", "failure_reason")
                view["details"] = {name: result.get(name) for name in names}
        if row["status"] == "completed":
            view["completed_at"] = iso(row["updated_at"])
        if include_payload:
            view["task_payload"] = await connection.fetchval(
                "select payload from operations where bank = $1 and operation_id = $2", bank, id
            )
        return view

    return await read(pool, work)


async def _settle(
    pool: Pool,
    tenant: str,
    bank_id: str,
    operation_id: str,
    settle: Callable[[Connection, int, UUID], Awaitable[object]],
    refused: str,
    message: str,
) -> dict[str, Any]:
    """Runs `settle` with the operation locked; Conflict if it says that it did nothing."""
    id = as_uuid(operation_id, "operation_id")

    async def work(connection: Connection) -> dict[str, Any]:
        bank = await banks.number_of(connection, tenant, bank_id)
        status = await connection.fetchval(
            "select status from operations where bank = $1 and operation_id = $2 for update",
            bank,
            id,
        )
        if status is None:
            raise NotFound(f"there is no operation {id}")
        if not await settle(connection, bank, id):
            raise Conflict(f"operation {id} is {status}: {refused}")
        return {"success": True, "message": message, "operation_id": str(id)}

    return await write(pool, work)


async def cancel(pool: Pool, tenant: str, bank_id: str, operation_id: str) -> dict[str, Any]:
    """Takes an operation out of the queue; one that is worked on stops before it commits anything.

    Conflict if it has ended.
    """

    async def settle(connection: Connection, bank: int, id: UUID) -> object:
        done = await connection.fetchval(
            "update operations set status = 'cancelled', lease = null, leased_until = null,"
            " updated_at = now() where bank = $1 and operation_id = $2"
            " and status in ('pending', 'processing') returning true",
            bank,
            id,
        )
        await operations.leave_lanes(connection, bank, id)
        return done

    return await _settle(
        pool,
        tenant,
        bank_id,
        operation_id,
        settle,
        "only one that has not ended can be cancelled",
        "the operation was cancelled",
    )


async def retry(pool: Pool, tenant: str, bank_id: str, operation_id: str) -> dict[str, Any]:
    """Queues a failed or cancelled operation again, behind what waits.

    Conflict in any other status, and where its payload was let go.
    """

    async def settle(connection: Connection, bank: int, id: UUID) -> object:
        row = await connection.fetchrow(
            "select status, type, document_id, payload->'items' as items,"
            " payload->>'mental_model_id' as model from operations"
            " where bank = $1 and operation_id = $2",
            bank,
            id,
        )
        if row["status"] not in ("failed", "cancelled"):
            return False
        if row["type"] == "retain" and not row["items"]:
            raise Conflict(f"operation {id} keeps its content no more: send it again")
        if row["type"] == "file_convert_retain" and not await connection.fetchval(
            "select exists (select from operation_files where bank = $1 and operation_id = $2)",
            bank,
            id,
        ):
            raise Conflict(f"operation {id} keeps its file no more: send it again")
        await check_room(connection, bank)
        place = await connection.fetchval(
            "update operations set status = 'pending', retry_count = 0, deaths = 0,"
            " next_retry_at = null, error_message = null, updated_at = now(),"
            " place = nextval(pg_get_serial_sequence('operations', 'place'))"
            " where bank = $1 and operation_id = $2 returning place",
            bank,
            id,
        )
        lanes = {item.get("document_id") for item in row["items"] or ()} | {row["document_id"]}
        if row["type"] == "consolidation":
            lanes.add(operations.BANK_LANE)
        if row["type"] in ("erase", "purge"):
            lanes.add(operations.ERASE_LANE)
        if row["model"] is not None:
            lanes.add(operations.model_lane(row["model"]))
        await connection.execute(
            "insert into operation_lanes (bank, lane, place, operation_id)"
            " select $1, lane, $2, $3 from unnest($4::text[]) lane",
            bank,
            place,
            id,
            [lane for lane in lanes if lane is not None],
        )
        return True

    return await _settle(
        pool,
        tenant,
        bank_id,
        operation_id,
        settle,
        "only a failed or cancelled one can be tried again",
        "the operation was queued again",
    )


async def delete(pool: Pool, tenant: str, bank_id: str, operation_id: str) -> dict[str, Any]:
    """Forgets an operation; Conflict while it is being worked on."""

    async def settle(connection: Connection, bank: int, id: UUID) -> object:
        return await connection.fetchval(
            "delete from operations where bank = $1 and operation_id = $2"
            " and status <> 'processing' returning true",
            bank,
            id,
        )

    return await _settle(
        pool,
        tenant,
        bank_id,
        operation_id,
        settle,
        "it cannot be deleted while it is being worked on",
        "the operation was deleted",
    )
