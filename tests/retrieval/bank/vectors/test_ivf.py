"""Inverted lists: exact similarities, most of the hits, all of them where a filter is narrow."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from retrieval.bank.columns import AliveSet
from retrieval.bank.vectors import ivf as vectors_ivf
from retrieval.bank.vectors.flat import NO_TYPE
from retrieval.bank.vectors.ivf import DEPTHS, IvfBackend, IvfScan, IvfVectors, Near
from retrieval.bank.vectors.scan_host import HostScan
from retrieval.topk import best
from retrieval.types import FactType, Floats, Ints
from tests.retrieval.bank.vectors import congruence

pytestmark = pytest.mark.unit

SIZE, DIMENSION = 6000, 32


def topics(size: int, seed: int) -> Floats:
    """Unit rows around sixty topics, the same ones for every seed."""
    centres = np.random.default_rng(0).standard_normal((60, DIMENSION))
    chance = np.random.default_rng(seed)
    rows = centres[chance.integers(0, 60, size)] + 0.6 * chance.standard_normal((size, DIMENSION))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


def store(
    rows: Floats, backend: IvfBackend, parts: int = 1, types: NDArray[np.uint8] | None = None
) -> IvfVectors:
    """A bank of these rows, all of one type unless said otherwise."""
    types = np.zeros(len(rows), np.uint8) if types is None else types
    grown, population = backend.empty(), AliveSet.empty()
    for part in np.array_split(np.arange(len(rows)), parts):
        population = population.extended(types[part], np.empty(0, np.int32))
        grown = grown.extended([rows[part]], np.zeros(len(part), np.bool_), population)
    return grown


def test_reading_every_list_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_ivf, "FEW", 0.0)
    monkeypatch.setattr(vectors_ivf, "MUCH", 1.0)
    read: list[int] = []
    near = IvfScan._near

    def noted(scan: IvfScan, probes: int) -> Near:
        read.append(probes)
        return near(scan, probes)

    monkeypatch.setattr(IvfScan, "_near", noted)
    case = congruence.case(IvfBackend(50), 400, batches=50)
    assert isinstance(case.store, IvfVectors)
    lists = case.store.lists
    assert lists is not None
    assert lists.size < 400
    every = replace(lists, probes=np.full(len(DEPTHS), len(lists.centroids)))
    congruence.check(replace(case, store=replace(case.store, lists=every)))
    assert set(read) == {len(lists.centroids)}


def test_all_hits_are_found_where_all_are_wanted() -> None:
    congruence.check(congruence.case(IvfBackend(50, recall=1.0), 400, batches=5))


@pytest.mark.parametrize("parts", [1, 40])
def test_the_answer_is_that_of_comparing_the_lists_rows_in_full(parts: int) -> None:
    rows, chance = topics(SIZE, 1), np.random.default_rng(8)
    rows[chance.integers(0, SIZE, 600)] = rows[chance.integers(0, SIZE, 600)]
    types = chance.choice(3, SIZE, p=[0.5, 0.3, 0.2]).astype(np.uint8)
    dead = np.sort(chance.choice(SIZE, 500, replace=False)).astype(np.int32)
    population = AliveSet.empty().extended(types, dead)
    bank = store(rows, IvfBackend(1000, recall=0.8), parts, types).extended(
        [], np.empty(0, np.bool_), population
    )
    lists, kinds = bank.lists, bank.exact.kinds()
    assert lists is not None
    assert (lists.size < SIZE) == (parts > 1)
    missed = 0
    for query in topics(20, 9):
        plain, order = replace(bank.exact, survey=None), lists.order(query)
        asked: IvfScan | HostScan = bank.scan(query)
        for share, kind, k in itertools.product((1.0, 0.6), FactType, (3, 30, 120)):
            allowed = chance.random(SIZE) < share
            mine = np.flatnonzero((kinds == kind) & allowed)
            probes = lists.enough(k * np.count_nonzero(kinds != NO_TYPE) / len(mine))
            near = np.isin(lists.of, order[:probes]).nonzero()[0]
            near = np.append(near, np.arange(lists.size, SIZE))
            near = near[np.isin(near, mine)]
            read: Ints = (near if len(near) >= k else mine).astype(np.int32)
            truth = best(plain.gathered(query, read), read, k)
            for scan in (bank.scan(query), asked):  # whatever was asked of it before
                hits = scan.top(k, None if share == 1.0 else allowed, kind)
                assert np.array_equal(hits.ordinals, truth.ordinals)
                assert np.array_equal(hits.scores, truth.scores)
            whole = plain.scan(query).top(k, allowed, kind)
            missed += not np.array_equal(truth.ordinals, whole.ordinals)
    assert missed


def test_a_small_bank_is_searched_in_full() -> None:
    small = store(topics(200, 1), IvfBackend(1000))
    assert small.lists is None
    assert isinstance(small.scan(topics(1, 2)[0]), HostScan)


@pytest.mark.parametrize("parts", [1, 40])
def test_recall_on_new_questions_is_about_what_was_measured(parts: int) -> None:
    rows = topics(SIZE, 1)
    bank = store(rows, IvfBackend(1000, recall=0.9), parts)
    lists = bank.lists
    assert lists is not None
    assert lists.enough(50) < len(lists.centroids) / 2
    found = []
    for query in topics(40, 2):
        scan = bank.scan(query)
        assert isinstance(scan, IvfScan)
        mine = scan.top(50, None, FactType.WORLD)
        true = np.argsort(-(rows @ query), kind="stable")[:50]
        np.testing.assert_allclose(mine.scores, rows[mine.ordinals] @ query, atol=1e-5)
        found.append(np.isin(true, mine.ordinals).mean())
    assert np.mean(found) > 0.85


def test_a_part_of_a_bank_is_searched_with_the_same_recall() -> None:
    chance = np.random.default_rng(7)
    types = chance.choice(3, SIZE, p=[0.5, 0.3, 0.2]).astype(np.uint8)
    bank = store(topics(SIZE, 1), IvfBackend(1000, recall=0.9), types=types)
    found: dict[tuple[FactType, float], list[float]] = {}
    for query in topics(40, 2):
        for part in itertools.product(FactType, (1.0, 0.7)):
            allowed = chance.random(SIZE) < part[1]
            mine = bank.scan(query).top(200, allowed, part[0])
            true = bank.exact.scan(query).top(200, allowed, part[0])
            found.setdefault(part, []).append(np.isin(true.ordinals, mine.ordinals).mean())
    means = {part: np.mean(each) for part, each in found.items()}
    assert min(means.values()) > 0.85, means
    assert max(means.values()) < 1, means


def test_a_filter_never_starves_the_answer() -> None:
    rows = topics(SIZE, 1)
    bank, chance = store(rows, IvfBackend(1000, recall=0.5)), np.random.default_rng(3)
    query = topics(1, 4)[0]
    for share in (0.001, 0.01, 0.05):
        allowed = chance.random(SIZE) < share
        hits = bank.scan(query).top(300, allowed, FactType.WORLD)
        true = bank.exact.scan(query).top(300, allowed, FactType.WORLD)
        assert hits.ordinals.tolist() == true.ordinals.tolist()
    assert len(bank.scan(query).top(5000, None, FactType.WORLD)) == 5000
    assert len(bank.scan(query).top(10, None, FactType.OBSERVATION)) == 0


def test_new_rows_are_found_before_they_join_a_list() -> None:
    bank = store(topics(SIZE, 1), IvfBackend(1000, recall=0.5))
    query = topics(1, 5)
    population = AliveSet.empty().extended(np.zeros(SIZE + 1, np.uint8), np.empty(0, np.int32))
    grown = bank.extended([query], np.zeros(1, np.bool_), population)
    assert grown.lists is bank.lists
    assert grown.scan(query[0]).top(1, None, FactType.WORLD).ordinals.tolist() == [SIZE]
    dead = AliveSet.empty().extended(np.zeros(SIZE + 1, np.uint8), np.array([SIZE], np.int32))
    gone = grown.extended([], np.empty(0, np.bool_), dead)
    assert SIZE not in gone.scan(query[0]).top(5, None, FactType.WORLD).ordinals


def test_the_moments_are_those_of_all() -> None:
    bank = store(topics(SIZE, 1), IvfBackend(1000))
    query = topics(1, 6)[0]
    similarities = bank.rows(np.arange(SIZE, dtype=np.int32)) @ query
    mean, deviation = bank.scan(query).moments(None)
    np.testing.assert_allclose(mean, similarities.mean(), rtol=1e-6)
    np.testing.assert_allclose(deviation, similarities.std(), rtol=1e-6)


def test_a_bank_whose_memories_are_all_gone() -> None:
    bank = store(topics(SIZE, 1), IvfBackend(1000))
    everyone = np.arange(SIZE, dtype=np.int32)
    nobody = AliveSet.empty().extended(np.zeros(SIZE, np.uint8), everyone)
    empty = bank.extended([], np.empty(0, np.bool_), nobody)
    assert len(empty.scan(topics(1, 2)[0]).top(5, None, FactType.WORLD)) == 0
