"""Rebuilds of a bank for another model or analyser, as they stand among the operations."""

from __future__ import annotations

from typing import Final

from retrieval.store.database.pool import Connection

REEMBED: Final = "reembed"
REINDEX: Final = "reindex"
KINDS: Final = (REEMBED, REINDEX)

OPEN = "status in ('pending', 'processing')"
"""The condition of operations that have not ended."""


async def running(connection: Connection, bank: int, kind: str, target: str) -> bool:
    """Is the bank on its way to `target`? True while the job waits or works."""
    found = await connection.fetchval(
        f"select true from operations where bank = $1 and type = $2 and {OPEN}"
        " and payload->>'target' = $3 limit 1",
        bank,
        kind,
        target,
    )
    return bool(found)
