"""Which observations newer memories may change that are not consolidated yet."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.store.database.pool import Pool, read
from retrieval.types import FactType

_PENDING_MOST = 1_000
"""Pending memories that are looked at, the newest: with more, everything is outdated soon."""

_OUTDATED = f"""
    with o as materialized (
        select id, source_ids, created_at, tags from memory_units
        where bank = $1 and id = any($2::uuid[])
    ), about as materialized (
        select distinct o.id, o.created_at, o.tags, u.entity_no
        from o cross join unnest(o.source_ids || o.id) told(id) cross join lateral (
            select entity_no from unit_entities where bank = $1 and unit_id = told.id offset 0
        ) u
    ), waiting as materialized (
        select id, created_at, tags from memory_units
        where bank = $1 and ordinal is not null and consolidated_at is null
            and consolidation_failed_at is null and fact_type <> {FactType.OBSERVATION:d}
        order by ordinal desc limit {_PENDING_MOST}
    ), said as materialized (
        select w.created_at, w.tags, u.entity_no from waiting w cross join lateral (
            select entity_no from unit_entities where bank = $1 and unit_id = w.id offset 0
        ) u
    )
    select distinct a.id::text from said s join about a
        on a.entity_no = s.entity_no and a.created_at < s.created_at
            and a.tags <@ s.tags and a.tags @> s.tags
"""
"""Step by step, since the planner cannot know how few rows each step has: mentions are looked up by
memory, never by an entity that everybody mentions."""


async def observations(pool: Pool, bank: int, ids: Sequence[str]) -> set[str]:
    """Those of these observations for which newer memories of the same tags wait to be
    consolidated that share an entity with them or with what they were made from."""
    found = await read(pool, lambda connection: connection.fetch(_OUTDATED, bank, list(ids)))
    return {row[0] for row in found}
