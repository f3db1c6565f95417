"""The log of who read or changed what: rows are added, listed, counted, and dropped in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from retrieval.errors import InvalidInput, NotFound
from retrieval.store import banks
from retrieval.store.database.copying import execute_many
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.edge import as_uuid, iso, listing, page, parse_time

PERIODS = {"1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
PAGE_MAX = 500
_SUMMARY = "id, action, transport, bank_id, started_at, ended_at, duration_ms, metadata"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One request. `transport`: http, mcp or system. `ended_at`: None until it is answered."""

    tenant: str
    bank_id: str
    action: str
    transport: str
    started_at: datetime
    ended_at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] | None = None
    response: Mapping[str, Any] | None = None
    id: UUID = field(default_factory=uuid4)

    @classmethod
    def received(cls, values: Mapping[str, Any]) -> AuditEntry:
        """One that another process sent, by the names of its fields: a later program may have
        more of them."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


async def add(connection: Connection, entries: Sequence[AuditEntry]) -> None:
    """Notes requests, or how those ended that are noted already."""
    await execute_many(
        connection,
        "insert into audit_logs (tenant_id, bank_id, id, action, transport, started_at, ended_at,"
        " duration_ms, metadata, request, response)"
        " values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
        " on conflict (tenant_id, bank_id, id) do update set ended_at = excluded.ended_at,"
        " duration_ms = excluded.duration_ms, metadata = excluded.metadata,"
        " response = excluded.response where excluded.ended_at is not null",
        (
            (
                one.tenant,
                one.bank_id,
                one.id,
                one.action,
                one.transport,
                one.started_at,
                one.ended_at,
                _milliseconds(one),
                dict(one.metadata),
                one.request,
                one.response,
            )
            for one in entries
        ),
    )


def _milliseconds(one: AuditEntry) -> int | None:
    if one.ended_at is None:
        return None
    return round((one.ended_at - one.started_at).total_seconds() * 1000)


async def forget(connection: Connection, days: float) -> None:
    """Drops entries that are older; 0 keeps them."""
    if days:
        await connection.execute(
            "delete from audit_logs where started_at < now() - $1 * interval '1 day'", days
        )


# The API's views


async def listed(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    action: str | None = None,
    transport: str | None = None,
    start_date: str | None = None,
    end_date: str | None = None,
    limit: int = 50,
    offset: int = 0,
) -> dict[str, Any]:
    """{bank_id, items, total, limit, offset}, newest first, without bodies."""
    limit, offset = page(limit, offset, PAGE_MAX)
    start = None if start_date is None else parse_time(start_date, "start_date")
    end = None if end_date is None else parse_time(end_date, "end_date")
    where = (
        "tenant_id = $1 and bank_id = $2 and ($3::text is null or action = $3)"
        " and ($4::text is null or transport = $4)"
        " and ($5::timestamptz is null or started_at >= $5)"
        " and ($6::timestamptz is null or started_at < $6)"
    )
    values = (tenant, bank_id, action, transport, start, end)

    async def work(connection: Connection) -> dict[str, Any]:
        await banks.head_of(connection, tenant, bank_id)
        total = await connection.fetchval(f"select count(*) from audit_logs where {where}", *values)
        rows = await connection.fetch(
            f"select {_SUMMARY} from audit_logs where {where}"
            " order by started_at desc, id desc limit $7 offset $8",
            *values,
            limit,
            offset,
        )
        items = [_view(row) for row in rows]
        return {"bank_id": bank_id, **listing("items", items, total, limit, offset)}

    return await read(pool, work)


async def get(pool: Pool, tenant: str, bank_id: str, log_id: str) -> dict[str, Any]:
    """One entry with its bodies. NotFound."""
    id = as_uuid(log_id, "log_id")

    async def work(connection: Connection) -> Mapping[str, Any] | None:
        await banks.head_of(connection, tenant, bank_id)
        row: Mapping[str, Any] | None = await connection.fetchrow(
            f"select {_SUMMARY}, request, response from audit_logs"
            " where tenant_id = $1 and bank_id = $2 and id = $3",
            tenant,
            bank_id,
            id,
        )
        return row

    row = await read(pool, work)
    if row is None:
        raise NotFound(f"there is no audit log entry {id}")
    return {**_view(row), "request": row["request"], "response": row["response"]}


async def stats(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    action: str | None = None,
    period: str = "7d",
    now: datetime,
) -> dict[str, Any]:
    """Entries of a period by day, in UTC, days without any included: {bank_id, period, trunc,
    start, buckets}. InvalidInput for another period."""
    if period not in PERIODS:
        raise InvalidInput(f"period must be one of {', '.join(PERIODS)}", "period")
    start = (now - PERIODS[period]).replace(hour=0, minute=0, second=0, microsecond=0)

    async def work(connection: Connection) -> Sequence[Mapping[str, Any]]:
        await banks.head_of(connection, tenant, bank_id)
        rows: Sequence[Mapping[str, Any]] = await connection.fetch(
            "select date_trunc('day', started_at, 'UTC') as time, action, count(*) as n"
            " from audit_logs where tenant_id = $1 and bank_id = $2 and started_at >= $3"
            " and ($4::text is null or action = $4) group by 1, 2",
            tenant,
            bank_id,
            start,
            action,
        )
        return rows

    buckets: dict[str, dict[str, Any]] = {}
    for day in range((now - start).days + 1):
        time = iso(start + timedelta(days=day)) or ""
        buckets[time] = {"time": time, "actions": {}, "total": 0}
    for row in await read(pool, work):
        bucket = buckets.get(iso(row["time"]) or "")
        if bucket is not None:  # not of a clock that runs ahead
            bucket["actions"][row["action"]] = row["n"]
            bucket["total"] += row["n"]
    return {
        "bank_id": bank_id,
        "period": period,
        "trunc": "day",
        "start": iso(start),
        "buckets": list(buckets.values()),
    }


def _view(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "action": row["action"],
        "transport": row["transport"],
        "bank_id": row["bank_id"],
        "started_at": iso(row["started_at"]),
        "ended_at": iso(row["ended_at"]),
        "duration_ms": row["duration_ms"],
        "metadata": row["metadata"],
    }
