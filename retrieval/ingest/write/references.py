"""What facts and links refer to: keys and ids turned into memories of the bank.

Called while the bank is locked. InvalidInput names the item and field that lead nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import numpy as np

from retrieval.errors import InvalidInput
from retrieval.ingest.facts import Fact, Link, Ref
from retrieval.ingest.fields import fail, with_key
from retrieval.ingest.write.links import Edges
from retrieval.store.database.copying import slices
from retrieval.store.database.pool import Connection
from retrieval.store.edge import uuid_of
from retrieval.types import FactType, LinkType


async def _ids_of(connection: Connection, bank: int, keys: Collection[str]) -> dict[str, UUID]:
    """The ids of the stored memories with these keys."""
    found: dict[str, UUID] = {}
    for part in slices(keys):
        rows = await connection.fetch(
            "select key, id from memory_units where bank = $1 and key = any($2)", bank, part
        )
        found.update((row["key"], row["id"]) for row in rows)
    return found


async def _stored(
    connection: Connection, bank: int, ids: Collection[UUID]
) -> dict[UUID, int | None]:
    """Those of the ids that the bank has, with their ordinals."""
    found: dict[UUID, int | None] = {}
    for part in slices(ids):
        rows = await connection.fetch(
            "select id, ordinal from memory_units where bank = $1 and id = any($2)", bank, part
        )
        found.update((row["id"], row["ordinal"]) for row in rows)
    return found


async def with_known_ids(connection: Connection, bank: int, facts: Sequence[Fact]) -> list[Fact]:
    keys = [fact.key for fact in facts if fact.key is not None]
    known = await _ids_of(connection, bank, keys)
    if not known:
        return list(facts)

    def with_ids() -> list[Fact]:
        return [replace(fact, id=known[fact.key]) if fact.key in known else fact for fact in facts]

    return await asyncio.to_thread(with_ids)


async def keys(
    connection: Connection, bank: int, facts: Sequence[Fact], stated: Sequence[Link]
) -> dict[str, UUID]:
    """The ids behind every key that a source or link may name."""

    def named() -> tuple[dict[str, UUID], set[str]]:
        own = {fact.key: fact.id for fact in facts if fact.key is not None}
        refs = {ref for fact in facts for ref in fact.sources if isinstance(ref, str)}
        refs |= {ref for link in stated for ref in (link.source, link.target)
                 if isinstance(ref, str)}  # fmt: skip
        return own, refs

    own, wanted = await asyncio.to_thread(named)
    known = await _ids_of(connection, bank, wanted - own.keys()) | own
    ids = {ref: id for ref in wanted - known.keys() if (id := uuid_of(ref)) is not None}
    stored = await _stored(connection, bank, set(ids.values()))
    return {**{ref: id for ref, id in ids.items() if id in stored}, **known}


async def check_sources(connection: Connection, bank: int, facts: Sequence[Fact]) -> None:
    own = {fact.id for fact in facts}
    wanted = {ref for fact in facts for ref in fact.sources if isinstance(ref, UUID)} - own
    missing = wanted - (await _stored(connection, bank, wanted)).keys()
    if not missing:
        return
    for fact in facts:
        for i, ref in enumerate(fact.sources):
            if ref in missing:
                raise _nowhere(ref, f"{fact.where}.sources[{i}]", fact.key)


async def stated(
    connection: Connection,
    bank: int,
    stated: Sequence[Link],
    by_key: Mapping[str, UUID],
    facts: Sequence[Fact],
) -> list[Link]:
    """The links by id, each (from, to, type) once, without loops."""
    if not stated:
        return []
    found = await asyncio.to_thread(_by_id, stated, by_key)
    ends = await asyncio.to_thread(_ends, found) - {fact.id for fact in facts}
    missing = ends - (await _stored(connection, bank, ends)).keys()
    for link in found if missing else ():
        for ref in (link.source, link.target):
            if ref in missing:
                raise _nowhere(ref, link.where, link.source)
    return found


def _ends(links: Sequence[Link]) -> set[UUID]:
    return {ref for link in links for ref in (link.source, link.target) if isinstance(ref, UUID)}


def _by_id(stated: Sequence[Link], by_key: Mapping[str, UUID]) -> list[Link]:
    found: dict[tuple[Ref, Ref, LinkType], Link] = {}
    for link in stated:
        source, target = (
            by_key.get(ref) if isinstance(ref, str) else ref for ref in (link.source, link.target)
        )
        if source is None or target is None:
            missing_end = link.source if source is None else link.target
            raise _nowhere(missing_end, link.where, link.source)
        if source != target:
            found.setdefault(
                (source, target, link.type), replace(link, source=source, target=target)
            )
    return list(found.values())


async def incoming(connection: Connection, bank: int, ids: Sequence[UUID]) -> list[Link]:
    """Stated links from elsewhere to memories that are about to be replaced."""
    if not ids:
        return []
    rows = await connection.fetch(
        "select from_id, to_id, type, weight from links"
        " where bank = $1 and to_id = any($2) and from_id <> all($2)",
        bank,
        list(ids),
    )
    return [Link(row[0], row[1], LinkType(row[2]), row[3]) for row in rows]


async def with_proof(connection: Connection, bank: int, facts: Sequence[Fact]) -> list[Fact]:
    """An observation's proof is how many distinct live memories it was made from."""
    open_ids = {
        ref
        for fact in facts
        if fact.fact_type is FactType.OBSERVATION and fact.proof_count is None
        for ref in fact.sources
    }
    if not open_ids:
        return list(facts)
    stored = await _stored(connection, bank, [ref for ref in open_ids if isinstance(ref, UUID)])
    live = {id for id, ordinal in stored.items() if ordinal is not None}
    live |= {fact.id for fact in facts}
    return [
        replace(fact, proof_count=len(live.intersection(fact.sources)))
        if fact.fact_type is FactType.OBSERVATION and fact.proof_count is None and fact.sources
        else fact
        for fact in facts
    ]


async def ordinals(
    connection: Connection, bank: int, stated: Sequence[Link], new: Mapping[Ref, int]
) -> Edges:
    """The stated links by ordinal; those with an invalidated end are left out."""
    known = dict(new)
    stored = await _stored(connection, bank, await asyncio.to_thread(_ends, stated) - known.keys())
    known.update((id, ordinal) for id, ordinal in stored.items() if ordinal is not None)
    return await asyncio.to_thread(_edges, stated, known)


def _edges(stated: Sequence[Link], known: Mapping[Ref, int]) -> Edges:
    live = [link for link in stated if link.source in known and link.target in known]
    n = len(live)
    return Edges(
        np.fromiter((known[link.source] for link in live), np.int32, n),
        np.fromiter((known[link.target] for link in live), np.int32, n),
        np.fromiter((link.type for link in live), np.uint8, n),
        np.fromiter((link.weight for link in live), np.float32, n),
    )


def with_sources(facts: Sequence[Fact], by_key: Mapping[str, UUID]) -> list[Fact]:
    """The facts with their sources by id, each once."""
    resolved = []
    for fact in facts:
        if fact.sources:
            found: dict[Ref, None] = {}
            for i, ref in enumerate(fact.sources):
                id = by_key.get(ref) if isinstance(ref, str) else ref
                where = f"{fact.where}.sources[{i}]"
                if id is None:
                    raise _nowhere(ref, where, fact.key)
                if id == fact.id:
                    raise with_key(fail(where, "a memory is not its own source"), fact.key)
                found[id] = None
            fact = replace(fact, sources=tuple(found))
        resolved.append(fact)
    return resolved


def _nowhere(ref: Ref, where: str, item: Ref | None) -> InvalidInput:
    what = "key" if isinstance(ref, str) else "id"
    error = fail(where, f"no memory has the {what} {str(ref)!r}")
    return with_key(error, item if isinstance(item, str) else None)
