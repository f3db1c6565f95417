"""The keyword arm of a recall where one of the back-ends inside Postgres ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from retrieval.bank import filters
from retrieval.bank.resident import ResidentBank
from retrieval.errors import Unavailable
from retrieval.keyword.backends.backend import Connection, KeywordBackend
from retrieval.keyword.bm25 import ScoredMatches
from retrieval.store.database.pool import Pool, read
from retrieval.types import FactType, Filters, Hits, Ints, TagsMatch


async def matches(
    pool: Pool,
    backend: KeywordBackend,
    bank: ResidentBank,
    text: str,
    types: Sequence[FactType],
    allowed: Ints | None,
    *,
    limit: int,
    floor: float = 0.0,
) -> ScoredMatches:
    """The back-end's best `limit` memories of each type among `allowed`, as ranking reads them from
    BM25.

    What lies beyond the limit counts as no match, and the whole question as one term: back-ends do
    not say what each word gave. Unavailable where ordinals mean something else in the database than
    in `bank`: it was compacted in between.
    """

    async def search(connection: Connection) -> Mapping[FactType, Hits]:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            generation = await connection.fetchval(
                "select generation from banks where bank = $1", bank.head.bank
            )
            if generation != bank.head.generation:
                raise Unavailable("the keyword index", "the bank's ordinals were reassigned")
            return await backend.search(
                connection, bank.head.bank, text, types, limit, floor=floor, allowed=allowed
            )

    return _scored(await read(pool, search), bank)


def allowed(bank: ResidentBank, asked: Filters, metadata: Ints | None) -> Ints | None:
    """The ordinals that the filters leave, int32 ascending; None where only types are asked for."""
    narrow = (
        bool(asked.tags or asked.tag_groups or asked.exclude_ids)
        or asked.tags_match is TagsMatch.EXACT
        or asked.as_of is not None
        or asked.window is not None
        or metadata is not None
    )
    if not narrow:
        return None
    return np.flatnonzero(filters.allowed(bank, asked, metadata)).astype(np.int32)


def _scored(found: Mapping[FactType, Hits], bank: ResidentBank) -> ScoredMatches:
    if not found:
        return ScoredMatches(np.empty(0, np.int32), np.empty(0, np.float32), 1)
    ordinals = np.concatenate([hits.ordinals for hits in found.values()])
    scores = np.concatenate([hits.scores for hits in found.values()])
    known = ordinals < bank.size  # the table may be newer than the snapshot
    ordinals, scores = ordinals[known], scores[known]
    live = bank.live[ordinals]
    ordinals, scores = ordinals[live], scores[live]
    order = np.argsort(ordinals, kind="stable")
    ordinals, scores = ordinals[order], scores[order]
    runs = ((0, ordinals, scores),) if len(ordinals) else ()
    return ScoredMatches(ordinals, scores, 1, runs)
