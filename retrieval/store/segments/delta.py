"""What a replica lacks of a bank: segments, tombstones, entities and tags newer than it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.heads import BankHead
from retrieval.store.segments.format import pack, unpack
from retrieval.store.segments.merge import SegmentPart, within
from retrieval.types import Ints, Longs


@dataclass(frozen=True, slots=True)
class EntityChange:
    """An entity as replicas know it; `merged_into` is the number of the entity it now is."""

    entity_no: int
    id: bytes
    name: str
    merged_into: int | None


@dataclass(frozen=True, slots=True)
class Delta:
    """What a replica lacks, read in one snapshot.

    head: the bank's state of that snapshot. full: drop everything held and take this alone.
    segments: per kind (first_ordinal, count, payload), ascending; none begins below the
    replica's own next ordinal. tombstones: int32 ascending, and died_at: the version that each came
    with. entities: rows changed since, by number, including merges. tags: (tag_no, tag) rows new
    since.
    """

    head: BankHead
    full: bool
    segments: Mapping[str, Sequence[tuple[int, int, bytes]]]
    tombstones: Ints
    died_at: Longs
    entities: Sequence[EntityChange]
    tags: Sequence[tuple[int, str]]


async def load(
    pool: Pool,
    head: BankHead,
    *,
    have_generation: int,
    have_version: int,
    have_ordinal: int,
    kinds: Sequence[str],
    span: tuple[int, int] | None = None,
) -> Delta:
    """What a replica that holds (generation, version, ordinals below have_ordinal) lacks, read in
    one statement.

    The answer is of the newest committed state, `head.version` or later. With nothing held pass
    -1, -1 and 0. span: only the rows of these ordinals [first, end), and neither entities nor tags.
    NotFound if the bank is gone.
    """
    first, end = span or (0, _END)

    async def statement(connection: Connection) -> Sequence[Mapping[str, Any]]:
        rows: Sequence[Mapping[str, Any]] = await connection.fetch(
            _LACKING,
            head.tenant,
            head.bank_id,
            head.bank,
            have_generation,
            have_version,
            have_ordinal,
            list(kinds),
            first,
            end,
            span is None,
        )
        return rows

    parts: dict[str, list[Mapping[str, Any]]] = {}
    for row in await read(pool, statement):
        parts.setdefault(row["part"], []).append(row)
    if "head" not in parts:
        raise banks.unknown(head.bank_id)
    (top,) = parts["head"]
    now = BankHead(
        bank=top["a"],
        tenant=head.tenant,
        bank_id=head.bank_id,
        version=top["b"],
        generation=top["c"],
        next_ordinal=top["d"],
        vector_set=top["name"],
        analyser=top["other"],
        config=top["config"],
        epoch=top["epoch"],
        attached=top["attached"],
    )
    full = now.generation != have_generation or now.bank != head.bank
    found: dict[str, list[tuple[int, int, bytes]]] = {kind: [] for kind in kinds}
    for row in sorted(parts.get("segment", ()), key=lambda row: row["a"]):
        found[row["name"]].append((row["a"], row["b"], row["payload"]))
    dead = sorted(parts.get("tombstone", ()), key=lambda row: row["a"])
    tags = parts.get("tag", ())
    return Delta(
        head=now,
        full=full,
        segments={
            kind: cut(kind, rows, max(first, 0 if full else have_ordinal), end)
            for kind, rows in found.items()
        },
        tombstones=np.fromiter((row["a"] for row in dead), np.int32, len(dead)),
        died_at=np.fromiter((row["b"] for row in dead), np.int64, len(dead)),
        entities=[
            EntityChange(row["a"], row["id"].bytes, row["name"], row["b"])
            for row in sorted(parts.get("entity", ()), key=lambda row: row["a"])
        ],
        tags=[(row["a"], row["name"]) for row in sorted(tags, key=lambda row: row["a"])],
    )


_END = 2**31 - 1
"""Above every ordinal."""

_LACKING = (
    # One statement sees one snapshot, and costs one journey instead of seven.
    "with head as (select *, (select epoch from database_epoch) as epoch,"
    "  bank = $3 and generation = $4 as follows"
    "  from banks where tenant_id = $1 and bank_id = $2),"
    " since as (select bank, case when follows then $5::bigint else -1 end as version,"
    "  greatest($8::int, case when follows then $6::int else 0 end) as ordinal from head)"
    " select 'head' as part, bank as a, version as b, generation::bigint as c,"
    "  next_ordinal::bigint as d, vector_set as name, analyser as other,"
    "  null::bytea as payload, null::uuid as id, config, epoch, attached from head"
    " union all select 'segment', s.first_ordinal, s.count, null, null, s.kind, null, s.payload,"
    "  null, null, null, null from since h join segments s on s.bank = h.bank and s.kind = any($7)"
    "  and s.first_ordinal + s.count > h.ordinal and s.first_ordinal < $9::int"
    " union all select 'tombstone', t.ordinal, t.version, null, null, null, null, null, null, null,"
    "  null, null from since h join tombstones t on t.bank = h.bank and t.version > h.version"
    "  and t.ordinal >= $8 and t.ordinal < $9"
    " union all select 'entity', e.entity_no, e.merged_into, null, null, e.canonical_name, null,"
    "  null, e.id, null, null, null from since h join entities e on e.bank = h.bank"
    "  and e.version > h.version and $10::bool"
    " union all select 'tag', t.tag_no, null, null, null, t.tag, null, null, null, null, null,"
    "  null from since h join tags t on t.bank = h.bank and t.version > h.version and $10"
)


def cut(
    kind: str, segments: Sequence[tuple[int, int, bytes]], begin: int, end: int
) -> list[tuple[int, int, bytes]]:
    """What segments (first ordinal, count, payload) hold of ordinals [begin, end): merged ones
    reach across what is held. Those that hold nothing of them are left out."""
    kept = []
    for first, count, payload in segments:
        if first >= begin and first + count <= end:
            kept.append((first, count, payload))
        elif max(first, begin) < min(first + count, end):
            rest = within(kind, SegmentPart(first, count, unpack(payload)), begin, end)
            kept.append((rest.first, rest.count, pack(rest.arrays)))
    return kept
