"""A hundred thousand banks, the routers' view of replicas, and what a call costs."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import numpy as np
from numpy.typing import NDArray
from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve.request_router import RunningReplica

from retrieval.bank.shards.placement import key_of
from serve.cluster.slots import SLOT, TURN

BANKS = 100_000
MEDIAN_MEMORIES = 6_000.0
SIGMA = 1.0
"""Sizes are log-normal: a mean of 10,000 memories, one bank in a hundred above 60,000."""
DIMENSION = 384
STAGE = DeploymentID("Retriever", "fourfold")


@dataclass(frozen=True, slots=True)
class Banks:
    names: list[str]
    keys: NDArray[np.uint64]
    memories: NDArray[np.float64]

    @property
    def bytes(self) -> NDArray[np.float64]:
        return self.memories * (4 * DIMENSION + 500)

    @property
    def call_s(self) -> NDArray[np.float64]:
        """CPU of a Retriever for one call: 5.5 ms and 0.18 per thousand memories."""
        return np.asarray(0.0055 + 0.18e-6 * self.memories, dtype=np.float64)

    @property
    def load_s(self) -> NDArray[np.float64]:
        """CPU of a load."""
        return 4e-6 * self.memories


def made(count: int = BANKS, seed: int = 0) -> Banks:
    names = [f"tenant-{number % 997}/bank-{number}" for number in range(count)]
    sizes = np.random.default_rng(seed).lognormal(np.log(MEDIAN_MEMORIES), SIGMA, count)
    keys = np.asarray([key_of(name) for name in names], dtype=np.uint64)
    return Banks(names, keys, sizes)


def popularity(count: int, exponent: float, seed: int = 1) -> NDArray[np.float64]:
    """Share of each bank in all recalls: Zipf, in an order that has nothing to do with sizes."""
    share = 1.0 / np.arange(1, count + 1) ** exponent
    np.random.default_rng(seed).shuffle(share)
    return np.asarray(share / share.sum(), dtype=np.float64)


def replica(slot: int, turn: int = 0) -> RunningReplica:
    made = SimpleNamespace(
        replica_id=ReplicaID(f"r{slot}.{turn}", STAGE),
        replica_metadata={SLOT: slot, TURN: turn},
        slot=slot,
    )
    return cast(RunningReplica, made)
