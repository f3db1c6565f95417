"""Which slot serves a bank: rendezvous hashing with bounded load. Pure functions, and a cache.

A slot is a number that a replica has while it lives and that its successor takes over. Every
router ranks the slots for a bank the same way without talking to the others. When a slot comes or
goes, only the banks that it wins or held move (Thaler and Ravishankar 1998). One above its bound is
passed over for the next in rank (Mirrokni, Thorup, Zadimoghaddam 2016), so one hot bank does not
bury its neighbours.

A slot that would hold too many bytes takes only a share of the banks that rank it first: which,
another hash of bank and slot says, so that a smaller share moves only the banks that it drops (see
`evenness`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from math import ceil, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

BOUND = 1.25
"""A replica may carry this many times the mean load before banks pass to the next in rank."""

LEAST = 8.0
"""A load (requests in flight) that a replica may carry whatever the mean: in a quiet hour a bank is
not loaded a second time only because its replica has something to do."""

HALF_LIFE_S = 10.0
"""How fast traffic is forgotten: some loads of a bank long, so that a burst is worth a copy."""

HOLD_S = 30.0
"""How long a bank keeps the copies that it once needed."""

FEW = 200.0
"""Requests from which on shares say something: of the first one, a bank has all."""

DEPTH = 8
"""Ranks of a bank that are remembered; those behind them are worked out when they are asked for."""

REMEMBERED = 16_384
"""Banks whose ranks are remembered, about 5 MB."""

AT_ONCE = 1000
"""Banks that are ranked at once: their scores take 8 bytes for each slot."""

_ALL = 2.0**64
_SCALE = 2.0**20
_FORGOTTEN = 0.01


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): every bit depends on every bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def key_of(bank: str) -> int:
    """64 bits that stand for a bank."""
    return int.from_bytes(blake2b(bank.encode(), digest_size=8).digest(), "big")


class Ranking:
    """The order of `slots` for every bank. The same in every process that knows the same slots and
    the same `shares`: the part of its banks that a slot takes. One that is not named takes as much
    as the others on average."""

    def __init__(self, slots: Sequence[int], shares: Mapping[int, float] | None = None) -> None:
        self.slots = sorted(slots)
        golden = np.uint64(0x9E3779B97F4A7C15)
        self._slots = np.asarray(self.slots, dtype=np.uint64)
        self._seeds = _mixed((self._slots + np.uint64(1)) * golden)
        self._other = _mixed(self._seeds)
        usual = sum(shares.values()) / len(shares) if shares else 1.0
        taken = [shares.get(slot, usual) if shares else 1.0 for slot in self.slots]
        self.shares = np.asarray(taken, dtype=np.float64)
        self._some = bool((self.shares < 1.0).any())
        self._known: dict[str, list[int]] = {}

    def first(self, bank: str, count: int = DEPTH) -> list[int]:
        """The `count` slots to serve `bank`, best first; all of them where there are fewer."""
        if count > DEPTH:
            return self._ranked(bank, count)
        known = self._known.get(bank)
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[bank] = self._ranked(bank, DEPTH)
        return known[:count]

    def places(self, keys: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Of each of many banks, given by `key_of`, the first DEPTH slots as places in `slots`,
        whatever share of it they take. Banks x DEPTH, or x slots where there are fewer."""
        depth = min(DEPTH, len(self.slots))
        found = np.empty((len(keys), depth), dtype=np.intp)
        for begin in range(0, len(keys), AT_ONCE):
            scores = _mixed(keys[begin : begin + AT_ONCE, None] ^ self._seeds)
            best = np.argpartition(scores, len(self.slots) - depth, axis=1)[:, -depth:]
            order = np.argsort(np.take_along_axis(scores, best, 1), axis=1)[:, ::-1]
            found[begin : begin + AT_ONCE] = np.take_along_axis(best, order, 1)
        return found

    def draws(self, keys: NDArray[np.uint64], places: NDArray[np.intp]) -> NDArray[np.float64]:
        """In [0, 1): the slot at a place takes the bank where this is below its share. Shapes
        follow `places`; `keys` has one for each of its rows."""
        return np.asarray(_mixed(keys[:, None] ^ self._other[places]) / _ALL, dtype=np.float64)

    def winners(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """First slot of each of many banks, given by `key_of`."""
        places = self.places(keys)
        taken = self.draws(keys, places) < self.shares[places]
        first = taken.argmax(axis=1)  # the best where none takes it
        slots = np.asarray(self.slots, dtype=np.int64)
        return np.asarray(slots[places[np.arange(len(keys)), first]], dtype=np.int64)

    def _ranked(self, bank: str, count: int) -> list[int]:
        key = np.uint64(key_of(bank))
        scores = _mixed(self._seeds ^ key)
        # Those that do not take the bank go behind, so a few more are looked at.
        looked = count if count <= DEPTH or not self._some else 2 * count
        if looked < len(scores):
            places = np.argpartition(scores, len(scores) - looked)[-looked:]
        else:
            places = np.arange(len(scores))
        order = places[np.argsort(scores[places])[::-1]]
        if self._some:
            shares = self.shares[order]
            if (shares < 1.0).any():
                dropped = _mixed(key ^ self._other[order]) / _ALL >= shares
                order = np.concatenate((order[~dropped], order[dropped]))
        return [self.slots[place] for place in order[:count].tolist()]


def within_bound(
    order: Sequence[int],
    load: Callable[[int], float],
    mean: float,
    *,
    bound: float = BOUND,
    least: float = LEAST,
) -> list[int]:
    """`order` with slots above `bound` x `mean` and above `least` behind the others.

    `load` is what a slot carries (requests in flight, bytes, ...).
    """
    limit = max(least, bound * mean)
    full = [slot for slot in order if load(slot) > limit]
    return [slot for slot in order if slot not in full] + full if full else list(order)


def copies_for(share: float, replicas: int, known: float = inf) -> int:
    """How many replicas a bank with this share (0..1) of all load needs to stay under the mean.

    `known` is how many requests the share was seen in: what chance alone may have added calls for
    no copy. That is two deviations, and more among many replicas: so many more routers look, and
    the largest error of all of them counts.
    """
    deviations = max(2.0, sqrt(2.0 * log(max(1, replicas))))
    sure = max(0.0, share - deviations * sqrt(share / known))
    return max(1, min(replicas, ceil(round(sure * replicas, 9))))


class Copies:
    """How many slots serve a bank: as many as are needed at once, fewer only `HOLD_S` after so many
    were needed last, since each change costs loads and cold caches."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, float]] = {}

    def of(self, bank: str, needed: int, now: float) -> int:
        """The number for a bank that needs so many at `now` (seconds)."""
        held, until = self._held.get(bank, (1, now))
        if needed == held == 1:
            return 1
        if needed >= held:
            self._held[bank] = (needed, now + HOLD_S)
            return needed
        if now < until:
            return held
        if needed == 1:
            del self._held[bank]
        else:
            self._held[bank] = (needed, now + HOLD_S)
        return needed


class Traffic:
    """Each bank's share of recent requests: a request counts half after `HALF_LIFE_S`."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}
        self._total = 0.0
        self._began: float | None = None

    def __len__(self) -> int:
        """Banks remembered."""
        return len(self._counts)

    def known(self, now: float) -> float:
        """How many requests the shares are made from."""
        if self._began is None:
            return 0.0
        return float(self._total / 2.0 ** ((now - self._began) / HALF_LIFE_S))

    def share(self, bank: str) -> float:
        """The bank's share of all, without counting anything."""
        return self._counts.get(bank, 0.0) / self._total if self._total else 0.0

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
