"""The batcher under load, on virtual time: throughput, overload, fairness, priorities."""

from __future__ import annotations

import pytest

from models.batching.lanes import LaneLimits
from models.types import Priority
from tests.models.load_simulation import Device, Stream, simulate

pytestmark = pytest.mark.unit

LIMITS = LaneLimits(batch_tokens=32, bulk_batch_tokens=8, queued_tokens=256)


def test_keeps_up_with_800_requests_a_second() -> None:
    outcome = simulate([Stream("a", 800)], LIMITS, 20)["a"]
    assert len(outcome.served_s) / 20 >= 785
    assert outcome.percentile(0.99) <= 0.060
    assert not outcome.refused_s


def test_at_twice_its_capacity_it_serves_at_its_peak_and_refuses_the_rest_at_once() -> None:
    capacity = Device().capacity(32)
    outcome = simulate([Stream("a", 2 * capacity, deadline_s=0.25)], LIMITS, 10)["a"]
    assert len(outcome.served_s) / 10 >= 0.9 * capacity
    assert outcome.percentile(1.0) <= 0.25
    assert outcome.late <= 0.001 * len(outcome.served_s)
    assert max(outcome.refused_s) == 0


def test_one_tenants_flood_moves_anothers_p99_by_less_than_a_batch() -> None:
    calm = simulate([Stream("b", 100, seed=1)], LIMITS, 10)["b"].percentile(0.99)
    flood = Stream("a", 2 * Device().capacity(32), seed=2)
    flooded = simulate([Stream("b", 100, seed=1), flood], LIMITS, 10)["b"]
    batch_s = Device().fixed_s + 32 * Device().item_s
    assert not flooded.refused_s
    assert flooded.percentile(0.99) - calm < batch_s


def test_big_calls_of_one_tenant_do_not_hold_up_anothers_small_ones() -> None:
    calm = simulate([Stream("b", 50, seed=1)], LIMITS, 30)["b"].percentile(0.99)
    big = Stream("a", 10, items=100, seed=2)
    mixed = simulate([Stream("b", 50, seed=1), big], LIMITS, 30)["b"].percentile(0.99)
    assert mixed - calm < Device().fixed_s + 32 * Device().item_s


def test_bulk_delays_queries_by_less_than_one_small_batch() -> None:
    calm = simulate([Stream("b", 100, seed=1)], LIMITS, 30)["b"].percentile(0.99)
    bulk = Stream("a", 5, items=200, priority=Priority.BULK, seed=2)
    outcomes = simulate([Stream("b", 100, seed=1), bulk], LIMITS, 30)
    assert outcomes["b"].percentile(0.99) - calm < Device().fixed_s + 8 * Device().item_s
    assert outcomes["a"].served_s
