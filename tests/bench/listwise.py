"""Fits the weights of a scoring model to questions: by nDCG, held towards weights known before.

The loss is approximate nDCG (Qin, Liu and Li, A General Approximation Framework for Direct
Optimization of Information Retrieval Measures, 2010), with ranks made smooth by sigmoids, from the
weights that the softmax cross entropy of the answers gives. Every set counts the same, however
many questions it has. Trusts are fitted with the weights: few numbers, of the sign that reason
gives them, held towards trusting everything alike. What the graph walk handed on lifts as it does
in a recall. Deterministic for a seed; one thread; seconds for a thousand questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from retrieval.ranking.score_fusion import by_hand
from retrieval.ranking.scoring_model import GATED, GATES, LEAST, MOST, RISING, ScoringModel
from retrieval.ranking.signals import CONTEXT, SIGNALS
from retrieval.types import Doubles, Ints
from tests.bench.replay import Asked

CANDIDATES = 60
"""Of each question: its answers, the best of the hand-written order and of both arms, what leads to
them, and some at random."""

_BEST, _OF_ARMS, _ANSWERS = 45, 15, 40
_SMOOTH = 1.5
_CUT = 8
"""Answers of a question that count in the smooth measure."""
_MISSING = -1e4
_RISING = torch.tensor(np.isin(SIGNALS, RISING))
_SIGN = torch.tensor([[GATES[gate].get(name, 0) for name in CONTEXT] for gate in GATES]).float()
_APPLIES = torch.tensor([[name in GATED[gate] for name in SIGNALS] for gate in GATES])
_UNDERSTOOD, _LINKS = list(GATES).index("understood"), list(GATES).index("links")
_MOST = torch.from_numpy(MOST).float()
_START, _FIRST = 1.5, 0.05
"""Where the trusts begin: hardly anything is trusted more or less than usual."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Weights (SIGNALS,) and the worth of evidence before anything is fitted; how strongly weights
    and worth are held to them, and the slopes of trust to nothing."""

    weights: Doubles
    evidence: float
    held: float = 0.1
    worth: float = 1.0
    slopes: float = 0.0003


@dataclass(frozen=True, slots=True)
class Batch:
    """q questions of one set, m candidates each, padded."""

    signals: Tensor
    context: Tensor
    evidence: Tensor
    fixed: Tensor
    support: Tensor
    gain: Tensor
    mask: Tensor


def batch(asked: Sequence[Asked], hand: Callable[[Asked], Doubles], seed: int = 0) -> Batch:
    """The questions whose answers are among their candidates."""
    rng = np.random.default_rng(seed)
    chosen = [(one, _chosen(one, hand(one), rng)) for one in asked if (one.gain > 0).any()]
    q, m = len(chosen), CANDIDATES
    signals = np.zeros((q, m, len(SIGNALS)), np.float32)
    context = np.zeros((q, len(CONTEXT)), np.float32)
    evidence, fixed_, gain = (np.zeros((q, m), np.float32) for _ in range(3))
    support, mask = np.full((q, m), -1), np.zeros((q, m), np.bool_)
    for row, (one, index) in enumerate(chosen):
        n = len(index)
        signals[row, :n], context[row] = one.values[index], one.context
        evidence[row, :n], fixed_[row, :n] = one.pool.evidence[index], by_hand(one.pool)[index]
        place = np.full(len(one.gain) + 1, -1)
        place[index] = np.arange(n)
        support[row, :n] = place[one.support[index]]
        gain[row, :n] = one.gain[index] / one.gain[index].sum()
        mask[row, :n] = True
    arrays = (signals, context, evidence, fixed_, support, gain, mask)
    return Batch(*map(torch.from_numpy, arrays))


def _chosen(one: Asked, hand: Doubles, rng: np.random.Generator) -> Ints:
    keep = dict.fromkeys(np.flatnonzero(one.gain > 0)[:_ANSWERS].tolist())
    keep |= dict.fromkeys(np.argsort(-hand, kind="stable")[:_BEST].tolist())
    for number in (0, 1):
        keep |= dict.fromkeys(one.arm(number)[:_OF_ARMS].tolist())
    keep |= dict.fromkeys(s for s in one.support[list(keep)].tolist() if s >= 0)
    keep |= dict.fromkeys(rng.permutation(len(hand)).tolist())
    return np.array(list(keep)[:CANDIDATES], np.int32)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What is fitted, as the scores read it."""

    weights: Tensor
    evidence: Tensor
    start: Tensor
    slopes: Tensor

    def trust(self, context: Tensor) -> Tensor:
        """(q, GATES), as ScoringModel.trust."""
        exponents = context @ self.slopes.T
        asked = exponents[:, _UNDERSTOOD] + self.start
        understood = torch.sigmoid(asked) / torch.sigmoid(self.start)
        trust = exponents.clamp(min=LEAST).minimum(_MOST).exp()
        return torch.cat([understood[:, None], trust[:, 1:]], 1)


def fit(batches: Sequence[Batch], prior: Prior) -> ScoringModel:
    """The model that these sets give."""
    rows = torch.cat([b.signals[b.mask][::7] for b in batches])
    unit = rows.std(0).clamp(min=0.05)
    first = torch.from_numpy(prior.weights).float()
    moved = torch.zeros(len(SIGNALS), requires_grad=True)
    worth = torch.zeros(1, requires_grad=True)
    start = torch.full((1,), _START, requires_grad=True)
    slopes = torch.full_like(_SIGN, _FIRST).requires_grad_()

    def numbers() -> _Numbers:
        return _Numbers(first + moved / unit, prior.evidence + worth, start, slopes.abs() * _SIGN)

    def held() -> Tensor:
        return (
            prior.held * (moved**2).sum()
            + prior.worth * (worth**2).sum()
            + prior.slopes * ((slopes * _SIGN) ** 2).sum()
            + prior.slopes * ((start - _START) ** 2).sum()
        )

    def run(loss: Callable[[Tensor, Batch], Tensor], steps: int) -> None:
        optimiser = torch.optim.LBFGS(
            [moved, worth, start, slopes], max_iter=steps, history_size=20,
            line_search_fn="strong_wolfe", tolerance_change=1e-9,
        )  # fmt: skip

        def closure() -> Tensor:
            optimiser.zero_grad()
            total = torch.stack([loss(_scores(b, numbers()), b) for b in batches]).mean() + held()
            total.backward()  # type: ignore[no-untyped-call]
            return total

        optimiser.step(closure)  # type: ignore[no-untyped-call]

    for loss, steps in _ROUNDS:
        run(loss, steps)
    with torch.no_grad():
        found = numbers()
    return ScoringModel(
        found.weights.double().numpy(),
        found.evidence.item(),
        1.0,
        found.start.item(),
        found.slopes.double().numpy(),
    )


def _scores(b: Batch, by: _Numbers) -> Tensor:
    # A little slope below 0, so that the fit finds its way back.
    weight = torch.where(
        _RISING, by.weights.clamp(min=0) + 0.01 * by.weights.clamp(max=0), by.weights
    )
    trust = by.trust(b.context)
    gain = torch.where(_APPLIES, trust[:, :, None], torch.ones(())).prod(1)
    score = torch.einsum("qms,qs->qm", b.signals, gain * weight) + b.fixed
    free = score + (by.evidence.clamp(min=0) * trust[:, _LINKS])[:, None] * b.evidence
    held, at = b.support >= 0, b.support.clamp(min=0)
    lifted = torch.where(held, score, free)
    for _ in range(2):
        bound = torch.where(held, lifted.gather(1, at) - 1.0, torch.full_like(lifted, 1e9))
        lifted = torch.maximum(score, torch.minimum(free, bound))
    return lifted.masked_fill(~b.mask, _MISSING)


def _cross_entropy(scores: Tensor, b: Batch) -> Tensor:
    return -(b.gain * torch.log_softmax(0.5 * scores, 1)).sum(1).mean()


def _smooth_ndcg(scores: Tensor, b: Batch) -> Tensor:
    top = b.gain.topk(_CUT, 1)
    answers = scores.gather(1, top.indices)
    ahead = torch.sigmoid(_SMOOTH * (scores[:, None, :] - answers[:, :, None])).sum(2) - 0.5
    reached = (top.values / torch.log2(2.0 + ahead)).sum(1)
    best = (top.values / torch.log2(torch.arange(2.0, 2.0 + _CUT))).sum(1)
    return -2.0 * (reached / best).mean()


_ROUNDS = ((_cross_entropy, 15), (_smooth_ndcg, 30), (_smooth_ndcg, 30))
"""Losses and how many steps of each; a second start frees a search that came to rest early."""


def hand_prior(weights: Mapping[str, float], evidence: float) -> Prior:
    return Prior(np.array([weights.get(name, 0.0) for name in SIGNALS]), evidence)
