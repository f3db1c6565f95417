"""Counts of a bank that an index answers; none goes further than MOST rows."""

from __future__ import annotations

from typing import Any

from retrieval.store.database.pool import Connection, Pool, read

MOST = 10_000


def upto(table: str, where: str) -> str:
    """SQL that counts rows, one more than MOST at most."""
    return f"(select count(*) from (select from {table} where {where} limit {MOST + 1}) counted)"


async def counts(pool: Pool, bank: int) -> dict[str, Any]:
    """{invalidated, documents, running, failed}; MOST + 1 stands for more."""

    async def work(connection: Connection) -> dict[str, Any]:
        row = await connection.fetchrow(
            f"select {upto('memory_units', 'bank = $1 and ordinal is null')} as invalidated,"
            f" {upto('documents', 'bank = $1')} as documents,"
            f" {upto('operations', _RUNNING)} as running,"
            f" {upto('operations', _FAILED)} as failed",
            bank,
        )
        return dict(row)

    return await read(pool, work)


_RUNNING = "bank = $1 and status in ('pending', 'processing')"
_FAILED = "bank = $1 and status <> 'completed' and status = 'failed'"
