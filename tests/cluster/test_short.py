"""Three nodes: a replica dies, then a whole node, and clients get their answers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.cluster.world import START_S, Load, World, fill, stage, until

pytestmark = [pytest.mark.serve, pytest.mark.timeout(900)]

BANKS = [f"house-{number}" for number in range(8)]
TREE = {
    "server": {"drain_s": 2},
    "database": {"db_pool_min_size": 1, "db_pool_max_size": 4},
    "rerankers": {"members": [{"provider": "rrf"}]},
    "worker": {"worker_enabled": False},
    "stages": {
        "recall": {"cpus": 1, "labels": {"fourfold-role": "ingress"}},
        "retriever": stage("bank", replicas=2, cpus=2),
    },
}
NODES = {"ingress": ("ingress", 1), "bank-1": ("bank", 2), "bank-2": ("bank", 2)}


def test_a_replica_and_a_node_die(tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        world.start(NODES, TREE)
        placed = world.replicas("Retriever")
        assert sorted(placed.values()) == ["bank-1", "bank-2"]
        assert set(world.replicas("Recall").values()) == {"ingress"}
        fill(world.url, BANKS)
        with Load(world.url, BANKS, clients=2, per_s=6) as load:
            until(lambda: len(load.seen.seconds) > 10, START_S)
            os.kill(next(iter(placed)), signal.SIGKILL)
            until(
                lambda: len(world.replicas("Retriever").keys() - set(list(placed)[:1])) == 2,
                START_S,
            )
            before = len(load.seen.seconds)
            until(lambda: len(load.seen.seconds) > before + 5, START_S)
            world.kill_node("bank-2")
            before = len(load.seen.seconds)
            until(lambda: len(load.seen.seconds) > before + 24, START_S)
            time.sleep(1)
        seen = load.seen
        print(f"{len(seen.seconds)} recalls, {len(seen.hard)} hard, slowest {seen.slowest():.1f} s")
        assert not seen.failed
        assert not seen.wrong
    finally:
        world.end()
