"""Packed postings and their resident form.

A segment of kind `postings:<analyser version>` holds, for n memories in ordinal order:
`term` uint64 (T) ascending, `ptr` int32 (T+1), `document` int32 (P) local and ascending inside a
term, `tf` float32 (P), `length` float32 (n). A memory without terms has length 0 and no postings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from retrieval.keyword.analyser import Query, Terms
from retrieval.types import Bools, Floats, Ints

Segment = Mapping[str, NDArray[Any]]

_INLINE_MERGE: Final = 150_000
"""`append` merges tiers up to this many postings, 2 ms; larger merges are left to `compact`."""


def merge(segments: Sequence[Segment]) -> Segment:
    """One segment of several that follow each other, in order."""
    tiers, first = [], 0
    for segment in segments:
        tier = _tier(segment, first)
        tiers.append(tier)
        first += tier.count
    merged = _merged(tiers)
    return {
        "term": merged.term,
        "ptr": merged.ptr,
        "document": merged.document,
        "tf": merged.tf,
        "length": merged.length,
    }


@dataclass(frozen=True, slots=True)
class Tier:
    """Postings of the ordinals [first, first + count); `document` holds bank ordinals."""

    first: int
    term: Terms
    ptr: Ints
    document: Ints
    tf: Floats
    length: Floats

    @property
    def count(self) -> int:
        return len(self.length)

    @property
    def nbytes(self) -> int:
        return (
            self.term.nbytes
            + self.ptr.nbytes
            + self.document.nbytes
            + self.tf.nbytes
            + self.length.nbytes
        )


@dataclass(frozen=True, slots=True)
class Matched:
    """The postings of a query's terms: per posting its document, tf and term (index in query).

    Terms lie in query order inside a tier, tiers in ordinal order.
    """

    document: Ints
    tf: Floats
    sizes: Ints  # postings of each (tier, term) run
    owners: Ints  # query index of each run


@dataclass(frozen=True, slots=True)
class Postings:
    """One bank's postings over ordinals [0, end), immutable: every change is a new object.

    Changes share what did not change, so holding an older one costs little, and any number of
    threads may search one object. `live` marks the memories that exist; `documents` and
    `total_length` are the statistics of exactly those.
    """

    tiers: tuple[Tier, ...]
    lengths: Floats  # (end,)
    live: Bools | None  # (end,), None: all
    mask: Bools | None  # what `live` was made from, to know it again
    documents: int
    total_length: float

    @classmethod
    def empty(cls) -> Postings:
        return cls((), np.empty(0, np.float32), None, None, 0, 0.0)

    @property
    def end(self) -> int:
        """One above the highest ordinal."""
        return len(self.lengths)

    @property
    def nbytes(self) -> int:
        return sum(tier.nbytes for tier in self.tiers) + self.lengths.nbytes

    def append(self, segment: Segment, first_ordinal: int) -> Postings:
        """With the memories of one more segment, all live. O(segment), amortised.

        Segments come in ordinal order. Ordinals between `end` and `first_ordinal` do not exist.
        """
        if first_ordinal < self.end:
            raise ValueError(f"ordinal {first_ordinal} is already there: the end is {self.end}")
        added = _tier(segment, first_ordinal)
        end = first_ordinal + added.count
        lengths = np.zeros(end, np.float32)
        lengths[: self.end] = self.lengths
        lengths[first_ordinal:] = added.length
        live = self.live
        if live is not None or first_ordinal > self.end:
            grown = np.zeros(end, np.bool_)
            grown[: self.end] = True if live is None else live
            grown[first_ordinal:] = True
            live = grown
        tiers = [*self.tiers, added]
        while len(tiers) > 1 and _worth(tiers[-2], tiers[-1]):
            tiers[-2:] = [_merged(tiers[-2:])]
        return Postings(
            tuple(tiers),
            lengths,
            live,
            None,
            self.documents + added.count,
            self.total_length + float(added.length.sum(dtype=np.float64)),
        )

    def with_live(self, live: Bools) -> Postings:
        """The same postings where exactly these ordinals exist. live: bool (>= end,), not to be
        changed afterwards: with the mask of the last call this costs nothing."""
        if live is self.mask:
            return self
        mask, live = live, live[: self.end]
        documents = int(np.count_nonzero(live))
        if documents == self.end:
            if self.live is None:
                return self
            total = float(self.lengths.sum(dtype=np.float64))
            return replace(self, live=None, mask=mask, documents=documents, total_length=total)
        total = float(self.lengths[live].sum(dtype=np.float64))
        return replace(self, live=live, mask=mask, documents=documents, total_length=total)

    def without(self, ordinals: Ints) -> Postings:
        """Without these memories."""
        live = np.ones(self.end, np.bool_) if self.live is None else self.live.copy()
        live[ordinals] = False
        return self.with_live(live)

    def matched(self, query: Query) -> Matched:
        """The postings of the query's terms, dead memories' too."""
        documents: list[Ints] = []
        tfs: list[Floats] = []
        sizes: list[int] = []
        owners: list[int] = []
        for tier in self.tiers:
            if not len(tier.term):
                continue
            at = np.searchsorted(tier.term, query.terms)
            at[at == len(tier.term)] = 0
            for owner in np.flatnonzero(tier.term[at] == query.terms).tolist():
                start, stop = tier.ptr[at[owner]], tier.ptr[at[owner] + 1]
                documents.append(tier.document[start:stop])
                tfs.append(tier.tf[start:stop])
                sizes.append(int(stop - start))
                owners.append(owner)
        return Matched(
            np.concatenate(documents) if documents else np.empty(0, np.int32),
            np.concatenate(tfs) if tfs else np.empty(0, np.float32),
            np.array(sizes, np.int32),
            np.array(owners, np.int32),
        )


def _tier(segment: Segment, first: int) -> Tier:
    document: Ints = segment["document"]
    return Tier(
        first,
        segment["term"],
        segment["ptr"],
        document + np.int32(first) if first else document,
        segment["tf"],
        segment["length"],
    )


def _nothing(first: int, count: int) -> Tier:
    return Tier(
        first,
        np.empty(0, np.uint64),
        np.zeros(1, np.int32),
        np.empty(0, np.int32),
        np.empty(0, np.float32),
        np.zeros(count, np.float32),
    )


def _worth(before: Tier, last: Tier) -> bool:
    """Merge while the older tier is less than four times the newer one, and both are small."""
    old, new = len(before.tf), len(last.tf)
    adjacent = before.first + before.count == last.first
    return adjacent and old < 4 * new and old + new <= _INLINE_MERGE


def _merged(tiers: Sequence[Tier]) -> Tier:
    """Adjacent tiers as one."""
    if len(tiers) == 1:
        return tiers[0]
    if not tiers:
        return _nothing(0, 0)
    every = np.concatenate([tier.term for tier in tiers])
    order = np.argsort(every, kind="stable")  # equal terms stay in tier order
    ranked = every[order]
    new = np.ones(len(ranked), np.bool_)
    new[1:] = ranked[1:] != ranked[:-1]
    sizes = np.concatenate([np.diff(tier.ptr) for tier in tiers])[order]
    ends = np.cumsum(sizes, dtype=np.int64)
    ptr = np.append(0, ends)
    # Where each run of postings begins in the concatenation of all tiers' postings.
    bases = np.cumsum([0, *(len(tier.tf) for tier in tiers)])
    begins = np.concatenate(
        [tier.ptr[:-1].astype(np.int64) + base for tier, base in zip(tiers, bases, strict=False)]
    )[order]
    take = np.repeat(begins - ptr[:-1], sizes)
    take += np.arange(len(take))
    return Tier(
        tiers[0].first,
        ranked[new],
        np.append(ptr[:-1][new], ptr[-1]).astype(np.int32),
        np.concatenate([tier.document for tier in tiers])[take],
        np.concatenate([tier.tf for tier in tiers])[take],
        np.concatenate([tier.length for tier in tiers]),
    )
