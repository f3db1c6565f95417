from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.arms.affinity import Scale
from retrieval.ranking.score_fusion import PARTS, fused_scores
from retrieval.ranking.signals import CandidatePool
from tests.retrieval.ranking.pools import SCALE, matrix, plain, pool

pytestmark = pytest.mark.unit

MEANING = plain(meaning=1.0)


def part(name: str) -> int:
    return PARTS.index(name)


def test_no_candidates() -> None:
    found = fused_scores(pool(0))
    assert found.score.shape == (0,)
    assert found.parts.shape == (0, len(PARTS))


def test_one_candidate_is_the_best() -> None:
    assert fused_scores(pool(1)).score.tolist() == [1.0]


def test_more_similar_is_better_and_by_how_much() -> None:
    found = fused_scores(pool(2, similarity=matrix(2, {(0, 0): 0.4}, 0.2)), MEANING)
    assert found.score == pytest.approx([1.0, np.exp(-0.5 * 2)], rel=1e-5)
    assert found.parts[0, part("meaning")] == pytest.approx(1.0, rel=1e-5)


def test_what_is_led_to_stays_behind_what_leads_to_it() -> None:
    chain = pool(
        4,
        similarity=matrix(4, {(0, 0): 0.6, (3, 0): 0.3}, 0.1),
        evidence=np.array([0.0, 9.0, 6.0, 0.0], np.float32),
        support=np.array([-1, 0, 1, -1], np.int32),
    )
    found = fused_scores(chain, MEANING)
    # 1 is led to by 0, 2 by 1: each a step behind, both before 3, which nothing leads to.
    assert found.score[:3] == pytest.approx(np.exp([0.0, -0.5, -1.0]))
    assert found.score[2] > found.score[3]
    assert found.parts[:, part("links")].tolist() == pytest.approx([0.0, 2.0, 1.5, 0.0])


def test_support_that_is_no_candidate_holds_nothing_back() -> None:
    led = pool(
        2,
        similarity=matrix(2, {(1, 0): 0.3}, 0.1),
        evidence=np.array([9.0, 0.0], np.float32),
        support=np.array([77, -1], np.int32),
    )
    assert fused_scores(led, MEANING).score[0] == 1.0


def test_support_never_lowers() -> None:
    similarity = matrix(2, {(0, 0): 0.4}, 0.1)
    alone = pool(2, similarity=similarity)
    led = replace(
        alone, evidence=np.array([3.0, 0.0], np.float32), support=np.array([1, -1], np.int32)
    )
    assert fused_scores(led, MEANING).score == pytest.approx(fused_scores(alone, MEANING).score)


@pytest.mark.parametrize(
    ("worse", "by"),
    [
        ({"superseded": np.array([False, True])}, 2.5),
        ({"outside": np.array([False, True])}, 6.0),
        ({"timely": np.array([True, False]), "happened": True}, 18.6),
    ],
)
def test_what_time_takes_and_gives(worse: dict[str, Any], by: float) -> None:
    found = fused_scores(pool(2, **worse), MEANING)
    assert found.score == pytest.approx([1.0, np.exp(-0.5 * by)])


def test_no_boost_overtakes_more_than_it_is_worth() -> None:
    # The extremes of one boost, 1.1 against 0.9, make up for 0.41 of score wherever it stands.
    step = 0.41 * SCALE.deviation
    similarity = matrix(17, {(i, 0): 0.8 - i * step for i in range(17)})
    got = fused_scores(pool(17, similarity=similarity), MEANING).score
    assert np.all(got[:-1] * 0.9 > got[1:] * 1.1 - 1e-12)


@given(st.data())
def test_lies_in_zero_to_one_and_is_the_sum_of_its_parts_whatever_comes(
    data: st.DataObject,
) -> None:
    n, t = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    spread = data.draw(st.sampled_from([0.0, 1e-6, 0.1, 1.0]))
    window = np.where(rng.random((n, 5)) < 0.5, -1, rng.integers(0, 99, (n, 5))).astype(np.int32)
    window[:, 0] = np.arange(n)
    terms = rng.exponential(3, (t, n, 5)).astype(np.float32)
    given = pool(
        n,
        window=window,
        similarity=rng.uniform(-1, 1, (n, 5)).astype(np.float32),
        terms=terms * (rng.random((t, 1, 1)) < 0.7),
        ceilings=rng.exponential(9, t).astype(np.float32) if rng.random() < 0.5 else np.empty(0),
        scale=Scale(0.1, spread, 5.0),
        ranks=np.maximum(rng.integers(-20, 300, (n, 4)), 0).astype(np.int32),
        document=rng.integers(-1, 4, n).astype(np.int32),
        tokens=rng.integers(0, 3000, n).astype(np.int32),
        named=rng.random(n) < 0.3,
        evidence=rng.exponential(2, n).astype(np.float32),
        support=rng.integers(-1, n + 3, n).astype(np.int32),
        asks=rng.random((n, 2)) < 0.5,
        timely=rng.random(n) < 0.5 if rng.random() < 0.5 else None,
    )
    found = fused_scores(given)
    assert found.score.shape == (n,)
    assert found.score.max() == 1.0
    assert np.all(found.score > 0)
    likely = found.score > 1e-300
    assert found.parts.sum(axis=1)[likely] == pytest.approx(np.log(found.score[likely]), abs=1e-9)
    order = rng.permutation(n)
    again = fused_scores(
        CandidatePool(**{f.name: mixed(f.name, given, order) for f in fields(CandidatePool)})
    )
    assert again.score == pytest.approx(found.score[order], rel=1e-7)


def mixed(name: str, given: CandidatePool, order: Any) -> Any:
    value = getattr(given, name)
    if name == "terms":
        return value[:, order]
    return value[order] if name not in ("ceilings", "scale") and np.ndim(value) else value
