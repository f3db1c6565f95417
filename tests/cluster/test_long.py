"""What dies, hangs and rolls on a cluster while clients recall: `make cluster-test`.

Every test says its figures. Times depend on the machine, so what is judged is that no recall fails
after two retries, that no answer is wrong, and bounds that are far from what a quiet machine takes.
"""

from __future__ import annotations

import copy
import os
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.cluster.world import BASE, START_S, Load, Seen, World, fill, stage, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

BANKS = [f"house-{number}" for number in range(24)]
TREE: dict[str, Any] = {
    "server": {"drain_s": 4},
    "database": {"db_pool_min_size": 1, "db_pool_max_size": 4},
    "rerankers": {"members": [{"provider": "rrf"}]},
    "stages": {
        "recall": {"cpus": 1, "labels": {"fourfold-role": "door"}},
        "retriever": stage("bank", replicas=2, cpus=1),
        "embedder": stage("door", cpus=1),
        "ingest": stage("door", cpus=1),
    },
}
NODES = {"door": ("door", 3), "bank-1": ("bank", 2), "bank-2": ("bank", 2)}
NORMAL_S = 5.0
"""A recall on a busy machine; what a fault may add comes on top."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("cluster"))
    try:
        world.start(NODES, TREE)
        fill(world.url, BANKS)
        yield world
    finally:
        world.end()


def _load(world: World) -> Load:
    return Load(world.url, BANKS, clients=4, per_s=8)


def _more(seen: Seen, recalls: int) -> None:
    wanted = len(seen.seconds) + recalls
    until(lambda: len(seen.seconds) >= wanted, START_S)


def _judge(name: str, seen: Seen) -> None:
    print(
        f"\n{name}: {len(seen.seconds)} recalls, {len(seen.failed)} failed,"
        f" {len(seen.hard)} hard, {len(seen.degraded)} degraded, slowest {seen.slowest():.2f} s"
    )
    assert not seen.failed
    assert not seen.wrong


def _whole(world: World, stage: str, count: int) -> None:
    until(lambda: len(world.replicas(stage)) == count, START_S)
    until(lambda: world.tell("status")["running"].get(stage) == count, START_S)


def test_replicas_are_apart(world: World) -> None:
    placed = world.replicas("Retriever")
    assert sorted(placed.values()) == ["bank-1", "bank-2"]
    for name in ("Recall", "Embedder", "Ingest"):
        assert set(world.replicas(name).values()) == {"door"}


@pytest.mark.parametrize("name", ["Retriever", "Embedder", "Ingest"])
def test_a_killed_replica(world: World, name: str) -> None:
    count = len(world.replicas(name))
    with _load(world) as load:
        _more(load.seen, 20)
        victim = next(iter(world.replicas(name)))
        begin = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        _more(load.seen, 40)
        until(lambda: victim not in world.replicas(name), START_S)
        _whole(world, name, count)
        print(f"\nreplaced after {time.monotonic() - begin:.1f} s")
        _more(load.seen, 20)
    _judge(f"kill {name}", load.seen)
    assert len(load.seen.hard) <= 1
    assert name == "Embedder" or not load.seen.degraded


def test_a_stopped_retriever(world: World) -> None:
    """As a lost network: it says nothing, and does not die."""
    with _load(world) as load:
        _more(load.seen, 240)  # so that the limits of attempts are known
        victim = next(iter(world.replicas("Retriever")))
        before = len(load.seen.seconds)
        os.kill(victim, signal.SIGSTOP)
        begin = time.monotonic()
        until(lambda: victim not in world.replicas("Retriever"), START_S)
        print(f"\nreplaced after {time.monotonic() - begin:.1f} s")
        _more(load.seen, 40)
    late = sorted(load.seen.seconds[before:])
    print(f"p99 while it was stopped: {late[int(0.99 * len(late))]:.2f} s")
    _judge("stop a retriever", load.seen)
    assert late[-1] < 5.0 + NORMAL_S
    _whole(world, "Retriever", 2)


def test_without_an_embedder(world: World) -> None:
    lame = copy.deepcopy(TREE)
    lame["stages"]["embedder"]["cpus"] = 64  # no node has them
    with _load(world) as load:
        _more(load.seen, 20)
        world.tell("deploy", tree=lame, wait=False)
        until(lambda: not world.replicas("Embedder"), START_S)
        before = len(load.seen.seconds)
        _more(load.seen, 60)
        slowest = max(load.seen.seconds[before:])
        world.tell("deploy", tree=TREE)
        _more(load.seen, 40)
    _judge("no embedder", load.seen)
    assert load.seen.degraded
    assert slowest < 2.0 + NORMAL_S


def test_a_roll(world: World) -> None:
    rolled = copy.deepcopy(TREE)
    rolled["recall"] = {"recall_timeout_s": 45}
    old = {name: set(world.replicas(name)) for name in ("Retriever", "Embedder", "Recall")}
    misses = world.metric("fourfold_banks_events_total", event="miss")
    with _load(world) as load:
        _more(load.seen, 40)
        world.tell("deploy", tree=rolled, wait=False)
        for name, before in old.items():

            def replaced(name: str = name, before: set[int] = before) -> bool:
                return len(world.replicas(name)) == len(before) and not before & set(
                    world.replicas(name)
                )

            until(replaced, START_S)
        _more(load.seen, 60)
    again = world.metric("fourfold_banks_events_total", event="miss") - misses
    print(f"\nloads a bank: {again / len(BANKS):.2f}")
    _judge("roll", load.seen)


def test_a_killed_controller(world: World) -> None:
    with _load(world) as load:
        _more(load.seen, 20)
        os.kill(world.controller(), signal.SIGKILL)
        _more(load.seen, 60)
        until(lambda: bool(world.controller()), START_S)
        victim = next(iter(world.replicas("Retriever")))
        os.kill(victim, signal.SIGKILL)
        until(lambda: victim not in world.replicas("Retriever"), START_S)
        _whole(world, "Retriever", 2)
        _more(load.seen, 20)
    _judge("kill the controller", load.seen)


def test_the_database_restarts(world: World) -> None:
    with _load(world) as load:
        _more(load.seen, 20)
        world.postgres.stop()
        time.sleep(3)
        world.postgres.start()
        begin = time.monotonic()

        def back() -> bool:
            body = {"query": "a lantern?"}
            answer = httpx.post(f"{world.url}{BASE}/{BANKS[0]}/memories/recall", json=body)
            return answer.status_code == 200

        until(back, START_S)
        print(f"\nback after {time.monotonic() - begin:.1f} s")
        _more(load.seen, 40)
    assert not load.seen.wrong
    assert all(said.startswith("503") for said in load.seen.failed), load.seen.failed[:3]


def test_every_process_is_seen(world: World) -> None:
    text = httpx.get(f"{world.url}/metrics", timeout=60).text
    seen = set(map(int, re.findall(r'fourfold_process_memory_bytes\{pid="(\d+)"\}', text)))
    stages = ("Recall", "Retriever", "Embedder", "Ingest")
    assert {pid for name in stages for pid in world.replicas(name)} <= seen
    first = world.metric("fourfold_router_rank_total", rank="first")
    routed = world.metric("fourfold_router_rank_total")
    print(f"\ncalls to the first replica: {first / routed:.3f}")


def test_a_node_dies(world: World) -> None:
    with _load(world) as load:
        _more(load.seen, 20)
        world.kill_node("bank-2")
        _more(load.seen, 80)
    _judge("a node", load.seen)
