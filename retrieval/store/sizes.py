"""How much memory each bank takes where it is held, by estimate."""

from __future__ import annotations

from retrieval.store.database.pool import Connection, Pool, read

ROW_BYTES = 500
"""Of a memory beside its vector: columns, postings, links."""


async def of_banks(pool: Pool) -> tuple[list[str], list[int]]:
    """(`tenant/bank`, bytes) of all banks with memories: 4 d + ROW_BYTES for each that was ever
    stored since ordinals were given anew."""

    async def find(connection: Connection) -> tuple[list[str], list[int]]:
        rows = await connection.fetch(
            "select tenant_id || '/' || bank_id as name, next_ordinal::bigint"
            " * (4 * coalesce(substring(vector_set from ':(\\d+)$')::int, 0) + $1) as bytes"
            " from banks where next_ordinal > 0",
            ROW_BYTES,
        )
        return [row["name"] for row in rows], [row["bytes"] for row in rows]

    return await read(pool, find)
