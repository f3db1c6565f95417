"""Shares of slots: banks lie evenly by bytes, and few of them move."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.bank.shards.evenness import ENOUGH, FULL, shares
from retrieval.bank.shards.placement import DEPTH, Ranking, key_of

pytestmark = pytest.mark.unit

COUNT, SLOTS = 4000, range(40)
BANKS = [f"t/{number}" for number in range(COUNT)]
KEYS = np.asarray([key_of(bank) for bank in BANKS], dtype=np.uint64)
SIZES = np.random.default_rng(5).lognormal(9.0, 1.0, COUNT)


def fullest(slots: range, told: dict[int, float]) -> float:
    at = Ranking(slots, told).winners(KEYS)
    held = np.bincount(at, weights=SIZES, minlength=len(slots))
    return float(held.max() / held.mean())


def test_no_slot_is_much_fuller_than_the_mean() -> None:
    assert fullest(SLOTS, {}) > 1.3
    told = shares(SLOTS, KEYS, SIZES)
    assert fullest(SLOTS, told) <= FULL + 0.02
    assert all(0.0 < part <= 1.0 for part in told.values())


def test_a_smaller_share_moves_only_the_banks_that_it_drops() -> None:
    told = shares(SLOTS, KEYS, SIZES)
    before, after = Ranking(SLOTS, told).winners(KEYS), {**told, 3: told[3] / 2}
    now = Ranking(SLOTS, after).winners(KEYS)
    moved = before != now
    assert moved.any()
    assert set(before[moved].tolist()) == {3}
    gone = Ranking([slot for slot in SLOTS if slot != 3], told).winners(KEYS)
    assert (gone == before)[before != 3].all()


def test_shares_stay_while_they_are_good_enough() -> None:
    told = shares(SLOTS, KEYS, SIZES)
    assert shares(SLOTS, KEYS, SIZES, told) == told
    grown = SIZES * np.random.default_rng(6).uniform(0.95, 1.05, COUNT)
    assert shares(SLOTS, KEYS, grown, told) == told
    assert fullest(range(41), told) <= ENOUGH
    assert shares(range(41), KEYS, SIZES, told).keys() == set(range(41))


def test_every_router_ranks_alike_and_the_first_is_the_winner() -> None:
    told = shares(SLOTS, KEYS, SIZES)
    ranking, other = Ranking(SLOTS, told), Ranking([*SLOTS][::-1], told)
    winners = ranking.winners(KEYS[:300]).tolist()
    for bank, winner in zip(BANKS[:300], winners, strict=True):
        assert ranking.first(bank, 1) == [winner]
        assert ranking.first(bank) == other.first(bank)
        many = ranking.first(bank, 2 * DEPTH)
        assert len(set(many)) == 2 * DEPTH
        assert many[0] == winner


def test_what_cannot_be_evened_out_is_left() -> None:
    assert shares([4], KEYS, SIZES) == {}
    assert shares(SLOTS, KEYS[:0], SIZES[:0]) == {}
    one = np.zeros(COUNT)
    one[0] = 1e9  # one bank is all there is
    told = shares(SLOTS, KEYS, one)
    assert fullest(SLOTS, told) >= 1.0
    assert all(part > 0.0 for part in told.values())
