"""The heart of a recall on a bank of ten memories, with every score computed by hand.

Each memory has one term and no document, so a BM25 score is the term's idf, and the fused score is
exp(0.5 * (own - best own)), where own = (similarity - mean) / deviation + 4 * share of the words.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import exp, log, sqrt
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from retrieval.bank.loader import next_snapshot
from retrieval.bank.probe import Probe
from retrieval.bank.vectors.flat import FlatBackend
from retrieval.keyword.analyser import Query
from retrieval.ranking import score_fusion
from retrieval.ranking.shortlist import Question, Shortlist
from retrieval.ranking.weights import Ranked, RerankerOutput, rank
from retrieval.recall import explain, search
from retrieval.recall.search import SearchPlan
from retrieval.settings import RecallSettings
from retrieval.types import (
    DAY_US,
    Arm,
    FactType,
    LinkType,
    MinScores,
    RecallQuery,
    Window,
    microseconds,
)
from tests.retrieval.bank.model import DIMENSION, Ledger, Memory
from tests.retrieval.ranking.pools import plain

pytestmark = pytest.mark.unit

NOW = datetime(2025, 1, 1, tzinfo=UTC)
MAY = datetime(2024, 5, 10, tzinfo=UTC)
SIMILARITY = (0.9, 0.8, 0.6, 0, 0, 0, 0, 0, 0, 0)
TERM = (10, 11, 1, 1, 14, 15, 16, 17, 18, 19)
"""Term 1 is the question's."""

IDF = log(1 + (10 - 2 + 0.5) / (2 + 0.5))
MEAN = 0.23
DEVIATION = sqrt((10 * (0.181 - MEAN**2) + 10 * 0.1**2) / 20)
"""That of the ten similarities, held towards 0.1 with the weight of ten more."""

QUERY = RecallQuery("default", "bank-1", "which?", NOW)
SETTINGS = replace(RecallSettings(), enable_graph_retrieval=False)


def id_of(ordinal: int) -> bytes:
    return bytes([65 + ordinal]) * 16


def memories(**changes: Any) -> list[Memory]:
    """The ten; `m4={...}` changes the fifth."""
    made = [
        Memory(
            id_of(i),
            terms=(TERM[i],),
            vector=(SIMILARITY[i], sqrt(1 - SIMILARITY[i] ** 2), *[0.0] * (DIMENSION - 2)),
        )
        for i in range(10)
    ]
    for name, fields in changes.items():
        made[int(name[1:])] = replace(made[int(name[1:])], **fields)
    return made


def run(
    given: list[Memory],
    settings: RecallSettings = SETTINGS,
    query: RecallQuery = QUERY,
    window: Window | None = None,
    cap: int = 300,
) -> Shortlist:
    ledger = Ledger()
    ledger.write(given)
    bank = next_snapshot(None, ledger.delta(None), FlatBackend())
    asked = Query(np.array([1], np.uint64), np.ones(1, np.float32))
    plan = SearchPlan(
        query,
        settings,
        Question(query.text, window),
        Probe(np.eye(DIMENSION, dtype=np.float32)[0], asked),
        budget=100,
        cap=cap,
        hops=1,
        metadata=None,
        semantic_floor=0.5,
    )
    return search.searched(bank, plan).shortlist


def by_fused(shortlist: Shortlist) -> Ranked:
    return rank(QUERY, shortlist, RerankerOutput(None, "unknown", "fused"), SETTINGS)


@pytest.fixture(autouse=True)
def known_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested here is what reaches the score, whatever the fitted weights are."""
    model = plain(meaning=1.0, words=4.0)
    monkeypatch.setattr(search, "fused_scores", lambda pool: score_fusion.fused_scores(pool, model))


def own(ordinal: int) -> float:
    return (SIMILARITY[ordinal] - MEAN) / DEVIATION + (4 if TERM[ordinal] == 1 else 0)


def test_arms_and_reciprocal_ranks() -> None:
    found = run(memories()).found
    assert found.ordinals.tolist() == [2, 0, 1, 3]  # 1 and 3 are equal: the semantic arm is first
    assert found.ranks[:, Arm.SEMANTIC].tolist() == [3, 1, 2, 0]
    assert found.ranks[:, Arm.BM25].tolist() == [1, 0, 0, 2]
    assert found.rrf == pytest.approx([1 / 63 + 1 / 61, 1 / 61, 1 / 62, 1 / 62])
    nan = float("nan")
    assert found.scores[:, Arm.SEMANTIC] == pytest.approx([0.6, 0.9, 0.8, nan], nan_ok=True)
    assert found.scores[:, Arm.BM25] == pytest.approx([IDF, nan, nan, IDF], nan_ok=True)


def test_the_fused_score_orders_what_nothing_reranks() -> None:
    shortlist = run(memories())
    expected = [exp(0.5 * (own(i) - own(2))) for i in (2, 0, 1, 3)]
    assert shortlist.fused == pytest.approx(expected, rel=1e-5)
    ranked = by_fused(shortlist)
    assert shortlist.found.ordinals[ranked.order].tolist() == [2, 3, 0, 1]
    assert ranked.weight == pytest.approx(expected, rel=1e-5)  # nothing is dated: no boost


def test_the_cut_keeps_the_first_of_every_arm() -> None:
    shortlist = run(memories(), cap=2)
    assert shortlist.found.ordinals.tolist() == [2, 0]
    assert (shortlist.dropped, shortlist.cap) == (2, 2)


def test_scores_and_accounts() -> None:
    shortlist = run(memories())
    ranked = by_fused(shortlist)
    places = np.array([0, 3])
    words = pytest.approx(IDF, abs=1e-4)
    third = exp(0.5 * (own(3) - own(2)))
    assert list(explain.scores(shortlist, ranked, places)) == [
        {"final": 1.0, "reranker": None, "semantic": 0.6, "keyword": words},
        {
            "final": pytest.approx(third, abs=1e-6),
            "reranker": None,
            "semantic": None,
            "keyword": words,
        },
    ]
    first, last = explain.accounts(shortlist, ranked, places)
    assert first == {
        "arms": {"semantic": [3, 0.6], "bm25": [1, words]},
        "fused_rank": 1,
        "rrf": 0.032266,
        "ranked_by": "fused",
        "base": 1.0,
        "recency": 0.5,
        "temporal": 0.5,
        "proof": 0.5,
    }
    assert (last["arms"], last["fused_rank"]) == ({"bm25": [2, words]}, 4)


def test_contributions_add_up_to_the_served_score() -> None:
    shortlist = run(memories(), query=replace(QUERY, explain=True))
    ranked = by_fused(shortlist)
    told = list(explain.accounts(shortlist, ranked, np.arange(4)))
    for account, fused in zip(told, shortlist.fused.tolist(), strict=True):
        parts = account["contributions"]
        assert list(parts) == list(score_fusion.PARTS)
        assert account["fused_log"] == pytest.approx(sum(parts.values()), abs=1e-5)
        assert exp(account["fused_log"]) == pytest.approx(fused, rel=1e-4)
        assert exp(account["fused_log"]) == pytest.approx(account["base"], abs=1e-5)
    best = told[0]["contributions"]
    assert best["words"] == pytest.approx(0.5 * 4)
    assert best["meaning"] == pytest.approx(0.5 * (0.6 - MEAN) / DEVIATION, abs=1e-5)
    assert best["best"] == pytest.approx(-0.5 * own(2), abs=1e-5)
    assert run(memories()).parts is None


def test_recency_moves_a_memory() -> None:
    """73 days of 365: the signal is 0.8, the factor 1 + 0.2 * 0.3."""
    dated = {"mentioned_at": microseconds(NOW) - 73 * DAY_US}
    ranked = by_fused(run(memories(m0=dated)))
    base = exp(0.5 * (own(0) - own(2)))
    assert ranked.recency.tolist() == pytest.approx([0.5, 0.8, 0.5, 0.5])
    assert ranked.weight[1] == pytest.approx(base * 1.06, rel=1e-5)


def test_the_walk_says_by_which_path_it_came() -> None:
    cause = {"links": ((4, LinkType.CAUSES, 1.0),)}
    shortlist = run(memories(m2=cause), replace(SETTINGS, enable_graph_retrieval=True))
    place = shortlist.found.ordinals.tolist().index(4)
    (account,) = explain.accounts(shortlist, by_fused(shortlist), np.array([place]))
    assert account["path"] == {"from": str(UUID(bytes=id_of(2))), "link": "causal", "hop": 1}
    assert list(account["arms"]) == ["graph"]
    assert shortlist.paths.evidence[place] > 0
    assert shortlist.paths.support[place] == 2
    assert shortlist.fused[place] < shortlist.fused[shortlist.found.ordinals.tolist().index(2)]


def test_a_window_finds_what_is_dated_in_it() -> None:
    dated = {"occurred_start": microseconds(MAY), "vector": (0.2, sqrt(0.96), *[0.0] * 6)}
    window = Window(MAY.replace(day=1), MAY.replace(day=31))
    shortlist = run(memories(m5=dated), window=window)
    found = shortlist.found
    assert found.ordinals[found.ranks[:, Arm.TEMPORAL] > 0].tolist() == [5]
    near = dict(zip(found.ordinals.tolist(), shortlist.proximity.tolist(), strict=True))
    assert 0.5 < near.pop(5) <= 1.0
    assert all(np.isnan(list(near.values())))


def test_only_what_is_asked_for_is_searched() -> None:
    others = replace(QUERY.filters, types=(FactType.EXPERIENCE,))
    given = memories(m1={"fact_type": FactType.EXPERIENCE})
    shortlist = run(given, query=replace(QUERY, filters=others))
    assert shortlist.found.ordinals.tolist() == [1]
    assert shortlist.facts.ids[0].tobytes() == id_of(1)


OBSERVATION = {"fact_type": FactType.OBSERVATION}
EQUAL = {"vector": (0.9, sqrt(0.19), *[0.0] * 6)}
SIMILAR = {"vector": (0.7, sqrt(0.51), *[0.0] * 6)}
"""As similar to the question as the first, and less than the second."""


def made_of(*sources: int, **more: Any) -> dict[str, Any]:
    return {**OBSERVATION, "sources": tuple(id_of(i) for i in sources), **more}


def served(shortlist: Shortlist, query: RecallQuery = QUERY) -> list[int]:
    order = rank(query, shortlist, RerankerOutput(None, "unknown", "fused"), SETTINGS).order
    found: list[int] = shortlist.found.ordinals[order].tolist()
    return found


@pytest.mark.parametrize(
    ("sources", "last"),
    [((1,), True), ((3,), True), ((1, 3), True), ((9,), False), ((1, 9), False)],
    ids=["one", "another", "two above it", "one that was not found", "one of two that was found"],
)
def test_an_observation_that_tells_nothing_new_stands_behind(
    sources: tuple[int, ...], last: bool
) -> None:
    """It stands in the place of the third; what it may be made of fits as well or better."""
    shortlist = run(memories(m0=made_of(*sources), m1=EQUAL, m4=SIMILAR))
    assert served(shortlist) == ([2, 3, 1, 4, 0] if last else [2, 3, 1, 0, 4])
    ranked = by_fused(shortlist)
    place = shortlist.found.ordinals.tolist().index(0)
    assert ranked.weight[place] == pytest.approx(
        min(shortlist.fused) if last else shortlist.fused[place]
    )
    assert sum(ranked.contributions.at(place).values()) == pytest.approx(ranked.weight[place])
    assert served(shortlist, replace(QUERY, prefer_observations=True)) == [2, 3, 1, 0, 4]


def test_an_observation_that_fits_better_than_its_source_keeps_its_place() -> None:
    worse = {"vector": (0.55, sqrt(1 - 0.55**2), *[0.0] * 6)}
    shortlist = run(memories(m0=made_of(1), m1=worse))
    assert served(shortlist) == [2, 3, 0, 1]
    assert by_fused(shortlist).weight == pytest.approx(shortlist.fused)


def test_an_observation_whose_source_falls_out_tells_something() -> None:
    shortlist = run(memories(m0=made_of(1), m1=EQUAL, m4=SIMILAR))
    source = shortlist.found.ordinals == 1
    shortlist = replace(shortlist, fused=np.where(source, 1e-3, shortlist.fused))
    assert served(shortlist) == [2, 3, 4, 1, 0]
    floor = MinScores(final=2e-3)
    assert served(shortlist, replace(QUERY, min_scores=floor)) == [2, 3, 0, 4]


def test_echoes_lead_no_arm_and_leave_the_shortlist_first() -> None:
    alike = {f"m{i}": {"terms": (1,)} for i in range(2, 10)}
    given = memories(m0=EQUAL, m1=made_of(0, **EQUAL), **alike)
    assert served(run(given))[8:] == [0, 1]
    assert 1 not in run(given, cap=9).found.ordinals
    given = memories(m0=made_of(1), m1=EQUAL, **alike)
    assert {0, 1} & set(run(given, cap=3).found.ordinals.tolist()) == {1}


def test_a_bank_without_observations_knows_nothing_of_them() -> None:
    shortlist = run(memories())
    assert shortlist.echo is None
    assert served(replace(shortlist, echo=np.zeros(4, np.bool_))) == served(shortlist)


def test_memories_stand_as_if_they_had_no_observations() -> None:
    """One of each, in its words."""
    alone = run(memories())
    told = [
        replace(one, id=bytes([97 + i]) * 16, fact_type=FactType.OBSERVATION, sources=(one.id,))
        for i, one in enumerate(memories())
    ]
    for cap in (300, 4):
        both = run([*memories(), *told], cap=cap)
        assert served(both)[:4] == served(alone)
        facts = both.found.ordinals < 10
        order = np.argsort(both.found.ordinals[facts])
        expected = alone.fused[np.argsort(alone.found.ordinals)]
        assert both.fused[facts][order] == pytest.approx(expected, rel=0.02)


def test_what_lasts_all_through_a_window_leads_no_arm_by_it() -> None:
    """Twelve that resemble the question more, and one that only touches its window."""
    window = Window(MAY, MAY + timedelta(days=7))
    begun = microseconds(MAY - timedelta(days=30))
    alike = [
        Memory(bytes([97 + i]) * 16, terms=(i + 20,), vector=SIMILAR["vector"]) for i in range(12)
    ]
    distant: dict[str, Any] = {
        "terms": (99,),
        "vector": (0.2, sqrt(1 - 0.2**2), *[0.0] * (DIMENSION - 2)),
    }
    inside: dict[str, Any] = {"occurred_start": microseconds(MAY + timedelta(days=1))}
    lasting: dict[str, Any] = {"occurred_start": begun, "valid_from": begun}
    over = lasting | {"valid_until": microseconds(MAY + timedelta(days=2))}
    for times, place in ((inside, 9), (lasting, 12), (over, 9)):
        shortlist = run([*alike, Memory(b"z" * 16, **distant, **times)], window=window)
        assert served(shortlist).index(12) == place
    assert shortlist.lasting is not None
    assert not shortlist.lasting.any()
