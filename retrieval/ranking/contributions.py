"""Scores as sums of named parts: what a ranking computed, kept for whoever asks why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np

from retrieval.messages import message
from retrieval.types import Doubles


@message
@dataclass(frozen=True, slots=True)
class Contributions:
    """Named parts of one score, each float64 (c,) in the order of the candidates; added up in this
    order they are `total` to the last bit."""

    parts: tuple[tuple[str, Doubles], ...]

    @classmethod
    def of(cls, parts: Iterable[tuple[str, Doubles]]) -> Contributions:
        return cls(tuple(parts))

    @classmethod
    def of_steps(cls, steps: Iterable[tuple[str, Doubles]]) -> Contributions:
        """Of a score after each of its steps: what every step added to the one before."""
        steps = tuple(steps)
        later = [(name, after - before) for (_, before), (name, after) in pairwise(steps)]
        return cls((*steps[:1], *later))

    @property
    def total(self) -> Doubles:
        if not self.parts:
            return np.empty(0)
        return reduce(np.add, (values for _, values in self.parts))

    def at(self, position: int) -> dict[str, float]:
        """The parts of one candidate that are not zero, by name."""
        found = {name: float(values[position]) for name, values in self.parts}
        return {name: value for name, value in found.items() if value}
