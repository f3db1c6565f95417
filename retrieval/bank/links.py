"""Stored links between memories, read in both directions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.columns import Bytes
from retrieval.bank.csr import Column, Inverted
from retrieval.types import Bools, Floats, Ints, LinkType

OUTGOING = 1
INCOMING = -1


@dataclass(frozen=True, slots=True)
class LinkRows:
    """Edges at some memories. All (m,): `row` int32 index into the ordinals asked for, `target`
    int32 ordinal at the other end, `type` u1 LinkType, `weight` f4, `direction` i1: OUTGOING where
    the asked memory is the edge's source, INCOMING where it is its target.
    """

    row: Ints
    target: Ints
    type: Bytes
    weight: Floats
    direction: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.row)


def no_links() -> LinkRows:
    none = np.empty(0, np.int32)
    return LinkRows(
        none, none, none.astype(np.uint8), none.astype(np.float32), none.astype(np.int8)
    )


@dataclass(frozen=True, slots=True)
class _Edges:
    source: Column[np.int32]
    target: Column[np.int32]
    type: Column[np.uint8]
    weight: Column[np.float32]


@dataclass(frozen=True, slots=True)
class Links:
    """All stored links of a bank as edge columns (m,), and which edges leave and reach an ordinal.

    `live` is the bank's: links to dead memories stay in the columns and are left out of answers.
    """

    live: Bools
    _edges: _Edges
    _leaving: Inverted[np.int32]
    _reaching: Inverted[np.int32]

    @classmethod
    def empty(cls) -> Links:
        edges = _Edges(
            Column.empty(np.int32),
            Column.empty(np.int32),
            Column.empty(np.uint8),
            Column.empty(np.float32),
        )
        return cls(np.empty(0, np.bool_), edges, Inverted(), Inverted())

    @property
    def source(self) -> Ints:
        return self._edges.source.values

    @property
    def target(self) -> Ints:
        return self._edges.target.values

    @property
    def type(self) -> Bytes:
        return self._edges.type.values

    @property
    def weight(self) -> Floats:
        return self._edges.weight.values

    @property
    def nbytes(self) -> int:
        columns = self.source.nbytes + self.target.nbytes + self.type.nbytes + self.weight.nbytes
        return columns + self._leaving.nbytes + self._reaching.nbytes

    def extended(
        self, source: Ints, target: Ints, type: Bytes, weight: Floats, live: Bools
    ) -> Links:
        """With these edges added; `live` is the bank's newest."""
        first = len(self.source)
        numbers = np.arange(first, first + len(source), dtype=np.int32)
        edges = _Edges(
            self._edges.source.extended(source),
            self._edges.target.extended(target),
            self._edges.type.extended(type),
            self._edges.weight.extended(weight),
        )
        leaving = self._leaving.extended(source, numbers)
        return Links(live, edges, leaving, self._reaching.extended(target, numbers))

    def neighbours(self, ordinals: Ints, types: Iterable[LinkType]) -> LinkRows:
        """Links of these types at these memories, to live ones, both directions.

        Rows ascending; within a row outgoing before incoming, each in order of writing.
        """
        if not len(self.source):
            return no_links()
        wanted = np.zeros(256, np.bool_)
        wanted[[int(t) for t in types]] = True
        parts = []
        for ends, index, direction in (
            (self.target, self._leaving, OUTGOING),
            (self.source, self._reaching, INCOMING),
        ):
            row, edge = index.lookup(ordinals)
            end = ends[edge]
            kept = wanted[self.type[edge]] & self.live[end]
            parts.append((row[kept], end[kept], edge[kept], np.full(kept.sum(), direction, "i1")))
        row, end, edge, direction_of = (np.concatenate(p) for p in zip(*parts, strict=True))
        order = np.argsort(row, kind="stable")
        edge = edge[order]
        return LinkRows(
            row[order], end[order], self.type[edge], self.weight[edge], direction_of[order]
        )

    def counts(self) -> dict[LinkType, int]:
        """How many stored links of each type have two live ends."""
        alive = self.live[self.source] & self.live[self.target]
        held = np.bincount(self.type[alive], minlength=len(LinkType))
        return {t: int(held[t]) for t in LinkType}
