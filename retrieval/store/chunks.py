"""Chunks: the pieces of documents that memories were made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, cast

from retrieval.errors import InvalidInput, NotFound
from retrieval.store import attachments, banks, documents
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.edge import fits, iso, listing, page


class ChunkRow(TypedDict):
    chunk_id: str
    document_id: str
    chunk_index: int
    chunk_text: str
    created_at: datetime


async def chunks(pool: Pool, bank: int, chunk_ids: Sequence[str]) -> list[ChunkRow]:
    """The bank's chunks with these ids, in their order; missing ones are left out."""
    found = await read(
        pool,
        lambda connection: connection.fetch(
            "select chunk_id, document_id, chunk_index, chunk_text, created_at from chunks"
            " where bank = $1 and chunk_id = any($2)",
            bank,
            list(chunk_ids),
        ),
    )
    by_id = {row["chunk_id"]: cast(ChunkRow, dict(row)) for row in found}
    return [by_id[id] for id in chunk_ids if id in by_id]


async def ids_of(pool: Pool, bank: int, document_id: str, most: int = 200) -> list[str]:
    """The first chunks of a document, in its order."""
    found = await read(
        pool,
        lambda connection: connection.fetch(
            "select chunk_id from chunks where bank = $1 and document_id = $2"
            " order by chunk_index limit $3",
            bank,
            document_id,
            most,
        ),
    )
    return [row[0] for row in found]


def _view(
    row: Mapping[str, Any], bank_id: str, attached: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    shown = attachments.named(row["chunk_text"], attached)
    return {
        "chunk_id": row["chunk_id"],
        "document_id": row["document_id"],
        "bank_id": bank_id,
        "chunk_index": row["chunk_index"],
        "chunk_text": row["chunk_text"],
        "created_at": iso(row["created_at"]),
        **({"attachments": shown} if shown else {}),
    }


async def get(pool: Pool, tenant: str, chunk_id: str) -> dict[str, Any]:
    """A chunk of any of the tenant's banks."""

    async def work(connection: Connection) -> dict[str, Any]:
        row = await connection.fetchrow(
            "select c.*, b.bank_id, b.attached from chunks c join banks b using (bank)"
            " where c.chunk_id = $1 and b.tenant_id = $2 and b.state = 'open'"
            " order by c.bank limit 1",
            chunk_id,
            tenant,
        )
        if row is None:
            raise NotFound(f"there is no chunk {chunk_id!r}")
        held: Mapping[str, Any] = {}
        if row["attached"]:
            held = await attachments.of_documents(
                connection, row["bank"], row["bank_id"], [row["document_id"]]
            )
        return _view(row, row["bank_id"], held.get(row["document_id"], {}))

    return await read(pool, work)


async def of_document(
    pool: Pool, tenant: str, bank_id: str, document_id: str, *, limit: int = 100, offset: int = 0
) -> dict[str, Any]:
    """{items, total, limit, offset} in the order of the document; limit 1 to 1000."""
    if not 1 <= limit <= 1000:
        raise InvalidInput("limit must be from 1 to 1000", "limit")
    limit, offset = page(limit, offset)

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        if not await documents.exists(connection, bank, document_id):
            raise documents.unknown(document_id)
        total = await connection.fetchval(
            "select count(*) from chunks where bank = $1 and document_id = $2", bank, document_id
        )
        of_page = (
            " from chunks where bank = $1 and document_id = $2"
            " order by chunk_index limit $3 offset $4"
        )
        wanted = (bank, document_id, limit, offset)
        sizes = await connection.fetch(f"select octet_length(chunk_text){of_page}", *wanted)
        fits([row[0] for row in sizes])
        found = await connection.fetch(f"select *{of_page}", *wanted)
        held = await attachments.of_documents(connection, bank, bank_id, [document_id])
        own = held.get(document_id, {})
        items = [_view(row, bank_id, own) for row in found]
        return listing("items", items, total, limit, offset)

    return await read(pool, work)
