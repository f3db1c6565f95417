"""Merging and splitting entities by hand, and forgetting those that nothing mentions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from retrieval.errors import InvalidInput, NotFound
from retrieval.ingest import fields
from retrieval.ingest.context import WriteContext
from retrieval.ingest.entities import keys as entity_keys
from retrieval.ingest.entities import merging
from retrieval.ingest.entities.mentions import NAME_LIMIT
from retrieval.ingest.entities.similarity import collapse
from retrieval.ingest.facts import new_ids
from retrieval.ingest.write import stored
from retrieval.ingest.write.transaction import Change, write
from retrieval.store import entities
from retrieval.store.edge import as_uuid
from retrieval.text import folding


async def merge_entities(
    deps: WriteContext, tenant: str, bank_id: str, into: str, others: Sequence[str]
) -> dict[str, Any]:
    """Makes `others` the same entity as `into`, whose id and name stay; returns it.

    Their names become aliases, their mentions and co-occurrences are added up. Memories keep their
    ordinals: replicas learn it from the entities' rows.
    """
    target = as_uuid(into, "entity_id")
    ids = [as_uuid(other, f"others[{i}]") for i, other in enumerate(others)]
    if not ids:
        raise InvalidInput("name at least one entity to merge", "others")

    async def work(change: Change) -> None:
        numbers = await _numbers(change, [target, *ids])
        survivor = numbers[target]
        gone = sorted({numbers[id] for id in ids} - {survivor})
        if not gone:
            raise InvalidInput("an entity cannot be merged with itself", "others")
        change.touch()
        await merging.merge(change.connection, change.bank, change.version, survivor, gone)

    await write(deps, tenant, bank_id, work)
    return await entities.get(deps.pool, tenant, bank_id, into)


async def _numbers(change: Change, ids: Sequence[UUID]) -> dict[UUID, int]:
    """Where each entity id leads to, through earlier merges."""
    rows = await change.connection.fetch(
        "select id, coalesce(merged_into, entity_no) as no from entities"
        " where bank = $1 and id = any($2)",
        change.bank,
        list(ids),
    )
    found = {row["id"]: row["no"] for row in rows}
    for id in ids:
        if id not in found:
            raise NotFound(f"there is no entity {id}")
    return found


async def split_entity(
    deps: WriteContext,
    tenant: str,
    bank_id: str,
    entity_id: str,
    name: str,
    memory_ids: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Gives some memories of an entity to the entity called `name`; returns that one.

    Without `memory_ids`: the memories that say `name`. An entity of that name is used, un-merged
    if it was merged into this one, else made. `name` is no alias of the old one any more.
    """
    id = as_uuid(entity_id, "entity_id")
    name = collapse(fields.text(name, "name", NAME_LIMIT))
    key = folding.key(name)
    if not 0 < len(key) <= NAME_LIMIT:
        raise fields.fail("name", f"must have 1 to {NAME_LIMIT} visible characters")
    wanted = (
        None
        if memory_ids is None
        else [as_uuid(memory, f"memory_ids[{i}]") for i, memory in enumerate(memory_ids)]
    )

    async def work(change: Change) -> UUID:
        connection, bank = change.connection, change.bank
        await entity_keys.renew(connection, bank, change.version)
        old = (await _numbers(change, [id]))[id]
        spellings = await connection.fetch(
            "select distinct mention from unit_entities where bank = $1 and entity_no = $2",
            bank,
            old,
        )
        rows = await connection.fetch(
            "select unit_id from unit_entities where bank = $1 and entity_no = $2"
            " and case when $3::uuid[] is null then mention = any($4) else unit_id = any($3) end",
            bank,
            old,
            wanted,
            [row["mention"] for row in spellings if folding.key(row["mention"]) == key],
        )
        units = [row["unit_id"] for row in rows]
        if not units or (wanted is not None and len(units) != len(set(wanted))):
            raise InvalidInput(
                "memory_ids: some of the memories do not mention the entity"
                if wanted
                else f"name: no memory of the entity calls it {name!r}",
                "memory_ids" if wanted is not None else "name",
            )
        new, new_id = await _separate(change, old, name, key)
        memories = await stored.load(connection, bank, units)
        pairs = [(m, m.fact) for m in memories if m.ordinal is not None]
        await connection.execute(
            "update unit_entities set entity_no = $3"
            " where bank = $1 and entity_no = $2 and unit_id = any($4)",
            bank,
            old,
            new,
            units,
        )
        named = {
            m.fact.id: [(new if number == old else number, said) for number, said in m.named]
            for m in memories
        }
        await stored.rewrite(change, pairs, named)
        await merging.recount(connection, bank, [old, new])
        return new_id

    new_id = await write(deps, tenant, bank_id, work)
    return await entities.get(deps.pool, tenant, bank_id, str(new_id))


async def _separate(change: Change, old: int, name: str, key: str) -> tuple[int, UUID]:
    """(number, id) of the entity called `name`, which is not `old` any more."""
    connection, bank = change.connection, change.bank
    change.touch()
    await connection.execute(
        "delete from entity_aliases where bank = $1 and entity_no = $2 and name_key = $3",
        bank,
        old,
        key,
    )
    row = await connection.fetchrow(
        "select entity_no, id, merged_into from entities where bank = $1 and name_key = $2",
        bank,
        key,
    )
    if row is not None and row["merged_into"] not in (None, old):
        raise InvalidInput(f"{name!r} is merged with another entity", "name")
    if row is not None and row["entity_no"] == old:
        raise InvalidInput(f"the entity itself is called {name!r}: choose another name", "name")
    if row is not None:
        await connection.execute(
            "update entities set merged_into = null, version = $3"
            " where bank = $1 and entity_no = $2",
            bank,
            row["entity_no"],
            change.version,
        )
        return row["entity_no"], row["id"]
    number = await connection.fetchval(
        "update banks set next_entity = next_entity + 1 where bank = $1 returning next_entity - 1",
        bank,
    )
    (id,) = new_ids(1)
    await connection.execute(
        "insert into entities (bank, entity_no, id, canonical_name, name_key, plain_key, version)"
        " values ($1, $2, $3, $4, $5, $6, $7)",
        bank,
        number,
        id,
        name,
        key,
        entity_keys.plain_key(key),
        change.version,
    )
    return number, id


async def prune_entities(deps: WriteContext, tenant: str, bank_id: str) -> int:
    """Forgets entities that no memory mentions any more; how many."""

    async def work(change: Change) -> int:
        rows = await change.connection.fetch(
            "delete from entities e where bank = $1 and not exists ("
            "  select from unit_entities u where u.bank = $1"
            "  and u.entity_no = coalesce(e.merged_into, e.entity_no))"
            " returning entity_no",
            change.bank,
        )
        numbers = [row["entity_no"] for row in rows]
        await change.connection.execute(
            "delete from entity_cooccurrences where bank = $1 and (a = any($2) or b = any($2))",
            change.bank,
            numbers,
        )
        return len(numbers)

    return await write(deps, tenant, bank_id, work)
