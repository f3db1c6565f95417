"""What each tenant did, by minute, in the table `usage`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from datetime import datetime

from retrieval.store.database.pool import Connection, Pool, read, write

KEPT_DAYS = 2
"""Very many tenants make very many rows: enough for somebody who looks for what happened."""


@dataclass(slots=True)
class TenantUsage:
    """`refused` were not admitted; `degraded` are recalls that lacked a part; `busy_ms` is time
    in requests that were admitted."""

    recalls: int = 0
    writes: int = 0
    reads: int = 0
    refused: int = 0
    degraded: int = 0
    busy_ms: float = 0.0


async def add(pool: Pool, minute: datetime, by_tenant: Mapping[str, TenantUsage]) -> None:
    """Adds to what is there of this minute."""
    columns = list(zip(*map(astuple, by_tenant.values()), strict=True))

    async def work(connection: Connection) -> None:
        # In one order, so that two processes wait for each other and never both.
        await connection.execute(_ADD, minute, list(by_tenant), *map(list, columns))

    if by_tenant:
        await write(pool, work)


async def forget(pool: Pool) -> None:
    """Removes what is older than KEPT_DAYS."""
    await write(
        pool,
        lambda connection: connection.execute(
            "delete from usage where minute < now() - $1 * interval '1 day'", KEPT_DAYS
        ),
    )


async def loudest(
    pool: Pool, minutes: float = 10.0, count: int = 10
) -> list[tuple[str, TenantUsage]]:
    """The tenants with most time in requests lately, the most first."""

    async def find(connection: Connection) -> list[tuple[str, TenantUsage]]:
        rows = await connection.fetch(_LOUDEST, minutes, count)
        return [(row[0], TenantUsage(*row[1:])) for row in map(tuple, rows)]

    return await read(pool, find)


_ADD = """
insert into usage (tenant_id, minute, recalls, writes, reads, refused, degraded, busy_ms)
select t.tenant, $1, t.recalls, t.writes, t.reads, t.refused, t.degraded, t.busy
from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::float8[]) as t(tenant, recalls, writes, reads, refused, degraded, busy)
order by t.tenant
on conflict (tenant_id, minute) do update set
    recalls = usage.recalls + excluded.recalls, writes = usage.writes + excluded.writes,
    reads = usage.reads + excluded.reads, refused = usage.refused + excluded.refused,
    degraded = usage.degraded + excluded.degraded, busy_ms = usage.busy_ms + excluded.busy_ms
"""

_LOUDEST = """
select tenant_id, sum(recalls)::bigint, sum(writes)::bigint, sum(reads)::bigint,
    sum(refused)::bigint, sum(degraded)::bigint, sum(busy_ms)
from usage where minute > now() - $1 * interval '1 minute'
group by tenant_id order by sum(busy_ms) desc, sum(refused) desc, tenant_id limit $2
"""
