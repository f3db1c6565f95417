"""Documents as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from retrieval.errors import NotFound
from retrieval.store import attachments, banks, containing, keyset
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.edge import iso, listing, one_of, page, parse_time
from retrieval.store.tags import condition
from retrieval.types import FactType

LIST_MOST = 1000
"""Documents in one answer."""

_TIME_FIELDS = ("created_at", "updated_at")


def unknown(document_id: str) -> NotFound:
    return NotFound(f"there is no document {document_id!r}")


async def exists(connection: Connection, bank: int, document_id: str) -> bool:
    found = await connection.fetchval(
        "select true from documents where bank = $1 and document_id = $2", bank, document_id
    )
    return bool(found)


async def list_documents(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    q: str | None = None,
    tags: Sequence[str] | None = None,
    tags_match: str = "any_strict",
    time_field: str | None = None,
    start_date: str | None = None,
    end_date: str | None = None,
    limit: int = 100,
    offset: int = 0,
    cursor: str | None = None,
    count: keyset.Count | None = None,
) -> dict[str, Any]:
    """{items, total, limit, offset}, latest first by `time_field`, which is `updated_at` unless it
    says otherwise; `q` is a part of the id, folded as in lists of memories. start_date is
    inclusive, end_date exclusive. `cursor` and `count` as of lists of memories."""
    limit, offset = page(limit, offset, LIST_MOST)
    column = "d." + one_of(time_field or "updated_at", _TIME_FIELDS, "time_field")
    values: list[Any] = []

    def bind(value: Any) -> str:
        values.append(value)
        return f"${len(values) + 1}"

    where = ["d.bank = $1"]
    if test := condition("d.tags", tags, tags_match, bind):
        where.append(test)
    if start_date is not None:
        where.append(f"{column} >= {bind(parse_time(start_date, 'start_date'))}")
    if end_date is not None:
        where.append(f"{column} < {bind(parse_time(end_date, 'end_date'))}")

    bank = (await banks.head(pool, tenant, bank_id)).bank
    if q:
        where.append(
            await containing.condition(
                pool, q, table="documents d", key="d.document_no", columns=("d.document_id",),
                where=tuple(where), values=(bank, *values), bind=bind,
            )
        )  # fmt: skip

    order = (
        keyset.SortColumn(column, "time", descending=True),
        keyset.SortColumn("d.document_no", "int", descending=True),
    )
    all_rows, counted = " and ".join(where), tuple(values)
    if cursor:
        where.append(keyset.behind(order, keyset.read(cursor, order), bind))

    async def work(connection: Connection) -> dict[str, Any]:
        test = " and ".join(where)
        total = await connection.fetchval(
            keyset.total("documents d", all_rows, count), bank, *counted
        )
        found = await connection.fetch(
            "select d.document_id, d.content_hash, d.created_at, d.updated_at, d.retain_params,"
            " d.metadata, d.tags, coalesce(length(d.original_text), 0) as text_length,"
            " (select count(*) from memory_units m where m.bank = d.bank"
            "   and m.document_id = d.document_id and m.ordinal is not null) as units,"
            f" {keyset.names(order)}"
            f" from documents d where {test} order by {keyset.clause(order)}"
            f" limit ${len(values) + 2} offset ${len(values) + 3}",
            bank,
            *values,
            limit,
            offset,
        )
        items = [{**_common(row, bank_id), "text_length": row["text_length"]} for row in found]
        whole = listing("items", items, total, limit, offset)
        return keyset.paged(whole, count, len(found) == limit > 0, keyset.last(found, order))

    return await read(pool, work)


def _common(row: Mapping[str, Any], bank_id: str) -> dict[str, Any]:
    return {
        "id": row["document_id"],
        "bank_id": bank_id,
        "content_hash": row["content_hash"],
        "created_at": iso(row["created_at"]),
        "updated_at": iso(row["updated_at"]),
        "memory_unit_count": row["units"],
        "retain_params": row["retain_params"],
        "document_metadata": row["metadata"],
        "tags": row["tags"],
    }


async def get(pool: Pool, tenant: str, bank_id: str, document_id: str) -> dict[str, Any]:
    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        row = await connection.fetchrow(
            "select d.*, 0 as units from documents d where bank = $1 and document_id = $2",
            bank,
            document_id,
        )
        if row is None:
            raise unknown(document_id)
        types = await connection.fetch(
            "select fact_type, count(*) as n from memory_units"
            " where bank = $1 and document_id = $2 and ordinal is not null group by fact_type",
            bank,
            document_id,
        )
        held = await attachments.of_documents(connection, bank, bank_id, [document_id])
        return {
            **_common(row, bank_id),
            **({"attachments": list(held[document_id].values())} if held else {}),
            "original_text": row["original_text"],
            "memory_unit_count": sum(r["n"] for r in types),
            "nodes_by_fact_type": {FactType(r["fact_type"]).wire: r["n"] for r in types},
            "observation_scopes": row["observation_scopes"],
        }

    return await read(pool, work)
