"""Facts that say again what another document said: stored, and marked as bearing it out.

Equal are facts of the same normalised text, type, dates and tags. What is marked needs no language
model any more: it joins what was made of the memory that it restates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias
from uuid import UUID

from retrieval.ingest.facts import Fact
from retrieval.store.database.pool import Connection
from retrieval.text.folding import fold
from retrieval.types import FactType

_Alike: TypeAlias = tuple[Any, ...]


def text_key(fact: Fact) -> bytes | None:
    """What facts of documents with the same normalised text share; None for other memories."""
    if fact.document_id is None or fact.fact_type is FactType.OBSERVATION:
        return None
    words = " ".join(fold(fact.text).split()).rstrip(" .!")
    return blake2b(words.encode("utf-8", "replace"), digest_size=16).digest()


async def restated(
    connection: Connection, bank: int, facts: Sequence[Fact]
) -> tuple[list[bytes | None], dict[UUID, UUID]]:
    """The text keys of new facts, and by id the live memory that one of them restates.

    That memory is the first to say so: one that itself restates another is passed over, as long as
    that other lives.
    """
    keys = await asyncio.to_thread(lambda: [text_key(fact) for fact in facts])
    wanted = list({key for key in keys if key is not None})
    if not wanted:
        return keys, {}
    rows = await connection.fetch(
        "select m.id, m.text_key, m.fact_type, m.occurred_start, m.occurred_end, m.tags,"
        " m.document_id from memory_units m where m.bank = $1 and m.text_key = any($2)"
        " and m.ordinal is not null and m.document_id is not null"
        " and not exists (select from memory_units o where o.bank = m.bank and o.id = m.restates"
        "  and o.ordinal is not null) order by m.ordinal",
        bank,
        wanted,
    )
    return keys, await asyncio.to_thread(paired, facts, keys, rows)


def paired(
    facts: Sequence[Fact], keys: Sequence[bytes | None], rows: Sequence[Mapping[str, Any]]
) -> dict[UUID, UUID]:
    """By a fact's id the first memory of another document that says the same. Of all that say it,
    the first and the first of a document other than its own are kept: one of them is the answer,
    however often a document repeats itself."""
    first: dict[_Alike, list[tuple[str, UUID]]] = {}
    for row in rows:
        _keep(first.setdefault(_of_row(row), []), row["document_id"], row["id"])
    found: dict[UUID, UUID] = {}
    for fact, key in zip(facts, keys, strict=True):
        if key is None or fact.document_id is None:
            continue
        said = first.setdefault(_of_fact(fact, key), [])
        other = next((id for document, id in said if document != fact.document_id), None)
        if other is not None:
            found[fact.id] = other
        else:
            _keep(said, fact.document_id, fact.id)
    return found


def _keep(said: list[tuple[str, UUID]], document: str, id: UUID) -> None:
    if not said or (len(said) == 1 and said[0][0] != document):
        said.append((document, id))


def _of_row(row: Mapping[str, Any]) -> _Alike:
    return (
        row["text_key"],
        row["fact_type"],
        row["occurred_start"],
        row["occurred_end"],
        frozenset(row["tags"]),
    )


def _of_fact(fact: Fact, key: bytes) -> _Alike:
    return (key, int(fact.fact_type), fact.occurred_start, fact.occurred_end, frozenset(fact.tags))
