"""What a batcher counts, and what it learns about its device."""

from __future__ import annotations

from dataclasses import dataclass

from models.types import Load

MEMORY = 5
"""Each new batch counts for a fifth: a change of load is followed within about ten batches."""


@dataclass(slots=True)
class BatcherStats:
    """Totals since the start; `batch_s` and `tokens_per_s` are moving averages."""

    batches: int = 0
    items: int = 0
    tokens: int = 0
    busy_s: float = 0.0
    batch_s: float = 0.0
    tokens_per_s: float = 0.0
    refused: int = 0
    expired: int = 0
    cancelled: int = 0
    failed: int = 0

    def add(self, seconds: float, items: int, tokens: int) -> None:
        """One batch that succeeded, and its share of the device's time."""
        self.batches += 1
        self.items += items
        self.tokens += tokens
        self.busy_s += seconds
        memory = min(MEMORY, self.batches)
        self.batch_s += (seconds - self.batch_s) / memory
        self.tokens_per_s += (tokens / max(seconds, 1e-6) - self.tokens_per_s) / memory

    def load(self, queued_tokens: int, queued_calls: int, running: list[float]) -> Load:
        """The totals beside what waits and the ages of what runs."""
        return Load(
            queued_tokens=queued_tokens,
            queued_calls=queued_calls,
            running_batches=len(running),
            running_s=max(running, default=0.0),
            tokens_per_s=self.tokens_per_s,
            batches=self.batches,
            items=self.items,
            tokens=self.tokens,
            busy_s=self.busy_s,
            refused=self.refused,
            expired=self.expired,
            cancelled=self.cancelled,
            failed=self.failed,
        )
