"""How many memories came when: counts in buckets of time, in UTC, empty ones included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from retrieval.errors import InvalidInput
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.edge import iso
from retrieval.types import FactType

PERIODS: Mapping[str, tuple[str, timedelta, int]] = {
    "1h": ("minute", timedelta(minutes=1), 60),
    "12h": ("hour", timedelta(hours=1), 12),
    "1d": ("hour", timedelta(hours=1), 24),
    "7d": ("day", timedelta(days=1), 7),
    "30d": ("day", timedelta(days=1), 30),
    "90d": ("day", timedelta(days=1), 90),
}
"""Period -> (what a bucket is, how long, how many)."""
FIELDS = ("created_at", "mentioned_at", "occurred_start")


async def memories(
    pool: Pool, tenant: str, bank_id: str, *, period: str, time_field: str, now: datetime
) -> dict[str, Any]:
    """{bank_id, period, trunc, time_field, buckets}, the last one with `now` in it.

    Where a memory lacks the time, created_at counts; so it does for an unknown field. InvalidInput
    for another period.
    """
    if period not in PERIODS:
        raise InvalidInput(f"period must be one of {', '.join(PERIODS)}", "period")
    trunc, step, count = PERIODS[period]
    column = time_field if time_field in FIELDS else FIELDS[0]
    now = now.astimezone(UTC)
    last = now.replace(second=0, microsecond=0)
    if trunc != "minute":
        last = last.replace(minute=0)
    if trunc == "day":
        last = last.replace(hour=0)
    start = last - step * (count - 1)

    async def work(connection: Connection) -> Sequence[Mapping[str, Any]]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        time = f"coalesce({column}, created_at)"
        rows: Sequence[Mapping[str, Any]] = await connection.fetch(
            f"select date_trunc('{trunc}', {time}, 'UTC') as time, fact_type, count(*) as n"
            f" from memory_units where bank = $1 and ordinal is not null and {time} >= $2"
            f" and {time} < $3 group by 1, 2",
            bank,
            start,
            last + step,
        )
        return rows

    kinds = ("world", "experience", "observation")
    buckets = {
        start + step * place: {"time": iso(start + step * place), **dict.fromkeys(kinds, 0)}
        for place in range(count)
    }
    for row in await read(pool, work):
        buckets[row["time"]][FactType(row["fact_type"]).wire] = row["n"]
    return {
        "bank_id": bank_id,
        "period": period,
        "trunc": trunc,
        "time_field": column,
        "buckets": list(buckets.values()),
    }
