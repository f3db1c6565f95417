"""The fit sees what a recall computes, finds what decides, and writes what is served."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from retrieval.ranking import scoring_model
from retrieval.ranking.score_fusion import fused_scores
from retrieval.ranking.signals import SIGNALS, signals
from tests.bench import fit, hand_written
from tests.bench.replay import Asked
from tests.retrieval.ranking.pools import pool

pytestmark = pytest.mark.unit


def asked(seed: int, answer: str) -> Asked:
    """Twelve candidates at random; the most similar or the longest one answers the question."""
    rng = np.random.default_rng(seed)
    given = pool(
        12,
        similarity=rng.normal(0.2, 0.1, (12, 5)).astype(np.float32),
        terms=rng.exponential(2, (2, 12, 5)).astype(np.float32),
        ceilings=np.full(2, 9, np.float32),
        tokens=rng.integers(3, 60, 12).astype(np.int32),
        ranks=np.stack([rng.permutation(12) + 1 for _ in range(4)], axis=1).astype(np.int32),
        evidence=rng.exponential(1, 12).astype(np.float32),
        support=rng.integers(-1, 12, 12).astype(np.int32),
    )
    values, context = signals(given)
    gain = np.zeros(12)
    gain[values[:, SIGNALS.index(answer)].argmax()] = 1.0
    return Asked(
        name="made",
        bank="made",
        pool=given,
        values=values.astype(np.float32),
        context=context,
        support=given.support,
        gain=gain,
        gold=(1.0,),
        document=None,
        boost=np.ones(12),
    )


def test_the_fit_scores_as_a_recall_does() -> None:
    model = scoring_model.packaged()
    for seed in range(5):
        one = asked(seed, "meaning")
        score = fit.score(model, one)
        served = fused_scores(one.pool, model).score
        assert np.log(served) == pytest.approx(0.5 * (score - score.max()), abs=1e-4)


def test_hand_written_weights_give_the_hand_written_order_where_nothing_stands_around() -> None:
    one = asked(3, "meaning")
    alone = pool(12, **{
        name: getattr(one.pool, name) for name in ("similarity", "terms", "tokens")
    })  # fmt: skip
    alone = replace(alone, terms=alone.terms * (np.arange(5) == 0))
    table = np.array([fit.HAND.get(name, 0.0) for name in SIGNALS])
    own = signals(alone)[0] @ table
    expected = hand_written.scores(alone)
    assert own - own.mean() == pytest.approx(expected - expected.mean(), abs=1e-3)


def test_what_decides_gains_weight_and_the_same_comes_out_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fit, "FITTED", {"made": "ours"})
    at = SIGNALS.index("length")
    found = {
        answer: fit.trained({"made": [asked(i, answer) for i in range(16)]}, ["made"])
        for answer in ("length", "meaning")
    }
    assert found["length"].weights[at] > found["meaning"].weights[at]
    again = fit.trained({"made": [asked(i, "length") for i in range(16)]}, ["made"])
    assert again.weights == pytest.approx(found["length"].weights)
    assert again.slopes == pytest.approx(found["length"].slopes)


def test_a_model_is_read_as_it_was_written() -> None:
    model = scoring_model.packaged()
    again = scoring_model.read(fit.written(model, {}))
    assert again.weights == pytest.approx(model.weights, abs=1e-4)
    assert again.evidence == pytest.approx(model.evidence, abs=1e-4)
    assert again.start == pytest.approx(model.start, abs=1e-4)
    assert again.slopes == pytest.approx(model.slopes, abs=1e-4)
    data = json.loads(fit.written(model, {}))
    data["signals"] = data["signals"][1:]
    with pytest.raises(ValueError, match="fitted for other signals"):
        scoring_model.read(json.dumps(data))


def test_the_served_file_names_what_it_was_fitted_on() -> None:
    file = resources.files("retrieval.ranking") / scoring_model.FILE
    origin = json.loads(file.read_text())["origin"]
    assert origin["fitted_on"] == fit.FITTED
    assert not {"locomo", "scifact", "cranfield", "cisi"} & set(origin["fitted_on"])


def test_a_ranking_is_measured_by_document_where_answers_are_documents() -> None:
    one = asked(1, "meaning")
    order = np.argsort(-one.gain).astype(np.int32)
    assert fit.measured(one, order)[0] == 1.0
    assert fit.measured(one, order[::-1].copy())[1] == 0.0
