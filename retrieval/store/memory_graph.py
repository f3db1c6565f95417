"""The memory graph as pages show it: memories as nodes, and what links them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from retrieval.store import banks
from retrieval.store.database.copying import slices
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.memories import list_memories
from retrieval.store.segments.format import unpack
from retrieval.types import LinkType

LIMIT_MAX: Final = 5_000
EDGES_MAX: Final = 10_000
EDGES_EACH: Final = 10
"""Of a memory, for one entity."""
MENTIONS_MAX: Final = 50_000
"""That are read to link memories by entities."""
LABEL_CHARS: Final = 50
_NODES: Final = {"world": "#4f8cc9", "experience": "#c98a4f", "observation": "#7a5fb0"}
_LINKS: Final = {"entity": "#c9a227", "semantic": "#5b9e6f", "temporal": "#8a8f98"}
_OTHER: Final = "#b5494e"


async def graph(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    type: str | None = None,
    q: str | None = None,
    tags: Sequence[str] | None = None,
    tags_match: str = "all_strict",
    document_id: str | None = None,
    chunk_id: str | None = None,
    limit: int = 1000,
) -> dict[str, Any]:
    """{nodes, edges, table_rows, total_units, limit}: memories as lists have them, latest mention
    first. Edges lead between nodes that are shown; an observation has those of its sources, too."""
    limit = min(limit, LIMIT_MAX)
    found = await list_memories(
        pool,
        tenant,
        bank_id,
        type=type,
        q=q,
        tags=tags,
        tags_match=tags_match,
        document_id=document_id,
        chunk_id=chunk_id,
        limit=limit,
    )
    items = found["items"]
    edges = await read(pool, lambda connection: _edges(connection, tenant, bank_id, items))

    def drawn() -> dict[str, Any]:
        return {
            "nodes": [{"data": _node(item)} for item in items],
            "edges": [{"data": edge} for edge in edges],
            "table_rows": [_row(item) for item in items],
            "total_units": found["total"],
            "limit": limit,
        }

    return await asyncio.to_thread(drawn)


def _node(item: Mapping[str, Any]) -> dict[str, Any]:
    text = item["text"]
    return {
        "id": item["id"],
        "label": text if len(text) <= LABEL_CHARS else text[:LABEL_CHARS] + "…",
        "text": text,
        "date": item["date"],
        "context": item["context"],
        "entities": item["entities"] or "None",
        "color": _NODES.get(item["fact_type"], _OTHER),
    }


def _row(item: Mapping[str, Any]) -> dict[str, Any]:
    names = (
        "id", "text", "occurred_start", "occurred_end", "mentioned_at", "date", "document_id",
        "chunk_id", "fact_type", "tags", "created_at", "proof_count",
    )  # fmt: skip
    return {
        **{name: item[name] for name in names},
        "context": item["context"] or "N/A",
        "entities": item["entities"] or "None",
    }


async def _edges(
    connection: Connection, tenant: str, bank_id: str, items: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    head = await banks.head_of(connection, tenant, bank_id)
    shown = await asyncio.to_thread(_standing_for, items)
    found = [
        *await _entity_links(connection, head.bank, shown),
        *await _stated_links(connection, head.bank, shown),
        *await _packed_links(connection, head.bank, head.next_ordinal, shown),
    ]
    return await asyncio.to_thread(_distinct, found)


def _standing_for(items: Sequence[Mapping[str, Any]]) -> dict[UUID, list[str]]:
    """By memory: the nodes that stand for it, itself and observations made from it."""
    shown: dict[UUID, list[str]] = defaultdict(list)
    for item in items:
        for id in (item["id"], *item["source_memory_ids"]):
            shown[UUID(id)].append(item["id"])
    return shown


def _distinct(found: Sequence[_Edge]) -> list[dict[str, Any]]:
    """Each edge once, the first EDGES_MAX."""
    edges: dict[str, dict[str, Any]] = {}
    for kind, source, target, weight, name in found:
        first, second = sorted((source, target)) if kind in _LINKS else (source, target)
        id = f"{first}-{second}-{kind}"
        if source == target or id in edges:
            continue
        if len(edges) >= EDGES_MAX:
            break
        edges[id] = {
            "id": id,
            "source": first,
            "target": second,
            "linkType": kind,
            "weight": round(float(weight), 4),
            "entityName": name,
            "color": _LINKS.get(kind, _OTHER),
            "lineStyle": "dashed" if kind == "temporal" else "solid",
        }
    return list(edges.values())


_Edge = tuple[str, str, str, float, str]


async def _entity_links(
    connection: Connection, bank: int, shown: Mapping[UUID, Sequence[str]]
) -> list[_Edge]:
    rows: list[Mapping[str, Any]] = []
    for part in slices(shown):
        rows += await connection.fetch(
            "select u.unit_id, u.entity_no, e.canonical_name as name from unit_entities u"
            " join entities e using (bank, entity_no) where u.bank = $1 and u.unit_id = any($2)"
            " limit $3",
            bank,
            part,
            max(0, MENTIONS_MAX - len(rows)),
        )
    return await asyncio.to_thread(_together, rows, shown)


def _together(
    rows: Sequence[Mapping[str, Any]], shown: Mapping[UUID, Sequence[str]]
) -> list[_Edge]:
    """Edges between nodes that mention the same entity."""
    groups: dict[tuple[int, str], dict[str, None]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: (row["entity_no"], row["unit_id"])):
        groups[row["entity_no"], row["name"]].update(dict.fromkeys(shown[row["unit_id"]]))
    found: list[_Edge] = []
    for (_, name), nodes in groups.items():
        found += [("entity", a, b, 1.0, name) for a, b in _near(list(nodes))]
        if len(found) >= EDGES_MAX:
            break
    return found


def _near(nodes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs such that no node is in more than EDGES_EACH of them."""
    reach = EDGES_EACH // 2 if len(nodes) > EDGES_EACH + 1 else EDGES_EACH
    for place, node in enumerate(nodes):
        yield from ((node, other) for other in nodes[place + 1 : place + 1 + reach])


async def _stated_links(
    connection: Connection, bank: int, shown: Mapping[UUID, Sequence[str]]
) -> list[_Edge]:
    rows = await connection.fetch(
        "select from_id, to_id, type, weight from links"
        " where bank = $1 and from_id = any($2) and to_id = any($2) limit $3",
        bank,
        list(shown),
        EDGES_MAX,
    )
    return [
        (LinkType(row["type"]).wire, a, b, row["weight"], "")
        for row in rows
        for a in shown[row["from_id"]]
        for b in shown[row["to_id"]]
    ]


async def _packed_links(
    connection: Connection, bank: int, end: int, shown: Mapping[UUID, Sequence[str]]
) -> list[_Edge]:
    """Semantic links, which lie in segments by ordinals."""
    ids: dict[int, UUID] = {}
    for part in slices(shown):
        rows = await connection.fetch(
            "select id, ordinal from memory_units"
            " where bank = $1 and id = any($2) and ordinal is not null",
            bank,
            part,
        )
        ids |= {row["ordinal"]: row["id"] for row in rows}
    here = np.zeros(end + 1, np.bool_)
    here[[ordinal for ordinal in ids if ordinal <= end]] = True
    found: list[_Edge] = []
    segments = await connection.fetch(
        "select first_ordinal from segments where bank = $1 and kind = 'links'"
        " order by first_ordinal",
        bank,
    )
    for (first,) in segments:
        packed = await connection.fetchval(
            "select payload from segments"
            " where bank = $1 and kind = 'links' and first_ordinal = $2",
            bank,
            first,
        )
        if packed is None or len(found) >= EDGES_MAX:
            break
        found += await asyncio.to_thread(_semantic, packed, end, here, ids, shown)
    return found


def _semantic(
    packed: bytes,
    end: int,
    here: NDArray[np.bool_],
    ids: Mapping[int, UUID],
    shown: Mapping[UUID, Sequence[str]],
) -> list[_Edge]:
    """The semantic links of one segment between the memories that are `here`."""
    arrays = unpack(packed)
    source, target = (np.minimum(arrays[name], end) for name in ("source", "target"))
    kept = np.flatnonzero(here[source] & here[target] & (arrays["type"] == int(LinkType.SEMANTIC)))
    return [
        ("semantic", a, b, float(arrays["weight"][i]), "")
        for i in kept[:EDGES_MAX].tolist()
        for a in shown[ids[int(source[i])]]
        for b in shown[ids[int(target[i])]]
    ]
