"""Names that mean one entity, and names that do not: the score and the clusters, no database."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.ingest.entities import distinct
from retrieval.ingest.facts import Mention
from retrieval.ingest.nicknames import variants
from retrieval.ingest.similarity import (
    ACCEPT,
    bare,
    cluster,
    overlap,
    ratio,
    recency,
    same_spelling,
    score,
    trigrams,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("new", "known", "name", "evidence"),
    [
        # (new, known, ratio, scores by name, with all company, and seen the same day)
        ("Alice", "Alice Chen", 0.666667, (0.333333, 0.633333, 0.833333)),
        ("Google", "Google Inc", 0.750000, (0.375000, 0.675000, 0.875000)),
        ("Bob", "Robert", 0.444444, (0.222222, 0.522222, 0.722222)),
        ("alice", "alicia", 0.727273, (0.363636, 0.663636, 0.863636)),
    ],
)
def test_scores(new: str, known: str, name: float, evidence: tuple[float, float, float]) -> None:
    assert ratio(new, known) == pytest.approx(name, abs=1e-6)
    found = (score(new, known, 0, 0), score(new, known, 1, 0), score(new, known, 1, 1))
    assert found == pytest.approx(evidence, abs=1e-6)


def test_punctuation_alone_makes_no_other_name() -> None:
    assert ratio("Dr. Waller", "Dr Waller") == pytest.approx(0.947368, abs=1e-6)
    assert score("Dr. Waller", "Dr Waller", 0, 0) > ACCEPT


@pytest.mark.parametrize(
    ("a", "b"),
    [("O'Brien", "O’Brien"), ("U.S.A.", "USA"), ("Jean-Luc", "jean luc"), ("“Max”", "Max")],
)
def test_same_spelling(a: str, b: str) -> None:
    assert same_spelling(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("C++", "C"),
        ("C#", "C"),
        ("v1.0", "v10"),
        ("Ann", "Anne"),
        ("Smith Jones", "Smith"),
        ("...", "!"),
    ],
)
def test_other_spelling(a: str, b: str) -> None:
    assert not same_spelling(a, b)


def test_recency_fades_within_a_week() -> None:
    day = datetime(2024, 5, 8, tzinfo=UTC)
    assert recency(day, day) == 1
    assert recency(day, day - timedelta(days=3.5)) == pytest.approx(0.5)
    assert recency(day, day - timedelta(days=7)) == 0
    assert recency(None, day) == recency(day, None) == 0


def test_trigrams_are_those_of_the_database() -> None:
    assert trigrams("Bo b") == {"  b", " bo", "bo ", " b "}
    assert overlap("word", "two words") == pytest.approx(4 / 11)


def test_short_forms_widen_the_search() -> None:
    assert "robert smith" in variants("Bob Smith")
    assert "bob" in variants("Robert")
    assert variants("Project Atlas") == ()


def test_tidy_mentions() -> None:
    given = [
        Mention("  Ann \n Lee"),
        Mention("ann lee", resolve=False),
        Mention(" "),
        Mention("Bo"),
    ]
    assert distinct(given) == (Mention("Ann Lee", resolve=False), Mention("Bo"))


def test_clusters() -> None:
    names = ["Anthropic Inc", "Anthropic", "Sprint 11", "Sprint 12", "Bo"]
    counts = {"Anthropic": 3, "Anthropic Inc": 1}
    found = cluster(names, counts, frozenset(), 0.5)
    assert found["Anthropic Inc"] == found["Anthropic"] == "Anthropic"
    assert len(set(found.values())) == 4  # numbers tell names apart
    apart = frozenset({frozenset(("Anthropic", "Anthropic Inc"))})
    assert cluster(names, counts, apart, 0.5)["Anthropic Inc"] == "Anthropic Inc"
    many = [f"Name {chr(97 + i % 26)}{i}" for i in range(300)]
    assert cluster(many, {}, frozenset(), 0.5) == {name: name for name in many}


_NAMES = st.lists(st.text("abcde ", min_size=1, max_size=8), max_size=12, unique=True)


@given(_NAMES, st.randoms())
def test_clusters_do_not_depend_on_the_order(names: list[str], random: Random) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)
    assert cluster(names, {}, frozenset(), 0.5) == cluster(shuffled, {}, frozenset(), 0.5)


@given(st.text(max_size=20), st.text(max_size=20), st.floats(0, 1), st.floats(0, 1))
def test_scores_are_shares(a: str, b: str, company: float, seen: float) -> None:
    assert 0 <= score(a, b, company, seen) <= 1 + 1e-9
    assert bare(bare(a)) == bare(a)
