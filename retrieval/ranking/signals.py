"""What the fused score reads of a question's candidates, as numbers of about the same size.

*Signals* belong to a candidate: how well it fits by meaning and by words, what stands around it in
its document, how long it is, what it has to do with the question's time and names. The *context*
belongs to the question: whether the embedding model can read it, how much of it the bank's words
say, what kind of bank this is. `scoring_model.py` makes one score of both.

Meaning is measured in deviations of the bank's similarities, words as a share of the best
candidate's BM25 (`arms/affinity.py`) and as the share of the question's own weight that a memory
holds. What stands around a memory counts against its mean over the candidates, and less the longer
the text: it is no bonus for being short, or for having neighbours. Words that only its neighbours
have are `covered`, apart from its own: in a conversation an answer leaves out what was just said,
in an article the paragraph beside it is another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.arms.affinity import Scale, deviations, share
from retrieval.types import Bools, Doubles, Floats, Ints

_COVER_ONE, _COVER_TWO = 0.4, 0.3
_SHORT, _FULL_LENGTH = 96, 48


@dataclass(frozen=True, slots=True)
class CandidatePool:
    """The n candidates of one question, as the arms and the bank tell of them.

    window int32 (n, 5) from `windows`; similarity float32 (n, 5) and terms float32 (t, n, 5), the
    BM25 score of each term of the question, belong to it (values where window is -1 are ignored).
    ceilings float32 (t,): what each term could give at most, whether or not the bank has it; empty
    where that is not known: then the best that a candidate has of it. ranks
    int32 (n, arms), 1-based, 0 where an arm did not list the candidate. document int32 (n,), -1 for
    none; tokens int32 (n,); named: the question names the entity that the memory is about;
    evidence float32 (n,) from the graph walk, 0 where it did not come by, and support int32 (n,),
    the ordinal that it comes from, -1 for none; asks bool (n, 2): the memory, and the one before
    it, end with a question mark. timely bool (n,): touches the time window of the question;
    happened: the question asks for whatever happened then; superseded bool (n,): does not hold now,
    where the question asks how things are now; None: the question asks for no time. outside bool
    (n,): is known not to hold at the time that is meant. derived bool (n,): observations, which
    say nothing about how the bank's memories are written; None: there are none. legible: about how
    many letters of the question the embedding model takes at a time (models.local.text.legibility),
    None where that is not known.
    """

    window: Ints
    similarity: Floats
    terms: Floats
    ceilings: Floats
    scale: Scale
    ranks: Ints
    document: Ints
    tokens: Ints
    named: Bools
    evidence: Floats
    support: Ints
    asks: Bools
    timely: Bools | None = None
    happened: bool = False
    superseded: Bools | None = None
    outside: Bools | None = None
    derived: Bools | None = None
    legible: float | None = None

    def __len__(self) -> int:
        return len(self.window)


def windows(ordinals: Ints, previous: Ints, following: Ints) -> Ints:
    """The memories around each of `ordinals` (n,) in its document: itself, the one before and the
    one after it, the second before and the second after.

    previous, following: int32 over ordinals, -1 at either end. Returns int32 (n, 5), -1 for none.
    """

    def step(of: Ints, to: Ints) -> Ints:
        return np.where(of >= 0, to[np.maximum(of, 0)], -1).astype(np.int32)

    before, after = step(ordinals, previous), step(ordinals, following)
    return np.stack(
        [ordinals, before, after, step(before, previous), step(after, following)], axis=1
    )


SIGNALS = (
    "meaning", "meaning_high", "words", "words_half", "held", "covered",
    "document_meaning", "document_words", "beside_meaning", "beside_words",
    "further_meaning", "further_words", "named", "length", "asks", "timely",
)  # fmt: skip
"""The columns of `signals`."""

_USUAL = {
    "legible": (3.5, 1.0), "held_best": (0.5, 0.2), "spoken": (0.1, 0.15), "wordy": (2.2, 0.5),
}  # fmt: skip
"""What each entry of a context is measured against: a usual value, and a usual distance from it."""

_FAR = 3.0
"""No entry lies farther from the usual."""

CONTEXT = tuple(_USUAL)
"""The entries of a context: letters a piece (`CandidatePool.legible`); the most that one memory
holds of the question's weight; the share of candidates that end with a question mark, as talk does;
the logarithm of how many terms the question has."""


def signals(pool: CandidatePool) -> tuple[Doubles, Doubles]:
    """(float64 (n, SIGNALS), float64 (CONTEXT,)) of a pool that is not empty.

    Pure; nothing depends on the order of the candidates but the order of the rows.
    """
    present = pool.window >= 0
    terms = np.where(present, pool.terms, np.float32(0))
    matched = terms.sum(axis=0, dtype=np.float64)
    own_words = matched[:, 0]
    best = own_words.max()
    meaning = deviations(pool.similarity, pool.scale)
    exact = share(matched, best)
    own, words = meaning[:, 0], exact[:, 0]
    held = _held(terms[..., 0], pool.ceilings)
    near = np.minimum(1.0, _SHORT / np.maximum(pool.tokens, 1))
    lead = [_best_in_document(values, pool.document) - values for values in (own, words)]
    beside = [_best(values[:, 1:3], present[:, 1:3]) for values in (meaning, exact)]
    further = [_best(values[:, 3:5], present[:, 3:5]) for values in (meaning, exact)]
    columns = np.stack(
        [
            own,
            np.maximum(own - 3.0, 0.0),
            words,
            np.maximum(words - 0.5, 0.0),
            held,
            share(_covered(terms) - own_words, best),
            *(near * (values - _mean(values, pool)) for values in (*lead, *beside, *further)),
            pool.named,
            np.log((1 + np.minimum(pool.tokens, _FULL_LENGTH)) / (1 + _FULL_LENGTH)),
            pool.asks[:, 1].astype(np.float64) - pool.asks[:, 0],
            np.zeros(len(pool)) if pool.timely is None else pool.timely,
        ],
        axis=1,
    ).astype(np.float64)
    return columns, _context(pool, held)


def _mean(values: NDArray[Any], pool: CandidatePool) -> float:
    """Over the memories among the candidates, if there are any."""
    if pool.derived is None or pool.derived.all():
        return float(values.mean())
    return float(values[~pool.derived].mean())


def _context(pool: CandidatePool, held: Doubles) -> Doubles:
    """How the question stands to this bank; 0 for a usual entry."""
    usual, distance = np.array([*_USUAL.values()]).T
    found = np.array(
        [
            usual[0] if pool.legible is None else pool.legible,
            held.max(),
            _mean(pool.asks[:, 0], pool),
            np.log(1 + len(pool.terms)),
        ]
    )
    context: Doubles = np.clip((found - usual) / distance, -_FAR, _FAR)
    return context


def _covered(terms: Floats) -> Doubles:
    """BM25 that credits each term once over the window: in full in the memory itself, 0.4 one step
    away, 0.3 two steps away, the best of these."""
    covered: Doubles = np.maximum.reduce(
        [
            terms[..., 0],
            np.float32(_COVER_ONE) * terms[..., 1:3].max(axis=-1),
            np.float32(_COVER_TWO) * terms[..., 3:5].max(axis=-1),
        ]
    ).sum(axis=0, dtype=np.float64)
    return covered


def _held(terms: Floats, ceilings: Floats) -> Doubles:
    """The share of the question's weight whose terms a memory has, each as far as the best does."""
    most = terms.max(axis=1, initial=0.0)
    if len(ceilings) != len(most):
        ceilings = most
    total = float(ceilings.sum())
    if total <= 0:
        return np.zeros(terms.shape[1])
    weight = np.divide(ceilings, most, out=np.zeros(len(most)), where=most > 0)
    held: Doubles = weight @ terms / total
    return held


def _best(values: Doubles, present: Bools) -> Doubles:
    """The best present value of each row; the mean of the others where there is none."""
    best: Doubles = np.where(present, values, -np.inf).max(axis=1)
    there = present.any(axis=1)
    return np.where(there, best, best[there].mean() if there.any() else 0.0)


def _best_in_document(own: Doubles, document: Ints) -> Doubles:
    """The best own value among the candidates of each one's document; its own without one."""
    best = np.full(int(document.max()) + 2, -np.inf)
    np.maximum.at(best, document, own)
    best_own: NDArray[np.float64] = np.where(document >= 0, best[document], own)
    return best_own
