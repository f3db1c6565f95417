"""What ranking reads of the candidates, taken from a bank and from what the arms found."""

from __future__ import annotations

import numpy as np

from retrieval.arms.adjacency import GraphHits
from retrieval.arms.temporal import TemporalHits
from retrieval.bank import filters
from retrieval.bank.resident import ResidentBank
from retrieval.ranking.shortlist import Facts, Paths
from retrieval.topk import places
from retrieval.types import Bools, Doubles, Floats, Ints, Window


def facts(bank: ResidentBank, ordinals: Ints) -> Facts:
    columns = bank.columns
    return Facts(
        ids=columns.id[ordinals],
        fact_type=columns.fact_type[ordinals],
        occurred_start=columns.occurred_start[ordinals],
        occurred_end=columns.occurred_end[ordinals],
        mentioned_at=columns.mentioned_at[ordinals],
        proof=columns.proof[ordinals],
        tokens=columns.tokens[ordinals],
    )


def sources(bank: ResidentBank, ordinals: Ints) -> tuple[Ints, Ints]:
    """(ptr, ordinals): the memories that each was made from."""
    row, source = bank.columns.sources.take(ordinals)
    counts = np.bincount(row, minlength=len(ordinals))
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), source


def timely(bank: ResidentBank, ordinals: Ints, window: Window) -> Bools:
    """Which of them touch the window."""
    return filters.touching(bank.columns, filters.bounds(window), ordinals)


def proximity(ordinals: Ints, found: TemporalHits | None) -> Doubles:
    """Nearness to the window where the temporal arm found the memory, NaN elsewhere; kept also
    for memories that another arm found first."""
    near = np.full(len(ordinals), np.nan)
    if found is None:
        return near
    at = places(found.ordinals, ordinals)
    near[at >= 0] = found.proximity[at[at >= 0]]
    return near


def evidence(ordinals: Ints, walked: GraphHits | None) -> tuple[Floats, Ints]:
    """What the walk handed to each candidate, and the ordinal it comes from (-1 none)."""
    handed = np.zeros(len(ordinals), np.float32)
    support = np.full(len(ordinals), -1, np.int32)
    if walked is None or not len(walked):
        return handed, support
    at = places(walked.hits.ordinals, ordinals)
    there, at = at >= 0, at[at >= 0]
    handed[there], support[there] = walked.evidence[at], walked.support[at]
    return handed, support


def paths(bank: ResidentBank, ordinals: Ints, walked: GraphHits | None) -> Paths:
    """How the walk came to each candidate that is no seed."""
    count = len(ordinals)
    hop, link = np.zeros(count, np.int8), np.zeros(count, np.uint8)
    parent, via = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    handed, support = np.zeros(count, np.float32), np.full(count, -1, np.int32)
    if walked is not None and len(walked):
        at = places(walked.hits.ordinals, ordinals)
        there, at = at >= 0, at[at >= 0]
        hop[there], link[there] = walked.hop[at], walked.link[at]
        parent[there], via[there] = walked.parent[at], walked.via[at]
        handed[there], support[there] = walked.evidence[at], walked.support[at]
    names: list[str | None] = [None] * count
    for i in np.flatnonzero(via >= 0).tolist():
        names[i] = bank.entities.name[via[i]]
    return Paths(
        hop,
        bank.columns.id[np.maximum(parent, 0)],
        parent,
        link,
        tuple(names),
        handed,
        support,
    )
