"""What dies and hangs while clients recall: `make cluster-test`."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import signal
import time
from typing import Any

import httpx
import psutil
import pytest

from tests.cluster.common import (
    MARKS,
    NORMAL_S,
    STAGES,
    TREE,
    bank_nodes,
    judge,
    load_on,
    more,
    p99,
    status,
    whole,
)
from tests.cluster.world import BASE, START_S, Seen, World, stage, until

pytestmark = MARKS

HANG_S = 20.0


def test_replicas_are_apart(world: World) -> None:
    placed = world.replicas("Retriever")
    assert sorted(placed.values()) == ["bank-1", "bank-2"]
    for name in ("Recall", "Embedder", "Ingest"):
        assert set(world.replicas(name).values()) == {"door"}


@pytest.mark.parametrize("name", ["Retriever", "Ranges", "Embedder", "Ingest"])
def test_a_killed_replica(world: World, name: str) -> None:
    count = len(world.replicas(name))
    with load_on(world) as load:
        more(load.seen, 20)
        victim = next(iter(world.replicas(name)))
        begin = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        more(load.seen, 40)
        until(lambda: victim not in world.replicas(name), START_S)
        whole(world, name, count)
        print(f"\nreplaced after {time.monotonic() - begin:.1f} s")
        more(load.seen, 20)
    judge(f"kill {name}", load.seen)
    assert len(load.seen.hard) <= 1
    assert name == "Embedder" or not load.seen.degraded


def test_a_stopped_retriever(world: World) -> None:
    """As a lost network: it says nothing, and does not die."""
    with load_on(world) as load:
        more(load.seen, 240)  # so that the limits of attempts are known
        victim = next(iter(world.replicas("Retriever")))
        before = len(load.seen.seconds)
        os.kill(victim, signal.SIGSTOP)
        begin = time.monotonic()
        until(lambda: victim not in world.replicas("Retriever"), START_S)
        print(f"\nreplaced after {time.monotonic() - begin:.1f} s")
        more(load.seen, 40)
    late = Seen(load.seen.seconds[before:])
    print(f"p99 while it was stopped: {p99(late):.2f} s")
    judge("stop a retriever", load.seen)
    assert late.slowest() < 5.0 + NORMAL_S
    whole(world, "Retriever", 2)


def test_without_an_embedder(world: World) -> None:
    lame = copy.deepcopy(TREE)
    lame["stages"]["embedder"]["cpus"] = 64  # no node has them
    with load_on(world) as load:
        more(load.seen, 20)
        world.tell("deploy", tree=lame, wait=False)
        until(lambda: not world.replicas("Embedder"), START_S)
        before = len(load.seen.seconds)
        more(load.seen, 60)
        slowest = max(load.seen.seconds[before:])
        world.tell("deploy", tree=TREE)
        more(load.seen, 40)
    judge("no embedder", load.seen)
    assert load.seen.degraded
    assert slowest < 2.0 + NORMAL_S


def test_without_a_reranker(world: World) -> None:
    lame = copy.deepcopy(TREE)
    lame["rerankers"] = {"members": [{"provider": "local"}]}
    lame["stages"]["reranker"] = stage("door", cpus=64)
    old = set(world.replicas("Recall"))
    world.tell("deploy", tree=lame, wait=False)
    until(lambda: len(new := set(world.replicas("Recall"))) == 1 and not old & new, START_S)
    until(lambda: status(world) == 200, START_S)
    with load_on(world) as load:
        more(load.seen, 40)
    world.tell("deploy", tree=TREE)
    judge("no reranker", load.seen)
    assert set(load.seen.degraded) == {"rerank"}
    assert load.seen.slowest() < 2.0 + NORMAL_S


def test_a_killed_controller(world: World) -> None:
    with load_on(world) as load:
        more(load.seen, 20)
        os.kill(world.controller(), signal.SIGKILL)
        more(load.seen, 60)
        until(lambda: bool(world.controller()), START_S)
        whole(world, "Retriever", 2)  # a new controller has to find them first
        victim = next(iter(world.replicas("Retriever")))
        os.kill(victim, signal.SIGKILL)
        until(lambda: victim not in world.replicas("Retriever"), START_S)
        whole(world, "Retriever", 2)
        more(load.seen, 20)
    judge("kill the controller", load.seen)


def test_the_database_restarts(world: World) -> None:
    with load_on(world) as load:
        more(load.seen, 20)
        world.postgres.stop()
        time.sleep(3)
        world.postgres.start()
        begin = time.monotonic()

        until(lambda: status(world) == 200, START_S)
        print(f"\nback after {time.monotonic() - begin:.1f} s")
        more(load.seen, 40)
    assert not load.seen.wrong
    assert all(said.startswith("503") for said in load.seen.failed), load.seen.failed[:3]


def test_the_database_hangs(world: World) -> None:
    """It answers nobody for a while, and does not go."""
    assert world.postgres.pid is not None
    server = psutil.Process(world.postgres.pid)
    with load_on(world) as load:
        more(load.seen, 20)
        stopped = [*server.children(recursive=True), server]
        for process in stopped:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        time.sleep(HANG_S)
        for process in stopped:
            with contextlib.suppress(psutil.Error):
                process.resume()
        more(load.seen, 40)
    print(f"\nhang: {len(load.seen.failed)} failed, slowest {load.seen.slowest():.1f} s")
    assert not load.seen.wrong
    assert all(said.startswith("503") for said in load.seen.failed), load.seen.failed[:3]


def test_a_range_of_a_split_bank_dies(world: World) -> None:
    words = [f"number{n} sails past lighthouse{n % 7}" for n in range(350)]
    memories = [{"key": text, "text": text} for text in words]
    base = f"{world.url}{BASE}/split"
    done = httpx.post(f"{base}/memories/import", json={"memories": memories}, timeout=120)
    assert done.status_code == 200, done.text

    def answers() -> list[Any]:
        found = []
        for text in words[::25]:
            for attempt in range(3):
                body = {"query": text, "max_tokens": 500}
                answer = httpx.post(f"{base}/memories/recall", json=body, timeout=60)
                if answer.status_code == 200 and not answer.json().get("degraded"):
                    break
                time.sleep(0.5 * attempt)
            assert answer.status_code == 200, answer.text
            found.append([one["text"] for one in answer.json()["results"]])
        return found

    before = answers()
    assert [found[0] for found in before] == words[::25]
    loads = world.metric("fourfold_hop_seconds_count", stage="ranges")
    assert loads > 0, "the bank is not split"
    victim = next(iter(world.replicas("Ranges")))
    os.kill(victim, signal.SIGKILL)
    begin = time.monotonic()
    assert answers() == before
    print(f"\nanswers of a split bank: {time.monotonic() - begin:.1f} s")
    whole(world, "Ranges", 2)
    assert answers() == before


def test_every_process_is_seen(world: World) -> None:
    before = world.counters()
    with load_on(world) as load:
        more(load.seen, 10)
    victim = next(iter(world.replicas("Retriever")))
    os.kill(victim, signal.SIGKILL)
    until(lambda: victim not in world.replicas("Retriever"), START_S)
    whole(world, "Retriever", 2)
    after = world.counters()
    fell = {name: (value, after.get(name)) for name, value in before.items()
            if after.get(name, 0.0) < value}  # fmt: skip
    assert not fell, "a counter fell"
    text = httpx.get(f"{world.url}/metrics", timeout=60).text
    seen = set(map(int, re.findall(r'fourfold_process_memory_bytes\{pid="(\d+)"\}', text)))
    assert {pid for name in STAGES for pid in world.replicas(name)} <= seen
    first = world.metric("fourfold_router_rank_total", rank="first")
    routed = world.metric("fourfold_router_rank_total")
    print(f"\ncalls to the first replica: {first / routed:.3f}")


def test_a_node_is_drained(world: World) -> None:
    bank_nodes(world, 3)
    name = next(iter(world.replicas("Retriever").values()))
    with load_on(world) as load:
        more(load.seen, 20)
        world.tell("drain", name=name, seconds=120)
        begin = time.monotonic()
        for stage_ in ("Retriever", "Ranges"):

            def left(stage_: str = stage_) -> bool:
                placed = world.replicas(stage_)
                return len(placed) == 2 and name not in placed.values()

            until(left, START_S)
        print(f"\nleft after {time.monotonic() - begin:.1f} s")
        world.kill_node(name)
        more(load.seen, 40)
    judge("a drained node", load.seen)
    assert not load.seen.hard
    assert not load.seen.degraded


def test_a_node_dies(world: World) -> None:
    bank_nodes(world, 3)
    name = next(iter(world.replicas("Retriever").values()))
    with load_on(world) as load:
        more(load.seen, 20)
        world.kill_node(name)
        more(load.seen, 80)
    judge("a node", load.seen)
