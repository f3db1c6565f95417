"""The first of every arm keeps a place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.ranking import leaders

pytestmark = pytest.mark.unit


def order(*positions: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(positions, np.int32)


def test_who_leads() -> None:
    ranks = np.array([[1, 0], [2, 1], [3, 2], [0, 0]], np.int32)
    assert leaders.first(ranks).tolist() == [True, True, False, False]
    assert leaders.first(np.zeros((0, 4), np.int32)).tolist() == []
    for without, left in ((0, [False, True, False, False]), (1, [True, False, True, False])):
        assert leaders.first(ranks, np.arange(4) == without).tolist() == left
    assert not leaders.first(ranks, np.ones(4, np.bool_)).any()
    nobody = np.zeros(4, np.bool_)
    assert leaders.first(ranks, nobody).tolist() == leaders.first(ranks).tolist()
    assert leaders.first(ranks[1:], nobody[1:]).tolist() == [True, False, False]
    assert leaders.first(np.zeros((0, 4), np.int32), nobody[:0]).tolist() == []


@pytest.mark.parametrize(
    ("leading", "places", "expected"),
    [
        ({0, 1}, 3, [0, 1, 2, 3, 4, 5]),
        ({5}, 3, [0, 1, 5, 2, 3, 4]),
        ({2, 5}, 3, [0, 2, 5, 1, 3, 4]),
        ({0, 1, 2, 5}, 3, [0, 1, 2, 3, 4, 5]),
        ({4, 5}, 3, [0, 4, 5, 1, 2, 3]),
        ({3, 4, 5}, 2, [3, 4, 0, 1, 2, 5]),
        ({5}, 1, [5, 0, 1, 2, 3, 4]),
        ({5}, 0, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_places(leading: set[int], places: int, expected: list[int]) -> None:
    leads = np.array([i in leading for i in range(6)])
    assert leaders.kept(order(*range(6)), leads, places).tolist() == expected


@given(st.permutations(range(30)), st.sets(st.integers(0, 29), max_size=4), st.integers(4, 12))
def test_all_who_lead_are_there_and_nobody_is_lost(
    positions: list[int], leading: set[int], places: int
) -> None:
    leads = np.array([i in leading for i in range(30)])
    given_order = order(*positions)
    kept = leaders.kept(given_order, leads, places).tolist()
    assert sorted(kept) == sorted(positions)
    assert leading <= set(kept[:places])
    plain = [i for i in positions if i not in leading]
    assert [i for i in kept if i not in leading] == plain
    assert not given_order.flags.writeable or given_order.tolist() == positions
