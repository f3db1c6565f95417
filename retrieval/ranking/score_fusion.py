"""The fused order: what serves a recall when nothing reads the texts.

Adding calibrated scores keeps what ranks throw away: by how much a memory is better (Bruch, Gai
and Ingber, An Analysis of Fusion Functions for Hybrid Retrieval, 2023). One formula for every kind
of bank. The *affinity* of a memory to a question is

    affinity = (similarity - mean) / deviation  +  4 * keyword / best keyword

mean and deviation of the similarities over the whole bank, best keyword score of the question in
it. Neither part grows with the bank, as a z-score of keyword scores would: most memories score 0.
The first part is held within -3 .. 8, bending from -1 and 6 on: where all memories are alike (one
template, a log), what is not of their kind lies any number of deviations from the mean, and no word
could make up for it.
The fused score adds what stands around a memory and what leads to it:

    own = (own similarity - mean) / deviation  +  4 * coverage / best coverage
    near = min(1, 96 / tokens): a long text stands by itself
    score = own + 0.5 * (own + near * (best own score in the same document - own))
          + near * (0.5 * best affinity one step away  +  0.4 * best affinity two steps away)
          + 1.5 * evidence of the graph walk
          + 0.7 if the question names what the memory is about
          + 1.3 * ln((1 + min(tokens, 48)) / (1 + 48))
          + 0.5 if the memory before it asks, - 0.5 if it asks itself
          + 1.0 if it touches the time window of the question, 5.0 if the question asks for all
            that happened then
          - 1.5 if the question asks about now and the memory does not hold now
          - 4.0 if it is known not to hold at the time that the question means

*Coverage* is BM25 that credits each term of the question once over a small window of the document:
in full in the memory itself, 0.4 one step away, 0.3 two steps away, the best of these. Steps are
neighbours in the same document. A memory alone in its document has itself as the best there.

Evidence lifts a memory to 1 behind the one it comes from at most, so what fits the question by
itself stays ahead of what it leads to.

`Fused.scores` are exp(0.5 * (score - best score)): positive, at most 1, and a factor from the
boosts of recency, time and proof (0.9 .. 1.1 each) moves a memory by the same 0.2 of a deviation
or less wherever it stands, instead of shuffling a list whose scores lie close together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from retrieval.ranking.contributions import Contributions
from retrieval.topk import places
from retrieval.types import Bools, Doubles, Floats, Ints

STEPS = (0, -1, 1, -2, 2)
"""The columns of a window: a memory, the one before and after it in its document, and so on."""

_KEYWORD = 4.0
_COVER_ONE, _COVER_TWO = 0.4, 0.3
_ONE_STEP, _TWO_STEPS = 0.5, 0.4
_DOCUMENT = 0.5
_SHORT = 96
_NAMED = 0.7
_LENGTH, _FULL_LENGTH = 1.3, 48
_ASKS = 0.5
_EVIDENCE = 1.5
_BEHIND, _LONGEST_PATH = 1.0, 3
_PRIOR_COUNT, _PRIOR_DEVIATION = 10, 0.1
_LOW, _HIGH, _BEYOND = -1.0, 6.0, 2.0
_TIMELY, _HAPPENED = 1.0, 5.0
_SUPERSEDED = 1.5
_OUTSIDE = 4.0
SHARPNESS = 0.5
"""The formula's constants: one set for every bank, chosen on LoCoMo (six conversations), MuSiQue,
HotpotQA (60 questions each), LongMemEval, SciFact, Cranfield and CISI with all-MiniLM-L6-v2. LoCoMo
has recall at 5 / 10 of 0.748 / 0.824 with the boosts (reciprocal ranks of words and vectors: 0.509
/ 0.609). Moving one weight by a third costs at most 0.014 there; choosing again on five
conversations and testing on the sixth gave 0.742 / 0.820. All paragraphs are among the first five
for 0.55 of the questions of MuSiQue (0.27) and 0.80 of those of HotpotQA (0.67)."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What a question's scores are measured against.

    mean, deviation: of its similarity to every memory of the bank, (0, 0) where it has no vector;
    keyword: its best keyword score among the memories that may be returned, 0 where none matches.
    """

    mean: float
    deviation: float
    keyword: float


def spread(deviation: float, count: int) -> float:
    """The deviation of `count` similarities, held towards a usual one where they are few.

    Two memories always stand one deviation from their mean, however alike they are: without
    this, a difference in the third digit would outweigh words, dates and links in a small bank.
    """
    if deviation <= 0:
        return 0.0
    variance = (count * deviation**2 + _PRIOR_COUNT * _PRIOR_DEVIATION**2) / (count + _PRIOR_COUNT)
    return float(np.sqrt(variance))


def affinity(similarity: Floats, keyword: Floats, scale: Scale) -> Doubles:
    """How well memories fit a question by themselves, float64, any shape; about 0 on average."""
    return _deviations(similarity, scale) + _KEYWORD * _share(keyword, scale.keyword)


def windows(ordinals: Ints, previous: Ints, following: Ints) -> Ints:
    """The memories around each of `ordinals` (n,) in its document, in the order of STEPS.

    previous, following: int32 over ordinals, -1 at either end. Returns int32 (n, 5), -1 for none.
    """

    def step(of: Ints, to: Ints) -> Ints:
        return np.where(of >= 0, to[np.maximum(of, 0)], -1).astype(np.int32)

    before, after = step(ordinals, previous), step(ordinals, following)
    return np.stack(
        [ordinals, before, after, step(before, previous), step(after, following)], axis=1
    )


@dataclass(frozen=True, slots=True)
class Fused:
    """scores: float64 (n,) in (0, 1], 1 for the best; contributions: what adds up to the score
    of which they are made, in deviations."""

    scores: Doubles
    contributions: Contributions


def fuse(
    window: Ints,
    similarity: Floats,
    terms: Floats,
    scale: Scale,
    *,
    document: Ints,
    tokens: Ints,
    named: Bools,
    evidence: Floats,
    support: Ints,
    asks: Bools | None = None,
    timely: Bools | None = None,
    happened: bool = False,
    superseded: Bools | None = None,
    outside: Bools | None = None,
) -> Fused:
    """The fused scores of n candidates; empty for none.

    window int32 (n, 5) from `windows`; similarity float32 (n, 5) and terms float32 (t, n, 5), the
    BM25 score of each term of the question, belong to it (values where window is -1 are ignored).
    document int32 (n,), -1 for none; tokens int32 (n,); named: the question names the entity that
    the memory is about; evidence float32 (n,) from the graph walk, 0 where it did not come by, and
    support int32 (n,), the ordinal that it comes from, -1 for none;
    asks bool (n, 2): the memory, and the one before it, end with a question mark; None: not known.
    timely bool (n,): touches the time window of the question; happened: the question asks for
    whatever happened then; superseded bool (n,): does not hold
    now, where the question asks how things are now; None: the question asks for no time. outside
    bool (n,): is known not to hold at the time that is meant.

    Pure; no value depends on the order of the candidates.
    """
    count = len(window)
    if not count:
        return Fused(np.empty(0), Contributions(()))
    present = window >= 0
    terms = np.where(present, terms, 0.0)
    matched = terms.sum(axis=0)
    scale = replace(scale, keyword=float(matched[:, 0].max()))
    around = np.where(present, affinity(similarity, matched, scale), 0.0)
    covered = np.maximum.reduce(
        [
            terms[..., 0],
            _COVER_ONE * terms[..., 1:3].max(axis=-1),
            _COVER_TWO * terms[..., 3:5].max(axis=-1),
        ]
    ).sum(axis=0)
    meaning = _deviations(similarity[:, 0], scale)
    words = _KEYWORD * _share(covered, covered.max())
    own = meaning + words
    near = np.minimum(1.0, _SHORT / np.maximum(tokens, 1))
    one_step = _best(around[:, 1:3], present[:, 1:3])
    two_steps = _best(around[:, 3:5], present[:, 3:5])
    length = np.log((1 + np.minimum(tokens, _FULL_LENGTH)) / (1 + _FULL_LENGTH))
    parts: list[tuple[str, Doubles]] = [
        ("meaning", meaning),
        ("words", words),
        ("document", _DOCUMENT * (own + near * (_best_in_document(own, document) - own))),
        ("neighbours", near * (_ONE_STEP * one_step + _TWO_STEPS * two_steps)),
        ("subject", _NAMED * named.astype(np.float64)),
        ("length", _LENGTH * length),
    ]
    if asks is not None:
        parts.append(("asks", _ASKS * (asks[:, 1].astype(np.float64) - asks[:, 0])))
    if timely is not None:
        parts.append(("time", (_HAPPENED if happened else _TIMELY) * timely.astype(np.float64)))
    if superseded is not None:
        parts.append(("now", -_SUPERSEDED * superseded.astype(np.float64)))
    if outside is not None:
        parts.append(("outside", -_OUTSIDE * outside.astype(np.float64)))
    by_itself = Contributions.of(parts)
    score = by_itself.total
    handed = _EVIDENCE * evidence.astype(np.float64)
    lifted = _lifted(score, handed, places(window[:, 0], support))
    fused: Doubles = np.exp(SHARPNESS * (lifted - lifted.max()))
    return Fused(
        np.maximum(fused, np.finfo(np.float64).tiny),
        by_itself.and_then("evidence", lifted - score),
    )


def _deviations(similarity: Floats, scale: Scale) -> Doubles:
    if scale.deviation <= 0:
        return np.zeros(similarity.shape)
    deviations = (similarity.astype(np.float64) - scale.mean) / scale.deviation
    inside = np.clip(deviations, _LOW, _HIGH)
    beyond = deviations - inside
    return inside + beyond / (1 + np.abs(beyond) / _BEYOND)


def _share(score: Floats | Doubles, best: float) -> Doubles:
    return score.astype(np.float64) / best if best > 0 else np.zeros(score.shape)


def _best(values: Doubles, present: Bools) -> Doubles:
    """The best present value of each row, 0 where there is none."""
    best: Doubles = np.where(present, values, -np.inf).max(axis=1)
    return np.where(np.isfinite(best), best, 0.0)


def _lifted(score: Doubles, by: Doubles, support: NDArray[np.intp]) -> Doubles:
    """Scores with evidence added, each kept behind the memory that it comes from."""
    held, free = support >= 0, score + by
    lifted = np.where(held, score, free)
    for _ in range(_LONGEST_PATH):
        bound = np.where(held, lifted[support] - _BEHIND, np.inf)
        lifted = np.maximum(score, np.minimum(free, bound))
    return lifted


def _best_in_document(own: Doubles, document: Ints) -> Doubles:
    """The best own score among the candidates of each one's document; its own without one."""
    best = np.full(int(document.max()) + 2, -np.inf)
    np.maximum.at(best, document, own)
    return np.where(document >= 0, best[document], own)
