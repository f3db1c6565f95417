"""Orders over the live memories of a bank that follow from its columns: by time, by document."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.columns import AliveSet, Bytes, Columns
from retrieval.bank.csr import spans
from retrieval.bank.links import OUTGOING, LinkRows, no_links
from retrieval.types import NO_TIME, Bools, FactType, Ints, LinkType, Longs

_HOUR = 3_600_000_000
_DAY = 24 * _HOUR


@dataclass(frozen=True, slots=True)
class Sorted:
    """Ordinals in the order of int64 keys, equal keys by ordinal."""

    keys: Longs
    ordinals: Ints

    @classmethod
    def empty(cls) -> Sorted:
        return cls(np.empty(0, np.int64), np.empty(0, np.int32))

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.ordinals.nbytes

    def extended(self, keys: Longs, ordinals: Ints, live: Bools) -> Sorted:
        """Without the dead, with these added; `ordinals` ascend and are above all present ones."""
        held = self
        alive = live[self.ordinals]
        if not alive.all():
            held = Sorted(self.keys[alive], self.ordinals[alive])
        if not len(keys):
            return held
        order = np.argsort(keys, kind="stable")
        keys, ordinals = keys[order], ordinals[order]
        if not len(held.keys):
            return Sorted(keys, ordinals)
        at = np.searchsorted(held.keys, keys, side="right")
        return Sorted(np.insert(held.keys, at, keys), np.insert(held.ordinals, at, ordinals))

    def places(self, keys: Longs, ordinals: Ints) -> NDArray[np.int64]:
        """Where each (key, ordinal) stands, int64; -1 where it does not."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        low = np.searchsorted(self.keys, keys, side="left")
        high = np.searchsorted(self.keys, keys, side="right")
        while np.any(low < high):  # among equal keys, by ordinal
            middle = (low + high) // 2
            below = (low < high) & (self.ordinals[np.minimum(middle, high - 1)] < ordinals)
            low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
        at = np.minimum(low, len(self.keys) - 1)
        found = (self.keys[at] == keys) & (self.ordinals[at] == ordinals)
        return np.where(found, at, -1)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Live memories by event date, one order per fact type; those without a date are left out."""

    orders: tuple[Sorted, ...]
    fact_type: Bytes
    event_date: Longs

    @classmethod
    def empty(cls) -> Timeline:
        nothing = Sorted.empty()
        return cls(tuple(nothing for _ in FactType), np.empty(0, np.uint8), nothing.keys)

    @property
    def nbytes(self) -> int:
        return sum(o.nbytes for o in self.orders)

    def extended(self, columns: Columns, population: AliveSet) -> Timeline:
        """The timeline of all rows of `columns`; those beyond the present ones are new."""
        first = len(self.fact_type)
        dates, types = columns.event_date[first:], columns.fact_type[first:]
        dated = (dates != NO_TIME) & population.live[first:]
        orders = []
        for fact_type, held in zip(FactType, self.orders, strict=True):
            new = np.flatnonzero(dated & (types == fact_type))
            ordinals = (new + first).astype(np.int32)
            orders.append(held.extended(dates[new], ordinals, population.live))
        return Timeline(tuple(orders), columns.fact_type, columns.event_date)

    def neighbours(self, ordinals: Ints, limit: int) -> LinkRows:
        """TEMPORAL edges from each of `ordinals` to what is close in time and of the same type.

        The up to `limit` live memories nearest in event date and at most 24 h away, from the
        `limit` before and the `limit` after; rows ascending, nearest first, the earlier first
        where equally near. Weight max(0.3, 1 - hours / 24).
        """
        steps = np.concatenate([-np.arange(1, limit + 1), np.arange(1, limit + 1)])
        rows, targets, gaps = [], [], []
        for fact_type, order in zip(FactType, self.orders, strict=True):
            asked = np.flatnonzero(self.fact_type[ordinals] == fact_type)
            own = order.places(self.event_date[ordinals[asked]], ordinals[asked])
            asked, own = asked[own >= 0], own[own >= 0]
            if not len(asked):
                continue
            near = own[:, None] + steps
            inside = (near >= 0) & (near < len(order.keys))
            near[~inside] = 0
            gap = np.abs(order.keys[near] - order.keys[own][:, None])
            gap[~inside] = _DAY + 1
            best = np.argsort(gap, axis=1, kind="stable")[:, :limit]
            gap = np.take_along_axis(gap, best, axis=1)
            kept, column = np.nonzero(gap <= _DAY)
            rows.append(asked[kept])
            targets.append(order.ordinals[near[kept, best[kept, column]]])
            gaps.append(gap[kept, column])
        if not rows:
            return no_links()
        row, target, gap = np.concatenate(rows), np.concatenate(targets), np.concatenate(gaps)
        by_row = np.argsort(row, kind="stable")
        weight = np.maximum(0.3, 1.0 - gap[by_row] / _DAY)
        return LinkRows(
            row[by_row].astype(np.int32),
            target[by_row],
            np.full(len(row), LinkType.TEMPORAL, np.uint8),
            weight.astype(np.float32),
            np.full(len(row), OUTGOING, np.int8),
        )


@dataclass(frozen=True, slots=True)
class DocumentSequence:
    """What stands before and after a memory in its document, int32 (size,), -1 nothing."""

    previous: Ints
    next: Ints
    _order: Sorted

    @classmethod
    def empty(cls) -> DocumentSequence:
        none = np.empty(0, np.int32)
        return cls(none, none, Sorted.empty())

    @property
    def nbytes(self) -> int:
        return self.previous.nbytes + self.next.nbytes + self._order.nbytes

    def extended(self, columns: Columns, population: AliveSet) -> DocumentSequence:
        """The sequences of all rows of `columns`; rows from `len(self.previous)` on are new."""
        first, fresh = len(self.previous), len(columns) - len(self.previous)
        document = columns.document[first:]
        new = np.flatnonzero((document >= 0) & population.live[first:])
        place = columns.position[first:][new].astype(np.int64) + (1 << 31)
        keys = (document[new].astype(np.int64) << 32) + place
        order = self._order.extended(keys, (new + first).astype(np.int32), population.live)
        gone = self._order.ordinals[~population.live[self._order.ordinals]]

        # Only documents that changed are chained again.
        changed = np.unique(np.concatenate([document[new], columns.document[gone]]))
        starts = np.searchsorted(order.keys, changed.astype(np.int64) << 32)
        ends = np.searchsorted(order.keys, (changed.astype(np.int64) + 1) << 32)
        rows, owner = spans(starts, ends - starts)
        chain = order.ordinals[rows]
        same = owner[1:] == owner[:-1]
        nothing = np.full(fresh, -1, np.int32)
        previous = np.concatenate([self.previous, nothing])
        following = np.concatenate([self.next, nothing])
        for ends_here in (chain, gone):
            previous[ends_here] = following[ends_here] = -1
        previous[chain[1:][same]] = chain[:-1][same]
        following[chain[:-1][same]] = chain[1:][same]
        previous.flags.writeable = following.flags.writeable = False
        return DocumentSequence(previous, following, order)
