"""What a bank holds, in numbers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.edge import iso
from retrieval.store.segments.format import unpack
from retrieval.types import FactType, LinkType


async def stats(pool: Pool, tenant: str, bank_id: str) -> dict[str, Any]:
    """Counts of memories, links, documents and operations. Links are those between live ones."""

    async def work(connection: Connection) -> dict[str, Any]:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return await _count(connection, tenant, bank_id)

    return await read(pool, work)


async def _count(connection: Connection, tenant: str, bank_id: str) -> dict[str, Any]:
    head = await banks.head_of(connection, tenant, bank_id)
    bank = head.bank
    nodes = {
        FactType(row["fact_type"]).wire: row["n"]
        for row in await connection.fetch(
            "select fact_type, count(*) as n from memory_units"
            " where bank = $1 and ordinal is not null group by fact_type order by fact_type",
            bank,
        )
    }
    links = await _links(connection, bank, head.next_ordinal)
    by_status = {
        row["status"]: row["n"]
        for row in await connection.fetch(
            "select status, count(*) as n from operations where bank = $1 group by status", bank
        )
    }
    row = await connection.fetchrow(
        "select (select count(*) from documents where bank = $1) as documents,"
        " max(consolidated_at) as consolidated,"
        " count(*) filter (where consolidated_at is null and consolidation_failed_at is null)"
        "  as pending, count(*) filter (where consolidation_failed_at is not null) as failed,"
        " (select last_write_at from banks where bank = $1) as written"
        " from memory_units where bank = $1 and ordinal is not null and fact_type <> $2",
        bank,
        int(FactType.OBSERVATION),
    )
    by_link: dict[str, int] = defaultdict(int)
    by_fact: dict[str, int] = defaultdict(int)
    for fact, kinds in links.items():
        for kind, n in kinds.items():
            by_link[kind] += n
            by_fact[fact] += n
    return {
        "bank_id": bank_id,
        "total_nodes": sum(nodes.values()),
        "total_links": sum(by_link.values()),
        "total_documents": row["documents"],
        "nodes_by_fact_type": nodes,
        "links_by_link_type": dict(by_link),
        "links_by_fact_type": dict(by_fact),
        "links_breakdown": links,
        "pending_operations": by_status.get("pending", 0) + by_status.get("processing", 0),
        "failed_operations": by_status.get("failed", 0),
        "operations_by_status": by_status,
        "last_consolidated_at": iso(row["consolidated"]),
        "last_memory_write_at": iso(row["written"]),
        "pending_consolidation": row["pending"],
        "failed_consolidation": row["failed"],
        "total_observations": nodes.get(FactType.OBSERVATION.wire, 0),
    }


async def _links(connection: Connection, bank: int, size: int) -> dict[str, dict[str, int]]:
    """Stored links between live memories: {fact type of the source: {link type: n}}."""
    types = np.full(size, 255, np.uint8)
    rows = await connection.fetch(
        "select ordinal, fact_type from memory_units where bank = $1 and ordinal is not null", bank
    )
    if rows:
        types[[row[0] for row in rows]] = [row[1] for row in rows]
    counts = np.zeros((len(FactType), len(LinkType)), np.int64)
    for row in await connection.fetch(
        "select payload from segments where bank = $1 and kind = 'links'", bank
    ):
        arrays = unpack(row["payload"])
        source, target = types[arrays["source"]], types[arrays["target"]]
        live = (source != 255) & (target != 255)
        np.add.at(counts, (source[live], arrays["type"][live]), 1)
    return {
        fact.wire: {kind.wire: int(counts[fact, kind]) for kind in LinkType if counts[fact, kind]}
        for fact in FactType
        if counts[fact].any()
    }
