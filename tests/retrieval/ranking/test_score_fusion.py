from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.ranking.score_fusion import Scale, affinity, fuse, windows
from retrieval.types import Doubles, Ints

pytestmark = pytest.mark.unit

SCALE = Scale(0.2, 0.1, 8.0)


def fused(n: int, **given: Any) -> Doubles:
    """Scores of n candidates that differ only in what is given."""
    window = np.full((n, 5), -1, np.int32)
    window[:, 0] = np.arange(n)
    inputs: dict[str, Any] = {
        "window": window,
        "similarity": np.full((n, 5), 0.2, np.float32),
        "terms": np.zeros((0, n, 5), np.float32),
        "scale": SCALE,
        "document": np.full(n, -1, np.int32),
        "tokens": np.full(n, 20, np.int32),
        "named": np.zeros(n, np.bool_),
        "evidence": np.zeros(n, np.float32),
        "support": np.full(n, -1, np.int32),
    }
    inputs.update(given)
    return fuse(**inputs).scores


def matrix(n: int, rows: dict[tuple[int, int], float], fill: float = 0.0) -> np.ndarray[Any, Any]:
    out = np.full((n, 5), fill, np.float32)
    for at, value in rows.items():
        out[at] = value
    return out


class TestAffinity:
    def test_is_deviations_and_a_share_of_the_best_keyword_score(self) -> None:
        got = affinity(np.array([0.2, 0.4], np.float32), np.array([8.0, 2.0], np.float32), SCALE)
        assert got == pytest.approx([4.0, 3.0], abs=1e-5)

    def test_without_a_vector_or_a_match_the_other_part_stands(self) -> None:
        similarity, keyword = np.array([0.4], np.float32), np.array([4.0], np.float32)
        assert affinity(similarity, keyword, Scale(0.0, 0.0, 8.0)) == pytest.approx([2.0])
        assert affinity(similarity, keyword * 0, Scale(0.2, 0.1, 0.0)) == pytest.approx(
            [2.0], abs=1e-5
        )


def test_windows_stop_at_the_ends_of_a_document() -> None:
    previous, following = np.array([-1, 0, 1, -1]), np.array([1, 2, -1, -1])
    got = windows(
        np.array([0, 1, 3], np.int32), previous.astype(np.int32), following.astype(np.int32)
    )
    assert got.tolist() == [[0, -1, 1, -1, 2], [1, 0, 2, -1, -1], [3, -1, -1, -1, -1]]
    assert got.dtype == np.int32


class TestFusedScores:
    def test_no_candidates(self) -> None:
        assert len(fused(0)) == 0

    def test_one_candidate_is_the_best(self) -> None:
        assert fused(1).tolist() == [1.0]

    def test_more_similar_is_better_and_by_how_much(self) -> None:
        got = fused(2, similarity=matrix(2, {(0, 0): 0.4}, 0.2))
        # Two deviations, half as much again for being the best of its own document.
        assert got == pytest.approx([1.0, np.exp(-0.5 * 1.5 * 2)], rel=1e-5)

    def test_each_term_counts_once_over_the_neighbours(self) -> None:
        window = np.array([[0, 5, -1, -1, -1], [1, 6, -1, -1, -1], [2, 7, -1, -1, -1]], np.int32)
        terms = np.zeros((2, 3, 5), np.float32)
        terms[0, :, 0] = 3.0
        terms[1, 0, 1] = 3.0  # the other term, in the memory before
        terms[0, 1, 1] = 3.0  # the same term again
        got = fused(3, window=window, terms=terms)
        assert got[0] > got[2]
        assert got[0] > got[1]

    def test_neighbours_in_the_document_lift(self) -> None:
        window = np.array([[0, 5, -1, -1, -1], [1, -1, -1, 7, -1], [2, -1, -1, -1, -1]], np.int32)
        got = fused(3, window=window, similarity=matrix(3, {(0, 1): 0.6, (1, 3): 0.6}, 0.2))
        assert got[0] > got[1] > got[2]

    def test_values_outside_the_document_are_ignored(self) -> None:
        got = fused(2, similarity=matrix(2, {(0, 1): 0.9}, 0.2))
        assert got[0] == got[1]

    def test_the_best_of_a_document_lifts_the_others(self) -> None:
        similarity = matrix(3, {(0, 0): 0.7}, 0.2)
        got = fused(3, similarity=similarity, document=np.array([4, 4, 9], np.int32))
        assert got[0] > got[1] > got[2]

    @pytest.mark.parametrize(
        "better",
        [
            {"named": np.array([True, False])},
            {"evidence": np.array([1.0, 0.0], np.float32)},
            {"tokens": np.array([30, 3], np.int32)},
            {"asks": np.array([[False, False], [True, False]])},
            {"asks": np.array([[False, True], [False, False]])},
        ],
    )
    def test_what_else_lifts(self, better: dict[str, Any]) -> None:
        got = fused(2, **better)
        assert got[0] == 1.0 > got[1]

    def test_what_is_led_to_stays_behind_what_leads_to_it(self) -> None:
        similarity = matrix(4, {(0, 0): 0.6, (3, 0): 0.3}, 0.1)
        chain = {
            "similarity": similarity,
            "evidence": np.array([0.0, 9.0, 6.0, 0.0], np.float32),
            "support": np.array([-1, 0, 1, -1], np.int32),
        }
        got = fused(4, **chain)
        # 1 is led to by 0, 2 by 1: each a step behind, both before 3, which nothing leads to.
        assert got[:3] == pytest.approx(np.exp([0.0, -0.5, -1.0]))
        assert got[2] > got[3]

    def test_support_that_is_no_candidate_holds_nothing_back(self) -> None:
        led = {
            "evidence": np.array([9.0, 0.0], np.float32),
            "support": np.array([77, -1], np.int32),
        }
        got = fused(2, similarity=matrix(2, {(1, 0): 0.3}, 0.1), **led)
        assert got[0] == 1.0

    def test_support_never_lowers(self) -> None:
        similarity = matrix(2, {(0, 0): 0.4}, 0.1)
        led = {"evidence": np.array([3.0, 0.0], np.float32), "support": np.array([1, -1], np.int32)}
        assert fused(2, similarity=similarity, **led) == pytest.approx(
            fused(2, similarity=similarity)
        )

    def test_length_counts_up_to_a_point(self) -> None:
        assert fused(2, tokens=np.array([48, 4000], np.int32)).tolist() == [1.0, 1.0]

    def test_no_boost_overtakes_more_than_it_is_worth(self) -> None:
        # The extremes of one boost, 1.1 against 0.9, make up for 0.41 of score wherever similarity
        # counts in full.
        step = 0.41 / 1.5 * SCALE.deviation
        similarity = matrix(25, {(i, 0): 0.8 - i * step for i in range(25)})
        got = fused(25, similarity=similarity)
        assert np.all(got[:-1] * 0.9 > got[1:] * 1.1 - 1e-12)

    @given(st.data())
    def test_lies_in_zero_to_one_whatever_comes(self, data: st.DataObject) -> None:
        n, t = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 4))
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
        spread = data.draw(st.sampled_from([0.0, 1e-6, 0.1, 1.0]))
        window = np.where(rng.random((n, 5)) < 0.5, -1, rng.integers(0, 99, (n, 5))).astype(
            np.int32
        )
        window[:, 0] = np.arange(n)
        inputs: dict[str, Any] = {
            "window": window,
            "similarity": rng.uniform(-1, 1, (n, 5)).astype(np.float32),
            "terms": rng.exponential(3, (t, n, 5)).astype(np.float32),
            "scale": Scale(0.1, spread, 5.0),
            "document": rng.integers(-1, 4, n).astype(np.int32),
            "tokens": rng.integers(0, 3000, n).astype(np.int32),
            "named": rng.random(n) < 0.3,
            "evidence": rng.exponential(2, n).astype(np.float32),
            "support": rng.integers(-1, n + 3, n).astype(np.int32),
            "asks": rng.random((n, 2)) < 0.5,
        }
        got = fuse(**inputs).scores
        assert got.shape == (n,)
        assert got.max() == 1.0
        assert np.all(got > 0)
        order = rng.permutation(n)
        for name, values in inputs.items():
            if name not in ("terms", "scale"):
                inputs[name] = values[order]
        inputs["terms"] = inputs["terms"][:, order]
        assert fuse(**inputs).scores == pytest.approx(got[order], rel=1e-9)


def test_dtype_of_windows_feeds_indexing() -> None:
    alone: Ints = np.array([-1], np.int32)
    assert windows(np.array([0], np.int32), alone, alone).shape == (1, 5)
