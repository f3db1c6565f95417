"""The batcher's benchmark meets its goals; on virtual time, so the machine does not matter."""

from __future__ import annotations

import pytest

from tests.bench import batcher

pytestmark = pytest.mark.unit


def test_the_batcher_bench_meets_its_goals() -> None:
    rows, shifts, missed = batcher.bench(5.0)
    assert missed == []
    assert rows["pull 800/s"]["served/s"] > rows["timer 800/s"]["served/s"]
    assert len(shifts) == 3
