"""What is rolled, scaled and set anew while clients recall: `make cluster-test`."""

from __future__ import annotations

import contextlib
import copy
import itertools
import shutil
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.cluster.common import (
    BANKS,
    MARKS,
    STAGES,
    TREE,
    bank_nodes,
    judge,
    load_on,
    more,
    status,
    whole,
)
from tests.cluster.world import BASE, START_S, World, until
from tests.models.embed_server import KEY, EmbedServer
from tests.serve.server import ROOT

pytestmark = MARKS

AWAY_S = 20.0


def test_a_roll(world: World) -> None:
    rolled = copy.deepcopy(TREE)
    rolled["server"] = {**TREE["server"], "log_format": "json"}  # which every stage reads
    old = {name: set(world.replicas(name)) for name in ("Retriever", "Embedder", "Recall")}
    misses = world.metric("fourfold_banks_events_total", event="miss")
    with load_on(world) as load:
        more(load.seen, 40)
        world.tell("deploy", tree=rolled, wait=False)
        for name, before in old.items():

            def replaced(name: str = name, before: set[int] = before) -> bool:
                return len(world.replicas(name)) == len(before) and not before & set(
                    world.replicas(name)
                )

            until(replaced, START_S)
        more(load.seen, 60)
    again = world.metric("fourfold_banks_events_total", event="miss") - misses
    print(f"\nloads a bank: {again / len(BANKS):.2f}")
    judge("roll", load.seen)


def test_a_roll_while_the_database_is_away(world: World) -> None:
    rolled = copy.deepcopy(TREE)
    rolled["recall"] = {"recall_timeout_s": 44}
    old = set(world.replicas("Retriever"))
    world.postgres.stop()
    world.tell("deploy", tree=rolled, wait=False)
    until(lambda: not old & set(world.replicas("Retriever")), START_S)
    time.sleep(AWAY_S)
    assert world.tell("status")["status"] == "DEPLOYING"
    world.postgres.start()
    until(lambda: world.tell("status")["status"] == "RUNNING", START_S)
    with load_on(world) as load:
        more(load.seen, 20)
    judge("a roll without a database", load.seen)
    world.tell("deploy", tree=TREE)


def test_settings_change_while_all_run(world: World) -> None:
    pids = {name: set(world.replicas(name)) for name in STAGES}

    def refused() -> bool:
        return 429 in [status(world) for _ in range(3)]

    assert not refused()
    world.sql("insert into hot_settings values ('tenant_requests_per_s', '0.01'),"
              " ('tenant_burst', '1')")  # fmt: skip
    begin = time.monotonic()
    until(refused, START_S)
    print(f"\nin force after {time.monotonic() - begin:.1f} s")
    world.sql("delete from hot_settings")
    until(lambda: not refused(), START_S)
    assert pids == {name: set(world.replicas(name)) for name in STAGES}


def test_an_embedder_of_equal_dimension_is_rolled_in(world: World, tmp_path: Path) -> None:
    """No similarity between vectors of two models; no row in a set that is not its model's."""
    key = tmp_path / "key"
    key.write_text(KEY)
    stored: list[tuple[str, str]] = []
    asked: list[tuple[str, list[str]]] = []
    stopping = threading.Event()

    def use() -> None:
        with httpx.Client(base_url=world.url, timeout=70, trust_env=False) as http:
            for number in itertools.count():
                if stopping.wait(0.1):
                    return
                bank, text = BANKS[number % len(BANKS)], f"tale number {number}"
                with contextlib.suppress(httpx.TransportError):
                    body = {"memories": [{"key": text, "text": text}]}
                    if http.post(f"{BASE}/{bank}/memories/import", json=body).is_success:
                        stored.append((bank, text))
                    query = f"a lantern? {number}"
                    found = http.post(f"{BASE}/{bank}/memories/recall", json={"query": query})
                    if found.is_success:
                        asked.append((query, found.json().get("degraded", [])))

    with EmbedServer("openai") as other:
        rolled = copy.deepcopy(TREE)
        rolled["embeddings"] = {
            "embeddings_provider": "openai",
            "embeddings_openai_base_url": other.url,
            "embeddings_openai_model": "another",
            "embeddings_openai_dimensions": 384,
            "embeddings_openai_api_key_file": str(key),
        }
        using = threading.Thread(target=use)
        using.start()
        try:
            until(lambda: len(asked) > 20 and len(stored) > 10, START_S)
            world.tell("deploy", tree=rolled)
            seen = len(asked)
            until(lambda: len(asked) > seen + 20, START_S)
            world.tell("deploy", tree=TREE)
            seen = len(stored)
            until(lambda: len(stored) > seen + 10, START_S)
        finally:
            stopping.set()
            using.join()
        by_other = {text for body in other.bodies for text in body["input"]}
    sets = world.sql("select b.bank_id, b.vector_set, s.kind from banks b join segments s"
                     " using (bank) where s.kind like 'vectors:%'")  # fmt: skip
    assert all(kind == f"vectors:{name}" for _, name, kind in sets)
    of_bank = {bank: name for bank, name, _ in sets}
    assert all("another" not in of_bank[bank] for bank, _ in stored)
    assert not by_other & {text for _, text in stored}
    mixed = [degraded for query, degraded in asked if query in by_other]
    print(f"\n{len(stored)} stored, {len(asked)} asked, {len(mixed)} of the other model")
    assert mixed
    assert all("semantic" in degraded for degraded in mixed)
    until(lambda: world.tell("status")["status"] == "RUNNING", START_S)


@pytest.mark.parametrize(("protocol", "understood"), [(2, True), (3, False)])
def test_a_release_beside_this_one(
    world: World, tmp_path: Path, protocol: int, understood: bool
) -> None:
    """The next release answers this one; one too far away is 503, to be repeated, and never 500."""
    for package in ("serve", "models", "retrieval"):
        shutil.copytree(ROOT / package, tmp_path / package)
    messages = tmp_path / "retrieval" / "messages.py"
    assert "PROTOCOL = 1\n" in messages.read_text()
    messages.write_text(messages.read_text().replace("PROTOCOL = 1\n", f"PROTOCOL = {protocol}\n"))
    world.tell("deploy", tree=TREE, sources={"Retriever": str(tmp_path)})
    with load_on(world) as load:
        more(load.seen, 24)
    assert not load.seen.wrong
    print(f"\nprotocol {protocol}: {len(load.seen.failed)} failed of {len(load.seen.seconds)}")
    if understood:
        assert not load.seen.failed
    else:
        assert len(load.seen.failed) == len(load.seen.seconds)
        assert all(said.startswith("503") for said in load.seen.failed), load.seen.failed[:3]
        assert world.metric("fourfold_hop_failures_total", kind="skew") > 0
    world.tell("deploy", tree=TREE)
    with load_on(world) as load:
        more(load.seen, 24)
    judge("back again", load.seen)


def test_retrievers_come_and_go(world: World) -> None:
    """Only as many banks move as the new one is to hold, or as the one that went had."""
    bank_nodes(world, 4)

    def moved(replicas: int) -> float:
        tree = copy.deepcopy(TREE)
        tree["stages"]["retriever"]["replicas"] = replicas
        kept = set(world.replicas("Retriever"))
        misses = world.metric("fourfold_banks_events_total", event="miss")
        world.tell("deploy", tree=tree)
        whole(world, "Retriever", replicas)
        now = set(world.replicas("Retriever"))
        assert kept <= now or now <= kept, "one that was to stay was replaced"
        with load_on(world) as load:
            more(load.seen, 4 * len(BANKS))
        judge(f"{replicas} retrievers", load.seen)
        again = world.metric("fourfold_banks_events_total", event="miss") - misses
        return again / len(BANKS)

    moved(3)
    up, down = moved(4), moved(3)
    ranks = [world.metric("fourfold_router_rank_total", **one) for one in ({"rank": "first"}, {})]
    with load_on(world) as load:
        more(load.seen, 100)
    first, routed = (
        world.metric("fourfold_router_rank_total", **one) - rank
        for one, rank in zip(({"rank": "first"}, {}), ranks, strict=True)
    )
    print(
        f"\nmoved: 3 to 4 retrievers {up:.2f}, 4 to 3 {down:.2f};"
        f" calls to the first replica {first / routed:.3f}"
    )
    assert up <= 0.5  # a quarter, of only 24 banks
    assert down <= 0.5
    assert first / routed >= 0.98
    world.tell("deploy", tree=TREE)
    whole(world, "Retriever", 2)
