"""A split bank answers as an unsplit one."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.bank.vectors.flat import FlatBackend, FlatVectors
from retrieval.bank.vectors.gpu import GpuBackend
from retrieval.bank.vectors.partitioned import PartitionedBackend, PartitionedVectors
from retrieval.bank.vectors.scan_host import HostScan
from retrieval.types import FactType
from tests.retrieval.bank.vectors import congruence

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("threads", [1, 3])
def test_answers_equal_those_of_a_plain_product(threads: int) -> None:
    backend = PartitionedBackend(FlatBackend(), 64, threads)
    case = congruence.case(backend, 400, batches=5)
    assert isinstance(case.store, PartitionedVectors)
    assert len(case.store.shards) == 7
    congruence.check(case)


def test_ranges_may_lie_on_a_device() -> None:
    pytest.importorskip("torch")
    device = GpuBackend("cpu", budget_bytes=2 << 20, host_rows=32)
    congruence.check(congruence.case(PartitionedBackend(device, 150), 400, tolerance=1e-3))
    device.close()


@pytest.mark.parametrize("seed", range(5))
def test_the_answer_is_the_same_to_the_last_bit(seed: int) -> None:
    split = congruence.case(PartitionedBackend(FlatBackend(), 37), 500, seed=seed).store
    whole = congruence.case(FlatBackend(), 500, seed=seed)
    query = whole.vectors[np.flatnonzero(whole.searchable)[seed]]
    mine, theirs = split.scan(query), whole.store.scan(query)
    allowed = np.random.default_rng(seed).random(500) < 0.5
    for fact_type in FactType:
        for filtered in (None, allowed):
            a, b = mine.top(50, filtered, fact_type), theirs.top(50, filtered, fact_type)
            assert np.array_equal(a.ordinals, b.ordinals)
            assert np.array_equal(a.scores, b.scores)


def test_growing_copies_at_most_one_range() -> None:
    case = congruence.case(PartitionedBackend(FlatBackend(), 64), 200, batches=1)
    store = case.store
    assert isinstance(store, PartitionedVectors)
    population = store.population.extended(np.zeros(10, np.uint8), np.empty(0, np.int32))
    more = np.full((10, 48), 48**-0.5, np.float32)
    grown = store.extended([more], np.zeros(10, np.bool_), population)
    for before, after in zip(store.shards[:3], grown.shards[:3], strict=True):
        assert before is after
    before, after = store.shards[3], grown.shards[3]
    assert isinstance(before, FlatVectors)
    assert isinstance(after, FlatVectors)
    assert (before.size, after.size) == (8, 18)


def test_a_death_reaches_its_range_and_no_other() -> None:
    store = congruence.case(PartitionedBackend(FlatBackend(), 64), 200).store
    assert isinstance(store, PartitionedVectors)
    victim = int(np.flatnonzero(store.population.live[64:128])[0]) + 64
    dead = np.array([victim], np.int32)
    population = store.population.extended(np.empty(0, np.uint8), dead)
    after = store.extended([], np.empty(0, np.bool_), population)
    kept = [a is b for a, b in zip(store.shards, after.shards, strict=True)]
    assert kept == [True, False, True, True]
    query = np.ones(48, np.float32)
    for fact_type in FactType:
        assert victim not in after.scan(query).top(200, None, fact_type).ordinals


def test_a_bank_of_one_range_is_searched_as_an_unsplit_one() -> None:
    case = congruence.case(PartitionedBackend(FlatBackend(), 64), 60)
    congruence.check(case)
    assert isinstance(case.store.scan(case.vectors[0]), HostScan)
