"""The bytes of uploaded files, kept from their upload until they are converted."""

from __future__ import annotations

import asyncio
from typing import IO, Final
from uuid import UUID

from retrieval.errors import RateLimited
from retrieval.store.database.pool import Connection, Pool, read

SLICE: Final = 1 << 20
"""Bytes of a row: the driver sends one in one go."""
LATER_S: Final = 60.0


async def keep(connection: Connection, bank: int, id: UUID, file: IO[bytes]) -> None:
    """Stores the file's bytes with an operation."""
    await asyncio.to_thread(file.seek, 0)
    part = 0
    while data := await asyncio.to_thread(file.read, SLICE):
        await connection.execute(
            "insert into operation_files (bank, operation_id, part, data) values ($1, $2, $3, $4)",
            bank,
            id,
            part,
            data,
        )
        part += 1


async def fetch(pool: Pool, bank: int, id: UUID, into: IO[bytes]) -> bool:
    """Writes the bytes of an operation's file; False if they are kept no more."""
    part = 0
    while True:

        async def work(connection: Connection, number: int = part) -> bytes | None:
            data: bytes | None = await connection.fetchval(
                "select data from operation_files"
                " where bank = $1 and operation_id = $2 and part = $3",
                bank,
                id,
                number,
            )
            return data

        data = await read(pool, work)
        if data is None:
            break
        await asyncio.to_thread(into.write, data)
        part += 1
    await asyncio.to_thread(into.flush)
    return part > 0


async def let_go(connection: Connection, bank: int, id: UUID) -> None:
    """Drops the bytes of an operation's file."""
    await connection.execute(
        "delete from operation_files where bank = $1 and operation_id = $2", bank, id
    )


async def hand_over(connection: Connection, bank: int, id: UUID, to: UUID) -> None:
    """Makes the bytes another operation's."""
    await connection.execute(
        "update operation_files set operation_id = $3 where bank = $1 and operation_id = $2",
        bank,
        id,
        to,
    )


async def check_room(connection: Connection, tenant: str, coming: int, most: int) -> None:
    """RateLimited if a tenant would have more than `most` bytes of files waiting."""
    held = await connection.fetchval(
        "select coalesce(sum(octet_length(f.data)), 0) from operation_files f"
        " join banks b using (bank) where b.tenant_id = $1",
        tenant,
    )
    if held + coming > most:
        raise RateLimited(
            f"this tenant has {held} bytes of files waiting, and may have {most}: come again when"
            " some are read",
            LATER_S,
        )
