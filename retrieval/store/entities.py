"""Entities as the API shows them. Merged ones are seen as what they were merged into.

With a tag filter a bank looks as if it held only the live memories that pass: entities that none of
them mentions are not there, counts and times are those of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from retrieval.errors import InvalidInput, NotFound
from retrieval.store import banks, containing, keyset
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.edge import as_uuid, clean, iso, listing, page
from retrieval.store.tags import EVERYTHING, TagFilter, visible
from retrieval.text.folding import key
from retrieval.text.language import bare

_NODE_COLOR, _EDGE_COLOR = "#4f6d9f", "#9aa5b1"


_DATE = "coalesce(m.occurred_start, m.mentioned_at)"


class _Seen:
    """The tables to read under a tag filter, with their parameters; $1 is the bank."""

    def __init__(self, wanted: TagFilter) -> None:
        self._values: list[Any] = []
        test = visible("m.tags", wanted, self._bind)
        self._memories = (
            None
            if test is None
            else "join memory_units m on m.bank = $1 and m.id = u.unit_id"
            f" and m.ordinal is not null and {test}"
        )

    def _bind(self, value: Any) -> str:
        self._values.append(value)
        return f"${len(self._values) + 1}"

    def arguments(self, bank: int, *others: Any) -> list[Any]:
        return [bank, *self._values, *others]

    def other(self, place: int) -> str:
        """The placeholder of the argument at `place` among the others."""
        return f"${len(self._values) + 2 + place}"

    @property
    def entities(self) -> str:
        if self._memories is None:
            return "(select * from entities where bank = $1 and merged_into is null)"
        return (
            "(select e.entity_no, e.id, e.canonical_name, e.name_key, e.metadata, w.*"
            " from (select u.entity_no as no, count(*) as mention_count,"
            f"   min({_DATE}) as first_seen, max({_DATE}) as last_seen"
            f"  from unit_entities u {self._memories} where u.bank = $1 group by 1) w"
            " join entities e on e.bank = $1 and e.entity_no = w.no)"
        )

    @property
    def cooccurrences(self) -> str:
        """Pairs of entities: `a`, `b`, `count`, `last_cooccurred`."""
        if self._memories is None:
            return "(select * from entity_cooccurrences where bank = $1)"
        return (
            "(select u.entity_no as a, v.entity_no as b, count(*) as count,"
            f"  max({_DATE}) as last_cooccurred from unit_entities u {self._memories}"
            " join unit_entities v"
            "  on v.bank = $1 and v.unit_id = u.unit_id and v.entity_no > u.entity_no"
            " where u.bank = $1 group by 1, 2)"
        )


def _view(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "canonical_name": row["canonical_name"],
        "mention_count": row["mention_count"],
        "first_seen": iso(row["first_seen"]),
        "last_seen": iso(row["last_seen"]),
        "metadata": row["metadata"],
    }


_BY_MENTIONS = (
    keyset.SortColumn("e.mention_count", "int", descending=True),
    keyset.SortColumn("e.name_key", "text"),
)


async def list_entities(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    q: str | None = None,
    wanted: TagFilter = EVERYTHING,
    limit: int = 100,
    offset: int = 0,
    cursor: str | None = None,
    count: keyset.Count | None = None,
) -> dict[str, Any]:
    """{items, total, limit, offset}, most mentioned first.

    `q`: a part of the name, or of another name that led to it, folded as recall folds words.
    `cursor` and `count` as of lists of memories.
    """
    limit, offset = page(limit, offset)
    seen = _Seen(wanted)
    asked = key(clean(q)) if q else None
    part = (bare(asked) or asked) if asked else None

    def has(column: str) -> str:
        """An apostrophe alone, which folding drops, is looked for as it stands."""
        held = containing.bare(column) if bare(part or "x") else column
        return f"strpos({held}, {seen.other(0)}) > 0"

    test = (
        f"({seen.other(0)}::text is null or {has('e.name_key')}"
        " or exists (select from entity_aliases a where a.bank = $1 and a.entity_no = e.entity_no"
        f"  and {has('a.name_key')}))"
    )

    places: list[Any] = []

    def bind(value: Any) -> str:
        places.append(value)
        return seen.other(2 + len(places))

    later = "true"
    if cursor:
        later = keyset.behind(_BY_MENTIONS, keyset.read(cursor, _BY_MENTIONS), bind)

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        total = await connection.fetchval(
            keyset.total(f"{seen.entities} e", test, count), *seen.arguments(bank, part)
        )
        found = await connection.fetch(
            f"select e.*, {keyset.names(_BY_MENTIONS)} from {seen.entities} e"
            f" where {test} and {later} order by {keyset.clause(_BY_MENTIONS)}"
            f" limit {seen.other(1)} offset {seen.other(2)}",
            *seen.arguments(bank, part, limit, offset, *places),
        )
        whole = listing("items", [_view(row) for row in found], total, limit, offset)
        last = keyset.last(found, _BY_MENTIONS)
        return keyset.paged(whole, count, len(found) == limit > 0, last)

    return await read(pool, work)


async def get(
    pool: Pool,
    tenant: str,
    bank_id: str,
    entity_id: str,
    *,
    wanted: TagFilter = EVERYTHING,
) -> dict[str, Any]:
    """One entity, with the other names it is known by."""
    id = as_uuid(entity_id, "entity_id")
    seen = _Seen(wanted)

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        row = await connection.fetchrow(
            f"select s.* from entities e join {seen.entities} s"
            " on s.entity_no = coalesce(e.merged_into, e.entity_no)"
            f" where e.bank = $1 and e.id = {seen.other(0)}",
            *seen.arguments(bank, id),
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
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    wanted: TagFilter = EVERYTHING,
    limit: int = 1000,
    min_count: int = 1,
) -> dict[str, Any]:
    """The most mentioned entities and how often they appear together, at most `limit` of both."""
    limit, _ = page(limit, 0)
    if min_count < 1:
        raise InvalidInput("min_count must be at least 1", "min_count")
    seen = _Seen(wanted)

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        nodes = await connection.fetch(
            f"select *, count(*) over () as total from {seen.entities} e"
            f" where mention_count >= {seen.other(0)}"
            f" order by mention_count desc, name_key limit {seen.other(1)}",
            *seen.arguments(bank, min_count, limit),
        )
        ids = [row["entity_no"] for row in nodes]
        shown = f"any({seen.other(2)})"
        edges = await connection.fetch(
            "select a, b, count, last_cooccurred, count(*) over () as total"
            f" from {seen.cooccurrences} c where count >= {seen.other(0)} and a = {shown}"
            f" and b = {shown} order by count desc, a, b limit {seen.other(1)}",
            *seen.arguments(bank, min_count, limit, ids),
        )
        return {
            **_network(nodes, edges),
            "total_entities": nodes[0]["total"] if nodes else 0,
            "total_edges": edges[0]["total"] if edges else 0,
            "limit": limit,
        }

    return await read(pool, work)


def _network(
    nodes: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Entities and pairs of them (`a`, `b`) as nodes and edges."""
    ids = {row["entity_no"]: str(row["id"]) for row in nodes}
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
    }


NEIGHBOURS_OF = 5_000
"""Mentions of an entity that its co-occurrences are counted in."""


async def neighbours(
    pool: Pool, tenant: str, bank_id: str, entity_id: str, *, limit: int = 100
) -> dict[str, Any]:
    """An entity, and the `limit` that are mentioned with it most often, as in `graph`; counted in
    NEIGHBOURS_OF of its mentions at most."""
    id = as_uuid(entity_id, "entity_id")

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        own = await connection.fetchval(
            "select coalesce(merged_into, entity_no) from entities where bank = $1 and id = $2",
            bank,
            id,
        )
        if own is None:
            raise NotFound(f"there is no entity {id}")
        pairs = await connection.fetch(
            "with mine as (select unit_id from unit_entities"
            "  where bank = $1 and entity_no = $2 limit $4)"
            " select $2::int as a, v.entity_no as b, count(*) as count,"
            "  null::timestamptz as last_cooccurred"
            " from mine join unit_entities v on v.bank = $1 and v.unit_id = mine.unit_id"
            "  and v.entity_no <> $2"
            " group by 2 order by count desc, b limit $3",
            bank,
            own,
            limit,
            NEIGHBOURS_OF,
        )
        nodes = await connection.fetch(
            "select * from entities where bank = $1 and entity_no = any($2)"
            " order by entity_no <> $3, mention_count desc, name_key",
            bank,
            [own, *(row["b"] for row in pairs)],
            own,
        )
        there = {row["entity_no"] for row in nodes}
        shown = [row for row in pairs if row["b"] in there]
        return {
            **_network(nodes, shown),
            "total_entities": len(nodes),
            "total_edges": len(shown),
            "limit": limit,
        }

    return await read(pool, work)


async def named_in(connection: Connection, bank: int, text: str, limit: int = 500) -> list[str]:
    """Names of entities that occur in a text, as letters; whether as words is for others to say."""
    rows = await connection.fetch(
        "select canonical_name from entities"
        " where bank = $1 and name_key <> '' and strpos($2, name_key) > 0 limit $3",
        bank,
        text.lower(),
        limit,
    )
    return [row["canonical_name"] for row in rows]
