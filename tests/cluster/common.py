"""What the long tests of a cluster share: its shape, its banks, and how it is judged.

Every test says its figures. Times depend on the machine, so what is judged is that no recall fails
after two retries, that no answer is wrong, and bounds that are far from what a quiet machine takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import httpx
import pytest

from tests.cluster.world import BASE, START_S, Load, Seen, World, stage, until
from tests.serve.server import ROOT

MARKS = [pytest.mark.cluster, pytest.mark.timeout(1800)]
BANKS = [f"house-{number}" for number in range(24)]
TREE: dict[str, Any] = {
    "server": {"drain_s": 4},
    "database": {"db_pool_min_size": 1, "db_pool_max_size": 4},
    "banks": {"bank_shard_rows": 100},
    "rerankers": {"members": [{"provider": "rrf"}]},
    "stages": {
        "recall": {"cpus": 1, "labels": {"fourfold-role": "door"}},
        "retriever": stage("bank", replicas=2, cpus=1),
        "embedder": stage("door", cpus=1),
        "ingest": stage("door", cpus=1),
        "ranges": stage("bank", replicas=2),
    },
}
NODES = {"door": ("door", 3), "bank-1": ("bank", 2), "bank-2": ("bank", 2)}
STAGES = ("Recall", "Retriever", "Ranges", "Embedder", "Ingest")
NORMAL_S = 5.0
"""A recall on a busy machine; what a fault may add comes on top."""


def load_on(world: World) -> Load:
    return Load(world.url, BANKS, clients=4, per_s=8)


def more(seen: Seen, recalls: int) -> None:
    wanted = len(seen.seconds) + recalls
    until(lambda: len(seen.seconds) >= wanted, START_S)


def judge(name: str, seen: Seen) -> None:
    print(
        f"\n{name}: {len(seen.seconds)} recalls, {len(seen.failed)} failed,"
        f" {len(seen.hard)} hard, {len(seen.degraded)} degraded, slowest {seen.slowest():.2f} s"
    )
    assert not seen.failed
    assert not seen.wrong


def p99(seen: Seen) -> float:
    return sorted(seen.seconds)[int(0.99 * len(seen.seconds))]


def new_key(world: World, tenant: str) -> str:
    """A new key of a tenant."""
    made = subprocess.run(
        [sys.executable, "-m", "serve.cli.main", "keys", "create", "--tenant", tenant],
        env={**os.environ, "FOURFOLD_DATABASE_URL": world.postgres.dsn},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.split()[-1]


def status(world: World) -> int:
    """Of a recall; 0 where none came in time."""
    url = f"{world.url}{BASE}/{BANKS[0]}/memories/recall"
    try:
        return httpx.post(url, json={"query": "a lantern?"}, timeout=70).status_code
    except httpx.TransportError:
        return 0


def whole(world: World, stage: str, count: int) -> None:
    until(lambda: len(world.replicas(stage)) == count, START_S)
    until(lambda: world.tell("status")["running"].get(stage) == count, START_S)


def bank_nodes(world: World, count: int) -> None:
    """So many nodes for banks there are, at least."""
    made = 0
    while sum(name.startswith("bank-") for name in world.raylets) < count:
        made += 1
        if (name := f"bank-{made}") not in world.raylets and name not in world.gone:
            world.raylets[name] = world.tell("add", name=name, role="bank", cpus=2)[name]
