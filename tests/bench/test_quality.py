from __future__ import annotations

import numpy as np
import pytest

from retrieval.ranking.signals import signals
from tests.bench import quality, replay, sets, synthetic
from tests.retrieval.ranking.pools import matrix, pool
from tests.support.system import system


def answers(*rankings: list[str]) -> quality.Answers:
    questions = [
        sets.Question("first", {"a": 1.0, "b": 1.0}, "pair"),
        sets.Question("second", {"c": 1.0}, "single"),
    ]
    made = quality.Answers(questions)
    for name in quality.LISTS:
        made.rankings[name] = [[], []]
    made.rankings["final"] = list(rankings)
    return made


@pytest.mark.unit
def test_measures_are_means_per_category_and_over_all() -> None:
    table = quality.measured([answers(["a", "x", "b"], ["x", "c"])])
    assert list(table) == ["all", "pair", "single"]
    assert table["pair"]["final"]["R@5"] == 1
    assert table["pair"]["final"]["MRR"] == 1
    assert table["single"]["final"]["MRR"] == 0.5
    assert table["all"]["final"]["MRR"] == 0.75
    assert table["all"]["graph"]["R@50"] == 0


@pytest.mark.unit
def test_verdicts_compare_with_the_best_baseline() -> None:
    lists = {name: dict.fromkeys(quality.MEASURES, 0.5) for name in quality.LISTS}
    lists["bm25"] |= {"R@5": 0.6, "all@5": 0.3}
    lists["final"] |= {"R@5": 0.63, "all@5": 0.61}
    found = {v["what"]: v for v in quality.verdicts("hotpotqa", lists, 60)}
    assert not found["R@5 of final, best baseline 0.600"]["met"]
    assert found["all@5 of final, best baseline 0.500"]["met"]
    assert found["R@5 of final against no graph"]["met"]


@pytest.mark.unit
def test_sets_are_compared_with_their_arms_and_a_former_run() -> None:
    asked = answers(["a", "x", "b"], ["x", "c"])
    low, high = quality.intervals([asked])["MRR"]
    assert low == 0.5
    assert high == 1.0
    lists = {name: dict.fromkeys(quality.MEASURES, 0.5) for name in quality.LISTS}
    lists["bm25"]["MRR"] = 0.9
    report = {"set": "made", "measures": {"all": lists}, "intervals": {"MRR": (low, high)}}
    before = {"set": "made", "measures": {"all": {"final": {"MRR": 0.4}}}}
    rows = quality.comparison([report], [before], "MRR")
    assert (
        rows["made"] | {"final": 0.5, "from": 0.5, "to": 1.0, "bm25": 0.9, "former": 0.4}
        == (rows["made"])
    )
    assert "former" not in quality.comparison([report], [], "MRR")["made"]


@pytest.mark.unit
def test_kept_questions_are_ranked_as_a_recall_would() -> None:
    ranks = np.array([[1, 2, 0, 0], [2, 1, 0, 0], [0, 0, 1, 0]], np.int32)
    given = pool(
        3, similarity=matrix(3, {(2, 0): 0.9, (0, 0): 0.5}, 0.2), ranks=ranks
    )  # by meaning alone, as no word matches: 2, 0, 1
    values, context = signals(given)
    one = replay.Asked(
        name="made", bank="made", pool=given, values=values.astype(np.float32), context=context,
        support=given.support, gain=np.array([0.0, 1.0, 0.0]), gold=(2.0, 1.0), document=None,
        boost=np.ones(3),
    )  # fmt: skip
    found = quality.kept([one])
    assert {name: rows[0] for name, rows in found.rankings.items()} == {
        "semantic": ["0", "1"],
        "bm25": ["1", "0"],
        "graph": ["2"],
        "temporal": [],
        "words + vectors": ["0", "1"],
        "rrf": ["0", "1", "2"],
        "final": ["2", "0", "1"],
    }
    assert found.questions[0].gold == {"1": 1.0, "unfound 0": 2.0}
    measures = quality.measured([found])["all"]
    assert measures["final"]["R@5"] == 0.5
    assert measures["final"]["MRR"] == pytest.approx(1 / 3)
    assert measures["temporal"]["R@50"] == 0.0


@pytest.mark.integration
async def test_the_benchmark_finds_what_was_asked_for() -> None:
    """Questions made of a memory's own rare words must find it, in every list that reads words."""
    data = sets.EvaluationSet("made", (synthetic.bank("made", 120, 20),))
    async with system() as run:
        report = await quality.measure(run, data)
    found = report["measures"]["all"]
    assert report["questions"] == 20
    assert found["bm25"]["R@5"] > 0.9
    assert found["final"]["R@5"] > 0.9
    assert found["semantic"]["R@5"] > 0
    assert all(0 <= value <= 1 for row in found.values() for value in row.values())
