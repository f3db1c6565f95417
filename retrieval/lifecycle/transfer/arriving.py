"""What a document or a memory that arrives does to those that a bank has."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.ingest.write.transaction import Change
from retrieval.lifecycle.transfer.bundles import Incoming
from retrieval.lifecycle.transfer.inserting import insert
from retrieval.store.database.pool import Connection
from retrieval.types import FactType


async def there(connection: Connection, bank: int, name: str) -> bool:
    found = await connection.fetchval(
        "select true from documents where bank = $1 and document_id = $2", bank, name
    )
    return bool(found)


async def free_id(connection: Connection, bank: int, name: str) -> str:
    """An id beside one that is taken."""
    number = 2
    while await there(connection, bank, f"{name}-{number}"):
        number += 1
    return f"{name}-{number}"


async def clear(change: Change, name: str) -> None:
    """Takes out what a document holds, as a retain of the same id does."""
    rows = await change.connection.fetch(
        "select id from memory_units where bank = $1 and document_id = $2", change.bank, name
    )
    await change.remove([row["id"] for row in rows])
    for table in ("chunks", "document_attachments"):
        await change.connection.execute(
            f"delete from {table} where bank = $1 and document_id = $2", change.bank, name
        )


async def mark(change: Change, memories: Sequence[Incoming]) -> None:
    """What is kept of a memory beyond what it says: nothing is consolidated twice, and times are
    those of the archive."""
    connection, bank = change.connection, change.bank
    for one in memories:
        if one.invalidated is not None:
            reason = one.invalidated.get("reason")
            await change.invalidate(one.fact.id, None if reason is None else str(reason))
            await connection.execute(
                "update memory_units m set invalidated_at = coalesce(w.invalidated_at, now())"
                " from jsonb_populate_record(null::memory_units, $3) w"
                " where m.bank = $1 and m.id = $2",
                bank,
                one.fact.id,
                {"invalidated_at": one.invalidated.get("at")},
            )
    marked = [{"id": str(m.fact.id), **m.marks} for m in memories if m.marks]
    if marked:
        await connection.execute(
            "update memory_units m set consolidated_at = w.consolidated_at,"
            " consolidated_scopes = coalesce(w.consolidated_scopes, '{}'),"
            " consolidation_failed_at = w.consolidation_failed_at,"
            " consolidation_error = w.consolidation_error,"
            " updated_at = coalesce(w.updated_at, m.updated_at)"
            " from jsonb_populate_recordset(null::memory_units, $2) w"
            " where m.bank = $1 and m.id = w.id",
            bank,
            marked,
        )
    past = [
        {**state, "bank": bank, "observation_id": str(m.fact.id)}
        for m in memories
        for state in m.history
    ]
    await insert(connection, "observation_history", past)
    change.unconsolidated = any(
        m.fact.fact_type is not FactType.OBSERVATION
        and m.invalidated is None
        and not {"consolidated_at", "consolidation_failed_at"} & m.marks.keys()
        for m in memories
    )
