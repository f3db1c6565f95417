"""A resident bank as the graph arm reads it."""

from __future__ import annotations

from collections.abc import Iterable

from retrieval.arms.adjacency import LinkRows
from retrieval.bank.resident import ResidentBank
from retrieval.types import Ints, LinkType


class BankGraph:
    """retrieval.arms.adjacency.Adjacency over one snapshot; as immutable as that."""

    def __init__(self, bank: ResidentBank) -> None:
        self._bank = bank

    @property
    def size(self) -> int:
        return self._bank.size

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
        return self._bank.entities.units_of(entities)

    def neighbours(self, ordinals: Ints, types: Iterable[LinkType]) -> LinkRows:
        return self._bank.links.neighbours(ordinals, types)

    def sources_of(self, ordinals: Ints) -> tuple[Ints, Ints]:
        return self._bank.sources_of(ordinals)

    def observations_of(self, ordinals: Ints) -> tuple[Ints, Ints]:
        return self._bank.observations_of(ordinals)
