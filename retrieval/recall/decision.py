"""What a recall decided, before it reads what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from retrieval.ranking.packing import Packed
from retrieval.ranking.shortlist import Shortlist
from retrieval.ranking.weights import Ranked
from retrieval.settings import RecallSettings
from retrieval.types import Ints, RecallQuery


@dataclass(frozen=True, slots=True)
class Decision:
    """Which candidates are served, in which order. Positions are those of the shortlist.

    order: what is left after everything but the packing, best first; packed: of `order`; dropped:
    why others are not there; merged: per position how many duplicates it stands for."""

    query: RecallQuery
    settings: RecallSettings
    shortlist: Shortlist
    ranked: Ranked
    order: Ints
    packed: Packed
    dropped: Mapping[int, str]
    merged: Mapping[int, int]
    degraded: tuple[str, ...]

    @property
    def kept(self) -> Ints:
        """The positions that are served, best first."""
        return self.order[self.packed.kept]
