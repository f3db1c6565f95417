"""What the graph arm reads of a bank, and how it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from retrieval.types import Floats, Hits, Ints, LinkType

Late: TypeAlias = Callable[[], bool]
"""Whether what is asked has to come to its end."""

NO_MEMORY = -1
"""No parent, no entity."""


class PathLink(IntEnum):
    """Along what the walk came to a memory."""

    SEED = 0
    ENTITY = 1
    SUBJECT = 2
    SEMANTIC = 3
    CAUSAL = 4
    SEQUENCE = 5

    @property
    def wire(self) -> str:
        return self.name.lower()


class LinkTable(Protocol):
    """Edges at some memories: row (index into those asked for), target, type, weight, and
    direction, 1 where the edge leaves the asked memory, -1 where it reaches it. All (m,)."""

    @property
    def row(self) -> Ints: ...
    @property
    def target(self) -> Ints: ...
    @property
    def type(self) -> NDArray[np.uint8]: ...
    @property
    def weight(self) -> Floats: ...
    @property
    def direction(self) -> NDArray[np.int8]: ...


class Adjacency(Protocol):
    """What the walk reads of a bank. Lists name live memories only; indices ascend."""

    @property
    def size(self) -> int:
        """Ordinals in use."""
        ...

    @property
    def living(self) -> int:
        """How many memories there are, without those that are gone."""
        ...

    @property
    def frequency(self) -> Ints:
        """How many live memories mention each entity, int32 (entities,)."""
        ...

    @property
    def mentioning(self) -> int:
        """Of how many live memories `frequency` counts: all but observations without mentions,
        which would make everybody rare as a bank is consolidated."""
        ...

    @property
    def subject(self) -> Ints:
        """The entity that each memory is about, int32 (size,); -1 for none."""
        ...

    @property
    def previous(self) -> Ints:
        """The live memory before each in its document, int32 (size,); -1 for none."""
        ...

    @property
    def next(self) -> Ints:
        """The live memory after each in its document, int32 (size,); -1 for none."""
        ...

    def of_units(self, ordinals: Ints) -> tuple[Ints, Ints]:
        """(index into ordinals, entity): what each memory mentions, each entity once."""
        ...

    def units_of(self, entities: Ints) -> tuple[Ints, Ints]:
        """(index into entities, ordinal): who mentions each entity, oldest first."""
        ...

    def neighbours(self, ordinals: Ints, types: Iterable[LinkType]) -> LinkTable:
        """Stored links of these types, both directions."""
        ...

    def sources_of(self, ordinals: Ints) -> tuple[Ints, Ints]:
        """(index into ordinals, ordinal): the memories each observation was made from."""
        ...

    def observations_of(self, ordinals: Ints) -> tuple[Ints, Ints]:
        """(index into ordinals, ordinal): the observations made from each memory."""
        ...


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """hops: how far the walk goes. per_entity: memories looked at per entity, of those allowed.
    limit: length of the answer. causes: the question asks for causes."""

    hops: int = 2
    per_entity: int = 200
    limit: int = 300
    causes: bool = False


@dataclass(frozen=True, slots=True)
class GraphHits:
    """The arm's answer and how it came to each memory; all (n,), in the order of `hits`.

    parent int32, the ordinal it was reached from, -1 for a seed; link u1 PathLink; hop i1, 0 for a
    seed; via int32, the entity shared or named, -1 for none. evidence float32, the best share that
    an entity or a cause handed on, in units of affinity, and support int32, the ordinal it came
    from, -1 for none. Sequence is no evidence because the fused score looks around each candidate
    by itself, a semantic link because similar memories are about as similar to the question. A seed
    has a path too where another memory leads to it more strongly than the question does.
    """

    hits: Hits
    parent: Ints
    link: NDArray[np.uint8]
    hop: NDArray[np.int8]
    via: Ints
    evidence: Floats
    support: Ints

    def __len__(self) -> int:
        return len(self.hits)
