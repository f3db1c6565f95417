from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.types import Doubles
from tests.bench import metrics

pytestmark = pytest.mark.unit

KEYS = st.integers(0, 12)


def measured(
    ranking: list[int], gold: dict[int, float], depth: int = 50
) -> tuple[Doubles, Doubles]:
    return metrics.gains([ranking], [gold], depth)


def test_recall_counts_the_share_within_the_first_k() -> None:
    found, ideal = measured([7, 1, 8, 2], {1: 1.0, 2: 1.0, 3: 1.0})
    assert metrics.recall(found, ideal, 1)[0] == 0
    assert metrics.recall(found, ideal, 2)[0] == pytest.approx(1 / 3)
    assert metrics.recall(found, ideal, 4)[0] == pytest.approx(2 / 3)


def test_complete_needs_every_relevant_one() -> None:
    found, ideal = measured([5, 1, 2, 9], {1: 1.0, 2: 1.0})
    assert metrics.complete(found, ideal, 2)[0] == 0
    assert metrics.complete(found, ideal, 3)[0] == 1


def test_reciprocal_rank_reads_the_first_relevant_one() -> None:
    found, ideal = measured([5, 6, 1, 2], {1: 1.0, 2: 1.0})
    assert metrics.reciprocal_rank(found, ideal)[0] == pytest.approx(1 / 3)
    found, ideal = measured([5, 6], {1: 1.0})
    assert metrics.reciprocal_rank(found, ideal)[0] == 0


def test_ndcg_of_a_worked_example() -> None:
    # gains 3, 0, 2 against the ideal 3, 2: (3 + 2/2) / (3 + 2/log2(3))
    found, ideal = measured([1, 9, 2], {1: 3.0, 2: 2.0})
    assert metrics.ndcg(found, ideal, 10)[0] == pytest.approx(4 / (3 + 2 / np.log2(3)))


def test_ndcg_within_k_is_measured_against_the_best_k() -> None:
    found, ideal = measured([1, 2, 3], {1: 1.0, 2: 1.0, 3: 1.0})
    assert metrics.ndcg(found, ideal, 2)[0] == pytest.approx(1.0)


def test_a_question_without_anything_relevant_has_no_value() -> None:
    found, ideal = metrics.gains([[1, 2], [1]], [{}, {1: 1.0}], 10)
    for values in (
        metrics.recall(found, ideal, 5),
        metrics.complete(found, ideal, 5),
        metrics.reciprocal_rank(found, ideal),
        metrics.ndcg(found, ideal, 10),
    ):
        assert np.isnan(values[0])
        assert values[1] == pytest.approx(1.0)


@given(
    ranking=st.lists(KEYS, unique=True),
    gold=st.dictionaries(KEYS, st.sampled_from([1.0, 2.0, 4.0]), min_size=1),
    k=st.integers(1, 15),
)
def test_every_measure_lies_between_zero_and_one_and_recall_grows_with_k(
    ranking: list[int], gold: dict[int, float], k: int
) -> None:
    found, ideal = measured(ranking, gold, 20)
    values = [
        metrics.recall(found, ideal, k)[0],
        metrics.complete(found, ideal, k)[0],
        metrics.reciprocal_rank(found, ideal)[0],
        metrics.ndcg(found, ideal, k)[0],
    ]
    assert all(0 <= value <= 1 + 1e-12 for value in values)
    assert metrics.recall(found, ideal, k + 1)[0] >= values[0]
    perfect = sorted(gold, key=lambda key: -gold[key])
    best, _ = measured(perfect, gold, 20)
    assert metrics.ndcg(best, ideal, k)[0] == pytest.approx(1.0)
