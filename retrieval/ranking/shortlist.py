"""What travels from the retriever to the ranking: at most a few hundred candidates, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from retrieval.messages import message
from retrieval.ranking.fusion import Candidates
from retrieval.store.heads import BankHead
from retrieval.types import Arm, Bools, Doubles, FactType, Floats, Hits, Ints, Longs, Window


@message
@dataclass(frozen=True, slots=True)
class Question:
    """A recall's text, cleaned, and what was read from it. `besides`: where it asks for all that
    happened in its window, what the keyword arm reads; None elsewhere. `name`: the one word that
    its window was read from, where a bank may know somebody who is called so."""

    text: str
    window: Window | None = None
    rule: str | None = None
    event: EventFound | None = None
    besides: str | None = None
    name: str | None = None


@message
@dataclass(frozen=True, slots=True)
class EventFound:
    """The memory that a window beside an event ("after the outage") was taken from."""

    phrase: str
    relation: str
    ordinal: int
    id: str
    confidence: float


@message
@dataclass(frozen=True, slots=True)
class Facts:
    """The columns that ranking needs, one row per candidate."""

    ids: NDArray[np.uint8]
    fact_type: NDArray[np.uint8]
    occurred_start: Longs
    occurred_end: Longs
    mentioned_at: Longs
    proof: Ints
    tokens: Ints


@message
@dataclass(frozen=True, slots=True)
class Paths:
    """How the graph arm came to each candidate, (c,): `hop` i1, 0 where it did not (or it is a
    seed), `parent` u1 (c, 16) the id it was reached from and `source` i4 its ordinal (-1 none),
    `link` u1 arms.adjacency.PathLink, `via` the name of the entity both share; `evidence` f4, what
    the walk handed on, and `support` i4, the ordinal that it comes from, -1 for none."""

    hop: NDArray[np.int8]
    parent: NDArray[np.uint8]
    source: Ints
    link: NDArray[np.uint8]
    via: tuple[str | None, ...]
    evidence: Floats
    support: Ints

    def take(self, index: Ints) -> Paths:
        """The paths of the candidates at these positions, in that order."""
        return Paths(
            self.hop[index],
            self.parent[index],
            self.source[index],
            self.link[index],
            tuple(self.via[i] for i in index.tolist()),
            self.evidence[index],
            self.support[index],
        )


@message
@dataclass(frozen=True, slots=True)
class ArmList:
    """One arm's answer for one fact type, kept for the trace."""

    arm: Arm
    fact_type: FactType
    hits: Hits
    ids: NDArray[np.uint8]
    seconds: float


@message
@dataclass(frozen=True, slots=True)
class Shortlist:
    """Candidates in fusion order with all that ranking reads of them; c candidates.

    `proximity` float64 (c,), NaN where the temporal arm did not surface the candidate; `fused`
    float64 (c,) in (0, 1], the score that orders the list when nothing reranks, and `parts` float64
    (c, score_fusion.PARTS) what its logarithm is the sum of, only where it is to be explained;
    candidate i was made from the memories at `source_ordinals[source_ptr[i]:source_ptr[i + 1]]`
    (observations only). `vectors` only where near-duplicates are to be grouped, `texts` only where
    a reranker reads, `query_vector` and `arms` only for a trace. `dropped`: how many the cut to
    `cap` left out.
    """

    head: BankHead
    question: Question
    budget: int
    found: Candidates
    facts: Facts
    proximity: Doubles
    fused: Doubles
    source_ptr: Ints
    source_ordinals: Ints
    paths: Paths
    parts: Doubles | None = None
    outside: Bools | None = None
    """bool (c,): which are known not to hold at the time that the question means; None: none."""
    echo: Bools | None = None
    """bool (c,): which observations say nothing that the one memory does not that they were made
    of, and that is a candidate, too; None: none."""
    lasting: Bools | None = None
    """bool (c,): which hold all through the question's window and began before it; None: none."""
    texts: tuple[tuple[str, str | None, datetime | None], ...] | None = None
    vectors: Floats | None = None
    query_vector: Floats | None = None
    dropped: int = 0
    cap: int = 0
    degraded: tuple[str, ...] = ()
    arms: tuple[ArmList, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.found)


def empty(head: BankHead, question: Question, budget: int) -> Shortlist:
    """A shortlist without candidates: a bank without memories, or only unknown types asked."""
    return Shortlist(
        head=head,
        question=question,
        budget=budget,
        found=Candidates(
            np.empty(0, np.int32),
            np.zeros((0, len(Arm)), np.int32),
            np.zeros((0, len(Arm)), np.float32),
            np.empty(0),
        ),
        facts=Facts(
            np.empty((0, 16), np.uint8),
            np.empty(0, np.uint8),
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            np.empty(0, np.int32),
            np.empty(0, np.int32),
        ),
        proximity=np.empty(0),
        fused=np.empty(0),
        source_ptr=np.zeros(1, np.int32),
        source_ordinals=np.empty(0, np.int32),
        paths=Paths(
            np.empty(0, np.int8),
            np.empty((0, 16), np.uint8),
            np.empty(0, np.int32),
            np.empty(0, np.uint8),
            (),
            np.empty(0, np.float32),
            np.empty(0, np.int32),
        ),
    )
