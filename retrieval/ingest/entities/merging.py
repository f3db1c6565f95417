"""Entities as one: what becomes of mentions, aliases, counts and co-occurrences."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.store.database.pool import Connection


async def merge(
    connection: Connection, bank: int, version: int, survivor: int, gone: Sequence[int]
) -> None:
    """Makes the entities `gone` the same as `survivor`. The bank is locked."""
    await connection.execute(
        "insert into entity_aliases (bank, name_key, entity_no)"
        " select bank, name_key, $2::int from entities where bank = $1 and entity_no = any($3)"
        " union select bank, name_key, $2::int from entity_aliases"
        "  where bank = $1 and entity_no = any($3) on conflict do nothing",
        bank,
        survivor,
        gone,
    )
    await connection.execute(
        "delete from entity_aliases where bank = $1 and entity_no = any($2)", bank, gone
    )
    await connection.execute(
        "insert into unit_entities (bank, unit_id, entity_no, mention)"
        " select distinct on (unit_id) bank, unit_id, $2::int, mention from unit_entities"
        " where bank = $1 and entity_no = any($3) order by unit_id, entity_no"
        " on conflict do nothing",
        bank,
        survivor,
        gone,
    )
    await connection.execute(
        "delete from unit_entities where bank = $1 and entity_no = any($2)", bank, gone
    )
    await connection.execute(
        "update entities set merged_into = $2, version = $4"
        " where bank = $1 and (entity_no = any($3) or merged_into = any($3))",
        bank,
        survivor,
        gone,
        version,
    )
    await recount(connection, bank, [survivor, *gone])


async def recount(connection: Connection, bank: int, numbers: Sequence[int]) -> None:
    """Counts, times and co-occurrence of these entities, recomputed from the memories that mention
    them."""
    await connection.execute(
        "update entities e set mention_count = coalesce(w.n, 0), first_seen = w.first,"
        " last_seen = w.last from unnest($2::int[]) k(no) left join lateral ("
        "  select count(*)::int as n, min(coalesce(m.occurred_start, m.mentioned_at)) as first,"
        "   max(coalesce(m.occurred_start, m.mentioned_at)) as last"
        "  from unit_entities u join memory_units m on m.bank = u.bank and m.id = u.unit_id"
        "  where u.bank = $1 and u.entity_no = k.no) w on true"
        " where e.bank = $1 and e.entity_no = k.no",
        bank,
        list(numbers),
    )
    await connection.execute(
        "delete from entity_cooccurrences where bank = $1 and (a = any($2) or b = any($2))",
        bank,
        list(numbers),
    )
    await connection.execute(
        "insert into entity_cooccurrences (bank, a, b, count, last_cooccurred)"
        " select $1, least(x.entity_no, y.entity_no), greatest(x.entity_no, y.entity_no),"
        "  count(distinct x.unit_id), max(coalesce(m.occurred_start, m.mentioned_at))"
        " from unit_entities x join unit_entities y"
        "  on y.bank = x.bank and y.unit_id = x.unit_id and y.entity_no <> x.entity_no"
        " join memory_units m on m.bank = x.bank and m.id = x.unit_id"
        " where x.bank = $1 and x.entity_no = any($2) group by 2, 3",
        bank,
        list(numbers),
    )
