"""The fitted model that makes one score of a candidate's signals.

    score = sum over signals of  weight * trust in its group * signal

so a score is a sum of parts that can be shown, and few numbers decide how much each group of
signals is to be trusted for this question in this bank:

    meaning   sigmoid(start + slopes · context) / sigmoid(start), held within what the model reads:
              where its tokeniser knows only letters or nothing of the question, likeness says
              nothing; and more of it where even the best memory holds few of the question's words
    around    what neighbours and the document say: in full where the bank is talk, less elsewhere
    links     what the graph walk hands on: more where no memory alone says it, less in long talk

All but the first of meaning are exp(slopes · context), within bounds. Slopes have the sign that
reason gives them, or are 0. `scoring_model.json` holds the numbers, what they were fitted on and
how well they did on sets that the fit had not seen; `python -m tests.bench.fit` writes it. Weights
of `RISING` signals never fall below 0: more meaning, words or evidence never counts against a
memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from retrieval.ranking.signals import CONTEXT, SIGNALS
from retrieval.types import Doubles

FILE = "scoring_model.json"

RISING = ("meaning", "words", "held", "covered", "named", "timely")
"""What speaks for a candidate, if it says anything."""

GATES: Mapping[str, Mapping[str, int]] = {
    "understood": {"legible": 1},
    "meaning": {"held_best": -1},
    "around": {"spoken": 1},
    "links": {"held_best": -1, "wordy": -1},
}
"""What each trust may depend on, and the sign of its slope."""

GATED: Mapping[str, tuple[str, ...]] = {
    "understood": tuple(name for name in SIGNALS if "meaning" in name),
    "meaning": tuple(name for name in SIGNALS if "meaning" in name),
    "around": tuple(
        name for name in SIGNALS if name.startswith(("covered", "document_", "beside_", "further_"))
    ),
    "links": (),
}
"""The signals that each trust multiplies; `links` the evidence of the walk."""

LEAST, MOST = -3.0, np.array([1.2, 1.2, 0.0, 1.2])
"""Bounds of the exponents of GATES."""

_RISING = np.isin(SIGNALS, RISING)
_APPLIES = np.array([[name in GATED[gate] for name in SIGNALS] for gate in GATES], np.bool_)
_UNDERSTOOD, _LINKS = list(GATES).index("understood"), list(GATES).index("links")


@dataclass(frozen=True, slots=True)
class ScoringModel:
    """weights float64 (SIGNALS,); evidence: what a deviation that the graph walk hands on is worth;
    behind: how far what it leads to stays behind its support; start, slopes float64 (GATES,
    CONTEXT): of the trust in each group."""

    weights: Doubles
    evidence: float
    behind: float
    start: float
    slopes: Doubles

    def trust(self, context: Doubles) -> Doubles:
        """How much each of GATES counts for this context, float64 (GATES,); 1 for a usual one."""
        exponents = self.slopes @ context
        trust: Doubles = np.exp(np.clip(exponents, LEAST, MOST))
        asked = exponents[_UNDERSTOOD] + self.start
        trust[_UNDERSTOOD] = (1 + np.exp(-self.start)) / (1 + np.exp(-asked))
        return trust

    def parts(self, signals: Doubles, context: Doubles) -> Doubles:
        """What each signal of n candidates contributes, float64 (n, SIGNALS)."""
        trust = np.where(_APPLIES, self.trust(context)[:, None], 1.0).prod(axis=0)
        weight = trust * np.where(_RISING, np.maximum(self.weights, 0.0), self.weights)
        parts: Doubles = signals * weight
        return parts

    def worth(self, context: Doubles) -> float:
        """What a deviation of evidence adds; never below 0."""
        return max(0.0, self.evidence) * float(self.trust(context)[_LINKS])


def read(text: str | bytes) -> ScoringModel:
    """The model of a file; ValueError where it was fitted for other signals than these."""
    data = json.loads(text)
    if (
        tuple(data["signals"]) != SIGNALS
        or tuple(data["context"]) != CONTEXT
        or tuple(data["slopes"]) != tuple(GATES)
    ):
        raise ValueError(f"{FILE} was fitted for other signals: run python -m tests.bench.fit")
    return ScoringModel(
        np.array(data["weights"], np.float64),
        float(data["evidence"]),
        float(data["behind"]),
        float(data["start"]),
        np.array([data["slopes"][gate] for gate in GATES], np.float64),
    )


@cache
def packaged() -> ScoringModel:
    """The model that comes with the installation."""
    return read((resources.files("retrieval.ranking") / FILE).read_bytes())
