"""Rebuilds a document's memories from its stored text, with the bank's current settings.

Its memories are replaced, with what was derived from them; edits and invalidations of single
memories do not outlive it. Chunks that are cut as before keep their time, context, tags and
metadata; where they are cut otherwise, the document's own count.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from retrieval.errors import InvalidInput
from retrieval.ingest.context import WriteContext
from retrieval.ingest.documents.planning import Reprocess
from retrieval.ingest.extract.section import ContentSection
from retrieval.ingest.items import DOCUMENT_LIMIT, parse
from retrieval.ingest.retain import Also, Errand, store
from retrieval.store import banks, documents
from retrieval.store.database.pool import Connection, read


async def require_text(connection: Connection, bank: int, document_id: str) -> Mapping[str, Any]:
    """The document's row; NotFound, or InvalidInput where there is no stored text."""
    row: Mapping[str, Any] | None = await connection.fetchrow(
        "select * from documents where bank = $1 and document_id = $2", bank, document_id
    )
    if row is None:
        raise documents.unknown(document_id)
    if row["original_text"] is None:
        raise InvalidInput(
            f"the text of document {document_id!r} was not kept: retain it again", "document_id"
        )
    return row


async def reprocess(
    deps: WriteContext,
    tenant: str,
    bank_id: str,
    document_id: str,
    *,
    also: Also | None = None,
    operation: UUID | None = None,
    deadline: float | None = None,
) -> dict[str, int]:
    """Replaces the document's memories; the tokens that extraction cost.

    One transaction, `also` inside it. NotFound, InvalidInput as `require_text`, Conflict if the
    document is changed meanwhile.
    """

    banks.check_id(bank_id)
    until = time.monotonic() + deps.settings.retain_wall_timeout_s

    async def look(connection: Connection) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        row = await require_text(connection, bank, document_id)
        return row, await _chunks(connection, bank, document_id)

    row, chunks = await read(deps.pool, look)
    given, then = _items(row), row["updated_at"]
    items = await deps.run(parse, given, None, then, len(given), DOCUMENT_LIMIT)
    anew = Reprocess(then, _sections(chunks, items[0].section))
    errand = Errand(also, operation, deadline=deadline, until=until)
    return await store(deps, tenant, bank_id, items, errand, anew)


def _items(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The document as the items of a retain: its parts, each with the document's own labels."""
    text, params = row["original_text"], row["retain_params"]
    names = ("context", "metadata", "strategy", "entities", "resolve_entities")
    common = {
        "document_id": row["document_id"],
        "timestamp": params.get("event_date", "unset"),
        "tags": row["tags"],
        "observation_scopes": row["observation_scopes"],
        **{name: params.get(name) for name in names},
    }
    items, begin = [], 0
    for length in params.get("parts") or [len(text)]:
        items.append({"content": text[begin : begin + length], **common})
        begin += length + 1  # parts are joined with line ends
    return items


async def _chunks(
    connection: Connection, bank: int, document_id: str
) -> Sequence[Mapping[str, Any]]:
    """The first memory of each chunk."""
    rows: Sequence[Mapping[str, Any]] = await connection.fetch(
        "select distinct on (c.chunk_index) c.chunk_index, m.mentioned_at, m.context, m.tags,"
        " m.metadata, m.observation_scopes from chunks c join memory_units m"
        "  on m.bank = c.bank and m.document_id = c.document_id and m.chunk_id = c.chunk_id"
        " where c.bank = $1 and c.document_id = $2 order by c.chunk_index, m.position, m.id",
        bank,
        document_id,
    )
    return rows


def _sections(
    rows: Sequence[Mapping[str, Any]], common: ContentSection
) -> dict[int, ContentSection]:
    """By chunk index, what the first memory of each chunk says about its part of the text."""
    return {
        row["chunk_index"]: ContentSection(
            timestamp=row["mentioned_at"],
            context=row["context"],
            mentions=common.mentions,
            tags=tuple(row["tags"]),
            metadata=row["metadata"],
            observation_scopes=row["observation_scopes"],
        )
        for row in rows
    }
