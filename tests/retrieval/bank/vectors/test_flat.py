"""Exact search on the CPU: congruent with a plain product, equal to the last bit with itself."""

from __future__ import annotations

import threading
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.bank.columns import AliveSet
from retrieval.bank.vectors.flat import FlatBackend, FlatVectors, without_vector
from retrieval.bank.vectors.scan_host import HostScan
from retrieval.topk import best
from retrieval.types import FactType, Floats, Ints
from tests.retrieval.bank.vectors import congruence

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("size", [1, 2, 17, 400, 1300])
def test_answers_equal_those_of_a_plain_product(size: int) -> None:
    case = congruence.case(FlatBackend(), size, seed=size)
    if case.searchable.any() and all((case.types == t).any() for t in FactType):
        congruence.check(case)
    else:  # too small to hold every type: at least nothing is made up
        hits = case.store.scan(case.vectors[0]).top(5, None, FactType.WORLD)
        assert len(hits) == (case.searchable & (case.types == 0)).sum()


def test_a_scan_is_the_same_to_the_last_bit_whichever_way_it_is_made() -> None:
    case = congruence.case(FlatBackend(), 1100, 384)
    query = case.vectors[5]
    everyone = np.arange(1100, dtype=np.int32)
    dense = case.store.scan(query).at(everyone)
    pieces = [case.store.scan(query).at(everyone[i : i + 7]) for i in range(0, 1100, 7)]
    together = case.store.scan_many(np.stack([query, query]))[1].at(everyone)
    assert np.array_equal(dense, np.concatenate(pieces))
    assert np.array_equal(dense, together)
    twins = np.flatnonzero((case.vectors == case.vectors[5]).all(axis=1))
    assert len(set(dense[twins].tolist())) == 1


def test_a_bank_without_vectors_finds_nothing() -> None:
    store = FlatBackend().empty()
    empty = store.scan(np.ones(3, np.float32))
    assert len(empty.top(5, None, FactType.WORLD)) == 0
    assert empty.moments(None) == (0.0, 0.0)
    rows, _, _ = store.nearest(np.ones((2, 3), np.float32), np.zeros(2, np.uint8), 5, 0.0)
    assert len(rows) == 0
    population = AliveSet.empty().extended(np.zeros(2, np.uint8), np.empty(0, np.int32))
    bare = store.extended([np.empty((2, 0), np.float32)], np.ones(2, np.bool_), population)
    assert len(bare.scan(np.ones(3, np.float32)).top(5, None, FactType.WORLD)) == 0
    assert bare.scan(np.ones(3, np.float32)).at(np.array([0, 1], np.int32)).tolist() == [0, 0]
    population = population.extended(np.zeros(1, np.uint8), np.empty(0, np.int32))
    later = bare.extended([np.ones((1, 3), np.float32)], np.zeros(1, np.bool_), population)
    assert later.scan(np.ones(3, np.float32)).top(5, None, FactType.WORLD).ordinals.tolist() == [2]


def test_what_cannot_be_compared_is_refused() -> None:
    case = congruence.case(FlatBackend(), 50, 48)
    with pytest.raises(ValueError, match="384 dimensions"):
        case.store.scan(np.zeros(384, np.float32))
    with pytest.raises(ValueError, match="not finite"):
        case.store.scan(np.full(48, np.nan, np.float32))
    population = AliveSet.empty().extended(case.types, np.empty(0, np.int32))
    with pytest.raises(ValueError, match="dimensions"):
        case.store.extended([np.ones((1, 47), np.float32)], np.zeros(1, np.bool_), population)


def test_older_stores_stay_as_they_were() -> None:
    case = congruence.case(FlatBackend(), 300, 48)
    everyone = np.arange(300, dtype=np.int32)
    before = case.store.scan(case.vectors[3]).at(everyone)
    population = AliveSet.empty().extended(np.zeros(301, np.uint8), np.empty(0, np.int32))
    extra, none = np.ones((1, 48), np.float32), np.zeros(1, np.bool_)
    first = case.store.extended([extra], none, population)
    second = case.store.extended([-extra], none, population)  # a second branch
    assert first.rows(np.array([300], np.int32))[0, 0] == 1
    assert second.rows(np.array([300], np.int32))[0, 0] == -1
    assert np.array_equal(case.store.scan(case.vectors[3]).at(everyone), before)


def test_rows_that_are_no_direction_are_told_apart() -> None:
    rows = np.ones((5, 8), np.float32)
    rows[1] = 0
    rows[2, 3] = np.nan
    rows[3, 3] = np.inf
    assert without_vector(rows).tolist() == [False, True, True, True, False]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([-0.5, 0.0, 0.25, 0.25, 0.5, 1.0]), max_size=30),
    st.integers(0, 40),
)
def test_the_best_come_in_order_and_ties_by_ordinal(values: list[float], k: int) -> None:
    ordinals = np.arange(len(values), dtype=np.int32) * 2
    hits = best(np.array(values, np.float32), ordinals, k)
    expected = sorted(zip(values, ordinals.tolist(), strict=True), key=lambda p: (-p[0], p[1]))[:k]
    assert list(zip(hits.scores.tolist(), hits.ordinals.tolist(), strict=True)) == expected


def test_two_threads_ask_one_scan_at_once() -> None:
    store = cast(FlatVectors, congruence.case(FlatBackend(), 100, 48).store)
    slow, go = threading.Event(), threading.Event()
    few, others = np.arange(10, dtype=np.int32), np.arange(50, 60, dtype=np.int32)

    class Slow:
        """Answers for `few` when all else was asked, or after a while."""

        size, dimension = store.size, store.dimension
        candidates = store.candidates

        def gathered(self, query: Floats, ordinals: Ints) -> Floats:
            if len(ordinals) == 1:
                go.set()
                asking.join(1)
            elif ordinals[0] == 0:
                slow.set()
                go.wait(0.1)
            return store.gathered(query, ordinals)

    query = store.matrix[3]
    scan = HostScan(Slow(), query, lambda: store.dense(query), 0.9)
    asking = threading.Thread(target=scan.at, args=(few,))
    asking.start()
    slow.wait()
    expected = store.scan(query).at(np.append(others, np.int32(60)))
    np.testing.assert_array_equal(scan.at(others), expected[:-1])
    np.testing.assert_array_equal(scan.at(np.append(others, np.int32(60))), expected)
    asking.join()
