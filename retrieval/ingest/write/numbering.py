"""Dense numbers of documents and tags, which the columns use; new ones get the next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from retrieval.ingest.facts import Fact
from retrieval.store.database.copying import slices
from retrieval.store.database.pool import Connection


async def document_numbers(connection: Connection, bank: int, ids: Sequence[str]) -> dict[str, int]:
    """The dense numbers of documents; rows are made for those that have none."""
    return await _numbers(
        connection,
        "with known as (select document_id, document_no from documents"
        "  where bank = $1 and document_id = any($2)),"
        " missing as (select id, row_number() over (order by place) as n"
        "  from unnest($2::text[]) with ordinality w(id, place)"
        "  where id not in (select document_id from known)),"
        " base as (update banks set next_document = next_document"
        "   + (select count(*) from missing)::int where bank = $1 returning next_document),"
        " made as (insert into documents (bank, document_id, document_no)"
        "  select $1, id, next_document - (select count(*) from missing)::int + n::int - 1"
        "  from missing, base returning document_id, document_no)"
        " select document_id, document_no from known union all select * from made",
        bank,
        ids,
    )


async def tag_numbers(
    connection: Connection, bank: int, facts: Sequence[Fact], version: int
) -> dict[str, int]:
    """The dense numbers of the facts' tags; new ones are noted as of `version`."""
    tags = await asyncio.to_thread(_tags, facts)
    return await _numbers(
        connection,
        "with known as (select tag, tag_no from tags where bank = $1 and tag = any($2)),"
        " missing as (select id, row_number() over (order by place) as n"
        "  from unnest($2::text[]) with ordinality w(id, place)"
        "  where id not in (select tag from known)),"
        " base as (update banks set next_tag = next_tag"
        "   + (select count(*) from missing)::int where bank = $1 returning next_tag),"
        " made as (insert into tags (bank, tag_no, tag, version)"
        "  select $1, next_tag - (select count(*) from missing)::int + n::int - 1, id, $3"
        "  from missing, base returning tag, tag_no)"
        " select tag, tag_no from known union all select * from made",
        bank,
        tags,
        version,
    )


def _tags(facts: Sequence[Fact]) -> list[str]:
    return list(dict.fromkeys(tag for fact in facts for tag in fact.tags))


async def _numbers(
    connection: Connection, sql: str, bank: int, names: Sequence[str], *further: Any
) -> dict[str, int]:
    """What the statement says of the names, a slice of them at a time: numbers by name."""
    found: dict[str, int] = {}
    for part in slices(names):
        rows = await connection.fetch(sql, bank, part, *further)
        found |= {row[0]: row[1] for row in rows}
    return found
