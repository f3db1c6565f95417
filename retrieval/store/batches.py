"""Which batches of questions a provider has, for which operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from retrieval.store.database.pool import Connection, Pool, read, write

NAMED_S: Final = 300.0
"""How long a batch without a name is looked for at its provider, once its operation has ended."""


@dataclass(frozen=True, slots=True)
class ProviderBatch:
    """One batch. `id` None: it was about to be sent, and the provider may have it or not."""

    mark: UUID
    account: str
    id: str | None
    keys: tuple[bytes, ...]
    ended: bool


async def of_operation(
    pool: Pool, tenant: str, bank_id: str, operation: UUID
) -> list[ProviderBatch]:
    """The batches of an operation, oldest first."""

    async def work(connection: Connection) -> list[ProviderBatch]:
        rows = await connection.fetch(
            "select mark, account, batch_id, keys, ended from extraction_batches"
            " where tenant_id = $1 and bank_id = $2 and operation_id = $3"
            " order by created_at, mark",
            tenant,
            bank_id,
            operation,
        )
        return [_batch(row) for row in rows]

    return await read(pool, work)


async def intend(
    pool: Pool,
    tenant: str,
    bank_id: str,
    operation: UUID,
    mark: UUID,
    account: str,
    keys: Sequence[bytes],
) -> None:
    """Notes a batch before it is sent."""
    await _do(
        pool,
        "insert into extraction_batches (mark, tenant_id, bank_id, operation_id, account, keys)"
        " values ($1, $2, $3, $4, $5, $6)",
        mark,
        tenant,
        bank_id,
        operation,
        account,
        list(keys),
    )


async def name(pool: Pool, mark: UUID, id: str) -> None:
    """Notes the provider's name of a batch."""
    await _do(pool, "update extraction_batches set batch_id = $2 where mark = $1", mark, id)


async def end(pool: Pool, mark: UUID) -> None:
    """Notes that the answers of a batch were read and kept."""
    await _do(pool, "update extraction_batches set ended = true where mark = $1", mark)


async def drop(pool: Pool, mark: UUID) -> None:
    """Forgets a batch."""
    await _do(pool, "delete from extraction_batches where mark = $1", mark)


async def orphans(pool: Pool, account: str, most: int = 100) -> list[ProviderBatch]:
    """Batches of the account whose operation does not go on any more, oldest first.

    Those that were read are forgotten; so are those of an account that nobody here has, after two
    days.
    """

    async def work(connection: Connection) -> list[ProviderBatch]:
        gone = (
            "not exists (select from operations o join banks b using (bank)"
            " where b.tenant_id = e.tenant_id and b.bank_id = e.bank_id"
            " and o.operation_id = e.operation_id and o.status in ('pending', 'processing'))"
        )
        await connection.execute(
            f"delete from extraction_batches e where {gone} and (ended"
            " or account <> $1 and created_at < now() - interval '2 days'"
            " or batch_id is null and created_at < now() - $2 * interval '1 second')",
            account,
            NAMED_S,
        )
        rows = await connection.fetch(
            f"select mark, account, batch_id, keys, ended from extraction_batches e"
            f" where account = $1 and {gone} order by created_at limit $2",
            account,
            most,
        )
        return [_batch(row) for row in rows]

    return await write(pool, work)


def _batch(row: Mapping[str, Any]) -> ProviderBatch:
    return ProviderBatch(
        row["mark"], row["account"], row["batch_id"], tuple(row["keys"]), row["ended"]
    )


async def _do(pool: Pool, statement: str, *args: Any) -> None:
    await write(pool, lambda connection: connection.execute(statement, *args))
