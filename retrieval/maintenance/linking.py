"""Semantic links for memories that had nothing to be compared with when they were written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.ingest.write import links
from retrieval.ingest.write.links import Edges
from retrieval.settings import RetainSettings
from retrieval.store.database.pool import Connection
from retrieval.store.heads import BankHead
from retrieval.store.segments import table as segments
from retrieval.store.segments.format import pack, unpack
from retrieval.store.segments.merge import SegmentPart, join
from retrieval.types import Bools, Floats, Ints, LinkType

_BLOCK = 4096


async def link(
    connection: Connection,
    held: BankHead,
    kind: str,
    spans: Sequence[tuple[int, int]],
    settings: RetainSettings,
) -> int:
    """Links the live memories of `spans` to the most similar older ones of their type, by the
    vectors of `kind`, as a write would have; returns how many links that made.

    The caller holds the bank's lock, and replicas reload the bank after it. Reads the whole
    vector set where there is a memory to link, else nothing.
    """
    if not spans:
        return 0
    types = np.full(held.next_ordinal, -1, np.int16)
    rows = await connection.fetch(
        "select ordinal, fact_type from memory_units where bank = $1 and ordinal is not null",
        held.bank,
    )
    for ordinal, fact_type in rows:
        types[ordinal] = fact_type
    chosen = np.zeros(held.next_ordinal, np.bool_)
    for first, end in spans:
        chosen[first:end] = True
    new = np.flatnonzero(chosen & (types >= 0)).astype(np.int32)
    if not len(new):
        return 0
    vectors = await segments.vectors(connection, held.bank, kind.partition(":")[2], new)
    best = Best(vectors, new, types, settings.semantic_link_top_k)
    firsts = await connection.fetch(
        "select first_ordinal from segments where bank = $1 and kind = $2 order by first_ordinal",
        held.bank,
        kind,
    )
    for (first,) in firsts:
        payload = await connection.fetchval(
            "select payload from segments where bank = $1 and kind = $2 and first_ordinal = $3",
            held.bank,
            kind,
            first,
        )
        await asyncio.to_thread(best.see, first, unpack(payload)["vectors"])
    edges = best.edges(settings.semantic_link_min_similarity)
    await _add(connection, held, edges)
    return len(edges)


class Best:
    """The k most similar older memories of the same type of each new one, over blocks of a set.

    vectors float32 (m, d) of the ordinals `new`, ascending; types over ordinals, -1 for dead ones.
    """

    def __init__(self, vectors: Floats, new: Ints, types: NDArray[np.int16], k: int) -> None:
        self._vectors = vectors
        self._new = new
        self._types = types
        self._k = k
        self._similarity = np.full((len(new), k), -np.inf, np.float32)
        self._ordinal = np.full((len(new), k), -1, np.int32)

    def see(self, first: int, vectors: Floats) -> None:
        """Takes in the vectors of the ordinals from `first` on."""
        for start in range(0, len(vectors), _BLOCK):
            block = vectors[start : start + _BLOCK]
            self._see(np.arange(first + start, first + start + len(block), dtype=np.int32), block)

    def _see(self, ordinals: Ints, vectors: Floats) -> None:
        open_: Bools = (ordinals[None, :] < self._new[:, None]) & (
            self._types[ordinals][None, :] == self._types[self._new][:, None]
        )
        similarity = np.where(open_, self._vectors @ vectors.T, np.float32(-np.inf))
        every = np.concatenate([self._similarity, similarity], axis=1)
        named = np.concatenate([self._ordinal, np.broadcast_to(ordinals, similarity.shape)], axis=1)
        kept = np.argpartition(-every, self._k - 1, axis=1)[:, : self._k]
        self._similarity = np.take_along_axis(every, kept, 1)
        self._ordinal = np.take_along_axis(named, kept, 1)

    def edges(self, floor: float) -> Edges:
        row, place = np.nonzero(self._similarity >= np.float32(floor))
        return links.edges(
            self._new[row],
            self._ordinal[row, place],
            LinkType.SEMANTIC,
            self._similarity[row, place],
        )


async def _add(connection: Connection, held: BankHead, edges: Edges) -> None:
    """Puts edges into the links segments: all from the first new end on become one segment."""
    if not len(edges):
        return
    at = int(edges.source.min())
    rows = await connection.fetch(
        "delete from segments where bank = $1 and kind = 'links' and first_ordinal + count > $2"
        " returning first_ordinal, count, payload",
        held.bank,
        at,
    )
    parts = [
        SegmentPart(row["first_ordinal"], row["count"], unpack(row["payload"])) for row in rows
    ]
    added: dict[str, NDArray[Any]] = {
        "source": edges.source,
        "target": edges.target,
        "type": edges.type,
        "weight": edges.weight,
    }
    first = min([at, *(part.first for part in parts)])
    joined = join("links", [*parts, SegmentPart(at, held.next_ordinal - at, added)])
    payload = await asyncio.to_thread(pack, joined.arrays)
    await segments.append(
        connection, held.bank, "links", first, held.next_ordinal - first, held.version, payload
    )
