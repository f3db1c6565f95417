"""Tags: the filter as SQL, and the list of those in use."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from retrieval.errors import InvalidInput
from retrieval.store import banks
from retrieval.store.edge import like, listing, page
from retrieval.store.pool import Connection, Pool, read
from retrieval.types import TagsMatch


def condition(
    column: str, tags: Sequence[str] | None, match: str, bind: Callable[[Any], str]
) -> str | None:
    """The SQL test for a tag filter; None if it lets everything pass. `bind` adds a parameter."""
    try:
        mode = TagsMatch(match)
    except ValueError:
        names = ", ".join(TagsMatch)
        raise InvalidInput(f"tags_match must be one of {names}", "tags_match") from None
    if not tags:
        return f"{column} = '{{}}'" if mode is TagsMatch.EXACT else None
    wanted = bind(list(tags))
    return {
        TagsMatch.ANY: f"({column} = '{{}}' or {column} && {wanted})",
        TagsMatch.ANY_STRICT: f"{column} && {wanted}",
        TagsMatch.ALL: f"({column} = '{{}}' or {column} @> {wanted})",
        TagsMatch.ALL_STRICT: f"{column} @> {wanted}",
        TagsMatch.EXACT: f"({column} @> {wanted} and {column} <@ {wanted})",
    }[mode]


async def list_tags(
    pool: Pool,
    tenant: str,
    bank_id: str,
    *,
    q: str | None = None,
    source: str = "memories",
    limit: int = 100,
    offset: int = 0,
) -> dict[str, Any]:
    """{items: [{tag, count}], total, limit, offset} of the live memories, most used first.

    `q` matches whole tags without regard to case; `*` stands for anything.
    """
    limit, offset = page(limit, offset)
    if source not in ("memories", "mental_models"):
        raise InvalidInput("source must be memories or mental_models", "source")
    pattern = re.sub(r"\*+", "%", like(q)) if q else None

    async def work(connection: Connection) -> dict[str, Any]:
        bank = (await banks.head_of(connection, tenant, bank_id)).bank
        if source == "mental_models":
            return listing("items", [], 0, limit, offset)
        found = await connection.fetch(
            "with used as (select t as tag, count(*) as n from memory_units, unnest(tags) t"
            "  where bank = $1 and ordinal is not null and ($2::text is null or t ilike $2)"
            "  group by t)"
            " select tag, n, count(*) over () as total from used"
            ' order by n desc, tag collate "C" limit $3 offset $4',
            bank,
            pattern,
            limit,
            offset,
        )
        total = found[0]["total"] if found else 0
        if not found and offset:
            total = await connection.fetchval(
                "select count(distinct t) from memory_units, unnest(tags) t"
                " where bank = $1 and ordinal is not null and ($2::text is null or t ilike $2)",
                bank,
                pattern,
            )
        items = [{"tag": row["tag"], "count": row["n"]} for row in found]
        return listing("items", items, total, limit, offset)

    return await read(pool, work)
