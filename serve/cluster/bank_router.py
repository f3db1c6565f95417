"""Which Retriever replica a recall goes to: one that holds the bank.

Every handle ranks the replicas of a bank by itself and alike (`retrieval.bank.shards.placement`).
Serve tries them in that order: a replica that is full, dead or does not say in time how full it is
is passed over for the next, and a bank comes back to its first replica when that is well.
"""

from __future__ import annotations

import time
from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from retrieval.bank.shards.placement import Traffic, copies_for, owners


class BankRouter(RequestRouter):
    """Keyed by the `session_id` option of the handle; calls without one go anywhere."""

    def initialize_state(self, **_: Any) -> None:
        self._traffic = Traffic()

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Ranks, best first; inside a rank Serve takes the replica with the shortest queue."""
        if pending_request is None or not pending_request.metadata.session_id:
            return [candidate_replicas]
        bank = pending_request.metadata.session_id
        pending_request.routing_context.should_backoff = True  # where all are full
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        in_flight = {
            name: float(self.replica_queue_len_cache.get(replica.replica_id) or 0)
            for name, replica in replicas.items()
        }
        share = self._traffic.seen(bank, time.monotonic())
        busy = sum(in_flight.values()) >= len(replicas)
        copies = copies_for(share, len(replicas)) if busy else 1
        order = [
            replicas[name] for name in owners(bank, [*replicas], in_flight, copies=len(replicas))
        ]
        return [order[:copies], *([replica] for replica in order[copies:])]
