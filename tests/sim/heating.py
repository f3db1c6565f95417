"""A bank that suddenly has half of all traffic, and then its usual share again, in virtual time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from tests.sim.banks import Banks, popularity, replica
from tests.sim.routing import USE, Clock, chosen, ranks_of, router_of

BEFORE_S, HOT_S, AFTER_S = 20.0, 40.0, 90.0
SHARE = 0.5
WINDOW_S, LOOK_S = 1.0, 5.0


@dataclass(frozen=True, slots=True)
class Heated:
    spread_s: float
    """After it became hot, until no replica had over 1.5 times its part of the bank's calls, in any
    later second while it was hot. A full replica that sends on what it cannot take has 1.67."""
    gathered_s: float
    """After that, until the last 5 s in which over 0.3 of its calls went to others than its
    first replica: single ones do whenever that is full."""
    waited_ms: float
    """p99 of all calls from `spread_s` on while it was hot."""


def run(banks: Banks, replicas: int, routers: int) -> Heated:
    """At 60 % use throughout; the bank is one whose calls cost what the mean call does."""
    clock, rng = Clock(), np.random.default_rng(5)
    usual = popularity(len(banks.names), 0.8)
    cost = banks.call_s
    hot = int(np.argmin(np.abs(cost - float(usual @ cost))))
    heated = (1.0 - SHARE) * usual
    heated[hot] += SHARE
    there = [replica(slot) for slot in range(replicas)]
    every = [router_of(clock) for _ in range(routers)]
    free, queue = np.zeros(replicas), np.zeros(replicas, dtype=int)
    ends: list[tuple[float, int, int]] = []
    calls: list[tuple[float, int]] = []
    took: list[tuple[float, float]] = []
    now = 0.0
    for seconds, share in ((BEFORE_S, usual), (HOT_S, heated), (AFTER_S, usual)):
        rate = USE * replicas / float(share @ cost)
        count = int(rate * seconds)
        asked = np.searchsorted(np.cumsum(share), rng.random(count) * 0.999999999)
        if share is usual:  # it is asked now and then: otherwise nothing shows where it is
            asked[:: max(1, int(rate / 4.0))] = hot
        times = now + np.sort(rng.random(count)) * seconds
        at = rng.integers(0, routers, count)
        now += seconds
        for begin, bank, by in zip(times.tolist(), asked.tolist(), at.tolist(), strict=True):
            while ends and ends[0][0] <= begin:
                _, slot, who = heapq.heappop(ends)
                queue[slot] -= 1
                every[who].decrement_queue_len_cache(there[slot].replica_id)
            clock.now = begin
            router = every[by]
            slot = chosen(router, ranks_of(router, there, banks.names[bank]), queue)
            free[slot] = max(free[slot], begin) + float(cost[bank])
            queue[slot] += 1
            router.replica_queue_len_cache.update(there[slot].replica_id, int(queue[slot]))
            heapq.heappush(ends, (float(free[slot]), slot, by))
            took.append((begin, float(free[slot]) - begin))
            if bank == hot:
                calls.append((begin, slot))
    return _judged(calls, took, replicas)


def _judged(
    calls: list[tuple[float, int]], took: list[tuple[float, float]], replicas: int
) -> Heated:
    cold_at = BEFORE_S + HOT_S
    part = 1.0 / (SHARE * replicas)
    times, slots = np.asarray([c[0] for c in calls]), np.asarray([c[1] for c in calls])
    home = int(np.bincount(slots[times < BEFORE_S]).argmax())
    spread = 0.0
    for begin in np.arange(BEFORE_S, cold_at, WINDOW_S):
        inside = slots[(times >= begin) & (times < begin + WINDOW_S)]
        if np.bincount(inside).max() / len(inside) > 1.5 * part:
            spread = float(begin + WINDOW_S - BEFORE_S)
    gathered = 0.0
    for begin in np.arange(cold_at, cold_at + AFTER_S, LOOK_S):
        inside = slots[(times >= begin) & (times < begin + LOOK_S)]
        if (inside != home).mean() > 0.3:
            gathered = float(begin + LOOK_S - cold_at)
    late = [s for at, s in took if BEFORE_S + spread <= at < cold_at]
    return Heated(
        spread,
        gathered,
        1000 * float(np.quantile(late, 0.99)) if late else float("inf"),
    )
