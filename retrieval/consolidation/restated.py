"""Memories that say again what a consolidated one said: evidence for what was made of that one,
without asking anybody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from retrieval.consolidation.actions import Action, Decided
from retrieval.consolidation.batch import Batch, Shown
from retrieval.ingest.scopes import scope_key
from retrieval.ingest.write.stored import StoredMemory, load
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.types import FactType

REASON = "said again"


async def evidence(pool: Pool, batch: Batch) -> tuple[Batch, Decided] | None:
    """The facts of a batch that restate a memory which is finished in its scope, with the
    observations that cite that memory and hold still, and what is to be done: each fact joins
    them. None where there is no such fact."""
    ids = [one.fact.id for one in batch.facts]

    async def look(connection: Connection) -> tuple[Mapping[UUID, UUID], list[StoredMemory]]:
        bank = batch.bank.head.bank
        rows = await connection.fetch(
            "select m.id, m.restates from memory_units m"
            " join memory_units o on o.bank = m.bank and o.id = m.restates"
            " where m.bank = $1 and m.id = any($2) and o.ordinal is not null"
            " and $3 = any(o.consolidated_scopes)",
            bank,
            ids,
            scope_key(batch.scope),
        )
        said = {row["id"]: row["restates"] for row in rows}
        if not said:
            return said, []
        found = await connection.fetch(
            "select id from memory_units where bank = $1 and fact_type = $2 and ordinal is not null"
            " and tags @> $3 and tags <@ $3 and source_ids && $4 and valid_until is null"
            " and superseded_by is null",
            bank,
            int(FactType.OBSERVATION),
            sorted(batch.scope),
            list(said.values()),
        )
        return said, await load(connection, bank, [row["id"] for row in found])

    said, observations = await read(pool, look)
    citing: dict[object, list[int]] = defaultdict(list)
    for place, one in enumerate(observations):
        for source in one.fact.sources:
            citing[source].append(place)
    facts = [one for one in batch.facts if citing.get(said.get(one.fact.id))]
    if not facts:
        return None
    actions = [
        Action("update", (place,), at, observations[at].fact.text, reason=REASON)
        for place, fact in enumerate(facts)
        for at in citing[said[fact.fact.id]]
    ]
    own = replace(batch, facts=tuple(facts), observations=tuple(Shown(one) for one in observations))
    return own, Decided(tuple(actions))
