"""Memories as a page shows them: the opening of each, whether it is live or not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from retrieval.store.database.pool import Pool, read


class Opening(NamedTuple):
    """The opening of a memory. `ordinal`: None where it was invalidated; `length`: of its text."""

    id: str
    ordinal: int | None
    text: str
    length: int
    fact_type: int
    context: str | None
    occurred_start: datetime | None
    occurred_end: datetime | None
    mentioned_at: datetime | None
    document_id: str | None
    tags: Sequence[str]
    token_count: int


async def openings(
    pool: Pool, bank: int, ids: Sequence[UUID | str], characters: int
) -> dict[str, Opening]:
    """By id the opening of each memory, at most so many characters; invalidated ones too."""
    found = await read(
        pool,
        lambda connection: connection.fetch(
            "select id::text, ordinal, left(text, $3) as text, length(text) as length, fact_type,"
            " left(context, 300) as context, occurred_start, occurred_end, mentioned_at,"
            " document_id, tags, token_count"
            " from memory_units where bank = $1 and id = any($2::uuid[])",
            bank,
            [str(id) for id in ids],
            characters,
        ),
    )
    return {row["id"]: Opening(*row) for row in found}


async def superseding(pool: Pool, bank: int, id: UUID) -> list[tuple[UUID, str]]:
    """(id, way) of what says what held after this memory (out), and of what this one came after
    (in)."""
    rows = await read(
        pool,
        lambda connection: connection.fetch(
            "select superseded_by as id, 'out' as way from memory_units"
            " where bank = $1 and id = $2 and superseded_by is not null"
            " union all (select id, 'in' from memory_units"
            " where bank = $1 and superseded_by = $2 order by updated_at desc, id limit 20)",
            bank,
            id,
        ),
    )
    return [(row["id"], row["way"]) for row in rows]
