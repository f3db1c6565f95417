"""The temporal arm where a window holds a whole large bank, one day holds it, or nothing does."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.arms import temporal
from retrieval.bank.filters import WindowBounds
from retrieval.types import FactType, Floats, Longs
from tests.bench.temporal import DAY_US, START, arm, bank_of, sorting, vectors_of

pytestmark = pytest.mark.unit

SIZE = 660_000
YEARS = (START, START + 730 * DAY_US)
QUESTION = np.eye(8, dtype=np.float32)[0]
LIMIT = 300


@pytest.fixture(scope="module")
def vectors() -> Floats:
    return vectors_of(SIZE, 8)


def check(
    dates: Longs, vectors: Floats, window: tuple[int | None, int | None]
) -> list[temporal.TemporalHits]:
    """The arm's answers by type, with what must hold of them whatever the dates are."""
    bank = bank_of(dates, vectors)
    scan = bank.vectors.scan(QUESTION)
    answers = arm(bank, scan, WindowBounds(*window, *window))
    for kind, answer, pool in zip(
        FactType, answers, sorting(bank, scan, WindowBounds(*window, *window)), strict=True
    ):
        entries = answer.ordinals[: temporal.ENTRY_POINTS]
        assert set(entries.tolist()) <= set(pool.tolist())
        assert len(entries) == min(temporal.ENTRY_POINTS, len(pool))
        if len(pool):
            assert entries[0] == pool[0]
        assert len(np.unique(answer.ordinals)) == len(answer) <= LIMIT
        assert np.all(bank.columns.fact_type[answer.ordinals] == kind)
        assert np.all(scan.at(answer.ordinals) >= 0.1)
        assert np.all((answer.scores >= 0) & (answer.scores <= 1))
    return answers


@pytest.mark.parametrize("window", [YEARS, (START, None), (None, YEARS[1])])
def test_all_in_the_window(vectors: Floats, window: tuple[int | None, int | None]) -> None:
    dates = np.random.default_rng(3).integers(*YEARS, SIZE)
    world, experience, observation = check(dates, vectors, window)
    # Every part of two years has its say; an open window is cut by what the pool holds.
    eighth = (YEARS[1] - YEARS[0]) // temporal.BUCKETS
    for answer in (world, experience):
        entries = dates[answer.ordinals[: temporal.ENTRY_POINTS]]
        parts = len(np.unique((entries - YEARS[0]) // eighth))
        assert parts >= temporal.BUCKETS - (None in window)
    assert len(observation) == 0


def test_all_on_one_day_and_an_hour_of_it(vectors: Floats) -> None:
    hour = DAY_US // 24
    dates = START + np.random.default_rng(4).integers(0, DAY_US, SIZE)
    world, *_ = check(dates, vectors, (START, START + DAY_US - 1))
    assert len(world) > temporal.ENTRY_POINTS
    world, *_ = check(dates, vectors, (START + 9 * hour, START + 10 * hour - 1))
    entries = dates[world.ordinals[: temporal.ENTRY_POINTS]] - START
    assert np.all(entries // hour == 9)


def test_all_at_one_instant(vectors: Floats) -> None:
    dates = np.full(SIZE, START)
    world, *_ = check(dates, vectors, (START, START))
    assert np.all(world.proximity == 1.0)


@pytest.mark.parametrize("window", [(START - 30 * DAY_US, START - 1), (None, START - 1)])
def test_none_in_the_window(vectors: Floats, window: tuple[int | None, int | None]) -> None:
    dates = np.random.default_rng(5).integers(*YEARS, SIZE)
    assert [len(answer) for answer in check(dates, vectors, window)] == [0, 0, 0]
