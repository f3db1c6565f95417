"""What arrays of ordinals are made of: against numpy's own."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.topk import among, distinct

pytestmark = pytest.mark.unit

LENGTHS = (0, 1, 2, 3, 50, 400)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_distinct_is_unique(length: int, dtype: type[np.integer]) -> None:
    values = np.random.default_rng(length).integers(-20, 60, length).astype(dtype)
    found = distinct(values)
    np.testing.assert_array_equal(found, np.unique(values))
    assert found.dtype == dtype


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("few", [0, 1, 5])
def test_among_is_isin(length: int, few: int) -> None:
    chance = np.random.default_rng(length)
    values, wanted = (chance.integers(0, 30, n).astype(np.int32) for n in (length, few))
    np.testing.assert_array_equal(among(values, wanted), np.isin(values, wanted))
