"""What happened to documents: one entry for each write that was about one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

from retrieval.store import banks, documents
from retrieval.store.database.copying import execute_many
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.edge import iso, listing, page

Kind: TypeAlias = Literal[
    "retain", "append", "reprocess", "retag", "fact_edited", "fact_invalidated", "fact_restored",
    "fact_deleted", "observations_cleared", "consolidation",
]  # fmt: skip

KEPT = 500
"""Entries that are kept of a document."""

IDS_MOST = 100
"""Ids of observations that an entry names; it counts all of them."""


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """One change of a document and what it did to its facts and their observations."""

    document_id: str
    kind: Kind
    operation_id: UUID | None = None
    fact_id: UUID | None = None
    facts_added: int = 0
    facts_removed: int = 0
    observations_created: Sequence[UUID] = ()
    observations_updated: Sequence[UUID] = ()
    observations_removed: Sequence[UUID] = ()

    @property
    def observations(self) -> dict[str, Any] | None:
        """As the history keeps them."""
        each = {
            "created": self.observations_created,
            "updated": self.observations_updated,
            "removed": self.observations_removed,
        }
        return {name: _counted(ids) for name, ids in each.items() if ids} or None


def _counted(ids: Sequence[UUID]) -> dict[str, Any]:
    return {"count": len(ids), "ids": [str(id) for id in ids[:IDS_MOST]]}


async def record(connection: Connection, bank: int, events: Sequence[DocumentChange]) -> None:
    """Adds the events to the histories of their documents, which keep the last KEPT entries.

    Part of the transaction that does the change; nothing where a document is not there.
    """
    await execute_many(
        connection,
        "insert into document_history (bank, document_id, kind, operation_id, fact_id,"
        " facts_added, facts_removed, observations)"
        " select bank, document_id, $3, $4, $5, $6, $7, $8 from documents"
        " where bank = $1 and document_id = $2",
        (
            (
                bank,
                event.document_id,
                event.kind,
                event.operation_id,
                event.fact_id,
                event.facts_added,
                event.facts_removed,
                event.observations,
            )
            for event in events
        ),
    )
    await connection.execute(
        "delete from document_history h using (select document_id, place, row_number()"
        "   over (partition by document_id order by place desc) as n from document_history"
        "   where bank = $1 and document_id = any($2)) o"
        " where h.bank = $1 and h.document_id = o.document_id and h.place = o.place and o.n > $3",
        bank,
        list({event.document_id for event in events}),
        KEPT,
    )


async def of_document(
    pool: Pool, tenant: str, bank_id: str, document_id: str, *, limit: int = 100, offset: int = 0
) -> dict[str, Any]:
    """{document_id, items, total, limit, offset}, newest first."""
    limit, offset = page(limit, offset)

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        if not await documents.exists(connection, bank, document_id):
            raise documents.unknown(document_id)
        where = "bank = $1 and document_id = $2"
        total = await connection.fetchval(
            f"select count(*) from document_history where {where}", bank, document_id
        )
        rows = await connection.fetch(
            f"select * from document_history where {where} order by place desc limit $3 offset $4",
            bank,
            document_id,
            limit,
            offset,
        )
        items = [_view(row) for row in rows]
        return {"document_id": document_id, **listing("items", items, total, limit, offset)}

    return await read(pool, work)


def _view(row: Mapping[str, Any]) -> dict[str, Any]:
    observations = row["observations"] or {}
    none = {"count": 0, "ids": []}
    return {
        "document_id": row["document_id"],
        "kind": row["kind"],
        "created_at": iso(row["created_at"]),
        "operation_id": None if row["operation_id"] is None else str(row["operation_id"]),
        "fact_id": None if row["fact_id"] is None else str(row["fact_id"]),
        "facts_added": row["facts_added"],
        "facts_removed": row["facts_removed"],
        "observations_created": observations.get("created", none),
        "observations_updated": observations.get("updated", none),
        "observations_removed": observations.get("removed", none),
    }
