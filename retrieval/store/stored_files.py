"""Files that the database keeps for a while: archives on their way out or in.

A file is a row and parts of at most PART_BYTES; every part but the last is full, so that a range
of bytes is found without reading what lies before it. A file can be read once it is whole. It goes
with the operation or the bank that it belongs to, and when its time is over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from retrieval.errors import NotFound
from retrieval.store.database.pool import Connection, Pool, read, write

PART_BYTES = 1 << 20
UPLOAD_S = 24 * 3600.0
"""How long a file may take to become whole."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A whole file. `sha256`: 32 bytes."""

    file: int
    key: str
    name: str
    media_type: str
    byte_size: int
    sha256: bytes
    expires_at: datetime


def _stored(row: Mapping[str, Any]) -> StoredFile:
    return StoredFile(
        row["file"], row["key"], row["name"], row["media_type"], row["byte_size"], row["sha256"],
        row["expires_at"],
    )  # fmt: skip


class FileWriter:
    """Takes the bytes of a new file, in order. Used by one task."""

    def __init__(self, pool: Pool, file: int) -> None:
        self._pool = pool
        self.file = file
        self.size = 0
        self._part = 0
        self._held = bytearray()

    @staticmethod
    async def begin(
        pool: Pool,
        tenant: str,
        key: str,
        name: str,
        media_type: str,
        *,
        bank: int | None = None,
        operation_id: UUID | None = None,
    ) -> FileWriter:
        """A file of no bytes; one of this key that was there goes."""

        async def work(connection: Connection) -> int:
            await connection.execute("delete from stored_files where key = $1", key)
            file: int = await connection.fetchval(
                "insert into stored_files (key, tenant_id, bank, operation_id, name, media_type,"
                " expires_at) values ($1, $2, $3, $4, $5, $6, now() + $7 * interval '1 second')"
                " returning file",
                key, tenant, bank, operation_id, name, media_type, UPLOAD_S,
            )  # fmt: skip
            return file

        return FileWriter(pool, await write(pool, work))

    async def write(self, data: bytes | bytearray) -> None:
        self.size += len(data)
        self._held += data
        while len(self._held) >= PART_BYTES:
            part = bytes(self._held[:PART_BYTES])
            del self._held[:PART_BYTES]
            await self._store(part)

    async def flush(self) -> None:
        """Stores what is left; nothing can be written after it."""
        if self._held:
            await self._store(bytes(self._held))
            self._held.clear()

    async def _store(self, data: bytes) -> None:
        part, self._part = self._part, self._part + 1
        await write(
            self._pool,
            lambda connection: connection.execute(
                "insert into stored_file_parts (file, part, data) values ($1, $2, $3)",
                self.file,
                part,
                data,
            ),
        )


async def complete(
    connection: Connection,
    writer: FileWriter,
    sha256: bytes,
    ttl_s: float,
    *,
    bank: int | None = None,
    operation_id: UUID | None = None,
) -> datetime:
    """Makes a flushed file whole, and somebody's, in the caller's transaction; when it goes."""
    expires: datetime | None = await connection.fetchval(
        "update stored_files set byte_size = $2, sha256 = $3, bank = coalesce($5, bank),"
        " operation_id = coalesce($6, operation_id),"
        " expires_at = now() + $4 * interval '1 second' where file = $1 returning expires_at",
        writer.file, writer.size, sha256, ttl_s, bank, operation_id,
    )  # fmt: skip
    if expires is None:
        raise NotFound("the file was removed while it was written")
    return expires


async def find(pool: Pool, tenant: str, key: str) -> StoredFile:
    """The tenant's whole file of this key; NotFound, in the same words for all others."""
    row = await read(
        pool,
        lambda connection: connection.fetchrow(
            "select * from stored_files where key = $1 and tenant_id = $2"
            " and sha256 is not null and expires_at > now()",
            key,
            tenant,
        ),
    )
    if row is None:
        raise NotFound("there is no such file, or its time is over")
    return _stored(row)


async def of_operation(pool: Pool, bank: int, operation_id: UUID) -> StoredFile | None:
    """The whole file that belongs to an operation, if there is one."""
    row = await read(
        pool,
        lambda connection: connection.fetchrow(
            "select * from stored_files where bank = $1 and operation_id = $2"
            " and sha256 is not null order by file desc limit 1",
            bank,
            operation_id,
        ),
    )
    return None if row is None else _stored(row)


async def chunks(
    pool: Pool, file: StoredFile, begin: int = 0, end: int | None = None
) -> AsyncIterator[bytes]:
    """The bytes [begin, end), a part at a time; no connection is held between two of them.

    NotFound where the file goes meanwhile.
    """
    end = file.byte_size if end is None else min(end, file.byte_size)
    while begin < end:
        part, offset = divmod(begin, PART_BYTES)
        length = min(PART_BYTES - offset, end - begin)
        data: bytes | None = await read(
            pool,
            lambda connection, p=part, o=offset, n=length: connection.fetchval(  # type: ignore[misc]
                "select substr(data, $3 + 1, $4) from stored_file_parts"
                " where file = $1 and part = $2",
                file.file, p, o, n,
            ),
        )  # fmt: skip
        if data is None or len(data) != length:
            raise NotFound("the file was removed while it was read")
        yield data
        begin += length


async def remove(pool: Pool, file: int) -> None:
    await write(pool, lambda c: c.execute("delete from stored_files where file = $1", file))


async def let_go(pool: Pool) -> None:
    """Removes files whose time is over."""
    await write(pool, lambda c: c.execute("delete from stored_files where expires_at <= now()"))
