"""Entities as the API shows them. Merged ones are seen as what they were merged into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retrieval.errors import InvalidInput, NotFound
from retrieval.store import banks
from retrieval.store.edge import iso, listing, page
from retrieval.store.memories import as_uuid
from retrieval.store.pool import Connection, Pool, read

_NODE_COLOR, _EDGE_COLOR = "#4f6d9f", "#9aa5b1"


def _view(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "canonical_name": row["canonical_name"],
        "mention_count": row["mention_count"],
        "first_seen": iso(row["first_seen"]),
        "last_seen": iso(row["last_seen"]),
        "metadata": row["metadata"],
    }


async def list_entities(
    pool: Pool, tenant: str, bank_id: str, *, limit: int = 100, offset: int = 0
) -> dict[str, Any]:
    """{items, total, limit, offset}, most mentioned first."""
    limit, offset = page(limit, offset)

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        total = await connection.fetchval(
            "select count(*) from entities where bank = $1 and merged_into is null", bank
        )
        found = await connection.fetch(
            "select * from entities where bank = $1 and merged_into is null"
            " order by mention_count desc, name_key limit $2 offset $3",
            bank,
            limit,
            offset,
        )
        return listing("items", [_view(row) for row in found], total, limit, offset)

    return await read(pool, work)


async def get(pool: Pool, tenant: str, bank_id: str, entity_id: str) -> dict[str, Any]:
    """One entity, with the other names it is known by."""
    id = as_uuid(entity_id, "entity_id")

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        row = await connection.fetchrow(
            "select s.* from entities e join entities s"
            " on s.bank = e.bank and s.entity_no = coalesce(e.merged_into, e.entity_no)"
            " where e.bank = $1 and e.id = $2",
            bank,
            id,
        )
        if row is None:
            raise NotFound(f"there is no entity {id}")
        aliases = await connection.fetch(
            "select name_key from entity_aliases where bank = $1 and entity_no = $2"
            " order by name_key",
            bank,
            row["entity_no"],
        )
        return {**_view(row), "aliases": [alias[0] for alias in aliases], "observations": []}

    return await read(pool, work)


async def graph(
    pool: Pool, tenant: str, bank_id: str, *, limit: int = 1000, min_count: int = 1
) -> dict[str, Any]:
    """The most mentioned entities and how often they appear together."""
    limit, _ = page(limit, 0)
    if min_count < 1:
        raise InvalidInput("min_count must be at least 1", "min_count")

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        nodes = await connection.fetch(
            "select *, count(*) over () as total from entities"
            " where bank = $1 and merged_into is null and mention_count >= $2"
            " order by mention_count desc, name_key limit $3",
            bank,
            min_count,
            limit,
        )
        ids = {row["entity_no"]: str(row["id"]) for row in nodes}
        edges = await connection.fetch(
            "select a, b, count, last_cooccurred from entity_cooccurrences"
            " where bank = $1 and count >= $2 and a = any($3) and b = any($3)"
            " order by count desc, a, b",
            bank,
            min_count,
            list(ids),
        )
        return {
            "nodes": [
                {
                    "data": {
                        "id": str(row["id"]),
                        "label": row["canonical_name"],
                        "mentionCount": row["mention_count"],
                        "color": _NODE_COLOR,
                    }
                }
                for row in nodes
            ],
            "edges": [
                {
                    "data": {
                        "id": f"{ids[row['a']]}-{ids[row['b']]}",
                        "source": ids[row["a"]],
                        "target": ids[row["b"]],
                        "linkType": "cooccurrence",
                        "weight": row["count"],
                        "color": _EDGE_COLOR,
                        "lineStyle": "solid",
                        "lastCooccurred": iso(row["last_cooccurred"]),
                    }
                }
                for row in edges
            ],
            "total_entities": nodes[0]["total"] if nodes else 0,
            "total_edges": len(edges),
            "limit": limit,
        }

    return await read(pool, work)
