"""What a consolidation needs, put together once by the composition root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from retrieval.bank.residency import Residency
from retrieval.consolidation.batch import Batch
from retrieval.ingest.context import WriteContext
from retrieval.ingest.write.transaction import Change
from retrieval.protocols import LLM
from retrieval.settings import RecallSettings
from retrieval.settings.consolidation import ConsolidationSettings


class RuleBasedModel(Protocol):
    """What stands in for a language model: a batch to the JSON that one would answer."""

    def __call__(self, batch: Batch) -> str: ...


Ripe: TypeAlias = Callable[[Change, Collection[frozenset[str]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ConsolidationDeps:
    """`model` decides; where it is None, `rules` do; where these are None too, nothing runs.

    `changed` is told, inside the transaction that changes observations, in which scopes.
    """

    ingest: WriteContext
    residency: Residency
    settings: ConsolidationSettings = field(default_factory=ConsolidationSettings)
    recall: RecallSettings = field(default_factory=RecallSettings)
    model: LLM | None = None
    rules: RuleBasedModel | None = None
    changed: Ripe | None = None

    @property
    def able(self) -> bool:
        """Is there anybody to decide?"""
        return self.model is not None or self.rules is not None
