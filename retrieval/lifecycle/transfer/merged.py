"""How far a merge has come, and its account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

_IDS_MOST: Final = 10_000
"""Ids of documents that an account of a merge names."""
_COUNTED: Final = (
    "documents", "facts", "observations", "attachments", "operations", "maintenance_queue_rows",
    "invalidated_memories", "mental_models", "mental_model_history", "knowledge_pages",
    "directives", "webhooks", "history_rows",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MergeProgress:
    """How far a merge has come, as the operation keeps it."""

    bundles: int = 0
    observations: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    skipped: Sequence[str] = ()
    remapped: Mapping[str, str] = field(default_factory=dict)

    def plus(self, **more: int) -> MergeProgress:
        found = dict(self.counts)
        for name, count in more.items():
            found[name] = found.get(name, 0) + count
        return replace(self, counts=found)

    def kept(self) -> dict[str, Any]:
        return {
            "bundles": self.bundles,
            "observations": self.observations,
            "counts": dict(self.counts),
            "skipped": list(self.skipped[:_IDS_MOST]),
            "remapped": dict(self.remapped),
        }

    def result(self, bank_id: str) -> dict[str, Any]:
        """What the operation answers in the end."""
        names = [f"{name}_imported" for name in _COUNTED]
        names += ["documents_skipped", "observations_skipped"]
        return {
            "bank_id": bank_id,
            **{name: self.counts.get(name, 0) for name in names},
            "skipped_document_ids": list(self.skipped),
            "remapped_document_ids": dict(self.remapped),
        }
