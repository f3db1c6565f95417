"""Which Retriever replica a recall goes to: one that holds the bank.

Every handle ranks the slots of a bank by itself and alike (`retrieval.bank.shards.placement`).
Serve tries their replicas in that order: one that is full, dead or does not say in time how full it
is is passed over for the next, and a bank comes back to its first replica when that is well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray.serve._private.common import ReplicaID
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from retrieval.bank.shards.placement import (
    DEPTH,
    FEW,
    REMEMBERED,
    Copies,
    Ranking,
    Traffic,
    copies_for,
    key_of,
    within_bound,
)
from serve import metrics
from serve.cluster.attempts import SECOND
from serve.cluster.slots import SLOT, TURN

SILENCE_S = 0.5
"""A replica that does not say for so long how full it is is passed over: a bank that goes to a cold
replica costs a load, which is dearer than this wait."""

TOTAL_S = 0.05
"""How old the sum of all loads may be; it takes a pass over all replicas."""

SILENT_S = 2.0
"""For so long a replica is asked last that left a call without an answer until another was asked;
one that hangs is then asked every two seconds, until it is replaced."""

MARK = SECOND[0]

UNNAMED = 2**32
"""Replicas without a slot have numbers from here on, by their names."""


@dataclass(slots=True)
class Members:
    """The replicas that can be asked, by slot, newest claim first: in a roll, two releases share a
    slot, and the older one is the next best to hold its banks."""

    replicas: list[RunningReplica]
    shares: Mapping[int, float] = field(default_factory=dict)
    by_slot: dict[int, list[RunningReplica]] = field(init=False)
    ranking: Ranking = field(init=False)

    def __post_init__(self) -> None:
        claims = []
        for replica in self.replicas:
            published = replica.replica_metadata
            name = replica.replica_id.unique_id
            slot = published.get(SLOT, UNNAMED + (key_of(name) >> 32))
            claims.append((slot, -published.get(TURN, 0), name, replica))
        self.by_slot = {}
        for slot, _, _, replica in sorted(claims, key=lambda claim: claim[:3]):
            self.by_slot.setdefault(slot, []).append(replica)
        self.ranking = Ranking([*self.by_slot], self.shares)


_shares: dict[str, Mapping[int, float]] = {}


def even_out(stage: str, shares: Mapping[int, float]) -> None:
    """From now on, all routers of this process to `stage` (a deployment) let each slot take this
    share of its banks (`retrieval.bank.shards.evenness`)."""
    if shares != _shares.get(stage):
        _shares[stage] = dict(shares)


_ALL: Mapping[int, float] = {}


class BankRouter(RequestRouter):
    """Keyed by the `session_id` option of the handle; calls without one go anywhere."""

    queue_len_response_deadline_s = SILENCE_S

    def initialize_state(self, **options: Any) -> None:
        self._clock: Callable[[], float] = options.get("clock", time.monotonic)
        self._traffic = Traffic()
        self._copies = Copies()
        self._members = Members([], _ALL)
        self._asked: dict[str, ReplicaID] = {}
        self._first: dict[str, set[ReplicaID]] = {}
        self._silent: dict[ReplicaID, float] = {}
        self._total, self._summed_at = 0.0, float("-inf")

    @property
    def slots(self) -> list[int]:
        """Those that calls went to lately."""
        return [slot for slot in self._members.by_slot if slot < UNNAMED]

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Ranks, best first; inside a rank Serve takes the replica with the shortest queue."""
        if pending_request is None or not pending_request.metadata.session_id:
            return [candidate_replicas]
        bank, mark, attempt = pending_request.metadata.session_id.partition(MARK)
        routing = pending_request.routing_context
        again = routing.should_backoff or bool(attempt)
        routing.should_backoff = True  # where all are full
        now = self._clock()
        share = self._traffic.share(bank) if again else self._traffic.seen(bank, now)
        shares = _shares.get(self._deployment_id.name, _ALL)
        if candidate_replicas != self._members.replicas or shares is not self._members.shares:
            self._members = Members([*candidate_replicas], shares)
            self._summed_at = float("-inf")
        if now - self._summed_at >= TOTAL_S:
            self._total, self._summed_at = sum(map(self._load, candidate_replicas)), now
        members, size = self._members, len(self._members.by_slot)
        known = self._traffic.known(now)
        busy = self._total >= size and known >= FEW
        needed = copies_for(share, size, known) if busy else 1
        copies = min(size, self._copies.of(bank, needed, now))
        order = within_bound(
            members.ranking.first(bank, max(copies, DEPTH)),
            lambda slot: self._load(members.by_slot[slot][0]),
            (self._total + 1.0) / max(1, size),
        )
        first = [members.by_slot[slot][0] for slot in order[:copies]]
        older = [replica for slot in order[:copies] for replica in members.by_slot[slot][1:]]
        ranks = [first, *([replica] for replica in older)]
        ranks += [members.by_slot[slot] for slot in order[copies:]]
        if size > len(order):
            ranks.append(candidate_replicas)
        if attempt and (asked := self._asked.get(bank)) is not None:
            if mark + attempt == SECOND:
                self._silent[asked] = now + SILENT_S
            ranks = _behind(ranks, {asked})
        if self._silent:
            self._silent = {one: until for one, until in self._silent.items() if until > now}
            ranks = _behind(ranks, self._silent)
        if not attempt:
            self._remember(bank, {replica.replica_id for replica in ranks[0]})
        return ranks

    def _remember(self, bank: str, first: set[ReplicaID]) -> None:
        """Whom a bank's first attempt goes to: where that is one replica, a second attempt knows
        who is silent."""
        if len(self._first) >= REMEMBERED:
            self._first.clear()
            self._asked.clear()
        self._first[bank] = first
        if len(first) == 1:
            (self._asked[bank],) = first
        else:
            self._asked.pop(bank, None)

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        bank, mark, _ = pending_request.metadata.session_id.partition(MARK)
        if not bank or mark:
            return
        if bank in self._asked:  # the first in rank was full, or dead
            self._asked[bank] = replica_id
        first = self._first.get(bank, ())
        rank = "first" if replica_id in first else "next"
        metrics.ROUTER_RANK.labels(self._deployment_id.name.lower(), rank).inc()

    def _load(self, replica: RunningReplica) -> float:
        """Requests in flight, as far as this router knows."""
        return float(self.replica_queue_len_cache.get(replica.replica_id) or 0)


def _behind(
    ranks: list[list[RunningReplica]], late: Container[ReplicaID]
) -> list[list[RunningReplica]]:
    """`ranks` with the replicas of `late` behind all others."""
    before = [[each for each in rank if each.replica_id not in late] for rank in ranks]
    after = [[each for each in rank if each.replica_id in late] for rank in ranks]
    return [rank for rank in (*before, *after) if rank]
