"""Exact BM25 over resident postings.

score(q, d) = sum over terms of  w * ln(1 + (N - df + 0.5) / (df + 0.5))
                                   * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / avg))

the idf as in Lucene, never negative; N, df and avg over the live memories of the bank, whatever
the filter. (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.keyword.analyser import Query
from retrieval.keyword.postings import Postings
from retrieval.messages import message
from retrieval.types import Bools, FactType, Floats, Hits, Ints, no_hits

K1: Final = 1.2
B: Final = 0.75


@dataclass(frozen=True, slots=True)
class ScoredMatches:
    """Every live memory that matches: ordinals int32 ascending, scores float32 > 0.

    ceilings float32 (terms,): what each term of the query gives at most, whether or not a memory
    has it; empty where a back-end does not say.
    """

    ordinals: Ints
    scores: Floats
    terms: int = 0
    _runs: tuple[tuple[int, Ints, Floats], ...] = ()
    """(term, documents ascending, impacts): the live postings of each term and tier."""
    ceilings: Floats = field(default_factory=lambda: np.empty(0, np.float32))

    def __len__(self) -> int:
        return len(self.ordinals)

    def at(self, ordinals: Ints) -> Floats:
        """The scores of these ordinals, in their order; 0 where the query does not match."""
        out = np.zeros(len(ordinals), np.float32)
        if len(self.ordinals):
            where = np.searchsorted(self.ordinals, ordinals)
            where[where == len(self.ordinals)] = 0
            found = self.ordinals[where] == ordinals
            out[found] = self.scores[where[found]]
        return out

    def postings(self) -> Iterator[tuple[int, Ints]]:
        """(term, memories that have it), a term perhaps several times."""
        return ((term, documents) for term, documents, _ in self._runs)

    def terms_at(self, ordinals: Ints) -> Floats:
        """The part of each query term in the scores of these ordinals, float32 (terms, m).

        Terms in the order of the query; 0 where a term does not occur; the sum over terms is `at`.
        """
        out = np.zeros((self.terms, len(ordinals)), np.float32)
        asked, place = np.unique(ordinals, return_inverse=True)
        for term, document, impact in self._runs:
            where = np.minimum(np.searchsorted(document, asked), len(document) - 1)
            found = np.where(document[where] == asked, impact[where], np.float32(0))
            out[term] += found[place]
        return out


@message
@dataclass(frozen=True, slots=True)
class Evidence:
    """The postings of a query's terms in live memories, and what they are weighed against.

    Per posting: document int32, tf float32, length float32 of that document; per (tier, term) run,
    of `sizes` postings each: `owners`, its term's index in the query. `documents` and
    `total_length` are those of all live memories that the postings are from.
    """

    document: Ints
    tf: Floats
    length: Floats
    sizes: Ints
    owners: Ints
    documents: int
    total_length: float

    @classmethod
    def joined(cls, parts: Sequence[Evidence]) -> Evidence:
        """The evidence of several ranges of one bank, in ordinal order, as that of the bank."""
        return cls(
            document=np.concatenate([part.document for part in parts]),
            tf=np.concatenate([part.tf for part in parts]),
            length=np.concatenate([part.length for part in parts]),
            sizes=np.concatenate([part.sizes for part in parts]),
            owners=np.concatenate([part.owners for part in parts]),
            documents=sum(part.documents for part in parts),
            total_length=sum(part.total_length for part in parts),
        )


def evidence(postings: Postings, query: Query, live: Bools | None = None) -> Evidence:
    """What the live memories' postings say to the terms of a query.

    live: bool over ordinals; None takes the postings' own. Pure; any thread.
    """
    if live is not None:
        postings = postings.with_live(live)
    matched = postings.matched(query)
    document, tf, sizes, owners = matched.document, matched.tf, matched.sizes, matched.owners
    if postings.live is not None and len(document):
        alive = postings.live[document]
        document, tf = document[alive], tf[alive]
        starts = np.cumsum(sizes) - sizes  # runs are never empty
        sizes = np.add.reduceat(alive, starts, dtype=np.int32)
    length = postings.lengths[document]
    return Evidence(document, tf, length, sizes, owners, postings.documents, postings.total_length)


def scores(
    postings: Postings,
    query: Query,
    live: Bools | None = None,
    *,
    k1: float = K1,
    b: float = B,
) -> ScoredMatches:
    """The score of every live memory that has a term of the query.

    live: bool over ordinals; None takes the postings' own. Deterministic: the result does not
    depend on how the postings are divided into tiers. Pure; any thread.
    """
    return weighed(evidence(postings, query, live), query, postings.end, k1=k1, b=b)


def weighed(
    found: Evidence, query: Query, end: int, *, k1: float = K1, b: float = B
) -> ScoredMatches:
    """The scores that this evidence gives; all its ordinals are below `end`."""
    document = found.document
    df = np.bincount(found.owners, found.sizes, len(query))
    idf = np.log1p((found.documents - df + 0.5) / (df + 0.5))
    weight = (query.weights * idf * (k1 + 1.0)).astype(np.float32)
    if not len(document):
        none = np.empty(0, np.int32), np.empty(0, np.float32)
        return ScoredMatches(*none, len(query), ceilings=weight)
    average = found.total_length / max(found.documents, 1)
    norm = found.length * np.float32(k1 * b / average if average else 0.0)
    norm += np.float32(k1 * (1.0 - b))
    norm += found.tf
    np.divide(found.tf, norm, out=norm)
    norm *= np.repeat(weight[found.owners], found.sizes)
    ends = np.cumsum(found.sizes)
    runs = tuple(
        (term, document[last - size : last], norm[last - size : last])
        for term, last, size in zip(
            found.owners.tolist(), ends.tolist(), found.sizes.tolist(), strict=True
        )
        if size
    )
    return replace(summed(document, norm, end, len(query), runs), ceilings=weight)


def summed(
    document: Ints,
    impact: Floats,
    end: int,
    terms: int,
    runs: tuple[tuple[int, Ints, Floats], ...],
) -> ScoredMatches:
    """Sums per document; each document's terms in one order, so equal in both ways."""
    if len(document) * 16 < end:
        distinct, inverse = np.unique(document, return_inverse=True)
        total = np.bincount(inverse, impact)
        return ScoredMatches(distinct, total.astype(np.float32), terms, runs)
    total = np.bincount(document, impact, end)
    matching = np.flatnonzero(total)
    return ScoredMatches(matching.astype(np.int32), total[matching].astype(np.float32), terms, runs)


def top(
    matches: ScoredMatches,
    fact_types: NDArray[np.uint8],
    types: Sequence[FactType],
    limit: int,
    *,
    allowed: Bools | None = None,
    floor: float = 0.0,
) -> dict[FactType, Hits]:
    """The best `limit` memories of each type, best first, equal scores by ordinal.

    fact_types uint8 and allowed bool, both over ordinals; the filter comes before the cut. A floor
    above 0 is inclusive; a match always scores above 0.
    """
    ordinals, score = matches.ordinals, matches.scores
    if allowed is not None:
        keep = allowed[ordinals]
        ordinals, score = ordinals[keep], score[keep]
    if floor > 0:
        keep = score >= np.float32(floor)
        ordinals, score = ordinals[keep], score[keep]
    kinds = fact_types[ordinals]
    near = _near(score, 4 * limit * len(types))
    near_kinds = kinds[near]
    hits: dict[FactType, Hits] = {}
    for kind in types:
        chosen = near[near_kinds == kind]
        if len(chosen) < limit and len(near) < len(score):
            chosen = np.flatnonzero(kinds == kind)
        hits[kind] = best(ordinals[chosen], score[chosen], limit)
    return hits


def _near(score: Floats, count: int) -> NDArray[np.intp]:
    """Places of the `count` best and of all that equal the last of them: few enough to divide by
    type cheaply."""
    if len(score) <= 2 * count or count <= 0:
        return np.arange(len(score))
    return np.flatnonzero(score >= np.partition(score, len(score) - count)[len(score) - count])


def best(ordinals: Ints, score: Floats, limit: int) -> Hits:
    """The `limit` best, best first, equal scores by ordinal. ordinals ascending."""
    if limit <= 0 or not len(ordinals):
        return no_hits()
    if len(ordinals) > limit:
        least = np.partition(score, len(score) - limit)[len(score) - limit]
        above = np.flatnonzero(score > least)
        equal = np.flatnonzero(score == least)[: limit - len(above)]
        chosen = np.sort(np.concatenate((above, equal)))
        ordinals, score = ordinals[chosen], score[chosen]
    order = np.argsort(-score, kind="stable")
    return Hits(ordinals[order], score[order])
