"""What one question finds in a bank's vectors and postings: all that the arms read of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retrieval.bank.resident import ResidentBank
from retrieval.bank.vectors.blind import Blind
from retrieval.bank.vectors.flat import Scan
from retrieval.keyword import bm25
from retrieval.keyword.analyser import Query
from retrieval.messages import message
from retrieval.settings import RecallSettings
from retrieval.types import Floats

NO_TERMS = Query(np.empty(0, np.uint64), np.empty(0, np.float32))


@message
@dataclass(frozen=True, slots=True)
class Probe:
    """A question as ranges understand it: `vector` float32 (d,) of unit length, None where there
    is none, and its terms."""

    vector: Floats | None
    terms: Query


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The similarity of every memory, and every memory with a term of the question."""

    scan: Scan
    matches: bm25.ScoredMatches


def answer(bank: ResidentBank, asked: Probe, settings: RecallSettings) -> ProbeResult:
    """What a bank that is held whole says."""
    scan: Scan = Blind() if asked.vector is None else bank.vectors.scan(asked.vector)
    matches = bm25.scores(
        bank.postings, asked.terms, bank.live, k1=settings.bm25_k1, b=settings.bm25_b
    )
    return ProbeResult(scan, matches)
