"""Orders over the live memories of a bank that follow from its columns: by time, by document."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retrieval.bank.columns import Bytes, Columns, Population
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


@dataclass(frozen=True, slots=True)
class Timeline:
    """Live memories by event date, one order per fact type; memories without a date are left out.

    `position` int32 (size,): where an ordinal stands in the order of its type, -1 nowhere.
    """

    orders: tuple[Sorted, ...]
    position: Ints
    fact_type: Bytes

    @classmethod
    def empty(cls) -> Timeline:
        none = np.empty(0, np.int32)
        return cls(tuple(Sorted.empty() for _ in FactType), none, none.astype(np.uint8))

    @property
    def nbytes(self) -> int:
        return self.position.nbytes + sum(o.nbytes for o in self.orders)

    def extended(self, columns: Columns, population: Population) -> Timeline:
        """The timeline of all rows of `columns`; rows from `len(self.position)` on are new."""
        first = len(self.position)
        dates, types = columns.event_date[first:], columns.fact_type[first:]
        dated = (dates != NO_TIME) & population.live[first:]
        position = np.full(len(columns), -1, np.int32)
        orders = []
        for fact_type, held in zip(FactType, self.orders, strict=True):
            new = np.flatnonzero(dated & (types == fact_type))
            order = held.extended(dates[new], (new + first).astype(np.int32), population.live)
            position[order.ordinals] = np.arange(len(order.ordinals), dtype=np.int32)
            orders.append(order)
        position.flags.writeable = False
        return Timeline(tuple(orders), position, columns.fact_type)

    def neighbours(self, ordinals: Ints, limit: int) -> LinkRows:
        """TEMPORAL edges from each of `ordinals` to what is close in time and of the same type.

        The up to `limit` live memories nearest in event date and at most 24 h away, from the
        `limit` before and the `limit` after; rows ascending, nearest first, the earlier first
        where equally near. Weight max(0.3, 1 - hours / 24).
        """
        steps = np.concatenate([-np.arange(1, limit + 1), np.arange(1, limit + 1)])
        rows, targets, gaps = [], [], []
        for fact_type, order in zip(FactType, self.orders, strict=True):
            asked = np.flatnonzero(
                (self.fact_type[ordinals] == fact_type) & (self.position[ordinals] >= 0)
            )
            if not len(asked):
                continue
            own = self.position[ordinals[asked]]
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
class Sequence:
    """What stands before and after a memory in its document, int32 (size,), -1 nothing."""

    previous: Ints
    next: Ints
    _order: Sorted

    @classmethod
    def empty(cls) -> Sequence:
        none = np.empty(0, np.int32)
        return cls(none, none, Sorted.empty())

    @property
    def nbytes(self) -> int:
        return self.previous.nbytes + self.next.nbytes + self._order.nbytes

    def extended(self, columns: Columns, population: Population) -> Sequence:
        """The sequences of all rows of `columns`; rows from `len(self.previous)` on are new."""
        first = len(self.previous)
        document = columns.document[first:]
        new = np.flatnonzero((document >= 0) & population.live[first:])
        place = columns.position[first:][new].astype(np.int64) + (1 << 31)
        keys = (document[new].astype(np.int64) << 32) + place
        order = self._order.extended(keys, (new + first).astype(np.int32), population.live)
        previous = np.full(len(columns), -1, np.int32)
        following = np.full(len(columns), -1, np.int32)
        documents = order.keys >> 32
        same = documents[1:] == documents[:-1]
        previous[order.ordinals[1:][same]] = order.ordinals[:-1][same]
        following[order.ordinals[:-1][same]] = order.ordinals[1:][same]
        previous.flags.writeable = following.flags.writeable = False
        return Sequence(previous, following, order)
