"""Segments in the database: what replicas load, and their upkeep.

A write appends one segment per kind, replicas read them (`retrieval.store.segments.delta`). In the
background `merge` joins small neighbours (nothing a reader sees changes) and `compact` gives
new ordinals once many are dead (the bank's generation rises, replicas load it afresh).
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from retrieval.store import banks, mental_models
from retrieval.store.database.pool import Connection, Pool, write
from retrieval.store.heads import BankHead
from retrieval.store.segments.format import pack, unpack
from retrieval.store.segments.merge import SegmentPart, join, take
from retrieval.types import Floats, Ints

MERGE_FAN = 6
"""So many neighbours of about one size are joined into one: each row is copied O(log n) times."""

_SMALL_BYTES = 64 << 10

MERGE_LIMIT_BYTES = 16 << 20
"""Segments do not grow beyond this: a reader fetches one whole. Buffers of this size are used again
by the C library, larger ones (above 32 MiB) are new memory each time: loads of 50,000 x 384 took a
third less time than with segments of 30 MB."""

COMPACT_SHARE = 0.3
"""Share of dead ordinals from which on `compact` is worth its reload."""

COMPACT_LEAST = 1000
"""Dead ordinals below which it never is."""


async def append(
    connection: Connection,
    bank: int,
    kind: str,
    first_ordinal: int,
    count: int,
    version: int,
    payload: bytes,
) -> None:
    """Adds a segment; part of the write that locked the bank's row."""
    await connection.execute(
        "insert into segments (bank, kind, first_ordinal, count, version, payload)"
        " values ($1, $2, $3, $4, $5, $6)",
        bank,
        kind,
        first_ordinal,
        count,
        version,
        payload,
    )


async def vectors(connection: Connection, bank: int, vector_set: str, ordinals: Ints) -> Floats:
    """The stored vectors of `ordinals`, float32 (n, dimension), in their order.

    Reads only the bytes it needs. KeyError if an ordinal has no vector in this set.
    """
    kind = f"vectors:{vector_set}"
    heads = await connection.fetch(
        "select first_ordinal, count, substr(payload, 1, 256) as head from segments"
        " where bank = $1 and kind = $2 order by first_ordinal",
        bank,
        kind,
    )
    firsts = np.array([row["first_ordinal"] for row in heads], np.int64)
    at = np.searchsorted(firsts, ordinals, side="right") - 1
    if len(ordinals) and (not len(firsts) or at.min() < 0):
        raise KeyError(f"ordinals without a vector in {vector_set}")
    places = [_place(row["head"]) for row in heads]
    starts, lengths = [], []
    for ordinal, index in zip(ordinals.tolist(), at.tolist(), strict=True):
        offset, width = places[index]
        local = ordinal - int(firsts[index])
        if local >= heads[index]["count"]:
            raise KeyError(f"ordinal {ordinal} has no vector in {vector_set}")
        starts.append(1 + offset + local * width)
        lengths.append(width)
    rows = await connection.fetch(
        "select substr(s.payload, w.start, w.length) as row"
        " from unnest($3::int[], $4::int[], $5::int[]) with ordinality"
        "  as w(first, start, length, place)"
        " join segments s on s.bank = $1 and s.kind = $2 and s.first_ordinal = w.first"
        " order by w.place",
        bank,
        kind,
        firsts[at].tolist(),
        starts,
        lengths,
    )
    joined = np.frombuffer(b"".join(row["row"] for row in rows), "<f4")
    return joined.reshape(len(ordinals), -1) if len(ordinals) else np.empty((0, 0), np.float32)


def _place(head: bytes) -> tuple[int, int]:
    """(offset of the first vector, bytes of a vector) in a vectors segment, from its header."""
    (length,) = struct.unpack("<I", head[4:8])
    _, (_, dimension), offset = orjson.loads(head[8 : 8 + length])["vectors"]
    return -(-(8 + length) // 64) * 64 + offset, 4 * dimension


# Upkeep


async def merge(pool: Pool, bank: int) -> int:
    """Joins runs of small neighbours until there are none; returns how many segments went.

    One at a time per bank (a second call returns 0); never waits for or stops a writer.
    """
    gone = 0
    while step := await write(pool, lambda connection: _merge_step(connection, bank)):
        gone += step
    return gone


async def _merge_step(connection: Connection, bank: int) -> int:
    if not await connection.fetchval("select pg_try_advisory_xact_lock(4, $1::int)", _slot(bank)):
        return 0
    rows = await connection.fetch(
        "select kind, first_ordinal, count, version, octet_length(payload) as size"
        " from segments where bank = $1 order by kind, first_ordinal",
        bank,
    )
    run = _run(rows)
    if not run:
        return 0
    kind, firsts = run[0]["kind"], [row["first_ordinal"] for row in run]
    payloads = await connection.fetch(
        "delete from segments where bank = $1 and kind = $2 and first_ordinal = any($3)"
        " returning first_ordinal, count, payload",
        bank,
        kind,
        firsts,
    )
    parts = sorted(
        (
            SegmentPart(row["first_ordinal"], row["count"], unpack(row["payload"]))
            for row in payloads
        ),
        key=lambda part: part.first,
    )
    if not parts:  # the bank went away
        return 0
    joined = await asyncio.to_thread(join, kind, parts)
    await append(
        connection,
        bank,
        kind,
        joined.first,
        joined.count,
        max(row["version"] for row in run),
        await asyncio.to_thread(pack, joined.arrays),
    )
    return len(parts) - 1


def _run(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """A run of neighbours to join: >= MERGE_FAN of one size class, smaller ones between them."""
    tiers = [_tier(row["size"]) for row in rows]
    for tier in sorted(set(tiers)):
        start = 0
        while start < len(rows):
            end = start
            size = 0
            while (
                end < len(rows)
                and rows[end]["kind"] == rows[start]["kind"]
                and (end == start or _adjacent(rows[end - 1], rows[end]))
                and tiers[end] <= tier
                and size + rows[end]["size"] <= MERGE_LIMIT_BYTES
            ):
                size += rows[end]["size"]
                end += 1
            if tiers[start:end].count(tier) >= MERGE_FAN:
                return rows[start:end]
            start = max(end, start + 1)
    return ()


def _adjacent(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Links have no rows for most ordinals; a family that is being rebuilt has gaps."""
    whole = left["first_ordinal"] + left["count"] == right["first_ordinal"]
    return bool(whole or left["kind"] == "links")


def _tier(size: int) -> int:
    """Size class: up to 64 KiB, then by factors of MERGE_FAN."""
    return max(0, math.ceil(math.log(max(size, 1) / _SMALL_BYTES, MERGE_FAN)))


def _slot(bank: int) -> int:
    return bank % (1 << 31)


async def compact(pool: Pool, tenant: str, bank_id: str, *, force: bool = False) -> int:
    """Reassigns ordinals where many are dead; returns how many went.

    Holds the bank's row while it works: writers wait, readers do not. Ordinals keep their order.
    """

    async def work(connection: Connection) -> int:
        held = await banks.lock(connection, tenant, bank_id)
        live = await connection.fetch(
            "select ordinal from memory_units where bank = $1 and ordinal is not null"
            " order by ordinal",
            held.bank,
        )
        dead = held.next_ordinal - len(live)
        due = dead >= COMPACT_LEAST and dead > COMPACT_SHARE * held.next_ordinal
        if force and not dead:
            await _prune_tags(connection, held.bank)
            await connection.execute(
                "update banks set erase_since = null where bank = $1", held.bank
            )
        if not dead or not (due or force):
            return 0
        await connection.execute("select pg_advisory_xact_lock(4, $1::int)", _slot(held.bank))
        renumber = np.full(held.next_ordinal, -1, np.int32)
        renumber[[row[0] for row in live]] = np.arange(len(live), dtype=np.int32)
        await _renumber_segments(connection, held, renumber)
        await mental_models.renumber(connection, held.bank)
        await connection.execute(
            # Two steps, because the uniqueness of (bank, ordinal) is checked row by row.
            "update memory_units set ordinal = -1 - ordinal"
            " where bank = $1 and ordinal is not null",
            held.bank,
        )
        await connection.execute(
            "update memory_units m set ordinal = fresh.place - 1 from ("
            "  select ordinal, row_number() over (order by ordinal desc) as place"
            "  from memory_units where bank = $1 and ordinal is not null) fresh"
            " where m.bank = $1 and m.ordinal = fresh.ordinal",
            held.bank,
        )
        await connection.execute("delete from tombstones where bank = $1", held.bank)
        await _prune_tags(connection, held.bank)
        await connection.execute(
            "update banks set generation = generation + 1, version = version + 1,"
            " next_ordinal = $2, erase_since = null, updated_at = now() where bank = $1",
            held.bank,
            len(live),
        )
        return dead

    return await write(pool, work)


async def _prune_tags(connection: Connection, bank: int) -> None:
    """Forgets tags that no memory has any more."""
    await connection.execute(
        "delete from tags where bank = $1 and tag not in"
        " (select unnest(tags) from memory_units where bank = $1)",
        bank,
    )


async def _renumber_segments(connection: Connection, held: BankHead, renumber: Ints) -> None:
    kinds = await connection.fetch(
        "select distinct kind from segments where bank = $1 order by kind", held.bank
    )
    for (kind,) in kinds:
        rows = await connection.fetch(
            "delete from segments where bank = $1 and kind = $2"
            " returning first_ordinal, count, version, payload",
            held.bank,
            kind,
        )
        parts = sorted(
            (
                SegmentPart(row["first_ordinal"], row["count"], unpack(row["payload"]))
                for row in rows
            ),
            key=lambda part: part.first,
        )
        for part in parts:
            kept = await asyncio.to_thread(take, kind, part, renumber)
            if kept.count and not (kind == "links" and not len(kept.arrays["source"])):
                await append(
                    connection, held.bank, kind, kept.first, kept.count, held.version + 1,
                    pack(kept.arrays),
                )  # fmt: skip
