"""Banks on replicas: even, stable, bounded."""

from __future__ import annotations

from collections import Counter

import pytest

from retrieval.bank.shards.placement import (
    HALF_LIFE_S,
    Traffic,
    copies_for,
    owners,
    ranked,
    shard_ranges,
)

pytestmark = pytest.mark.unit

BANKS = [f"tenant/bank-{i}" for i in range(4000)]
REPLICAS = [f"replica-{i}" for i in range(8)]


def test_every_process_ranks_alike_whatever_the_order_of_names() -> None:
    assert ranked("t/b", REPLICAS) == ranked("t/b", REPLICAS[::-1])
    assert ranked("t/b", REPLICAS)[0] == "replica-4"  # pinned: replicas of two releases must agree


def test_banks_spread_evenly() -> None:
    share = Counter(owners(bank, REPLICAS)[0] for bank in BANKS)
    assert max(share.values()) < 1.2 * len(BANKS) / len(REPLICAS)
    assert min(share.values()) > 0.8 * len(BANKS) / len(REPLICAS)


def test_a_new_replica_takes_its_share_and_nothing_else_moves() -> None:
    before = {bank: owners(bank, REPLICAS)[0] for bank in BANKS}
    after = {bank: owners(bank, [*REPLICAS, "replica-8"])[0] for bank in BANKS}
    moved = [bank for bank in BANKS if before[bank] != after[bank]]
    assert {after[bank] for bank in moved} == {"replica-8"}
    assert len(moved) < 1.3 * len(BANKS) / 9


def test_a_lost_replica_gives_its_banks_to_all_others() -> None:
    before = {bank: owners(bank, REPLICAS)[0] for bank in BANKS}
    left = REPLICAS[1:]
    moved = Counter(owners(b, left)[0] for b in BANKS if before[b] == REPLICAS[0])
    assert set(moved) == set(left)
    assert all(owners(b, left)[0] == before[b] for b in BANKS if before[b] != REPLICAS[0])


def test_a_replica_above_its_bound_is_passed_over() -> None:
    first, second = ranked("t/b", REPLICAS)[:2]
    assert owners("t/b", REPLICAS, {first: 50.0}) == [second]
    assert owners("t/b", REPLICAS, dict.fromkeys(REPLICAS, 50.0)) == [first]
    assert owners("t/b", REPLICAS, {first: 8.0}) == [first]  # a quiet hour
    assert owners("t/b", REPLICAS, {first: 8.5}) == [second]
    assert owners("t/b", [first], {first: 1000.0}) == [first]


def test_hot_banks_are_served_by_the_next_in_rank_as_well() -> None:
    order = ranked("t/b", REPLICAS)
    assert owners("t/b", REPLICAS, copies=3) == order[:3]
    assert owners("t/b", REPLICAS, copies=99) == order
    assert [copies_for(s, 8) for s in (0.0, 0.1, 0.13, 0.5, 1.0)] == [1, 1, 2, 4, 8]
    assert owners("t/b", []) == []


def test_load_stays_within_the_bound_while_banks_are_placed() -> None:
    load = dict.fromkeys(REPLICAS, 0.0)
    for number, bank in enumerate(BANKS):
        load[owners(bank, REPLICAS, load)[0]] += 10.0 if number % 10 == 0 else 1.0
    mean = sum(load.values()) / len(load)
    assert max(load.values()) <= 1.25 * mean + 10.0


def test_ordinal_ranges_cover_a_bank_once() -> None:
    assert shard_ranges(10, 4) == [(0, 4), (4, 8), (8, 10)]
    assert shard_ranges(4, 4) == [(0, 4)]
    assert shard_ranges(0, 4) == [(0, 0)]


def test_a_bank_s_share_follows_recent_traffic() -> None:
    traffic = Traffic()
    assert traffic.seen("a", 100.0) == 1.0
    assert traffic.seen("b", 100.0) == 0.5
    for _ in range(98):
        traffic.seen("a", 100.0)
    assert traffic.seen("b", 100.0) == pytest.approx(2 / 101)
    # Ten half-lives later the old hundred weigh a tenth of a request.
    assert traffic.seen("b", 100.0 + 10 * HALF_LIFE_S) > 0.9


def test_forgotten_banks_leave_no_trace() -> None:
    traffic = Traffic()
    for number in range(1000):
        traffic.seen(f"bank-{number}", float(number) * HALF_LIFE_S)
    assert len(traffic) < 50
    assert traffic.seen("bank-999", 999 * HALF_LIFE_S) == pytest.approx(2 / 3, rel=0.01)
