"""Banks that are being built: reserved, locked by who builds them, opened, abandoned.

A bank that is being built is nobody's to read (retrieval/store/banks.py refuses it); that it is
whole is said by its last transaction. What is abandoned has lost its name at once, and goes in the
background; only a record of what failed stays for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retrieval.errors import InvalidInput
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.operations import Claim
from retrieval.store.payloads import KEPT_S


def taken(bank_id: str) -> InvalidInput:
    return InvalidInput(
        f"target_bank_id: there is a bank {bank_id[:100]!r} already", "target_bank_id"
    )


def check_target(bank_id: str) -> None:
    """InvalidInput where no bank can be called so."""
    try:
        banks.check_id(bank_id)
    except InvalidInput as error:
        raise InvalidInput(f"target_bank_id: {error}", "target_bank_id") from None


async def reserve(connection: Connection, tenant: str, bank_id: str) -> int:
    """The number of a new, empty bank that is being built. InvalidInput where the name is taken."""
    check_target(bank_id)
    bank: int | None = await connection.fetchval(
        "insert into banks (tenant_id, bank_id, name, search_key, state)"
        " values ($1, $2, $2, $3, 'importing') on conflict do nothing returning bank",
        tenant,
        bank_id,
        banks.search_key(bank_id, bank_id),
    )
    if bank is None:
        raise taken(bank_id)
    return bank


async def belongs(connection: Connection, bank: int, home: int, operation: Any) -> None:
    """Says which operation, of which bank, builds the bank: with its end the bank is abandoned."""
    await connection.execute(
        "update banks set built_for = $2, built_by = $3 where bank = $1", bank, home, operation
    )


async def found(connection: Connection, home: int, operation: Any) -> Mapping[str, Any] | None:
    """The bank that an operation builds."""
    row: Mapping[str, Any] | None = await connection.fetchrow(
        "select * from banks where built_for = $1 and built_by = $2 and state = 'importing'",
        home,
        operation,
    )
    return row


async def lock(connection: Connection, bank: int, claimed: Claim) -> Mapping[str, Any]:
    """The row of a bank that is being built by this operation. InvalidInput where it is gone."""
    row: Mapping[str, Any] | None = await connection.fetchrow(
        "select * from banks where bank = $1 and built_by = $2 and state = 'importing'"
        " for no key update",
        bank,
        claimed.operation_id,
    )
    if row is None:
        raise InvalidInput("the bank that was being built was deleted meanwhile")
    return row


async def reached(connection: Connection, bank: int, how_far: Mapping[str, Any]) -> None:
    """Notes how far the building has come, in the transaction that brought it there. Who dies after
    it dies of something else: earlier deaths count no more."""
    await connection.execute("update banks set building = $2 where bank = $1", bank, dict(how_far))
    await connection.execute(
        "update operations o set deaths = 0 from banks b where b.bank = $1"
        " and o.bank = b.built_for and o.operation_id = b.built_by and o.deaths > 0",
        bank,
    )


async def open_bank(connection: Connection, bank: int, version: int) -> None:
    """Makes a bank that is whole everybody's."""
    await connection.execute(
        "update banks set state = 'open', built_by = null, built_for = null, building = null,"
        " version = greatest($2, 1) where bank = $1",
        bank,
        version,
    )


async def sweep(pool: Pool) -> int:
    """Removes what abandoned banks hold, and those that nothing is to be told about; how many."""
    # Whoever built these is gone without a word.
    await write(
        pool,
        lambda connection: connection.execute(
            "update banks b set state = 'abandoned', former_id = bank_id,"
            " bank_id = E'\\x01' || bank where state = 'importing' and built_by is not null"
            " and not exists (select from operations o where o.bank = b.built_for"
            "  and o.operation_id = b.built_by and o.status in ('pending', 'processing'))"
        ),
    )
    rows = await read(
        pool,
        lambda connection: connection.fetch(
            "select bank, (exists (select from operations o where o.bank = b.bank)"
            "  and updated_at > now() - $1 * interval '1 second') as told from banks b"
            " where state = 'abandoned' order by bank limit 100",
            KEPT_S,
        ),
    )
    for row in rows:

        async def work(
            connection: Connection, bank: int = row["bank"], told: bool = row["told"]
        ) -> None:
            await banks.empty(connection, bank)
            if not told:
                await connection.execute("delete from banks where bank = $1", bank)

        await write(pool, work)
    return len(rows)
