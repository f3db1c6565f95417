"""Banks on replicas: even, stable, bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from retrieval.bank.shards.placement import (
    DEPTH,
    HALF_LIFE_S,
    HOLD_S,
    Copies,
    Ranking,
    Traffic,
    copies_for,
    key_of,
    shard_ranges,
    within_bound,
)

pytestmark = pytest.mark.unit

BANKS = [f"tenant/bank-{i}" for i in range(4000)]
SLOTS = range(8)


def first(slots: Sequence[int]) -> dict[str, int]:
    ranking = Ranking(slots)
    return {bank: ranking.first(bank, 1)[0] for bank in BANKS}


def test_every_process_ranks_alike_whatever_the_order_of_slots() -> None:
    assert Ranking(SLOTS).first("t/b") == Ranking(SLOTS[::-1]).first("t/b")
    # Pinned: routers of two releases must agree.
    assert Ranking(SLOTS).first("t/b") == [2, 1, 3, 4, 6, 7, 0, 5]


def test_banks_spread_evenly() -> None:
    share = Counter(first(SLOTS).values())
    assert max(share.values()) < 1.2 * len(BANKS) / len(SLOTS)
    assert min(share.values()) > 0.8 * len(BANKS) / len(SLOTS)


def test_a_new_slot_takes_its_share_and_nothing_else_moves() -> None:
    before, after = first(SLOTS), first(range(9))
    moved = [bank for bank in BANKS if before[bank] != after[bank]]
    assert {after[bank] for bank in moved} == {8}
    assert len(moved) < 1.3 * len(BANKS) / 9


def test_a_lost_slot_s_banks_go_to_all_the_others() -> None:
    before, after = first(SLOTS), first(SLOTS[1:])
    moved = Counter(after[bank] for bank in BANKS if before[bank] == 0)
    assert set(moved) == set(SLOTS[1:])
    assert all(after[bank] == before[bank] for bank in BANKS if before[bank] != 0)


def test_a_full_slot_is_passed_over() -> None:
    order = Ranking(SLOTS).first("t/b")
    carried = {order[0]: 50.0}

    def load(slot: int) -> float:
        return carried.get(slot, 0.0)

    assert within_bound(order, load, 6.0) == [*order[1:], order[0]]
    assert within_bound(order, lambda _: 50.0, 50.0) == order
    carried = {order[0]: 8.0}
    assert within_bound(order, load, 1.0) == order  # a quiet hour
    carried = {order[0]: 8.5}
    assert within_bound(order, load, 1.0)[0] == order[1]


def test_hot_banks_are_served_by_the_next_in_rank_as_well() -> None:
    ranking = Ranking(SLOTS)
    order = ranking.first("t/b", 99)
    assert sorted(order) == list(SLOTS)
    assert ranking.first("t/b", 3) == order[:3]
    assert [copies_for(s, 8) for s in (0.0, 0.1, 0.13, 0.5, 1.0)] == [1, 1, 2, 4, 8]
    assert Ranking([]).first("t/b") == []


def test_copies_come_at_once_and_go_late() -> None:
    copies = Copies()
    assert [copies.of("a", needed, 0.0) for needed in (1, 3, 2, 1, 4)] == [1, 3, 3, 3, 4]
    assert copies.of("b", 1, 0.0) == 1
    assert copies.of("a", 3, HOLD_S - 0.1) == 4
    assert copies.of("a", 3, HOLD_S) == 3
    assert copies.of("a", 1, HOLD_S + 1) == 3
    assert copies.of("a", 1, 2 * HOLD_S) == 1
    assert copies.of("a", 1, 2 * HOLD_S) == 1


def test_few_of_many_are_the_first_of_all() -> None:
    ranking = Ranking(range(0, 3000, 3))
    for bank in BANKS[:50]:
        every = ranking.first(bank, 1000)
        assert len(set(every)) == 1000
        assert ranking.first(bank) == ranking.first(bank) == every[:DEPTH]
    keys = np.asarray([key_of(bank) for bank in BANKS[:200]], dtype=np.uint64)
    assert ranking.winners(keys).tolist() == [ranking.first(b, 1)[0] for b in BANKS[:200]]


def test_load_stays_within_the_bound_while_banks_are_placed() -> None:
    ranking, load = Ranking(SLOTS), dict.fromkeys(SLOTS, 0.0)
    for number, bank in enumerate(BANKS):
        mean = (sum(load.values()) + 1.0) / len(load)
        load[within_bound(ranking.first(bank), load.__getitem__, mean)[0]] += (
            10.0 if number % 10 == 0 else 1.0
        )
    assert max(load.values()) <= 1.25 * sum(load.values()) / len(load) + 10.0


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
