"""The columns of a bank: one row per ordinal, and which of them are alive.

All arrays are read-only views of over-allocated buffers: appending rows gives the next snapshot and
leaves older ones as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.csr import Column, Csr, Inverted
from retrieval.types import NO_TIME, Bools, FactType, Ints, Longs

Bytes: TypeAlias = NDArray[np.uint8]

_SCALARS: Mapping[str, type[np.generic]] = {
    "fact_type": np.uint8,
    "created_at": np.int64,
    "updated_at": np.int64,
    "occurred_start": np.int64,
    "occurred_end": np.int64,
    "mentioned_at": np.int64,
    "valid_from": np.int64,
    "valid_until": np.int64,
    "document": np.int32,
    "position": np.int32,
    "proof": np.int32,
    "tokens": np.int32,
    "subject": np.int32,
    "flags": np.uint8,
}
"""The columns of a `columns` segment with one number per memory."""


@dataclass(frozen=True, slots=True)
class AliveSet:
    """Who is alive: `live` (size,), and `rows[t]`, the live ordinals of type t, ascending."""

    live: Bools
    rows: tuple[Ints, ...]
    _rows: tuple[Column[np.int32], ...]

    @classmethod
    def empty(cls) -> AliveSet:
        columns = tuple(Column.empty(np.int32) for _ in FactType)
        return cls(np.zeros(0, np.bool_), tuple(c.values for c in columns), columns)

    @property
    def size(self) -> int:
        return len(self.live)

    @property
    def nbytes(self) -> int:
        return self.live.nbytes + sum(r.nbytes for r in self.rows)

    def between(self, first: int, end: int) -> AliveSet:
        """The ordinals first .. end - 1 as a population of their own, counted from 0."""
        columns = []
        for rows in self.rows:
            inside = slice(*np.searchsorted(rows, (first, end)))
            columns.append(Column.empty(np.int32).extended(rows[inside] - np.int32(first)))
        views = tuple(c.values for c in columns)
        return AliveSet(self.live[first:end], views, tuple(columns))

    def extended(self, types: Bytes, dead: Ints) -> AliveSet:
        """With rows of these types added, then the ordinals `dead` (old or new) taken out."""
        live = np.concatenate([self.live, np.ones(len(types), np.bool_)])
        gone = dead[live[dead]]
        live[gone] = False
        live.flags.writeable = False
        columns = []
        for fact_type, column in zip(FactType, self._rows, strict=True):
            grown = column
            if len(gone) and not live[column.values].all():
                grown = Column.empty(np.int32).extended(column.values[live[column.values]])
            new = np.flatnonzero((types == fact_type) & live[self.size :]) + self.size
            columns.append(grown.extended(new))
        return AliveSet(live, tuple(c.values for c in columns), tuple(columns))


@dataclass(frozen=True, slots=True)
class Columns:
    """What is known of each memory, by ordinal (n,), dead ones included.

    Times are int64 µs UTC or NO_TIME; `timed` int32 lists the ordinals, ascending, of which it is
    known from when or until when they hold. `document` and `proof` are -1 where there is none.
    `event_date` is occurred_start, else mentioned_at. `subject` is the entity number that a memory
    is about as written (`ResidentBank.subject` follows merges), -1 none. `tags` lists tag numbers.
    `sources` lists the live ordinals of an observation's source memories: a source that is gone is
    left out, one that was changed is listed with its newest ordinal.
    """

    id: Bytes
    fact_type: Bytes
    created_at: Longs
    updated_at: Longs
    occurred_start: Longs
    occurred_end: Longs
    mentioned_at: Longs
    valid_from: Longs
    valid_until: Longs
    event_date: Longs
    document: Ints
    position: Ints
    proof: Ints
    tokens: Ints
    subject: Ints
    flags: Bytes
    tags: Csr[np.int32]
    sources: Csr[np.int32]
    timed: Ints
    _grown: Mapping[str, Column[Any]]
    _by_id: Inverted[np.int32]
    _source_ids: Csr[np.uint8]
    _source_ordinals: Ints

    @classmethod
    def empty(cls) -> Columns:
        grown: dict[str, Column[Any]] = {"id": Column.empty(np.uint8, (16,))}
        grown |= {name: Column.empty(dtype) for name, dtype in _SCALARS.items()}
        grown["event_date"] = Column.empty(np.int64)
        return cls(
            **{name: column.values for name, column in grown.items()},
            tags=Csr.empty(np.int32),
            sources=Csr.empty(np.int32),
            timed=np.empty(0, np.int32),
            _grown=grown,
            _by_id=Inverted(),
            _source_ids=Csr.empty(np.uint8, (16,)),
            _source_ordinals=np.empty(0, np.int32),
        )

    def __len__(self) -> int:
        return len(self.fact_type)

    @property
    def nbytes(self) -> int:
        scalars = sum(c.values.nbytes for c in self._grown.values())
        ragged = self.tags.nbytes + self.sources.nbytes + self._source_ids.nbytes
        return scalars + ragged + self._source_ordinals.nbytes + self._by_id.nbytes

    def extended(self, arrays: Mapping[str, NDArray[Any]], live: Bools) -> Columns:
        """With the rows of a `columns` segment added; `live` covers old and new rows."""
        new = dict(arrays)
        known = new["occurred_start"] != NO_TIME
        new["event_date"] = np.where(known, new["occurred_start"], new["mentioned_at"])
        grown = {name: column.extended(new[name]) for name, column in self._grown.items()}
        ordinals = np.arange(len(self), len(self) + len(new["id"]), dtype=np.int32)
        by_id = self._by_id.extended(_hashed(new["id"]), ordinals)
        source_ids = self._source_ids.extended(np.diff(new["source_ptr"]), new["source"])
        ids = cast(Bytes, grown["id"].values)
        resolved = _resolved(source_ids.values, self._source_ordinals, by_id, ids, live)
        return Columns(
            **{name: column.values for name, column in grown.items()},
            tags=self.tags.extended(np.diff(new["tag_ptr"]), new["tag"]),
            sources=_without_dead(source_ids, resolved),
            timed=np.concatenate([self.timed, ordinals[_timed(new)]]),
            _grown=grown,
            _by_id=by_id,
            _source_ids=source_ids,
            _source_ordinals=resolved,
        )

    def without_dead(self, live: Bools) -> Columns:
        """The same rows where only `live` ones remain: observations lose sources that are gone."""
        resolved = _resolved(
            self._source_ids.values, self._source_ordinals, self._by_id, self.id, live
        )
        sources = _without_dead(self._source_ids, resolved)
        return replace(self, sources=sources, _source_ordinals=resolved)

    def ordinal_of(self, ids: Bytes, live: Bools) -> Ints:
        """The live ordinal of each id, u1 (m, 16) -> int32 (m,); -1 where unknown or dead."""
        return _ordinals(ids, self._by_id, self.id, live)


def _timed(new: Mapping[str, NDArray[Any]]) -> Bools:
    known: Bools = (new["valid_from"] != NO_TIME) | (new["valid_until"] != NO_TIME)
    return known


def _hashed(ids: Bytes) -> Longs:
    """A 64-bit word for each 16-byte id: both halves count, as random and as counted ids come."""
    halves = np.ascontiguousarray(ids).view(np.uint64).reshape(-1, 2)
    # Odd constants of xxHash64 and of the golden ratio; products wrap.
    mixed = halves[:, 0] * np.uint64(0x9E3779B97F4A7C15)
    mixed += halves[:, 1] * np.uint64(0xC2B2AE3D27D4EB4F)
    return cast(Longs, mixed.view(np.int64))


def _ordinals(ids: Bytes, by_id: Inverted[np.int32], known: Bytes, live: Bools) -> Ints:
    found = np.full(len(ids), -1, np.int32)
    row, ordinal = by_id.lookup(_hashed(ids))
    same = live[ordinal] & (known[ordinal] == ids[row]).all(axis=1)
    found[row[same]] = ordinal[same]
    return found


def _resolved(
    ids: Bytes, before: Ints, by_id: Inverted[np.int32], known: Bytes, live: Bools
) -> Ints:
    """The ordinal of each source id; those resolved before are looked up again only when dead."""
    if not len(ids):
        return before
    ordinals = np.full(len(ids), -1, np.int32)
    ordinals[: len(before)] = before
    stale = np.flatnonzero((ordinals < 0) | ~live[ordinals])
    ordinals[stale] = _ordinals(ids[stale], by_id, known, live)
    ordinals.flags.writeable = False
    return ordinals


def _without_dead(ids: Csr[np.uint8], ordinals: Ints) -> Csr[np.int32]:
    if not len(ordinals):
        return Csr.empty(np.int32).extended(ids.counts(), ordinals)
    known = ordinals >= 0
    running = np.concatenate(([0], np.cumsum(known)))
    return Csr.of(running[ids.ptr[1:]] - running[ids.ptr[:-1]], ordinals[known])
