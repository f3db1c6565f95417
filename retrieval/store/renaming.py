"""Another id for a bank: in its row, and wherever it is named by it."""

from __future__ import annotations

from retrieval.errors import Conflict
from retrieval.store import aliases, banks
from retrieval.store.database.pool import Connection, Pool, write


async def rename(pool: Pool, tenant: str, bank_id: str, target: str) -> None:
    """Gives a bank another id, after which its chunks are called, too. The former one leads to it
    from then on, where it can be an alias. Conflict for a taken one."""
    banks.check_id(target)

    async def work(connection: Connection) -> None:
        bank = (await banks.lock(connection, tenant, bank_id)).bank
        if await connection.fetchval(
            "select true from banks where tenant_id = $1 and bank_id = $2", tenant, target
        ):
            raise Conflict(f"there is a bank {target[:100]!r} already")
        await connection.execute(
            "delete from bank_aliases where tenant_id = $1 and alias = $2 and bank = $3",
            tenant,
            target,
            bank,
        )
        if await connection.fetchval(
            "select true from bank_aliases where tenant_id = $1 and alias = $2", tenant, target
        ):
            raise Conflict(f"{target[:100]!r} is an alias of another bank: end that first")
        await connection.execute(
            "update memory_units m"
            " set chunk_id = $2 || '_' || c.document_id || '_' || c.chunk_index"
            " from chunks c where m.bank = $1 and c.bank = $1 and c.chunk_id = m.chunk_id",
            bank,
            target,
        )
        await connection.execute(
            "update chunks set chunk_id = $2 || '_' || document_id || '_' || chunk_index"
            " where bank = $1",
            bank,
            target,
        )
        for table in (
            "llm_requests", "llm_usage", "extraction_ledger", "audit_logs", "webhook_deliveries",
            "document_turns",
        ):  # fmt: skip
            await connection.execute(
                f"update {table} set bank_id = $3 where tenant_id = $1 and bank_id = $2",
                tenant,
                bank_id,
                target,
            )
        await connection.execute(
            "update banks set bank_id = $2, name = case when name = bank_id then $2 else name end,"
            " updated_at = now() where bank = $1",
            bank,
            target,
        )
        if aliases.possible(bank_id):
            await connection.execute(
                "insert into bank_aliases (tenant_id, alias, bank) values ($1, $2, $3)"
                " on conflict do nothing",
                tenant,
                bank_id,
                bank,
            )
        await connection.execute(
            "update banks set search_key = $2 where bank = $1",
            bank,
            banks.search_key(
                target, await connection.fetchval("select name from banks where bank = $1", bank)
            ),
        )

    await write(pool, work)
