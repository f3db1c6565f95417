"""Ragged arrays that grow: lists per ordinal (`Csr`) and lists per key (`Inverted`).

Everything is immutable. `extended` gives the next snapshot and shares what was there: buffers are
over-allocated, an older snapshot sees the first n rows of the same memory. One thread extends a
structure at a time; any number may read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from retrieval.types import Ints, Longs

S = TypeVar("S", bound=np.generic)

_GROWTH = 1.5
_SPARE = 1.125  # room after a first load; pages never touched cost nothing
_SLACK = 16


class _Storage(Generic[S]):
    """Over-allocated memory; rows [0, used) are written and never change again."""

    __slots__ = ("data", "used")

    def __init__(self, data: NDArray[S], used: int) -> None:
        self.data = data
        self.used = used


class Column(Generic[S]):
    """An append-only array; `values` is the read-only view (n, ...) of this snapshot."""

    __slots__ = ("_storage", "values")

    def __init__(self, storage: _Storage[S], size: int) -> None:
        self._storage = storage
        self.values = storage.data[:size]
        self.values.flags.writeable = False

    @classmethod
    def empty(cls, dtype: type[S] | np.dtype[S], width: tuple[int, ...] = ()) -> Column[S]:
        return cls(_Storage(np.empty((0, *width), dtype), 0), 0)

    def __len__(self) -> int:
        return len(self.values)

    def extended(self, *blocks: NDArray[Any]) -> Column[S]:
        """These rows and then the rows of each block (m, ...), cast to this column's dtype. Cost
        O(m), amortised.

        A snapshot that was already extended is copied, so a second branch never overwrites.
        """
        size, total = len(self), len(self) + sum(len(block) for block in blocks)
        if total == size:
            return self
        storage = self._storage
        if storage.used != size or total > len(storage.data):
            room = max(int(total * (_GROWTH if size else _SPARE)), total + _SLACK)
            data = np.empty((room, *storage.data.shape[1:]), storage.data.dtype)
            data[:size] = self.values
            storage = _Storage(data, size)
        for block in blocks:
            storage.data[size : size + len(block)] = block
            size += len(block)
        storage.used = total
        return Column(storage, total)


def spans(starts: Longs, counts: Longs) -> tuple[Longs, Longs]:
    """The indices of the ranges [start, start + count), one after the other, and whose they are.

    Returns (indices, row), both int64 (sum of counts,); row i belongs to range i.
    """
    row = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    return np.arange(len(row)) + (starts - first)[row], row


@dataclass(frozen=True, slots=True)
class Csr(Generic[S]):
    """A list of values for each row 0 .. n-1, rows only ever appended.

    `ptr` int64 (n + 1,), `values` (m, ...): row i has values[ptr[i]:ptr[i + 1]].
    """

    ptr: Longs
    values: NDArray[S]
    _ptr: Column[np.int64]
    _values: Column[S]

    @classmethod
    def empty(cls, dtype: type[S] | np.dtype[S], width: tuple[int, ...] = ()) -> Csr[S]:
        ptr = Column.empty(np.int64).extended(np.zeros(1, np.int64))
        values = Column.empty(dtype, width)
        return cls(ptr.values, values.values, ptr, values)

    @classmethod
    def of(cls, counts: NDArray[Any], values: NDArray[S]) -> Csr[S]:
        """The lists with these lengths (n,), one after the other in `values`."""
        return cls.empty(values.dtype, values.shape[1:]).extended(counts, values)

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @property
    def nbytes(self) -> int:
        return self.ptr.nbytes + self.values.nbytes

    def extended(self, counts: NDArray[Any], values: NDArray[Any]) -> Csr[S]:
        """These rows, then rows of `counts` values each, taken in order from `values`."""
        if not len(counts):
            return self
        ends = np.cumsum(counts, dtype=np.int64)
        if ends[-1] != len(values):
            raise ValueError(f"{len(values)} values for rows that hold {ends[-1]}")
        ptr = self._ptr.extended(ends + self.ptr[-1])
        grown = self._values.extended(values)
        return Csr(ptr.values, grown.values, ptr, grown)

    def take(self, rows: NDArray[Any]) -> tuple[Ints, NDArray[S]]:
        """(index into `rows` int32, value) of every value of these rows, in their order."""
        starts = self.ptr[rows]
        indices, row = spans(starts, self.ptr[np.asarray(rows) + 1] - starts)
        return row.astype(np.int32), self.values[indices]

    def counts(self) -> Longs:
        """How many values each row has, int64 (n,)."""
        return np.diff(self.ptr)


@dataclass(frozen=True, slots=True)
class _Tier(Generic[S]):
    """Postings of one batch of writes: `keys` distinct, sorted; values in order of arrival."""

    keys: NDArray[Any]
    ptr: Longs
    values: NDArray[S]


def _sorted_tier(keys: NDArray[Any], values: NDArray[S]) -> _Tier[S]:
    if len(keys) > 1 and np.any(keys[1:] < keys[:-1]):
        if keys.dtype.itemsize == 4:
            # One sort of (key, position) words: stable, and several times faster than an argsort.
            words = (keys.astype(np.int64) << 32) | np.arange(len(keys))
            words.sort()
            order = words & 0xFFFFFFFF
        else:
            order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
    first = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    ptr = np.concatenate(([0], first, [len(keys)]))
    return _Tier(keys[ptr[:-1]], ptr, values)


@dataclass(frozen=True, slots=True)
class Inverted(Generic[S]):
    """Lists of values per integer key, any key may grow: a few sorted tiers, oldest first.

    A write adds a tier of its own size; neighbours of similar size are merged, so a bank has
    O(log writes) tiers and a value is moved O(log writes) times. Values of one key come in order of
    arrival.
    """

    tiers: tuple[_Tier[S], ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(t.keys.nbytes + t.ptr.nbytes + t.values.nbytes for t in self.tiers)

    def __len__(self) -> int:
        return sum(len(t.values) for t in self.tiers)

    def extended(self, keys: NDArray[Any], values: NDArray[S]) -> Inverted[S]:
        """With values[i] added at the end of keys[i]'s list; integer keys of one dtype."""
        if not len(keys):
            return self
        tiers = [*self.tiers, _sorted_tier(keys, values)]
        while len(tiers) > 1 and len(tiers[-1].values) * 2 > len(tiers[-2].values):
            newer, older = tiers.pop(), tiers.pop()
            both = [np.repeat(t.keys, np.diff(t.ptr)) for t in (older, newer)]
            merged = np.concatenate([older.values, newer.values])
            tiers.append(_sorted_tier(np.concatenate(both), merged))
        return Inverted(tuple(tiers))

    def lookup(self, keys: NDArray[Any]) -> tuple[Ints, NDArray[S]]:
        """(index into `keys` int32, value): all values of these keys.

        Ascending by index; within a key in order of arrival. Unknown keys have no rows.
        """
        rows: list[Ints] = []
        values: list[NDArray[S]] = []
        for tier in self.tiers:
            at = np.searchsorted(tier.keys, keys)
            at[at == len(tier.keys)] = 0
            known = np.flatnonzero(tier.keys[at] == keys)
            starts = tier.ptr[at[known]]
            indices, row = spans(starts, tier.ptr[at[known] + 1] - starts)
            if len(indices):
                rows.append(known[row].astype(np.int32))
                values.append(tier.values[indices])
        if len(rows) == 1:
            return rows[0], values[0]
        if not rows:
            dtype = self.tiers[0].values.dtype if self.tiers else np.dtype(np.int32)
            return np.empty(0, np.int32), np.empty(0, dtype)
        row32 = np.concatenate(rows)
        order = np.argsort(row32, kind="stable")
        return row32[order], np.concatenate(values)[order]

    def counts(self, keys: NDArray[Any]) -> Ints:
        """How many values each of these keys has, int32 (len(keys),)."""
        total = np.zeros(len(keys), np.int32)
        for tier in self.tiers:
            at = np.searchsorted(tier.keys, keys)
            at[at == len(tier.keys)] = 0
            held = tier.ptr[at + 1] - tier.ptr[at]
            total += np.where(tier.keys[at] == keys, held, 0).astype(np.int32)
        return total
