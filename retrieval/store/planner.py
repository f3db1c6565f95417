"""What PostgreSQL's planner knows of banks.

A bank that statistics do not know counts as one without rows where they know all others: a look at
a memory's entities then goes through those of all its memories. PostgreSQL makes statistics by
itself a minute after a tenth of a table has changed; a bank can be filled and asked before.
"""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.database.upkeep import keep_up

KNOWN_FROM = 500
"""Memories; to go through fewer takes no time."""
_FAR = 10
"""A bank so many times larger than expected is as good as unknown."""
_TABLES = ("memory_units", "unit_entities", "entities", "links", "documents", "chunks")

_UNKNOWN = """
with statistic as (
    select s.most_common_vals::text::bigint[] as banks, s.most_common_freqs as shares,
        greatest(c.reltuples, 0) as rows,
        case when s.n_distinct < 0 then -s.n_distinct * greatest(c.reltuples, 0)
            else s.n_distinct end as distinct_banks
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    left join pg_stats s on s.schemaname = n.nspname and s.tablename = c.relname
        and s.attname = 'bank'
    where c.relname = 'memory_units' and n.nspname = current_schema()
), other as (
    select rows * greatest(0, 1 - coalesce((select sum(share) from unnest(shares) share), 0))
        / greatest(1, coalesce(distinct_banks, 0) - coalesce(cardinality(banks), 0)) as rows
    from statistic
)
select b.bank, b.next_ordinal from banks b, statistic s, other
where b.bank = any($1) and b.next_ordinal >= $2 and b.next_ordinal > $3 * coalesce(
    s.shares[array_position(s.banks, b.bank::bigint)] * s.rows, other.rows, 0)
"""


async def inform(pool: Pool, bank: int) -> None:
    """Tells the planner about a bank before it is opened."""
    size: int | None = await read(
        pool,
        lambda connection: connection.fetchval(
            "select next_ordinal from banks where bank = $1", bank
        ),
    )
    if (size or 0) >= KNOWN_FROM:
        await analyze(pool)


async def unknown(connection: Connection, numbers: Sequence[int]) -> dict[int, int]:
    """Which of these banks, and how large, the planner takes for a tenth of what they are or
    less. Dead memories count: what was told about once is not worth telling again."""
    rows = await connection.fetch(_UNKNOWN, list(numbers), KNOWN_FROM, _FAR)
    return {row["bank"]: row["next_ordinal"] for row in rows}


async def analyze(pool: Pool) -> None:
    """Makes statistics of the tables of memories; never raises FourfoldError."""
    await keep_up(pool, "analyze", _TABLES)
