"""The rows and the columns segment of new memories."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from retrieval.ingest.facts import Fact, Link, Prepared
from retrieval.ingest.restating import restated
from retrieval.store.database.copying import copy
from retrieval.store.database.pool import Connection
from retrieval.store.edge import iso, micros
from retrieval.text.subject import flags, subject
from retrieval.types import NO_PROOF, FactType, Ints

HISTORY_LIMIT = 50
"""Earlier states that are kept of an observation."""

_UNIT_COLUMNS = (
    "bank", "id", "ordinal", "key", "text", "fact_type", "context", "occurred_start",
    "occurred_end", "mentioned_at", "document_id", "chunk_id", "position", "tags", "metadata",
    "proof_count", "source_ids", "observation_scopes", "text_signals", "token_count", "created_at",
    "updated_at", "edited_at", "valid_from", "valid_until", "superseded_by", "text_key",
    "restates",
)  # fmt: skip


async def copy_units(
    connection: Connection,
    bank: int,
    facts: Sequence[Fact],
    prepared: Prepared,
    first: int,
    now: datetime,
) -> None:
    """The facts' rows, from ordinal `first` on."""
    keys, restates = await restated(connection, bank, facts)
    await copy(
        connection,
        "memory_units",
        _UNIT_COLUMNS,
        (
            (
                bank, fact.id, first + i, fact.key, fact.text, int(fact.fact_type),
                fact.context, fact.occurred_start, fact.occurred_end, fact.mentioned_at,
                fact.document_id, fact.chunk_id, fact.position, fact.tags,
                dict(fact.metadata) if fact.metadata else None, fact.proof_count, fact.sources,
                fact.observation_scopes, signal, tokens, fact.created_at or now, now,
                fact.edited_at, fact.valid_from, fact.valid_until, fact.superseded_by,
                key, restates.get(fact.id),
            )
            for i, (fact, signal, tokens, key) in enumerate(
                zip(facts, prepared.signals, prepared.tokens.tolist(), keys, strict=True)
            )
        ),
    )  # fmt: skip


async def copy_entities(
    connection: Connection,
    bank: int,
    facts: Sequence[Fact],
    named: Sequence[Sequence[tuple[int, str]]],
) -> None:
    await copy(
        connection,
        "unit_entities",
        ("bank", "unit_id", "entity_no", "mention"),
        (
            (bank, fact.id, number, mention)
            for fact, found in zip(facts, named, strict=True)
            for number, mention in found
        ),
    )


async def copy_links(
    connection: Connection, bank: int, stated: Sequence[Link], now: datetime
) -> None:
    await copy(
        connection,
        "links",
        ("bank", "from_id", "to_id", "type", "weight", "created_at"),
        ((bank, link.source, link.target, int(link.type), link.weight, now) for link in stated),
    )


async def remember_observations(
    connection: Connection,
    bank: int,
    facts: Sequence[Fact],
    old: Collection[UUID],
    now: datetime,
    limit: int = HISTORY_LIMIT,
    reasons: Mapping[UUID, str] | None = None,
) -> None:
    """Puts what observations said before into their history, which keeps the last `limit` states.
    `reasons`: why they change, where that is known."""
    known = {f.id: f for f in facts if f.fact_type is FactType.OBSERVATION and f.id in old}
    if not known or limit <= 0:
        return
    rows = await connection.fetch(
        "select id, text, tags, occurred_start, occurred_end, mentioned_at, source_ids,"
        " valid_from, valid_until from memory_units where bank = $1 and id = any($2)",
        bank,
        list(known),
    )
    rows = [row for row in rows if _differs(row, known[row["id"]])]
    if not rows:
        return
    changed = {row["id"]: known[row["id"]] for row in rows}
    await connection.copy_records_to_table(
        "observation_history",
        columns=("bank", "observation_id", "changed_at", "content"),
        records=[
            (bank, row["id"], now, _past(row, changed[row["id"]], (reasons or {}).get(row["id"])))
            for row in rows
        ],
    )
    await connection.execute(
        "delete from observation_history h using ("
        "  select observation_id, changed_at, row_number() over ("
        "    partition by observation_id order by changed_at desc) as place"
        "  from observation_history where bank = $1 and observation_id = any($2)) o"
        " where h.bank = $1 and h.observation_id = o.observation_id"
        " and h.changed_at = o.changed_at and o.place > $3",
        bank,
        list(changed),
        limit,
    )


def _differs(row: Mapping[str, Any], now: Fact) -> bool:
    return (row["text"], set(row["source_ids"]), row["valid_from"], row["valid_until"]) != (
        now.text, set(now.sources), now.valid_from, now.valid_until
    )  # fmt: skip


def _past(row: Mapping[str, Any], now: Fact, reason: str | None) -> dict[str, Any]:
    """What the history keeps of an observation's state before `now`."""
    return {
        "previous_text": row["text"],
        "previous_tags": row["tags"],
        "previous_occurred_start": iso(row["occurred_start"]),
        "previous_occurred_end": iso(row["occurred_end"]),
        "previous_mentioned_at": iso(row["mentioned_at"]),
        "new_source_memory_ids": [
            str(source) for source in now.sources if source not in row["source_ids"]
        ],
        "previous_valid_from": iso(row["valid_from"]),
        "previous_valid_until": iso(row["valid_until"]),
        "reason": reason,
    }


def columns(
    facts: Sequence[Fact],
    prepared: Prepared,
    documents: Mapping[str, int],
    tags: Mapping[str, int],
    named: Sequence[Sequence[tuple[int, str]]],
    now: datetime,
) -> dict[str, Any]:
    """The arrays of the columns segment."""
    n = len(facts)
    written = micros(now)

    def times(values: Iterable[datetime | None]) -> Any:
        return np.fromiter(map(micros, values), np.int64, n)

    tag_lists = [[tags[tag] for tag in fact.tags] for fact in facts]
    entity_lists = [[number for number, _ in found] for found in named]
    sources = [source for fact in facts for source in fact.sources if isinstance(source, UUID)]
    validity = {
        "valid_from": [fact.valid_from for fact in facts],
        "valid_until": [fact.valid_until for fact in facts],
    }
    return {
        **{name: times(given) for name, given in validity.items() if any(given)},
        "id": raw_ids([fact.id for fact in facts]),
        "fact_type": prepared.types,
        "created_at": np.fromiter(
            (written if f.created_at is None else micros(f.created_at) for f in facts), np.int64, n
        ),
        "updated_at": np.full(n, written, np.int64),
        "occurred_start": times(fact.occurred_start for fact in facts),
        "occurred_end": times(fact.occurred_end for fact in facts),
        "mentioned_at": times(fact.mentioned_at for fact in facts),
        "document": np.fromiter(
            (-1 if f.document_id is None else documents[f.document_id] for f in facts), np.int32, n
        ),
        "position": np.fromiter((fact.position or 0 for fact in facts), np.int32, n),
        "proof": np.fromiter(
            (NO_PROOF if f.proof_count is None else f.proof_count for f in facts), np.int32, n
        ),
        "tokens": prepared.tokens,
        "subject": np.fromiter(
            (subject(f.text, f.context, found) for f, found in zip(facts, named, strict=True)),
            np.int32,
            n,
        ),
        "flags": np.fromiter((flags(fact.text) for fact in facts), np.uint8, n),
        "tag_ptr": _pointers(tag_lists),
        "tag": _flat(tag_lists),
        "entity_ptr": _pointers(entity_lists),
        "entity": _flat(entity_lists),
        "source_ptr": _pointers([fact.sources for fact in facts]),
        "source": raw_ids(sources),
    }


def raw_ids(ids: Sequence[UUID]) -> NDArray[np.uint8]:
    """Ids as the columns hold them, u1 (n, 16)."""
    return np.frombuffer(b"".join(id.bytes for id in ids), np.uint8).reshape(-1, 16)


def _pointers(lists: Sequence[Sequence[Any]]) -> Ints:
    pointer = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([len(values) for values in lists], out=pointer[1:])
    return pointer


def _flat(lists: Sequence[Sequence[int]]) -> Ints:
    return np.fromiter((v for values in lists for v in values), np.int32, sum(map(len, lists)))
