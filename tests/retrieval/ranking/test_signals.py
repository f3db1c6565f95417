from __future__ import annotations

import numpy as np
import pytest

from retrieval.arms.affinity import Scale, affinity
from retrieval.ranking.signals import CONTEXT, SIGNALS, CandidatePool, signals, windows
from retrieval.types import Doubles, Ints
from tests.retrieval.ranking.pools import SCALE, matrix, pool

pytestmark = pytest.mark.unit


def signal(given: CandidatePool, name: str) -> Doubles:
    return signals(given)[0][:, SIGNALS.index(name)]


def context(given: CandidatePool, name: str) -> float:
    return float(signals(given)[1][CONTEXT.index(name)])


def terms(
    n: int, *rows: dict[tuple[int, int], float]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.stack([matrix(n, row) for row in rows])


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


class TestWindows:
    def test_stop_at_the_ends_of_a_document(self) -> None:
        previous, following = np.array([-1, 0, 1, -1]), np.array([1, 2, -1, -1])
        got = windows(
            np.array([0, 1, 3], np.int32), previous.astype(np.int32), following.astype(np.int32)
        )
        assert got.tolist() == [[0, -1, 1, -1, 2], [1, 0, 2, -1, -1], [3, -1, -1, -1, -1]]
        assert got.dtype == np.int32

    def test_dtype_feeds_indexing(self) -> None:
        alone: Ints = np.array([-1], np.int32)
        assert windows(np.array([0], np.int32), alone, alone).shape == (1, 5)


class TestSignals:
    def test_there_is_one_for_each_name(self) -> None:
        columns, told = signals(pool(3))
        assert columns.shape == (3, len(SIGNALS))
        assert told.shape == (len(CONTEXT),)
        assert np.isfinite(columns).all()
        assert np.isfinite(told).all()

    def test_meaning_is_in_deviations_and_bends(self) -> None:
        given = pool(4, similarity=matrix(4, {(1, 0): 0.4, (2, 0): 1.0, (3, 0): -1.0}, 0.2))
        found = signal(given, "meaning")
        assert found[:2] == pytest.approx([0.0, 2.0], abs=1e-5)
        assert 6 < found[2] < 8
        assert -3 < found[3] < -1

    def test_words_are_its_own_and_what_neighbours_add_stands_apart(self) -> None:
        window = np.array([[0, 5, -1, -1, -1], [1, 6, -1, -1, -1], [2, 7, -1, -1, -1]], np.int32)
        own = {(0, 0): 4.0, (1, 0): 2.0, (2, 0): 4.0}
        given = pool(
            3, window=window, terms=terms(3, own | {(1, 1): 3.0}, {(0, 1): 3.0})
        )  # 0 has the other term beside it, 1 the same one again, stronger, but two fifths of it
        assert signal(given, "words") == pytest.approx([1.0, 0.5, 1.0])
        assert signal(given, "covered") == pytest.approx([0.4 * 3 / 4, 0.0, 0.0])

    def test_held_is_a_share_of_the_question_and_not_of_the_best(self) -> None:
        one = pool(2, terms=terms(2, {(0, 0): 2.0}, {}), ceilings=np.array([3.0, 6.0], np.float32))
        assert signal(one, "held") == pytest.approx([3 / 9, 0.0])
        assert signal(one, "words") == pytest.approx([1.0, 0.0])
        assert context(one, "held_best") - context(pool(2), "held_best") == pytest.approx(
            3 / 9 / 0.2
        )

    def test_without_ceilings_what_is_found_counts_as_all(self) -> None:
        one = pool(2, terms=terms(2, {(0, 0): 2.0, (1, 0): 1.0}))
        assert signal(one, "held") == pytest.approx([1.0, 0.5])

    def test_values_outside_the_document_are_ignored(self) -> None:
        given = pool(2, similarity=matrix(2, {(0, 1): 0.9}, 0.2))
        assert signal(given, "beside_meaning").tolist() == [0.0, 0.0]

    def test_the_best_of_a_document_is_seen_by_the_others(self) -> None:
        given = pool(
            3, similarity=matrix(3, {(0, 0): 0.4}, 0.2), document=np.array([4, 4, 9], np.int32)
        )
        assert signal(given, "document_meaning") == pytest.approx([-2 / 3, 4 / 3, -2 / 3], abs=1e-5)

    def test_a_long_text_stands_by_itself(self) -> None:
        """What stands around it counts less, for better and for worse."""
        window = np.array([[0, 5, -1, -1, -1], [1, 6, -1, -1, -1], [2, 7, -1, -1, -1]], np.int32)
        given = pool(
            3,
            window=window,
            similarity=matrix(3, {(0, 1): 0.5, (1, 1): 0.5}, 0.2),
            tokens=np.array([20, 192, 20], np.int32),
        )
        assert signal(given, "beside_meaning") == pytest.approx([1.0, 0.5, -2.0], abs=1e-5)

    def test_where_nothing_stands_beside_it_that_counts_neither_way(self) -> None:
        window = np.array([[0, 5, -1, -1, -1], [1, 6, -1, -1, -1], [2, -1, -1, -1, -1]], np.int32)
        given = pool(3, window=window, similarity=matrix(3, {(0, 1): 0.4}, 0.2))
        assert signal(given, "beside_meaning") == pytest.approx([1.0, -1.0, 0.0], abs=1e-5)

    def test_observations_have_no_part_in_what_is_usual(self) -> None:
        window = np.array([[0, 5, -1, -1, -1], [1, 6, -1, -1, -1], [2, -1, -1, -1, -1]], np.int32)
        given = {"window": window, "similarity": matrix(3, {(0, 1): 0.5}, 0.2),
                 "document": np.array([0, 0, -1], np.int32)}  # fmt: skip
        asks = np.array([[True, False], [False, True], [False, False]])
        made = pool(3, asks=asks, derived=np.array([False, False, True]), **given)
        alone = pool(2, asks=asks[:2], **{name: value[:2] for name, value in given.items()})
        assert signals(made)[0][:2] == pytest.approx(signals(alone)[0])
        assert context(made, "spoken") == context(alone, "spoken")
        none = pool(3, asks=asks, derived=np.zeros(3, np.bool_), **given)
        for got, expected in zip(signals(none), signals(pool(3, asks=asks, **given)), strict=True):
            assert got.tobytes() == expected.tobytes()
        only = pool(3, asks=asks, derived=np.ones(3, np.bool_), **given)
        assert signals(only)[0] == pytest.approx(signals(pool(3, asks=asks, **given))[0])

    def test_asking_and_being_asked(self) -> None:
        given = pool(2, asks=np.array([[True, False], [False, True]]))
        assert signal(given, "asks").tolist() == [-1.0, 1.0]


class TestContext:
    def test_what_is_usual_is_zero(self) -> None:
        asks = np.zeros((10, 2), np.bool_)
        asks[0, 0] = True
        usual = pool(
            10,
            legible=3.5,
            asks=asks,
            terms=terms(10, {(0, 0): 2.0}, {}),
            ceilings=np.array([4.0, 4.0], np.float32),
        )
        assert [context(usual, name) for name in CONTEXT] == pytest.approx(
            [0, 0, 0, (np.log(3) - 2.2) / 0.5]
        )

    def test_a_question_that_the_model_spells_and_one_it_reads(self) -> None:
        assert context(pool(2, legible=1.5), "legible") == pytest.approx(-2.0)
        assert context(pool(2, legible=0.0), "legible") == -3.0
        assert context(pool(2), "legible") == 0.0

    def test_talk_asks(self) -> None:
        asks = np.array([[True, False], [False, True]])
        assert context(pool(2, asks=asks), "spoken") == pytest.approx(0.4 / 0.15)

    def test_does_not_depend_on_the_order_of_equals(self) -> None:
        held = {(i, 0): 3.0 for i in range(8)}
        close = {(i, 0): 0.1 * (i % 3) for i in range(12)}
        given = pool(12, terms=terms(12, held), similarity=matrix(12, close))
        turned = pool(
            12, terms=given.terms[:, ::-1].copy(), similarity=given.similarity[::-1].copy()
        )
        assert signals(given)[1] == pytest.approx(signals(turned)[1])
