"""A bank's recalls go to one replica; a lost replica's banks answer again soon."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import httpx
import psutil
import pytest
import yaml
from ray.serve._private.common import (
    DeploymentHandleSource,
    DeploymentID,
    ReplicaID,
    RequestMetadata,
)
from ray.serve.request_router import PendingRequest, RunningReplica

from retrieval.bank.shards.placement import DEPTH, Ranking
from serve.cluster.bank_router import BankRouter
from tests.serve.server import ROOT, Server, until

BASE = "/v1/default/banks"
DEPLOYMENT = DeploymentID("Retriever", "fourfold")
ANSWERS_WITHIN_S = 5.0
SLOTS = range(4)


def _replica(slot: int | None, turn: int = 0) -> RunningReplica:
    metadata = {} if slot is None else {"slot": slot, "turn": turn}
    name = f"r{slot}.{turn}"
    return cast(
        RunningReplica,
        SimpleNamespace(replica_id=ReplicaID(name, DEPLOYMENT), replica_metadata=metadata),
    )


def router_of() -> tuple[BankRouter, list[RunningReplica]]:
    router = BankRouter(
        DEPLOYMENT, DeploymentHandleSource.REPLICA, use_replica_queue_len_cache=True
    )
    router.initialize_state(clock=(tick / 100 for tick in itertools.count()).__next__)
    return router, [_replica(slot) for slot in SLOTS]


def _request(bank: str) -> PendingRequest:
    metadata = RequestMetadata(request_id="a", internal_request_id="b", session_id=bank)
    return PendingRequest(args=[], kwargs={}, metadata=metadata)


async def _ranks(router: BankRouter, replicas: list[RunningReplica], bank: str) -> list[list[str]]:
    request = _request(bank)
    ranks = await router.choose_replicas(replicas, request)
    assert request.routing_context.should_backoff
    return [[replica.replica_id.unique_id for replica in rank] for rank in ranks]


def _names(slots: Sequence[int]) -> list[str]:
    return [f"r{slot}.0" for slot in slots]


def order_of(bank: str) -> list[str]:
    return _names(Ranking(SLOTS).first(bank))


def _fill(router: BankRouter, replicas: list[RunningReplica], *loads: int) -> None:
    for replica, load in zip(replicas, loads, strict=True):
        router.replica_queue_len_cache.update(replica.replica_id, load)


@pytest.mark.unit
async def test_a_bank_has_its_order_of_replicas() -> None:
    router, replicas = router_of()
    assert await _ranks(router, replicas, "t/b") == [[name] for name in order_of("t/b")]
    assert await _ranks(router, replicas[::-1], "t/b") == await _ranks(router, replicas, "t/b")


@pytest.mark.unit
async def test_a_replacement_serves_the_banks_of_its_slot() -> None:
    router, replicas = router_of()
    first = int(order_of("t/b")[0][1])
    replicas[first] = _replica(first, turn=7)
    assert (await _ranks(router, replicas, "t/b"))[0] == [f"r{first}.7"]


@pytest.mark.unit
async def test_in_a_roll_the_newer_is_asked_first_and_the_older_next() -> None:
    router, replicas = router_of()
    order = order_of("t/b")
    first = int(order[0][1])
    ranks = await _ranks(router, [*replicas, _replica(first, turn=1)], "t/b")
    assert ranks[:3] == [[f"r{first}.1"], [f"r{first}.0"], [order[1]]]


@pytest.mark.unit
async def test_replicas_without_a_slot_are_placed_by_their_names() -> None:
    router, replicas = router_of()
    ranks = await _ranks(router, [*replicas[:2], _replica(None)], "t/b")
    assert sorted(name for rank in ranks for name in rank) == ["r0.0", "r1.0", "rNone.0"]


@pytest.mark.unit
async def test_of_very_many_the_last_rank_is_anyone() -> None:
    router, _ = router_of()
    many = [_replica(slot) for slot in range(100)]
    ranks = await _ranks(router, many, "t/b")
    assert [len(rank) for rank in ranks] == [1] * DEPTH + [100]


@pytest.mark.unit
async def test_a_call_is_counted_once_however_often_it_is_tried() -> None:
    router, replicas = router_of()
    for number in range(10):
        await _ranks(router, replicas, f"t/{number}")
    request = _request("t/b")
    for _ in range(50):
        await router.choose_replicas(replicas, request)
    assert router._traffic.share("t/b") == pytest.approx(1 / 11, rel=0.5)


@pytest.mark.unit
async def test_a_replica_above_its_bound_is_asked_last() -> None:
    router, replicas = router_of()
    order = order_of("t/b")
    _fill(router, replicas, *(20 if name == order[0] else 0 for name in _names(SLOTS)))
    # Other banks' traffic, so that this one is not a hot one.
    for _ in range(20):
        await _ranks(router, replicas, "t/other")
    ranks = await _ranks(router, replicas, "t/b")
    assert ranks == [[order[1]], [order[2]], [order[3]], [order[0]]]


@pytest.mark.unit
async def test_a_hot_bank_is_spread_only_while_there_is_work_for_several() -> None:
    router, replicas = router_of()
    order = order_of("t/hot")
    for number in range(400):
        await _ranks(router, replicas, "t/hot" if number % 2 else f"t/{number}")
    assert (await _ranks(router, replicas, "t/hot"))[0] == order[:1]
    _fill(router, replicas, 3, 3, 3, 3)
    for _ in range(30):  # somewhat more than half of all traffic
        await _ranks(router, replicas, "t/hot")
    hot = (await _ranks(router, replicas, "t/hot"))[0]
    assert hot == order[:2]
    assert len((await _ranks(router, replicas, "t/cool"))[0]) == 1


@pytest.mark.unit
async def test_a_call_without_a_bank_goes_anywhere() -> None:
    router, replicas = router_of()
    assert await router.choose_replicas(replicas, None) == [replicas]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("router")
    config = yaml.safe_load((ROOT / "configs" / "stages.yaml").read_text())
    args: dict[str, Any] = config["applications"][0]["args"]
    args["stages"] = {
        "retriever": {"placement": "deployment", "replicas": 2},
        "embedder": {"placement": "deployment"},
    }
    args["rerankers"] = {"members": [{"provider": "rrf"}]}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    started = Server(folder / "data", folder / "config.yaml")
    try:
        yield started.start()
    finally:
        started.kill()


def _held(http: httpx.Client, server: Server) -> Counter[int]:
    """Resident banks of each retriever, by process."""
    retrievers = {process.pid for process in server.named("ServeReplica:fourfold:Retriever")}
    held: Counter[int] = Counter()
    for line in http.get("/metrics").text.splitlines():
        if line.startswith("fourfold_banks_resident{"):
            name, value = line.rsplit(" ", 1)
            pid = int(name.split('pid="')[1].split('"')[0])
            if pid in retrievers:
                held[pid] = int(float(value))
    return held


@pytest.mark.serve
@pytest.mark.timeout(240)
def test_banks_have_a_replica_and_outlive_it(server: Server) -> None:
    banks = [f"bank-{number}" for number in range(24)]
    with httpx.Client(base_url=server.url, timeout=60) as http:
        for bank in banks:
            memory = {"key": "k", "text": f"The {bank} keeps a lantern."}
            done = http.post(f"{BASE}/{bank}/memories/import", json={"memories": [memory]})
            assert done.status_code == 200, done.text

        def recall(bank: str) -> int:
            body = {"query": "who keeps a lantern?"}
            answer = http.post(f"{BASE}/{bank}/memories/recall", json=body)
            if answer.status_code == 200:
                assert [r["text"] for r in answer.json()["results"]] == [
                    f"The {bank} keeps a lantern."
                ]
            return answer.status_code

        before = _held(http, server)
        for _ in range(3):
            assert [recall(bank) for bank in banks] == [200] * len(banks)
        # The metrics are a second old.
        until(lambda: _held(http, server).total() - before.total() >= len(banks))
        held = _held(http, server)
        assert len(held) == 2
        assert held.total() - before.total() == len(banks), "a bank is held twice"
        assert min(held.values()) >= 3

        victim = max(held, key=lambda pid: held[pid])
        psutil.Process(victim).kill()
        begin = time.monotonic()
        failed = 0
        for bank in banks:
            while recall(bank) != 200:
                failed += 1
                assert time.monotonic() - begin < ANSWERS_WITHIN_S
                time.sleep(0.05)
        seconds = time.monotonic() - begin
        print(f"all banks answered {seconds:.2f} s after the kill, {failed} recalls failed")
        assert seconds < ANSWERS_WITHIN_S
        assert failed <= 1
