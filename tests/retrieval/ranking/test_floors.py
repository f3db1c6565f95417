"""A floor asks what a score is shown as."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.ranking.floors import ARM_DIGITS, FINAL_DIGITS, least

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("digits", [ARM_DIGITS, FINAL_DIGITS])
def test_what_is_shown_decides(digits: int) -> None:
    chance = np.random.default_rng(7)
    scores = chance.uniform(-1, 30, 2_000)
    shown = np.round(scores, digits)
    given = chance.uniform(-1, 30, 50)
    for floor in (*shown[:200].tolist(), *given.tolist(), *np.round(given, 2).tolist()):
        kept = scores >= least(floor, digits)
        assert kept.tolist() == (shown >= floor).tolist()


@pytest.mark.parametrize("floor", [1e308, -1e308, 1e13, float("inf")])
def test_a_floor_beyond_digits_is_itself(floor: float) -> None:
    assert least(floor, ARM_DIGITS) == floor
