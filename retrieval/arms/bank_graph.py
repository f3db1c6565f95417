"""A resident bank as the graph arm reads it."""

from __future__ import annotations

from collections.abc import Iterable

from retrieval.arms.adjacency import LinkTable
from retrieval.bank.resident import ResidentBank
from retrieval.types import Bools, Ints, LinkType


class BankGraph:
    """retrieval.arms.adjacency.Adjacency over one snapshot; as immutable as that.

    Memories that are not `visible` (bool (size,)) are not walked through: what they mention would
    show in the paths of those that are.
    """

    def __init__(self, bank: ResidentBank, visible: Bools) -> None:
        self._bank, self._visible = bank, visible

    @property
    def size(self) -> int:
        return self._bank.size

    @property
    def living(self) -> int:
        return sum(map(len, self._bank.population.rows))

    @property
    def mentioning(self) -> int:
        return self._bank.mentioning

    @property
    def frequency(self) -> Ints:
        return self._bank.entities.df

    @property
    def subject(self) -> Ints:
        return self._bank.subject

    @property
    def previous(self) -> Ints:
        return self._bank.previous

    @property
    def next(self) -> Ints:
        return self._bank.next

    def of_units(self, ordinals: Ints) -> tuple[Ints, Ints]:
        return self._bank.entities.of_units(ordinals)

    def units_of(self, entities: Ints) -> tuple[Ints, Ints]:
        return self._seen(*self._bank.entities.units_of(entities))

    def neighbours(self, ordinals: Ints, types: Iterable[LinkType]) -> LinkTable:
        return self._bank.links.neighbours(ordinals, types)

    def sources_of(self, ordinals: Ints) -> tuple[Ints, Ints]:
        return self._seen(*self._bank.sources_of(ordinals))

    def observations_of(self, ordinals: Ints) -> tuple[Ints, Ints]:
        return self._seen(*self._bank.observations_of(ordinals))

    def _seen(self, index: Ints, ordinal: Ints) -> tuple[Ints, Ints]:
        kept = self._visible[ordinal]
        return index[kept], ordinal[kept]
