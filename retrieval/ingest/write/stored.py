"""Stored memories as facts again, to be rewritten."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np

from retrieval.ingest.facts import Fact, Link, Mention, Prepared
from retrieval.ingest.write.enrich import Vectors, prepare
from retrieval.ingest.write.transaction import Change
from retrieval.store.database.pool import Connection
from retrieval.store.segments import table as segments
from retrieval.types import FactType, LinkType

_SLICE: Final = 1_000
"""Rows that are read at once: the driver decodes an answer in one go."""


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory with its entities (number, name as given). `ordinal` None: invalidated."""

    fact: Fact
    ordinal: int | None
    named: Sequence[tuple[int, str]]
    updated_at: Any


async def load(connection: Connection, bank: int, ids: Sequence[UUID]) -> list[StoredMemory]:
    """The memories with these ids, in their order; missing ones are left out."""
    found: dict[UUID, StoredMemory] = {}
    for at in range(0, len(ids), _SLICE):
        part = list(ids[at : at + _SLICE])
        rows = await connection.fetch(
            "select * from memory_units where bank = $1 and id = any($2)", bank, part
        )
        mentions = await connection.fetch(
            "select unit_id, entity_no, mention from unit_entities"
            " where bank = $1 and unit_id = any($2) order by unit_id, entity_no",
            bank,
            part,
        )
        found |= await asyncio.to_thread(_all_stored, rows, mentions)
    return [found[id] for id in ids if id in found]


def _all_stored(
    rows: Sequence[Mapping[str, Any]], mentions: Sequence[Mapping[str, Any]]
) -> dict[UUID, StoredMemory]:
    named: dict[UUID, list[tuple[int, str]]] = {row["id"]: [] for row in rows}
    for row in mentions:
        named[row["unit_id"]].append((row["entity_no"], row["mention"]))
    return {row["id"]: _stored(row, named[row["id"]]) for row in rows}


def _stored(row: Mapping[str, Any], named: Sequence[tuple[int, str]]) -> StoredMemory:
    fact = Fact(
        id=row["id"],
        text=row["text"],
        fact_type=FactType(row["fact_type"]),
        key=row["key"],
        context=row["context"],
        occurred_start=row["occurred_start"],
        occurred_end=row["occurred_end"],
        mentioned_at=row["mentioned_at"],
        document_id=row["document_id"],
        chunk_id=row["chunk_id"],
        position=row["position"],
        tags=tuple(row["tags"]),
        metadata=row["metadata"],
        proof_count=row["proof_count"],
        sources=tuple(row["source_ids"]),
        mentions=tuple(Mention(mention) for _, mention in named),
        observation_scopes=row["observation_scopes"],
        created_at=row["created_at"],
        edited_at=row["edited_at"],
        valid_from=row["valid_from"],
        valid_until=row["valid_until"],
        superseded_by=row["superseded_by"],
    )
    return StoredMemory(fact, row["ordinal"], named, row["updated_at"])


async def outgoing(connection: Connection, bank: int, ids: Sequence[UUID]) -> list[Link]:
    """The stated links that start at these memories."""
    rows = await connection.fetch(
        "select from_id, to_id, type, weight from links where bank = $1 and from_id = any($2)",
        bank,
        list(ids),
    )
    return [Link(row[0], row[1], LinkType(row[2]), row[3]) for row in rows]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What `Change.add` takes to rewrite live memories."""

    prepared: Prepared
    links: Sequence[Link]
    known: Mapping[UUID, Sequence[tuple[int, str]]]


async def again(change: Change, pairs: Sequence[tuple[StoredMemory, Fact]]) -> Rewrite:
    """Live memories and what becomes of them, where nothing changes of what is embedded.

    Vectors are read from the segments, stated links and entities stay.
    """
    facts = [fact for _, fact in pairs]
    ordinals = np.array([memory.ordinal for memory, _ in pairs], np.int32)
    held: Vectors | None = None
    if change.held.vector_set == change.deps.vector_set:  # else the bank is being re-embedded
        own = change.held.vector_set
        rows = await segments.vectors(change.connection, change.bank, own, ordinals)
        held = Vectors(rows, own)
    return Rewrite(
        await prepare(change.deps, change.settings, facts, change.held.tenant, held),
        await outgoing(change.connection, change.bank, [fact.id for fact in facts]),
        {memory.fact.id: memory.named for memory, _ in pairs},
    )


async def rewrite(
    change: Change,
    pairs: Sequence[tuple[StoredMemory, Fact]],
    named: Mapping[UUID, Sequence[tuple[int, str]]] | None = None,
) -> None:
    """Rewrites live memories with other tags, metadata, places or, in `named`, entities."""
    if pairs:
        anew = await again(change, pairs)
        await change.add(anew.prepared, anew.links, {**anew.known, **(named or {})})
