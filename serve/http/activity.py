"""The last recalls of a process: how long they took and where, never what they asked."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from retrieval.store.edge import iso

KEPT = 1_000
SLOWEST = 20


@dataclass(frozen=True, slots=True)
class Finished:
    """One recall. `seconds`: of its stages, and of the whole as `total`."""

    at: datetime
    tenant: str
    bank_id: str
    total: float
    stages: Mapping[str, float]
    results: int
    degraded: bool


class Activity:
    """Kept in memory; a tenant sees its own recalls."""

    def __init__(self) -> None:
        self._since = datetime.now(UTC)
        self._last: deque[Finished] = deque(maxlen=KEPT)
        self._refused: Counter[str] = Counter()

    def finished(
        self,
        tenant: str,
        bank_id: str,
        total: float,
        stages: Mapping[str, float],
        results: int,
        degraded: bool,
    ) -> None:
        now = datetime.now(UTC)
        self._last.append(Finished(now, tenant, bank_id, total, stages, results, degraded))

    def refused(self, tenant: str) -> None:
        """A recall that was not admitted."""
        if len(self._refused) < 10_000 or tenant in self._refused:
            self._refused[tenant] += 1

    def of(self, tenant: str, processes: int) -> dict[str, Any]:
        """{since, process: [1, processes], recalls, refused, degraded, total, stages, slow}."""
        own = [one for one in self._last if one.tenant == tenant]
        stages: dict[str, list[float]] = {}
        for one in own:
            for name, seconds in one.stages.items():
                stages.setdefault(name, []).append(seconds)
        slow = sorted(own, key=lambda one: -one.total)[:SLOWEST]
        return {
            "since": iso(self._since),
            "process": [1, processes],
            "recalls": len(own),
            "refused": self._refused[tenant],
            "degraded": sum(one.degraded for one in own),
            "total": _percentiles([one.total for one in own]),
            "stages": {name: _percentiles(each) for name, each in stages.items()},
            "slow": [
                {
                    "at": iso(one.at),
                    "bank_id": one.bank_id,
                    "ms": round(one.total * 1000, 2),
                    "results": one.results,
                    "stages": {n: round(s * 1000, 2) for n, s in one.stages.items()},
                }
                for one in slow
            ],
        }


def _percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    if not seconds:
        return {"p50_ms": None, "p99_ms": None}
    half, most = np.percentile(np.array(seconds), [50, 99]) * 1000
    return {"p50_ms": round(float(half), 2), "p99_ms": round(float(most), 2)}
