"""Banks with a survey: the answers of banks without, to the last bit, however coarse the codes."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from retrieval.bank.columns import AliveSet
from retrieval.bank.vectors.codes import Codes
from retrieval.bank.vectors.flat import FEW, SURVEYED_DIMENSION, FlatBackend, FlatVectors
from retrieval.bank.vectors.moments import WAITING
from retrieval.bank.vectors.partitioned import PartitionedBackend
from retrieval.types import Bools, FactType, Floats, Ints
from tests.retrieval.bank.vectors import congruence

pytestmark = pytest.mark.unit

PLAIN, SURVEYED = FlatBackend(1 << 40), FlatBackend(1)
NONE_DEAD = np.empty(0, np.int32)


def unit(rows: NDArray[np.floating]) -> Floats:
    scaled: Floats = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def zero(rows: Floats) -> Bools:
    return np.asarray(~rows.any(axis=1))


def grown(
    backend: FlatBackend, rows: Floats, types: NDArray[np.uint8], dead: Ints, parts: int = 1
) -> FlatVectors:
    store, population = backend.empty(), AliveSet.empty()
    for part in np.array_split(np.arange(len(rows)), parts):
        population = population.extended(types[part], NONE_DEAD)
        store = store.extended([rows[part]], zero(rows[part]), population)
    population = population.extended(np.empty(0, np.uint8), dead)
    return store.extended([], np.empty(0, np.bool_), population)


def same_answers(
    rows: Floats, queries: Floats, dead: Ints = NONE_DEAD, *, kinds: int = 3, seed: int = 0
) -> None:
    chance = np.random.default_rng(seed)
    size = len(rows)
    types = chance.integers(0, kinds, size).astype(np.uint8)
    plain = grown(PLAIN, rows, types, dead)
    surveyed = grown(SURVEYED, rows, types, dead, parts=3)
    assert plain.survey is None
    assert surveyed.survey is not None
    filters: list[Bools | None] = [None, chance.random(size) < 0.5, chance.random(size) < 0.05]
    asked = chance.integers(0, size, 20).astype(np.int32)
    together = surveyed.scan_many(queries)
    for query, shared in zip(queries, together, strict=True):
        for k, allowed in itertools.product((1, 3, size // 20, size // 4, 2 * size), filters):
            truth = plain.scan(query)
            for scan in (surveyed.scan(query), shared):
                for kind in FactType:
                    mine, theirs = scan.top(k, allowed, kind), truth.top(k, allowed, kind)
                    assert np.array_equal(mine.ordinals, theirs.ordinals)
                    assert np.array_equal(mine.scores, theirs.scores)
                assert np.array_equal(scan.at(asked), truth.at(asked))


@pytest.mark.parametrize("dimension", [1, 3, 48, 64, 100])
@pytest.mark.parametrize("size", [1, 2, 60, 900])
def test_answers_equal_those_of_a_plain_product(size: int, dimension: int) -> None:
    case = congruence.case(SURVEYED, size, dimension, seed=size)
    if case.searchable.any() and all((case.types == t).any() for t in FactType):
        congruence.check(case)


def test_a_split_bank_may_have_surveys() -> None:
    congruence.check(congruence.case(PartitionedBackend(SURVEYED, 150), 400, batches=5))


@pytest.mark.parametrize("dimension", [3, 16, 384])
def test_any_rows(dimension: int) -> None:
    chance = np.random.default_rng(dimension)
    rows, queries = (unit(chance.standard_normal((n, dimension))) for n in (1500, 4))
    rows[chance.integers(0, 1500, 300)] = rows[chance.integers(0, 1500, 300)]
    rows[chance.integers(0, 1500, 30)] = 0
    queries[0] = rows[7]
    same_answers(rows, queries, chance.choice(1500, 200, replace=False).astype(np.int32))


def test_rows_nearer_to_each_other_than_codes_can_tell() -> None:
    chance = np.random.default_rng(1)
    middle = unit(chance.standard_normal((1, 96)))
    rows = unit(middle + 1e-5 * chance.standard_normal((800, 96)))
    same_answers(rows, np.concatenate([middle, rows[:2]]), kinds=1)


def test_rows_that_are_all_the_same() -> None:
    rows = np.repeat(unit(np.random.default_rng(2).standard_normal((1, 33))), 500, axis=0)
    same_answers(rows, rows[:1])
    across = rows[:1].copy()
    across[0, :2] = across[0, 1], -across[0, 0]
    across[0, 2:] = 0
    same_answers(rows, unit(across))


def test_one_coordinate_that_drowns_the_others() -> None:
    chance = np.random.default_rng(3)
    rows, queries = (chance.standard_normal((n, 64)) for n in (900, 3))
    for of in (rows, queries):
        of[:, 5] = 200.0
    same_answers(unit(rows), unit(queries))
    rows[::2, 5] = 1e-3  # coarse and fine rows in one bank
    same_answers(unit(rows), unit(queries))
    same_answers(unit(rows), np.eye(64, dtype=np.float32)[:6])


def test_rows_of_one_coordinate_and_of_very_small_ones() -> None:
    rows = np.concatenate([np.eye(40), -np.eye(40)]).repeat(8, axis=0).astype(np.float32)
    rows[::3] *= np.float32(1e-20)
    rows[::5] *= np.float32(1e-42)
    same_answers(rows, unit(np.random.default_rng(4).standard_normal((2, 40))))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_small_whole_numbers(data: st.DataObject) -> None:
    """Rows with many ties, and with values that fall half-way between two codes."""
    size, dimension = data.draw(st.integers(1, 60)), data.draw(st.sampled_from([3, 5, 17]))
    number = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 1.0 + 1 / 254, 2.0])
    numbers = st.lists(number, min_size=size * dimension, max_size=size * dimension)
    rows = np.array(data.draw(numbers), np.float32).reshape(size, dimension)
    query = rows[:1] if rows[0].any() else np.ones((1, dimension), np.float32)
    dead = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1)))), np.int32)
    same_answers(rows, query, dead, kinds=2)


@pytest.mark.parametrize("spread", [1e-4, 1.0, 30.0])
def test_every_similarity_is_within_its_bounds(spread: float) -> None:
    chance = np.random.default_rng(5)
    scale = np.exp(spread * chance.standard_normal(200) / 10)
    rows, queries = (unit(chance.standard_normal((n, 200)) * scale) for n in (3000, 20))
    store = grown(PLAIN, rows, np.zeros(3000, np.uint8), NONE_DEAD)
    codes = Codes.empty(200)
    for first, end in ((0, 1000), (1000, 1001), (1001, 3000)):
        codes = codes.extended(rows[first:end])
    for query, sums in zip(queries, codes.sums(queries), strict=True):
        assert np.array_equal(sums, codes.sums(query[None])[0])
        lower, upper = codes.bounds(query, sums)
        found = store.dense(query)
        assert np.all(lower <= found)
        assert np.all(found <= upper)
        assert np.median(upper - lower) < 0.3


def test_the_bounds_of_some_rows_are_those_of_all() -> None:
    chance = np.random.default_rng(4)
    rows = unit(chance.standard_normal((500, 100)))
    query = unit(chance.standard_normal((1, 100)))[0]
    codes = Codes.empty(100).extended(rows)
    order = chance.permutation(500).astype(np.int32)
    whole = codes.bounds(query, codes.sums(query[None])[0])
    for runs in ([slice(3, 3)], [slice(0, 500)], [slice(200, 300), slice(7, 7), slice(0, 64)]):
        some = np.concatenate([order[run] for run in runs])
        for mine, theirs in zip(codes.taken(order).bounds_of(query, runs), whole, strict=True):
            assert np.array_equal(mine, theirs[some])


def test_few_rows_are_compared_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(6)
    rows, queries = (unit(chance.standard_normal((n, 384))) for n in (6000, 3))
    store = grown(SURVEYED, rows, np.zeros(6000, np.uint8), NONE_DEAD)
    compared: list[int] = []
    gathered = FlatVectors.gathered

    def counted(self: FlatVectors, query: Floats, ordinals: Ints) -> Floats:
        compared.append(len(ordinals))
        return gathered(self, query, ordinals)

    def never(self: FlatVectors, query: Floats) -> Floats:
        raise AssertionError("every row was compared")

    monkeypatch.setattr(FlatVectors, "gathered", counted)
    monkeypatch.setattr(FlatVectors, "dense", never)
    for query in queries:
        scan = store.scan(query)
        scan.moments(None)
        assert not compared
        assert len(scan.top(30, None, FactType.WORLD)) == 30
        assert sum(compared) < 1200
        compared.clear()


def moments_agree(store: FlatVectors, queries: Floats, precision: float = 1e-6) -> None:
    there = np.concatenate([store.candidates(kind) for kind in FactType])
    for query in queries:
        exact = store.rows(there).astype(np.float64) @ query.astype(np.float64)
        mean, deviation = store.scan(query).moments(None)
        np.testing.assert_allclose(mean, exact.mean(), rtol=precision, atol=precision * 0.01)
        np.testing.assert_allclose(deviation, exact.std(), rtol=precision, atol=precision * 0.01)
        assert store.scan(query).moments(None) == (mean, deviation)


def test_moments_follow_a_bank_that_changes() -> None:
    """Rows of a narrow cone, in writes of all sizes, nearly all of which die in the end."""
    chance = np.random.default_rng(7)
    axis = chance.standard_normal(96)
    rows, queries = (unit(axis + 0.9 * chance.standard_normal((n, 96))) for n in (6000, 4))
    rows[chance.integers(0, 6000, 50)] = 0
    store, population, at = SURVEYED.empty(), AliveSet.empty(), 0
    for step in [3000, 1, 1, 5, WAITING, WAITING + 1, 1, *[7] * 20, 2000, 1]:
        part = rows[at : at + step]
        dead = chance.integers(0, at + step, step // 9 + 1).astype(np.int32)
        population = population.extended(np.zeros(len(part), np.uint8), dead)
        store = store.extended([part], zero(part), population)
        at += step
        moments_agree(store, queries)
    while population.live.any():
        alive = np.flatnonzero(population.live)
        dead = chance.choice(alive, 1 + len(alive) // 3, replace=False).astype(np.int32)
        before, population = population, population.extended(np.empty(0, np.uint8), dead)
        store = store.extended([], np.empty(0, np.bool_), population)
        if population.live.any() and store.searchable(None) > 1:
            moments_agree(store, queries)
        assert before.live.sum() > population.live.sum()
    assert store.scan(queries[0]).moments(None) == (0.0, 0.0)


def test_older_stores_keep_their_moments() -> None:
    chance = np.random.default_rng(8)
    rows, queries = (unit(chance.standard_normal((n, 32))) for n in (600, 2))
    types = np.zeros(600, np.uint8)
    store = grown(SURVEYED, rows, types, NONE_DEAD)
    before = store.scan(queries[0]).moments(None)
    population = AliveSet.empty().extended(np.zeros(900, np.uint8), NONE_DEAD)
    for sign in (1, -1):  # two branches
        branch = store.extended([sign * rows[:300]], np.zeros(300, np.bool_), population)
        moments_agree(branch, queries)
    assert store.scan(queries[0]).moments(None) == before


def test_a_survey_begins_when_a_bank_has_grown() -> None:
    chance = np.random.default_rng(9)
    rows, queries = (unit(chance.standard_normal((n, 32))) for n in (100, 2))
    store, population = FlatBackend(60).empty(), AliveSet.empty()
    sizes = []
    for first in range(0, 100, 25):
        population = population.extended(np.zeros(25, np.uint8), NONE_DEAD)
        store = store.extended([rows[first : first + 25]], np.zeros(25, np.bool_), population)
        sizes.append((store.survey is not None, store.nbytes > store.size * 32 * 4))
    assert sizes == [(False, False), (False, False), (True, True), (True, True)]
    moments_agree(store, queries)


def test_several_threads_may_ask_one_scan() -> None:
    chance = np.random.default_rng(10)
    rows, queries = (unit(chance.standard_normal((n, 64))) for n in (3000, 8))
    store = grown(SURVEYED, rows, np.zeros(3000, np.uint8), NONE_DEAD)
    truth = [store.scan(query).top(40, None, FactType.WORLD) for query in queries]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            scans = store.scan_many(queries)
            asked = list(range(len(queries))) * 2
            found = pool.map(lambda i, of=scans: of[i].top(40, None, FactType.WORLD), asked)
            for i, hits in zip(asked, found, strict=True):
                assert np.array_equal(hits.ordinals, truth[i].ordinals)
                assert np.array_equal(hits.scores, truth[i].scores)


@pytest.mark.parametrize("floor", [-2.0, 0.0, 0.2])
def test_the_nearest_of_few_vectors_are_those_of_a_product(floor: float) -> None:
    chance = np.random.default_rng(11)
    rows, vectors = (unit(chance.standard_normal((n, 48))) for n in (2000, FEW))
    types, kinds = (chance.integers(0, 3, n).astype(np.uint8) for n in (2000, FEW))
    dead = np.arange(0, 2000, 7, dtype=np.int32)
    plain, surveyed = (grown(backend, rows, types, dead) for backend in (PLAIN, SURVEYED))
    for count in (1, FEW):
        asked = vectors[:count], kinds[:count], 20, floor
        mine, theirs = surveyed.nearest(*asked), plain.nearest(*asked)
        assert np.array_equal(mine[0], theirs[0])
        assert np.array_equal(mine[1], theirs[1])
        np.testing.assert_allclose(mine[2], theirs[2], atol=1e-6)
        assert len(mine[0])


def test_no_survey_where_its_sums_would_cost_more_than_it_saves() -> None:
    for dimension in (SURVEYED_DIMENSION, SURVEYED_DIMENSION + 1):
        store = grown(
            SURVEYED, np.eye(3, dimension, dtype=np.float32), np.zeros(3, np.uint8), NONE_DEAD
        )
        assert (store.survey is not None) == (dimension == SURVEYED_DIMENSION)
        assert store.scan(store.matrix[1]).top(1, None, FactType.WORLD).ordinals.tolist() == [1]
