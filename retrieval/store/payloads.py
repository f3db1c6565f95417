"""What operations keep of the content that they were given, and until when.

A completed operation keeps nothing. One that failed or was cancelled can be tried again for a
while, and keeps its content so long, unless what it is about is deleted.
"""

from __future__ import annotations

from retrieval.store.database.pool import Connection, Pool, write

KEPT_S = 7 * 24 * 3600.0
"""How long a failed or cancelled operation can be tried again."""


async def let_go(pool: Pool, kept_s: float = KEPT_S) -> None:
    """Drops the payloads of operations that ended `kept_s` ago."""

    async def work(connection: Connection) -> None:
        await connection.execute(
            "update operations set payload = payload - 'items'"
            " where status in ('failed', 'cancelled') and payload ? 'items'"
            " and updated_at < now() - $1 * interval '1 second'",
            kept_s,
        )
        await connection.execute(
            "delete from operation_files f using operations o"
            " where o.bank = f.bank and o.operation_id = f.operation_id"
            " and o.status in ('failed', 'cancelled')"
            " and o.updated_at < now() - $1 * interval '1 second'",
            kept_s,
        )

    await write(pool, work)


async def forget(connection: Connection, bank: int, document_id: str | None = None) -> None:
    """Drops what ended operations of the bank keep of a document; of everything without one."""
    await connection.execute(
        "update operations set payload = payload - 'items' where bank = $1"
        " and status in ('failed', 'cancelled') and payload ? 'items'"
        " and ($2::text is null or payload->'items' @> jsonb_build_array("
        "  jsonb_build_object('document_id', $2::text)))",
        bank,
        document_id,
    )
    await connection.execute(
        "delete from operation_files f using operations o where f.bank = $1 and o.bank = $1"
        " and o.operation_id = f.operation_id and o.status in ('failed', 'cancelled')"
        " and ($2::text is null or o.document_id = $2)",
        bank,
        document_id,
    )
