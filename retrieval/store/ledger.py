"""Extractions that were paid for: kept for days, so that nobody pays twice for the same chunk."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from retrieval.store.database.pool import Connection, Pool, read, write

KEPT = timedelta(days=7)


async def find(
    pool: Pool, tenant: str, bank_id: str, keys: Sequence[bytes], *, since: UUID | None = None
) -> dict[bytes, Any]:
    """The facts kept under these keys, as they were given; `since`: only what was kept after that
    operation was asked for."""

    async def work(connection: Connection) -> dict[bytes, Any]:
        rows = await connection.fetch(
            "select key, facts from extraction_ledger"
            " where tenant_id = $1 and bank_id = $2 and key = any($3)"
            " and created_at > now() - $4::interval and ($5::uuid is null or created_at >="
            "  (select o.created_at from operations o join banks b using (bank)"
            "   where b.tenant_id = $1 and b.bank_id = $2 and o.operation_id = $5))",
            tenant,
            bank_id,
            list(keys),
            KEPT,
            since,
        )
        return {row["key"]: row["facts"] for row in rows}

    return await read(pool, work)


async def keep(
    pool: Pool, tenant: str, bank_id: str, key: bytes, facts: Any, document_id: str | None
) -> None:
    """Keeps the facts (JSON) under a key; another answer to the same question replaces it."""

    async def work(connection: Connection) -> None:
        await connection.execute(
            "insert into extraction_ledger (tenant_id, bank_id, key, document_id, facts)"
            " values ($1, $2, $3, $4, $5) on conflict (tenant_id, bank_id, key)"
            " do update set facts = excluded.facts, created_at = now(),"
            " document_id = excluded.document_id",
            tenant,
            bank_id,
            key,
            document_id,
            facts,
        )

    await write(pool, work)


async def forget(
    connection: Connection, tenant: str, bank_id: str, document_id: str | None = None
) -> None:
    """Drops what is kept of a deleted document, or of a bank that is emptied."""
    await connection.execute(
        "delete from extraction_ledger where tenant_id = $1 and bank_id = $2"
        " and ($3::text is null or document_id = $3)",
        tenant,
        bank_id,
        document_id,
    )
