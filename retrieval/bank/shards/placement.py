"""Which replica serves a bank: rendezvous hashing with bounded load. Pure functions.

Every router ranks the replicas for a bank the same way without talking to the others. When a
replica comes or goes, only the banks that it wins or held move (Thaler and Ravishankar 1998). A
replica above its bound is passed over for the next in rank (Mirrokni, Thorup, Zadimoghaddam 2016),
so one hot bank does not bury its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

BOUND = 1.25
"""A replica may carry this many times the mean load before banks pass to the next in rank."""

LEAST = 8.0
"""A load (requests in flight) that a replica may carry whatever the mean: in a quiet hour a bank is
not loaded a second time only because its replica has something to do."""

HALF_LIFE_S = 10.0
"""How fast traffic is forgotten: some loads of a bank long, so that a burst is worth a copy."""

_SCALE = 2.0**20
_FORGOTTEN = 0.01


def ranked(bank: str, replicas: Sequence[str]) -> list[str]:
    """The replicas in the order in which they should serve `bank`; the same in every process."""

    def score(replica: str) -> tuple[bytes, str]:
        return blake2b(replica.encode(), key=blake2b(bank.encode()).digest()).digest(), replica

    return sorted(replicas, key=score, reverse=True)


def owners(
    bank: str,
    replicas: Sequence[str],
    load: Mapping[str, float] | None = None,
    *,
    copies: int = 1,
    bound: float = BOUND,
    least: float = LEAST,
) -> list[str]:
    """The `copies` replicas to serve `bank`, best first; all of them where there are fewer.

    `load` is what each replica carries (requests in flight, bytes, ...; none given counts as 0).
    Replicas above `bound` x mean and above `least` are taken only when the others do not suffice.
    With load left out the answer depends on the names alone.
    """
    order = ranked(bank, replicas)
    if load:
        mean = (sum(load.get(r, 0.0) for r in replicas) + 1.0) / max(1, len(replicas))
        limit = max(least, bound * mean)
        order.sort(key=lambda r: load.get(r, 0.0) > limit)  # stable: rank order within each half
    return order[:copies]


def copies_for(share: float, replicas: int) -> int:
    """How many replicas a bank with this share (0..1) of all load needs to stay under the mean."""
    return max(1, min(replicas, -int(-share * replicas // 1)))


class Traffic:
    """Each bank's share of recent requests: a request counts half after `HALF_LIFE_S`."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}
        self._total = 0.0
        self._began: float | None = None

    def __len__(self) -> int:
        """Banks remembered."""
        return len(self._counts)

    def seen(self, bank: str, now: float) -> float:
        """Counts a request at `now` (seconds, never falling); the bank's share of all, in (0, 1].

        Newer requests count more, which spares every older count a pass; now and then all are
        brought back to scale, and banks that nobody asks for any more are forgotten.
        """
        if self._began is None:
            self._began = now
        weight = 2.0 ** ((now - self._began) / HALF_LIFE_S)
        if weight > _SCALE:
            kept = {b: c / weight for b, c in self._counts.items() if c > _FORGOTTEN * weight}
            self._counts, self._total = kept, sum(kept.values())
            self._began, weight = now, 1.0
        self._counts[bank] = self._counts.get(bank, 0.0) + weight
        self._total += weight
        return self._counts[bank] / self._total


def shard_ranges(size: int, shard: int) -> list[tuple[int, int]]:
    """Ordinal ranges [first, end) of a bank of `size` ordinals, `shard` each; one where it fits."""
    return [(first, min(first + shard, size)) for first in range(0, max(size, 1), shard)]
