"""What a bank holds, in numbers: none of them is found by reading the bank's memories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.edge import iso
from retrieval.types import FactType


async def stats(pool: Pool, tenant: str, bank_id: str, held: Mapping[str, Any]) -> dict[str, Any]:
    """Counts of memories, links, documents and operations. `held`: what `look("counts")` of the
    bank says, of its live memories and the links between them."""

    async def work(connection: Connection) -> dict[str, Any]:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return await _count(connection, tenant, bank_id, held)

    return await read(pool, work)


async def _count(
    connection: Connection, tenant: str, bank_id: str, held: Mapping[str, Any]
) -> dict[str, Any]:
    bank = (await banks.head_of(connection, tenant, bank_id)).bank
    nodes = {kind: n for kind, n in held["by_type"].items() if n}
    links = held["links"]
    by_status = {
        row["status"]: row["n"]
        for row in await connection.fetch(
            "select status, count(*) as n from operations where bank = $1 group by status", bank
        )
    }
    row = await connection.fetchrow(_ROW, bank)
    facts = sum(n for kind, n in nodes.items() if kind != FactType.OBSERVATION.wire)
    # Where consolidation never ran, all that it could take waits.
    fresh = row["consolidated"] is None and not row["failed"]
    pending = facts if fresh else await connection.fetchval(_PENDING, bank)
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
        "pending_consolidation": pending,
        "failed_consolidation": row["failed"],
        "total_observations": nodes.get(FactType.OBSERVATION.wire, 0),
    }


_LIVE_FACTS = f"bank = $1 and ordinal is not null and fact_type <> {FactType.OBSERVATION:d}"

_ROW = f"""
select (select count(*) from documents where bank = $1) as documents,
    (select max(consolidated_at) from memory_units
     where {_LIVE_FACTS} and consolidated_at is not null) as consolidated,
    (select count(*) from memory_units
     where {_LIVE_FACTS} and consolidation_failed_at is not null) as failed,
    (select last_write_at from banks where bank = $1) as written
"""
"""Each of them by an index that holds nothing else."""

_PENDING = f"""
select count(*) from memory_units
where {_LIVE_FACTS} and consolidated_at is null and consolidation_failed_at is null
"""
