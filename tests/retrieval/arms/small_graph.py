"""A bank's adjacency from plain lists, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.types import Floats, Ints, LinkType


@dataclass(frozen=True, slots=True)
class Rows:
    row: Ints
    target: Ints
    type: NDArray[np.uint8]
    weight: Floats
    direction: NDArray[np.int8]


class _Lists:
    """Ragged int32 rows."""

    def __init__(self, rows: Sequence[Iterable[int]]) -> None:
        lists = [list(r) for r in rows]
        self.ptr = np.cumsum([0, *map(len, lists)])
        self.values = np.array([v for r in lists for v in r], np.int32)

    def take(self, rows: Ints) -> tuple[Ints, Ints]:
        sizes = self.ptr[rows + 1] - self.ptr[rows]
        index = np.repeat(np.arange(len(rows), dtype=np.int32), sizes)
        inside = np.arange(len(index)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return index, self.values[self.ptr[rows][index] + inside]

    def inverted(self, keys: int) -> _Lists:
        owner = np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))
        order = np.argsort(self.values, kind="stable")
        held = _Lists([])
        held.values = owner[order].astype(np.int32)
        held.ptr = np.searchsorted(self.values[order], np.arange(keys + 1))
        return held


class SmallGraph:
    """mentions: names per memory, the first is what the memory is about; links: (source, target,
    type, weight); documents: one per memory, in order of position; sources: of observations."""

    def __init__(
        self,
        mentions: Sequence[Sequence[str]],
        *,
        links: Sequence[tuple[int, int, LinkType, float]] = (),
        documents: Sequence[str | None] | None = None,
        sources: dict[int, Sequence[int]] | None = None,
    ) -> None:
        self.size = len(mentions)
        self.names: dict[str, int] = {}
        held = [
            [self.names.setdefault(n, len(self.names)) for n in dict.fromkeys(names)]
            for names in mentions
        ]
        self._mentions = _Lists(held)
        self._units = self._mentions.inverted(len(self.names))
        self.frequency = np.diff(self._units.ptr).astype(np.int32)
        self.subject = np.array([h[0] if h else -1 for h in held], np.int32)
        self.previous = np.full(self.size, -1, np.int32)
        self.next = np.full(self.size, -1, np.int32)
        last: dict[str, int] = {}
        for i, document in enumerate(documents or []):
            if document is not None:
                if document in last:
                    self.previous[i] = last[document]
                    self.next[last[document]] = i
                last[document] = i
        self._links = list(links)
        told = sources or {}
        self._sources = _Lists([told.get(i, ()) for i in range(self.size)])
        self._observations = self._sources.inverted(self.size)
        self.mentioning = sum(bool(held[i]) or i not in told for i in range(self.size))

    def of_units(self, ordinals: Ints) -> tuple[Ints, Ints]:
        return self._mentions.take(ordinals)

    def units_of(self, entities: Ints) -> tuple[Ints, Ints]:
        return self._units.take(entities)

    def sources_of(self, ordinals: Ints) -> tuple[Ints, Ints]:
        return self._sources.take(ordinals)

    def observations_of(self, ordinals: Ints) -> tuple[Ints, Ints]:
        return self._observations.take(ordinals)

    def neighbours(self, ordinals: Ints, types: Iterable[LinkType]) -> Rows:
        wanted = set(types)
        found = [
            (row, end, kind, weight, direction)
            for row, ordinal in enumerate(ordinals.tolist())
            for source, target, kind, weight in self._links
            for near, end, direction in ((source, target, 1), (target, source, -1))
            if near == ordinal and kind in wanted
        ]
        row, end, kind, weight, direction = zip(*found, strict=True) if found else ((),) * 5
        return Rows(
            np.array(row, np.int32),
            np.array(end, np.int32),
            np.array(kind, np.uint8),
            np.array(weight, np.float32),
            np.array(direction, np.int8),
        )
