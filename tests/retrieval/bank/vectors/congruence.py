"""What every vector store must answer, against a plain fp32 product: one suite for all of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.columns import AliveSet
from retrieval.bank.vectors.flat import VectorBackend, VectorStore
from retrieval.types import Bools, FactType, Floats, Ints


@dataclass(frozen=True)
class Case:
    """A store and the truth about it. `tolerance`: how far a similarity may be off."""

    store: VectorStore
    vectors: Floats
    types: NDArray[np.uint8]
    searchable: Bools
    tolerance: float


def case(
    backend: VectorBackend,
    size: int,
    dimension: int = 48,
    *,
    seed: int = 0,
    tolerance: float = 1e-6,
    batches: int = 3,
) -> Case:
    """A bank grown in several writes, with duplicates, deletions and rows without a vector."""
    chance = np.random.default_rng(seed)
    vectors = chance.standard_normal((size, dimension)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    copies = chance.integers(0, size, size // 5)
    vectors[chance.integers(0, size, size // 5)] = vectors[copies]
    absent = chance.random(size) < 0.03
    vectors[absent] = 0
    types = chance.choice(3, size, p=[0.6, 0.3, 0.1]).astype(np.uint8)
    dead = np.flatnonzero(chance.random(size) < 0.1).astype(np.int32)
    store, population = backend.empty(), AliveSet.empty()
    edges = np.linspace(0, size, batches + 1).astype(int)
    for first, end in itertools.pairwise(edges):
        gone = dead[dead < end]  # some were there before this write
        population = population.extended(types[first:end], gone)
        store = store.extended([vectors[first:end]], absent[first:end], population)
    return Case(store, vectors, types, population.live & ~absent, tolerance)


def check(case: Case, seed: int = 1) -> None:
    """Every question of the interface, with filters that let through much, little and nothing."""
    chance = np.random.default_rng(seed)
    size, dimension = case.vectors.shape
    queries = chance.standard_normal((5, dimension)).astype(np.float32)
    queries[1] = case.vectors[np.flatnonzero(case.searchable)[0]]
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    many = case.store.scan_many(queries)
    for query, together in zip(queries, many, strict=True):
        truth = np.clip(case.vectors @ query, -1, 1)
        for share in (None, 0.5, 0.1, 0.01, 0.0):
            allowed: Bools | None = None
            if share is not None:
                allowed = np.asarray(chance.random(size) < share)
            for fact_type in FactType:
                for k in (1, size // 3, 5 * size):
                    # A new scan each time: its first question must not lean on an earlier one.
                    for scan in (case.store.scan(query), together):
                        hits = scan.top(k, allowed, fact_type)
                        _check_top(case, truth, allowed, fact_type, k, hits.ordinals, hits.scores)
        scan = case.store.scan(query)
        ordinals = chance.integers(0, size, 40).astype(np.int32)
        for asked in (ordinals[:3], ordinals, np.arange(size, dtype=np.int32), ordinals[:0]):
            found = scan.at(asked)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, truth[asked], atol=case.tolerance)
        for kind in (None, *FactType):
            members = case.searchable & (True if kind is None else case.types == kind)
            mean, deviation = case.store.scan(query).moments(kind)
            np.testing.assert_allclose(mean, truth[members].mean(), atol=case.tolerance)
            np.testing.assert_allclose(deviation, truth[members].std(), atol=2 * case.tolerance)
    for kind in (None, *FactType):
        members = case.searchable & (True if kind is None else case.types == kind)
        assert case.store.searchable(kind) == members.sum()
    _check_nearest(case, queries)
    some = chance.integers(0, size, 9).astype(np.int32)
    np.testing.assert_allclose(case.store.rows(some), case.vectors[some], atol=case.tolerance)


def _check_top(
    case: Case,
    truth: Floats,
    allowed: Bools | None,
    fact_type: FactType,
    k: int,
    ordinals: Ints,
    scores: Floats,
) -> None:
    members = case.searchable & (case.types == fact_type)
    if allowed is not None:
        members &= allowed
    wanted = np.flatnonzero(members)
    assert ordinals.dtype == np.int32
    assert scores.dtype == np.float32
    # Never starved, never a placeholder, never one that was filtered out or is dead.
    assert len(ordinals) == min(k, len(wanted))
    assert members[ordinals].all()
    assert len(np.unique(ordinals)) == len(ordinals)
    np.testing.assert_allclose(scores, truth[ordinals], atol=case.tolerance)
    assert np.all(scores <= 1.0)
    assert np.all(scores >= -1.0)
    assert np.all(np.diff(scores) <= 0)
    tied = np.diff(scores) == 0
    assert np.all(np.diff(ordinals)[tied] > 0)
    best = np.sort(truth[wanted])[::-1][: len(ordinals)]
    np.testing.assert_allclose(scores, best, atol=case.tolerance)
    # Equal vectors are equal: what was left out at the cut comes after what was taken.
    if len(ordinals) and len(ordinals) < len(wanted):
        last = case.vectors[ordinals[-1]]
        twins = wanted[(case.vectors[wanted] == last).all(axis=1)]
        taken = np.isin(twins, ordinals)
        assert np.all(np.diff(taken.astype(int)) <= 0)


def _check_nearest(case: Case, queries: Floats) -> None:
    types = np.array([0, 1, 2, 0, 1], np.uint8)
    for k, floor in ((1, -2.0), (7, -2.0), (50, 0.1), (50, 0.99), (3, 2.0)):
        row, ordinal, similarity = case.store.nearest(queries, types, k, floor)
        assert np.all(np.diff(row) >= 0)
        assert row.dtype == ordinal.dtype == np.int32
        assert similarity.dtype == np.float32
        for i, query in enumerate(queries):
            truth = np.clip(case.vectors @ query, -1, 1)
            wanted = np.flatnonzero(case.searchable & (case.types == types[i]))
            best = np.sort(truth[wanted])[::-1][:k]
            mine = similarity[row == i]
            certain = best[best >= floor + case.tolerance]
            assert len(certain) <= len(mine) <= np.sum(best >= floor - case.tolerance)
            np.testing.assert_allclose(mine, best[: len(mine)], atol=case.tolerance)
            assert np.isin(ordinal[row == i], wanted).all()
