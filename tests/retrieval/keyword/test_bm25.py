"""Scores equal an oracle's over random histories of a bank, however its postings are packed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.keyword import bm25
from retrieval.keyword.analyser import Analyser, IndexedText, Query
from retrieval.keyword.postings import Postings, merge
from retrieval.store.segments.format import pack, unpack
from retrieval.types import FactType
from tests.retrieval.keyword.oracle import oracle, ranked

pytestmark = pytest.mark.unit

ANALYSER = Analyser("none")
WORDS = [f"w{chr(97 + i)}x" for i in range(12)]
TYPES = tuple(FactType)

texts = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
writes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(texts, min_size=1, max_size=6)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("update"), st.tuples(st.integers(0, 30), texts)),
        st.tuples(st.just("skip"), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=12,
)


class Bank:
    """The postings under test and, beside them, plain dictionaries."""

    def __init__(self) -> None:
        self.postings = Postings.empty()
        self.payloads: list[bytes] = []
        self.documents: dict[int, Counter[str]] = {}

    def add(self, added: list[str], at: int | None = None) -> None:
        first = self.postings.end if at is None else at
        payload = pack(ANALYSER.weigh([IndexedText(text) for text in added]))
        self.payloads.append(payload)
        self.postings = self.postings.append(unpack(payload), first)
        for i, text in enumerate(added):
            self.documents[first + i] = Counter(text.split())

    def delete(self, nth: int) -> bool:
        if not self.documents:
            return False
        ordinal = sorted(self.documents)[nth % len(self.documents)]
        del self.documents[ordinal]
        self.postings = self.postings.without(np.array([ordinal], np.int32))
        return True

    def play(self, history: list[tuple[str, object]]) -> None:
        for what, value in history:
            match what, value:
                case "add", list(added):
                    self.add(added)
                case "delete", int(nth):
                    self.delete(nth)
                case "update", (int(nth), str(text)):
                    if self.delete(nth):
                        self.add([text])
                case "skip", int(gap):
                    self.add(["wax"], self.postings.end + gap)
                case _:
                    raise AssertionError(what)


@settings(max_examples=150, deadline=None)
@given(
    history=writes,
    query=st.lists(st.sampled_from([*WORDS, "absent"]), min_size=1, max_size=6),
    allowed=st.lists(st.booleans(), min_size=80, max_size=80),
    k1=st.sampled_from([1.2, 0.8, 2.0, 0.0]),
    b=st.sampled_from([0.75, 0.0, 0.5, 1.0]),
    limit=st.integers(1, 5),
)
def test_equals_the_oracle(
    history: list[tuple[str, object]],
    query: list[str],
    allowed: list[bool],
    k1: float,
    b: float,
    limit: int,
) -> None:
    bank = Bank()
    bank.play(history)
    expected = oracle(bank.documents, Counter(query), k1, b)
    postings = bank.postings
    matches = bm25.scores(postings, ANALYSER.query(" ".join(query)), k1=k1, b=b)
    assert matches.ordinals.tolist() == sorted(expected)
    assert matches.scores.tolist() == pytest.approx(
        [expected[ordinal] for ordinal in sorted(expected)], rel=1e-5
    )
    mask = np.resize(np.array(allowed), postings.end)
    kinds = (np.arange(postings.end) % 3).astype(np.uint8)
    exact = dict(zip(matches.ordinals.tolist(), matches.scores.tolist(), strict=True))
    hits = bm25.top(matches, kinds, TYPES, limit, allowed=mask)
    for kind in TYPES:
        among = [i for i in range(postings.end) if mask[i] and kinds[i] == kind]
        assert hits[kind].ordinals.tolist() == ranked(exact, among, limit)


@settings(max_examples=50, deadline=None)
@given(
    batches=st.lists(st.lists(texts, max_size=6), min_size=1, max_size=6),
    dead=st.lists(st.booleans(), min_size=40, max_size=40),
    query=texts,
)
def test_merged_segments_score_the_same_to_the_bit(
    batches: list[list[str]], dead: list[bool], query: str
) -> None:
    segments = [ANALYSER.weigh([IndexedText(t) for t in batch]) for batch in batches]
    one_by_one = Postings.empty()
    for segment in segments:
        one_by_one = one_by_one.append(segment, one_by_one.end)
    live = ~np.resize(np.array(dead), one_by_one.end)
    merged = Postings.empty().append(merge(segments), 0)
    terms = ANALYSER.query(query)
    expected = bm25.scores(one_by_one, terms, live)
    got = bm25.scores(merged, terms, live)
    assert got.ordinals.tolist() == expected.ordinals.tolist()
    assert got.scores.tolist() == expected.scores.tolist()


def test_dense_and_sparse_sums_are_equal() -> None:
    rng = np.random.default_rng(1)
    document = np.sort(rng.integers(0, 500, 900)).astype(np.int32)
    impact = rng.random(900, np.float32)
    dense = bm25.summed(document, impact, 500, 1, ())
    sparse = bm25.summed(document, impact, 1_000_000, 1, ())
    assert dense.ordinals.tolist() == sparse.ordinals.tolist()
    assert dense.scores.tolist() == sparse.scores.tolist()


def test_an_older_object_is_not_changed() -> None:
    bank = Bank()
    bank.add(["wax wbx", "wax"])
    before = bank.postings
    seen = bm25.scores(before, ANALYSER.query("wax")).scores.tolist()
    bank.add(["wax wcx"])
    bank.delete(0)
    assert bm25.scores(before, ANALYSER.query("wax")).scores.tolist() == seen
    assert len(bm25.scores(bank.postings, ANALYSER.query("wax"))) == 2


def test_scores_of_arbitrary_candidates() -> None:
    bank = Bank()
    bank.add(["wax", "wbx", "wax wbx", ""])
    matches = bm25.scores(bank.postings, ANALYSER.query("wax"))
    at = matches.at(np.array([3, 2, 0, 1, 2], np.int32))
    assert at[0] == at[3] == 0
    assert at[1] == at[4] == matches.scores[1]
    assert at[2] == matches.scores[0]
    nothing = bm25.scores(bank.postings, ANALYSER.query("absent"))
    assert nothing.at(np.array([0, 1], np.int32)).tolist() == [0.0, 0.0]


def test_equal_scores_keep_ordinal_order_and_floors_include() -> None:
    bank = Bank()
    bank.add(["wax"] * 7 + ["wax wax"])
    matches = bm25.scores(bank.postings, ANALYSER.query("wax"))
    kinds = np.zeros(8, np.uint8)
    hits = bm25.top(matches, kinds, TYPES, 4)
    least = float(matches.scores[0])
    assert hits[FactType.WORLD].ordinals[1:].tolist() == [0, 1, 2]
    assert len(hits[FactType.OBSERVATION]) == 0
    assert len(bm25.top(matches, kinds, TYPES, 9, floor=least)[FactType.WORLD]) == 8
    assert len(bm25.top(matches, kinds, TYPES, 9, floor=least * 1.01)[FactType.WORLD]) == 1


def test_the_filter_comes_before_the_cut() -> None:
    bank = Bank()
    bank.add(["wax wax"] * 50 + ["wax wbx wcx"])
    allowed = np.zeros(51, np.bool_)
    allowed[50] = True
    matches = bm25.scores(bank.postings, ANALYSER.query("wax"))
    hits = bm25.top(matches, np.zeros(51, np.uint8), TYPES, 3, allowed=allowed)
    assert hits[FactType.WORLD].ordinals.tolist() == [50]


def test_appends_stay_few_and_in_order() -> None:
    bank = Bank()
    for i in range(300):
        bank.add([f"wax {WORDS[i % 12]}"])
    assert len(bank.postings.tiers) <= 8
    with pytest.raises(ValueError, match="already there"):
        bank.postings.append(unpack(bank.payloads[0]), 5)


def test_empty() -> None:
    matches = bm25.scores(Postings.empty(), ANALYSER.query("wax"))
    assert len(matches) == 0
    assert len(bm25.top(matches, np.empty(0, np.uint8), TYPES, 5)[FactType.WORLD]) == 0
    bank = Bank()
    bank.add(["", ""])
    assert len(bm25.scores(bank.postings, ANALYSER.query("wax"))) == 0
    bank.add(["wax"])
    bank.delete(2)
    assert len(bm25.scores(bank.postings, ANALYSER.query("wax"))) == 0


@pytest.mark.parametrize("limit", [1, 3, 50, 400])
def test_the_cut_of_many_matches_is_exact(limit: int) -> None:
    rng = np.random.default_rng(limit)
    n = 6000
    score = (rng.integers(1, 60, n) / 7).astype(np.float32)  # many equal ones
    kinds = rng.choice(3, n, p=[0.9, 0.098, 0.002]).astype(np.uint8)
    score[kinds == 1] *= 0.5  # a type that the best matches hold none of
    matches = bm25.ScoredMatches(np.arange(n, dtype=np.int32), score)
    exact = dict(enumerate(score.tolist()))
    hits = bm25.top(matches, kinds, TYPES, limit)
    for kind in TYPES:
        among = np.flatnonzero(kinds == kind).tolist()
        assert hits[kind].ordinals.tolist() == ranked(exact, among, limit)


def test_a_mask_is_known_again() -> None:
    bank = Bank()
    bank.add(["wax", "wbx", "wax"])
    live = np.array([True, True, False])
    postings = bank.postings.with_live(live)
    assert postings.with_live(live) is postings
    assert len(bm25.scores(postings, ANALYSER.query("wax"), live)) == 1
    everybody = np.ones(3, np.bool_)
    assert bank.postings.with_live(everybody) is bank.postings
    assert postings.with_live(everybody).total_length == bank.postings.total_length


@pytest.mark.parametrize("dead", [[], [1, 4]])
def test_the_terms_of_a_score_add_up(dead: list[int]) -> None:
    bank = Bank()
    bank.add(["wax wbx", "wax", "wcx", ""])
    bank.add(["wbx wbx wcx", "wax wcx wdx"])
    postings = bank.postings.without(np.array(dead, np.int32))
    query = ANALYSER.query("wax wbx wcx wcx absent")
    matches = bm25.scores(postings, query)
    asked = np.array([5, 0, -1, 4, 3, 0, 1, 2], np.int32)
    parts = matches.terms_at(asked)
    assert parts.shape == (len(query), len(asked))
    assert parts.sum(0).tolist() == pytest.approx(matches.at(asked).tolist(), rel=1e-6)
    for term, row in zip(query.terms, parts, strict=True):
        alone = Query(np.array([term]), query.weights[query.terms == term])
        assert row.tolist() == bm25.scores(postings, alone).at(asked).tolist()
