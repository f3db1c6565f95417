"""Mental models as the API has them: made, listed, read, changed, emptied, queued for a refresh.

Every function names the bank by (tenant, bank_id): NotFound where that tenant has no such bank, or
the bank no such model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import uuid4

from retrieval.errors import InvalidInput
from retrieval.mental import staleness
from retrieval.mental.trigger import Trigger, following, merged
from retrieval.store import banks, citations, mental_models, refreshes
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.store.edge import iso, listing, page

Detail = Literal["metadata", "content", "full"]

PLACEHOLDER = "No content yet."
"""What stands for a document that nothing was written into yet."""


def view(
    bank_id: str, row: Mapping[str, Any], stale: bool, detail: Detail = "full"
) -> dict[str, Any]:
    """A mental model as the API shows it."""
    found: dict[str, Any] = {
        "id": row["id"],
        "bank_id": bank_id,
        "name": row["name"],
        "tags": row["tags"],
        "is_stale": stale,
        "is_knowledge_page": row["is_page"],
        "created_at": iso(row["created_at"]),
        "last_refreshed_at": iso(row["last_refreshed_at"]),
        "last_memory_seen_at": iso(row["last_memory_seen_at"]),
        "last_refresh_failed_at": iso(row["last_refresh_failed_at"]),
        "last_full_refreshed_at": iso(row["last_full_refreshed_at"]),
    }
    if detail != "metadata":
        untouched = not row["content"] and row["last_refreshed_at"] is None
        found |= {
            "source_query": row["source_query"],
            "content": PLACEHOLDER if untouched else row["content"],
            "max_tokens": row["max_tokens"],
            "trigger": Trigger.of(row["trigger"]).wire(),
        }
    if detail == "full":
        found["reflect_response"] = row["reflect_response"]
    return found


async def shown(
    connection: Connection, bank: int, bank_id: str, id: str, detail: Detail = "full"
) -> dict[str, Any]:
    row = await mental_models.row(connection, bank, id)
    return view(bank_id, row, id in await staleness.stale(connection, bank, [row]), detail)


async def created(
    connection: Connection, bank: int, id: str, fields: Mapping[str, Any], *, page: bool = False
) -> str:
    """A new model with its first refresh queued; the operation's id. The bank's row is locked."""
    await mental_models.insert(connection, bank, id, fields, page=page)
    await rescheduled(connection, bank, id, fields["trigger"])
    return str(await refreshes.queue_refresh(connection, bank, id))


async def rescheduled(
    connection: Connection, bank: int, id: str, stored: Mapping[str, Any]
) -> None:
    """Counts the schedules of a trigger from now on."""
    trigger = Trigger.of(stored)
    now: datetime = await connection.fetchval("select now()")
    await mental_models.schedule(
        connection,
        bank,
        id,
        following(trigger.refresh_cron, now),
        following(trigger.full_refresh_cron, now),
    )


async def create(
    pool: Pool, tenant: str, bank_id: str, id: str | None, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """{mental_model_id, operation_id}; the bank is made if there is none.

    `fields`: name, source_query, tags, max_tokens, trigger, all checked. Conflict for an id that is
    taken.
    """
    chosen = id or str(uuid4())

    async def work(connection: Connection) -> dict[str, Any]:
        await banks.ensure(connection, tenant, bank_id)
        bank = (await banks.lock(connection, tenant, bank_id)).bank
        operation = await created(connection, bank, chosen, fields)
        return {"mental_model_id": chosen, "operation_id": operation}

    return await write(pool, work)


async def listed(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    tags: Sequence[str] | None = None,
    tags_match: str = "any",
    detail: Detail = "metadata",
    without_pages: bool = False,
    limit: int = 100,
    offset: int = 0,
) -> dict[str, Any]:
    """{items, total, limit, offset}, newest first; with tags, those that carry any or all of them,
    or exactly these."""
    limit, offset = page(limit, offset)

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        rows, total = await mental_models.page_of(
            connection,
            bank,
            tags=tags,
            tags_match=tags_match,
            without_pages=without_pages,
            answers=detail == "full",
            limit=limit,
            offset=offset,
        )
        stale = await staleness.stale(connection, bank, rows)
        items = [view(bank_id, row, row["id"] in stale, detail) for row in rows]
        return listing("items", items, total, limit, offset)

    return await read(pool, work)


async def get(
    pool: Pool, tenant: str, bank_id: str, id: str, detail: Detail = "full"
) -> dict[str, Any]:
    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        return await shown(connection, bank, bank_id, id, detail)

    return await read(pool, work)


async def changed(
    connection: Connection, bank: int, id: str, changes: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Changes the named fields, those of the trigger one by one; the row as it was before."""
    if not any(name in changes for name in mental_models.CHANGEABLE):
        raise InvalidInput(f"nothing to change: give {', '.join(mental_models.CHANGEABLE)}")
    before = await mental_models.row(connection, bank, id, lock=True)
    found = dict(changes)
    if "trigger" in found:
        found["trigger"] = merged(before["trigger"], found["trigger"])
    await mental_models.change(connection, bank, id, found)
    if "trigger" in found:
        await rescheduled(connection, bank, id, found["trigger"])
    return before


async def patch(
    pool: Pool, tenant: str, bank_id: str, id: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Changes what is named; the model then. InvalidInput where nothing is."""

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        await changed(connection, bank, id, changes)
        return await shown(connection, bank, bank_id, id)

    return await write(pool, work)


async def delete(pool: Pool, tenant: str, bank_id: str, id: str) -> dict[str, Any]:
    async def work(connection: Connection) -> None:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        await mental_models.delete(connection, bank, id)

    await write(pool, work)
    return {"status": "deleted"}


async def clear(pool: Pool, tenant: str, bank_id: str, id: str) -> dict[str, Any]:
    """Empties the document; the model then."""

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        await mental_models.clear(connection, bank, id)
        return await shown(connection, bank, bank_id, id)

    return await write(pool, work)


async def history(pool: Pool, tenant: str, bank_id: str, id: str) -> list[dict[str, Any]]:
    """[{previous_content, changed_at}], newest first."""

    async def work(connection: Connection) -> list[dict[str, Any]]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        await mental_models.row(connection, bank, id)
        return [
            {"previous_content": row["previous_content"], "changed_at": iso(row["changed_at"])}
            for row in await citations.history(connection, bank, id)
        ]

    return await read(pool, work)


async def require(pool: Pool, tenant: str, bank_id: str, id: str) -> None:
    """NotFound where there is no such bank or model."""

    async def work(connection: Connection) -> None:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        await mental_models.row(connection, bank, id)

    await read(pool, work)


async def refresh(
    pool: Pool, tenant: str, bank_id: str, id: str, *, full: bool = False
) -> dict[str, Any]:
    """Queues a refresh, or joins the one that waits: {operation_id, status: queued}. One that was
    given up is taken up again."""

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        await mental_models.row(connection, bank, id, lock=True)
        operation = await refreshes.queue_refresh(connection, bank, id, full=full)
        await refreshes.unpark(connection, bank, id)
        return {"operation_id": str(operation), "status": "queued"}

    return await write(pool, work)
