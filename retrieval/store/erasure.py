"""What is left of a memory beside its row, and how it goes: texts of documents, of models, of logs.

Every function is part of the transaction that takes the memories away; the bank is locked.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from retrieval.store import attachments
from retrieval.store.database.pool import Connection
from retrieval.store.edge import as_texts
from retrieval.store.heads import BankHead

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class ErasureEntry:
    """What a deletion took away, as the ledger outside of the database keeps it: ids only.

    `whole`: the bank itself; `bank`: its number, which no other of the name has.
    """

    tenant: str
    bank_id: str
    at: datetime
    memories: Sequence[UUID] = ()
    documents: Sequence[str] = ()
    whole: bool = False
    operation_id: UUID | None = None
    bank: int | None = None


Note: TypeAlias = Callable[[ErasureEntry], Awaitable[None]]
"""Keeps an entry for good before it returns."""


@dataclass(frozen=True, slots=True)
class TrimmedDocuments:
    """What went of documents with memories. `shortened`: documents that keep the text of their
    other chunks; `emptied`: those that keep none of it; `ended`: those that are gone."""

    chunks_removed: int = 0
    chunks_emptied: int = 0
    shortened: Sequence[str] = ()
    emptied: Sequence[str] = ()
    ended: Sequence[str] = ()


Place: TypeAlias = "tuple[str, str | None]"
"""(document id, chunk id) of a memory."""


async def places(connection: Connection, bank: int, ids: Sequence[UUID]) -> list[Place]:
    """Where these memories come from; asked before they go."""
    rows = await connection.fetch(
        "select distinct document_id, chunk_id from memory_units where bank = $1 and id = any($2)"
        " and document_id is not null",
        bank,
        list(ids),
    )
    return [(row["document_id"], row["chunk_id"]) for row in rows]


async def cut_documents(
    connection: Connection, bank: int, lost: Sequence[Place], *, ends: bool
) -> TrimmedDocuments:
    """Takes the texts away that memories, which are gone by now, were made from.

    A chunk goes with its last memory; one that has others loses its text, since nobody knows which
    words were whose. A document keeps the text of the chunks that stay whole. `ends`: a document
    without chunks and memories goes.
    """
    losses: dict[str, set[str]] = defaultdict(set)
    for document_id, chunk_id in lost:
        losses[document_id].update([chunk_id] if chunk_id is not None else [])
    removed = emptied = 0
    kinds: dict[str, list[str]] = {"shortened": [], "emptied": [], "ended": []}
    for document_id, chunks in losses.items():
        gone, blank, kind = await _cut(connection, bank, document_id, chunks, ends=ends)
        removed += gone
        emptied += blank
        if kind is not None:
            kinds[kind].append(document_id)
    return TrimmedDocuments(removed, emptied, **kinds)


async def _cut(
    connection: Connection, bank: int, document_id: str, lost: set[str], *, ends: bool
) -> tuple[int, int, str | None]:
    text = await connection.fetchrow(
        "select original_text from documents where bank = $1 and document_id = $2 for update",
        bank,
        document_id,
    )
    if text is None:
        return 0, 0, None
    rows = await connection.fetch(
        "select c.chunk_id, c.chunk_text, exists (select from memory_units m where m.bank = $1"
        "  and m.document_id = $2 and m.chunk_id = c.chunk_id) as used"
        " from chunks c where c.bank = $1 and c.document_id = $2 order by c.chunk_index",
        bank,
        document_id,
    )
    whole = "".join(row["chunk_text"] for row in rows) == text["original_text"]
    gone = [row["chunk_id"] for row in rows if row["chunk_id"] in lost and not row["used"]]
    blank = [row["chunk_id"] for row in rows if row["chunk_id"] in lost and row["used"]]
    await connection.execute(
        "delete from chunks where bank = $1 and document_id = $2 and chunk_id = any($3)",
        bank,
        document_id,
        gone,
    )
    await connection.execute(
        "update chunks set chunk_text = '', content_hash = ''"
        " where bank = $1 and document_id = $2 and chunk_id = any($3)",
        bank,
        document_id,
        blank,
    )
    left = [row["chunk_text"] for row in rows if row["chunk_id"] not in {*gone, *blank}]
    if lost:
        await attachments.let_go(connection, bank, document_id, left, ())
    if ends and len(gone) == len(rows):
        ended = await connection.fetchval(
            "delete from documents d where bank = $1 and document_id = $2 and not exists (select"
            " from memory_units m where m.bank = $1 and m.document_id = $2) returning true",
            bank,
            document_id,
        )
        if ended:
            return len(gone), len(blank), "ended"
    if not lost:  # imported: they were made from no text
        return 0, 0, None
    kept = "".join(left) if whole and left and not blank else None
    await connection.execute(
        "update documents set original_text = $3, content_hash = '', updated_at = now()"
        " where bank = $1 and document_id = $2",
        bank,
        document_id,
        kept,
    )
    if not (gone or blank):
        return 0, 0, None
    return len(gone), len(blank), "emptied" if kept is None else "shortened"


async def forget_history(connection: Connection, bank: int, memories: Sequence[UUID]) -> None:
    """Takes ids of memories out of the histories of documents; entries and counts stay."""
    await connection.execute(
        "update document_history set fact_id = case when fact_id = any($2) then null"
        "   else fact_id end,"
        "  observations = (select jsonb_object_agg(o.key, jsonb_set(o.value, '{ids}', '[]'))"
        "   from jsonb_each(observations) o)"
        " where bank = $1 and (fact_id = any($2)"
        "  or jsonb_path_query_array(observations, '$.*.ids[*]') ?| $3)",
        bank,
        list(memories),
        await asyncio.to_thread(as_texts, memories),
    )


# Documents that models wrote


async def citing(connection: Connection, bank: int, memories: Collection[UUID]) -> list[str]:
    """The mental models in which one of these memories is named, in whatever place."""
    rows = await connection.fetch(
        "select id, coalesce(document::text, '') || coalesce(reflect_response::text, '') as said,"
        " array(select memory_id from mental_model_citations c"
        "  where c.bank = d.bank and c.model_id = d.id) as cited"
        " from mental_models d where bank = $1",
        bank,
    )
    return await asyncio.to_thread(_naming, rows, memories)


def _naming(rows: Sequence[Mapping[str, Any]], memories: Collection[UUID]) -> list[str]:
    wanted = {str(id) for id in memories}
    return [
        row["id"] for row in rows if wanted & {*_UUID.findall(row["said"]), *map(str, row["cited"])}
    ]


async def unfounded(connection: Connection, bank: int) -> list[str]:
    """The mental models that cite a memory which is not there any more."""
    rows = await connection.fetch(
        "select distinct model_id from mental_model_citations c where bank = $1 and not exists"
        " (select from memory_units m where m.bank = c.bank and m.id = c.memory_id)",
        bank,
    )
    return [row["model_id"] for row in rows]


async def unwrite(connection: Connection, bank: int, ids: Sequence[str]) -> None:
    """Takes away what models wrote, and had written before; they are to be written anew."""
    await connection.execute(
        "update mental_models set content = '', document = null, content_query = null,"
        " reflect_response = null, watermark = 0, last_memory_seen_at = null,"
        " revision = revision + 1, updated_at = now(), terms = null, vector = null,"
        " parked_at = null, failed_deltas = 0, failed_fulls = 0, pending_refresh = true"
        " where bank = $1 and id = any($2)",
        bank,
        list(ids),
    )
    for table in ("mental_model_citations", "mental_model_history"):
        await connection.execute(
            f"delete from {table} where bank = $1 and model_id = any($2)", bank, list(ids)
        )


# Logs, queues, caches


async def forget_texts(
    connection: Connection, head: BankHead, documents: Sequence[str] = ()
) -> Mapping[str, int]:
    """Empties the bodies of everything that notes what went on in the bank; rows stay, with id,
    time and action. How many of each."""
    bank, tenant, bank_id = head.bank, head.tenant, head.bank_id
    named = (tenant, bank_id)

    async def done(sql: str, *values: Any) -> int:
        status: str = await connection.execute(sql, *values)
        return int(status.rpartition(" ")[2])

    counts = {
        "llm_requests": await done(
            "update llm_requests set input = null, output = null, error = null,"
            " document_id = null where tenant_id = $1 and bank_id = $2 and (input is not null"
            " or output is not null or error is not null or document_id is not null)",
            *named,
        ),
        "extractions": await done(
            "delete from extraction_ledger where tenant_id = $1 and bank_id = $2", *named
        ),
        "audit_logs": await done(
            "update audit_logs set request = null, response = null where tenant_id = $1"
            " and bank_id = $2 and (request is not null or response is not null)",
            *named,
        ),
        "webhook_deliveries": await done(
            "update webhook_deliveries set body = null, last_response_body = null,"
            "  status = case when status = 'completed' then status else 'failed' end,"
            "  last_error = case when status = 'completed' then last_error else 'erased' end"
            " where tenant_id = $1 and bank_id = $2 and body is not null"
            " and (status in ('completed', 'failed')"
            "  or convert_from(body, 'UTF8')::jsonb->'data'->>'document_id' = any($3))",
            *named,
            list(documents),
        ),
    }
    await connection.execute(
        "delete from document_turns where tenant_id = $1 and bank_id = $2"
        " and (leased_until < now() or document_id = any($3))",
        *named,
        list(documents),
    )
    await connection.execute(
        "update memory_units set consolidation_error = null"
        " where bank = $1 and consolidation_error is not null",
        bank,
    )
    return counts


async def forget_payloads(connection: Connection, bank: int, documents: Sequence[str] = ()) -> int:
    """Empties what ended operations keep of what they were given, uploads and archives included;
    ids of documents that are gone go with it. How many had something."""
    await connection.execute(
        "delete from operation_files f using operations o where f.bank = $1 and o.bank = $1"
        " and o.operation_id = f.operation_id and o.status in ('completed', 'failed', 'cancelled')",
        bank,
    )
    await connection.execute(
        "delete from stored_files f using operations o where f.bank = $1 and o.bank = $1"
        " and o.operation_id = f.operation_id"
        " and (o.type = 'transfer_export' or o.status in ('completed', 'failed', 'cancelled'))",
        bank,
    )
    status: str = await connection.execute(
        "update operations set payload = '{}', result_metadata = result_metadata - 'errors_sample',"
        "  error_message = case when document_id = any($2) then null else error_message end,"
        "  document_id = case when document_id = any($2) then null else document_id end"
        " where bank = $1 and status in ('completed', 'failed', 'cancelled')"
        " and (payload <> '{}' or document_id = any($2) or result_metadata ? 'errors_sample')",
        bank,
        list(documents),
    )
    return int(status.rpartition(" ")[2])


async def forget_ended(connection: Connection, days: float) -> None:
    """Drops operations that ended so long ago; 0 keeps them."""
    if days:
        await connection.execute(
            "delete from operations where status in ('completed', 'failed', 'cancelled')"
            " and updated_at < now() - $1 * interval '1 day'",
            days,
        )
