"""The trust in each group of signals, by numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.ranking.scoring_model import GATED, GATES, packaged
from retrieval.ranking.signals import CONTEXT, SIGNALS
from retrieval.types import Doubles
from tests.retrieval.ranking.pools import plain, trusting

pytestmark = pytest.mark.unit


def context(**entries: float) -> Doubles:
    return np.array([entries.get(name, 0.0) for name in CONTEXT])


def signals(**values: float) -> Doubles:
    return np.array([[values.get(name, 0.0) for name in SIGNALS]])


def test_a_usual_context_changes_nothing() -> None:
    for model in (plain(meaning=2.0), packaged()):
        assert model.trust(context()) == pytest.approx(np.ones(len(GATES)))


def test_likeness_of_what_the_model_cannot_read_says_little() -> None:
    model = trusting({("understood", "legible"): 1.75}, meaning=2.0, words=3.0)
    unread = context(legible=-3.0)
    # sigmoid(1.5 - 5.25) / sigmoid(1.5) = 0.02298 / 0.81757
    assert model.trust(unread)[0] == pytest.approx(0.02811, abs=1e-4)
    parts = model.parts(signals(meaning=1.0, words=1.0), unread)[0]
    assert parts[SIGNALS.index("meaning")] == pytest.approx(2 * 0.02811, abs=1e-4)
    assert parts[SIGNALS.index("words")] == 3.0


def test_two_trusts_in_meaning_multiply() -> None:
    model = trusting(
        {("meaning", "held_best"): -0.5, ("around", "spoken"): 0.25}, beside_meaning=1.0
    )
    parts = model.parts(signals(beside_meaning=1.0), context(held_best=-2.0, spoken=-2.0))
    assert parts.sum() == pytest.approx(np.exp(1.0) * np.exp(-0.5))


def test_trust_is_bounded() -> None:
    model = trusting({("meaning", "held_best"): -9.0, ("around", "spoken"): 9.0}, covered=1.0)
    high, low = context(spoken=3.0, held_best=-3.0), context(spoken=-3.0, held_best=3.0)
    assert model.trust(high) == pytest.approx([1.0, np.exp(1.2), 1.0, 1.0])
    assert model.trust(low) == pytest.approx([1.0, np.exp(-3.0), np.exp(-3.0), 1.0])
    assert model.parts(signals(covered=1.0), low).sum() == pytest.approx(np.exp(-3.0))


def test_what_the_walk_hands_on_is_worth_more_where_no_memory_says_it_all() -> None:
    model = trusting({("links", "held_best"): -0.5, ("links", "wordy"): -0.25}, evidence=2.0)
    assert model.worth(context(held_best=-1.0, wordy=1.0)) == pytest.approx(2 * np.exp(0.25))
    assert plain(evidence=-1.0).worth(context()) == 0.0


def test_slopes_have_the_sign_that_reason_gives_them() -> None:
    for row, (gate, signs) in zip(packaged().slopes, GATES.items(), strict=True):
        for slope, name in zip(row.tolist(), CONTEXT, strict=True):
            assert slope * signs.get(name, 0) >= 0, (gate, name)
            assert name in signs or slope == 0, (gate, name)


def test_every_gate_names_signals_that_there_are() -> None:
    assert set(GATED) == set(GATES)
    assert {name for group in GATED.values() for name in group} <= set(SIGNALS)
