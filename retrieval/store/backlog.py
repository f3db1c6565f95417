"""How far background work is behind, over all banks of the database."""

from __future__ import annotations

from retrieval.store.database.pool import Pool, read


async def oldest_s(pool: Pool) -> float:
    """Age in seconds of the oldest operation that could run now and is not; 0 where none waits."""
    return float(
        await read(
            pool,
            lambda connection: connection.fetchval(
                "select coalesce(extract(epoch from now() - min(greatest(created_at,"
                "  coalesce(next_retry_at, created_at)))), 0)::float8"
                " from operations where status = 'pending'"
                "  and coalesce(next_retry_at, now()) <= now()"
            ),
        )
    )
