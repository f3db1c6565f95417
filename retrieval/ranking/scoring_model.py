"""The fitted model that makes one score of a candidate's signals.

    score = sum over signals of  weight(context) * signal,      weight(context) = weights @ context

so every signal counts as much as the question and the bank allow, and a score is a sum of parts
that can be shown. `scoring_model.json` holds the weights, what they were fitted on and how well
they did on sets that the fit had not seen; `python -m tests.bench.fit` writes it. Weights of
`RISING` signals never fall below 0: more meaning, words or evidence never counts against a memory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from retrieval.ranking.signals import CONTEXT, SIGNALS
from retrieval.types import Doubles

FILE = "scoring_model.json"

RISING = ("meaning", "words", "held", "exact", "named", "timely")
"""What speaks for a candidate, if it says anything."""

_RISING = np.isin(SIGNALS, RISING)


@dataclass(frozen=True, slots=True)
class ScoringModel:
    """weights float64 (SIGNALS, CONTEXT); evidence float64 (CONTEXT,): what a deviation that the
    graph walk hands on is worth; behind: how far what it leads to stays behind its support."""

    weights: Doubles
    evidence: Doubles
    behind: float

    def parts(self, signals: Doubles, context: Doubles) -> Doubles:
        """What each signal of n candidates contributes, float64 (n, SIGNALS)."""
        weight = self.weights @ context
        parts: Doubles = signals * np.where(_RISING, np.maximum(weight, 0.0), weight)
        return parts

    def worth(self, context: Doubles) -> float:
        """What a deviation of evidence adds; never below 0."""
        return max(0.0, float(self.evidence @ context))


def read(text: str | bytes) -> ScoringModel:
    """The model of a file; ValueError where it was fitted for other signals than these."""
    data = json.loads(text)
    if tuple(data["signals"]) != SIGNALS or tuple(data["context"]) != CONTEXT:
        raise ValueError(f"{FILE} was fitted for other signals: run python -m tests.bench.fit")
    return ScoringModel(
        np.array(data["weights"], np.float64),
        np.array(data["evidence"], np.float64),
        float(data["behind"]),
    )


@cache
def packaged() -> ScoringModel:
    """The model that comes with the installation."""
    return read((resources.files("retrieval.ranking") / FILE).read_bytes())
