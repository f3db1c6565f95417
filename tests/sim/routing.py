"""Recalls over the real routers, each with its own late view of the replicas, in virtual time.

A replica is one core that works off its calls in order. What Serve does around `choose_replicas` is
repeated here: of each rank the shortest queue that is not full, as far as the router knows.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from ray.serve._private.common import DeploymentHandleSource
from ray.serve.request_router import RunningReplica

from retrieval.bank.shards.evenness import shares
from retrieval.bank.shards.placement import Ranking
from serve.cluster.bank_router import BankRouter, even_out
from tests.sim.banks import STAGE, Banks, popularity, replica

MAX_ONGOING = 64
USE = 0.6
WINDOW_S = 1.0
"""Changes of a bank's copies are looked for between such windows."""


@dataclass(frozen=True, slots=True)
class Routed:
    load_spread: float
    """Busy time of the busiest replica over the mean."""
    hot_copies: float
    """Copies of the hottest bank as routers see it, beyond those that its share calls for."""
    hot_spilled: float
    """Replicas with over one in a hundred of its calls, beyond those: where its own were full."""
    copies_changes_a_minute: float
    first_rank: float
    """Share of calls that went to a replica that held the bank."""
    router_ms: float
    """CPU of a router for one call."""
    p99_ms: float


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def run(banks: Banks, replicas: int, routers: int, exponent: float, seconds: float) -> Routed:
    """`seconds` of traffic at 60 % use; the first third warms up and is not counted.

    Banks are held where they lie from the beginning: one that nobody asked for before takes more of
    its replica's time to load than a short run has, and says nothing of how calls are spread.
    """
    clock, rng = Clock(), np.random.default_rng(2)
    share = popularity(len(banks.names), exponent)
    call_s = banks.call_s
    rate = USE * replicas / float(share @ call_s)
    count = int(rate * seconds)
    asked = np.searchsorted(np.cumsum(share), rng.random(count) * 0.999999999)
    times = np.cumsum(rng.exponential(1.0 / rate, count))
    at = rng.integers(0, routers, count)
    there = [replica(slot) for slot in range(replicas)]
    told = shares(range(replicas), banks.keys, banks.bytes)
    even_out(STAGE.name, told)
    every = [router_of(clock) for _ in range(routers)]
    free, queue = np.zeros(replicas), np.zeros(replicas, dtype=int)
    at_home = Ranking(range(replicas), told).winners(banks.keys)
    holds: set[tuple[int, int]] = set(enumerate(at_home.tolist()))
    busy = np.zeros(replicas)
    ends: list[tuple[float, int, int]] = []
    took: list[float] = []
    warm_at, hot = seconds / 3, int(np.argmax(share))
    hot_at: Counter[int] = Counter()
    copies: dict[int, int] = {}
    found = counted = 0
    spent_s = 0.0
    for begin, bank, router_at in zip(times.tolist(), asked.tolist(), at.tolist(), strict=True):
        while ends and ends[0][0] <= begin:
            _, slot, by = heapq.heappop(ends)
            queue[slot] -= 1
            every[by].decrement_queue_len_cache(there[slot].replica_id)
        clock.now = begin
        router = every[router_at]
        started = time.thread_time()
        ranks = ranks_of(router, there, banks.names[bank])
        spent_s += time.thread_time() - started
        slot = chosen(router, ranks, queue)
        cost = float(call_s[bank])
        held = (bank, slot) in holds
        if not held:
            holds.add((bank, slot))
            cost += float(banks.load_s[bank]) if begin > warm_at else 0.0
        free[slot] = max(free[slot], begin) + cost
        queue[slot] += 1
        router.replica_queue_len_cache.update(there[slot].replica_id, int(queue[slot]))
        heapq.heappush(ends, (float(free[slot]), slot, router_at))
        if begin > warm_at:
            counted += 1
            found += held
            busy[slot] += cost
            took.append(float(free[slot]) - begin)
            if bank == hot:
                hot_at[slot] += 1
                window = int(begin / WINDOW_S)
                copies[window] = max(copies.get(window, 0), len(ranks[0]))
    seen = [copies[window] for window in sorted(copies)]
    changes = int(np.count_nonzero(np.diff(seen[1:])))
    ideal = int(np.ceil(share[hot] * replicas))
    serving = sum(n >= 0.01 * hot_at.total() for n in hot_at.values())
    return Routed(
        float(busy.max() / busy.mean()),
        float(max(seen) - ideal),
        float(serving - ideal),
        changes * 60.0 / (seconds - warm_at),
        found / max(1, counted),
        1000 * spent_s / count,
        1000 * float(np.quantile(took, 0.99)),
    )


def router_of(clock: Clock) -> BankRouter:
    router = BankRouter(
        STAGE,
        DeploymentHandleSource.REPLICA,
        use_replica_queue_len_cache=True,
        get_curr_time_s=clock,
    )
    router.initialize_state(clock=clock)
    return router


def ranks_of(
    router: BankRouter, there: list[RunningReplica], bank: str
) -> list[list[RunningReplica]]:
    """The router's answer; it waits for nothing, so its coroutine ends at the first step."""
    request = SimpleNamespace(
        metadata=SimpleNamespace(session_id=bank),
        routing_context=SimpleNamespace(should_backoff=False),
    )
    choosing = router.choose_replicas(there, cast(Any, request))
    try:
        choosing.send(None)
    except StopIteration as done:
        return cast(list[list[RunningReplica]], done.value)
    raise AssertionError("a router waited")


def chosen(router: BankRouter, ranks: list[list[RunningReplica]], queue: Any) -> int:
    for rank in ranks:
        lengths = []
        for each in rank:
            slot = cast(Any, each).slot
            known = router.replica_queue_len_cache.get(each.replica_id)
            lengths.append((int(queue[slot]) if known is None else known, slot))
        shortest, slot = min(lengths)
        if shortest < MAX_ONGOING:
            return int(slot)
    return int(cast(Any, ranks[0][0]).slot)
