"""How far a piece of work is: noted by whoever does it, shown by whoever keeps its lease."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

Stage: TypeAlias = Literal["waiting", "converting", "extracting", "embedding", "storing"]


@dataclass(slots=True)
class OperationProgress:
    """Noting costs nothing: what is noted is written now and then, by another. One event loop."""

    stage: Stage | None = None
    processed: int | None = None
    total: int | None = None
    noted: int = 0
    """How often something was noted."""

    def at(self, stage: Stage, processed: int | None = None, total: int | None = None) -> None:
        """`stage` is what is being done now; `processed` of `total` parts of it are done."""
        self.stage, self.processed, self.total = stage, processed, total
        self.noted += 1

    def ended(self) -> dict[str, Any] | None:
        """The last stage, done."""
        self.processed = self.total
        return self.shown()

    def shown(self) -> dict[str, Any] | None:
        """As an operation shows it, now; None where nothing was noted."""
        if self.stage is None:
            return None
        found: dict[str, Any] = {"stage": self.stage, "at": datetime.now(UTC).isoformat()}
        if self.total is not None:
            found |= {"processed": self.processed or 0, "total": self.total}
        return found
