"""The circuit breaker of one member of a chain."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

FAILURES_TO_OPEN = 3
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0


@dataclass(slots=True)
class Breaker:
    """Closed, open until `retry_at`, or half-open while one trial runs."""

    clock: Callable[[], float]
    failures: int = 0
    pause_s: float = 0.0
    retry_at: float = -math.inf
    trying: bool = False

    @property
    def is_open(self) -> bool:
        return self.pause_s > 0

    def admits(self) -> bool:
        """Whether a request may go to the member now; an open breaker admits one trial."""
        if not self.is_open:
            return True
        if self.trying or self.clock() < self.retry_at:
            return False
        self.trying = True
        return True

    def succeeded(self) -> None:
        self.failures, self.pause_s, self.trying = 0, 0.0, False

    def failed(self, *, surely: bool = False) -> None:
        """`surely`: once is enough to open it."""
        self.failures += FAILURES_TO_OPEN if surely else 1
        if self.is_open or self.failures >= FAILURES_TO_OPEN:
            self.pause_s = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self.pause_s))
            self.retry_at = self.clock() + self.pause_s
        self.trying = False

    def trip(self) -> None:
        """Opens at once: the member cannot answer anybody until somebody mends it."""
        self.failures = FAILURES_TO_OPEN
        self.failed()

    def passed(self) -> None:
        """The request moved on without telling anything about the member."""
        self.trying = False
