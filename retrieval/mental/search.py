"""Documents by words and by meaning: BM25 and cosine, fused by reciprocal ranks.

Terms and vectors of a document are counted when a search first meets it after a change, and kept.
Without an embedder only words count.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from retrieval.errors import FourfoldError, ModelChanged
from retrieval.keyword.analysers import analyser_of
from retrieval.keyword.bm25 import K1, B
from retrieval.protocols import Embedder
from retrieval.settings import RetainSettings
from retrieval.store import banks, pages
from retrieval.store.database.pool import Pool, read, write
from retrieval.store.heads import BankHead, made_by
from retrieval.store.tags import TagFilter, visible
from retrieval.text import tokens

RRF_K = 60
"""The constant of reciprocal ranks (Cormack, Clarke and Buettcher 2009)."""
NAME_WEIGHT = 3
"""How often a word of a name counts."""
EMBED_TOKENS = 400
EMBEDDED_AT_ONCE = 64
"""Vectors that one search makes at most: the next makes more."""
SIMILAR = 0.2
"""Least cosine of a document that shares no word with the question."""


async def search(
    pool: Pool,
    embedder: Embedder | None,
    retain: RetainSettings,
    tenant: str,
    bank_id: str,
    query: str,
    *,
    wanted: TagFilter,
    only_pages: bool = False,
    only_written: bool = False,
    without: Sequence[str] = (),
    limit: int = 10,
) -> list[tuple[str, float]]:
    """(model's id, score) of the <= limit best documents, best first. The score is 1 where both
    arms have it first, and comparable within one answer only. NotFound for an unknown bank."""
    head = await banks.head(pool, tenant, bank_id)
    parameters: list[Any] = []

    def bind(value: Any) -> str:
        parameters.append(value)
        return f"${len(parameters) + 1}"

    tests = ["is_page"] if only_pages else ["true"]
    if only_written:
        tests.append("content <> ''")
    if without:
        tests.append(f"id <> all({bind(list(without))}::text[])")
    if (tags := visible("tags", wanted, bind)) is not None:
        tests.append(f"({tags})")
    made = None if embedder is None else made_by(embedder)
    rows = await read(
        pool, lambda c: pages.searchable(c, head.bank, " and ".join(tests), parameters, made)
    )
    if not rows:
        return []
    analyser = analyser_of(retain, head)

    def count() -> tuple[list[dict[str, int]], dict[str, int]]:
        terms = [row["terms"] or _counted(analyser.terms(_text(row, NAME_WEIGHT))) for row in rows]
        return terms, _counted(analyser.terms(query, query=True))

    terms, asked = await asyncio.to_thread(count)
    vectors, name = await _vectors(embedder, rows)
    await _keep(pool, head, name, rows, terms, vectors)
    arms = [_by_words(terms, asked)]
    if embedder is not None:
        arms.append(await _by_meaning(embedder, vectors, name, query, tenant))
    fused = np.zeros(len(rows))
    for order in arms:
        for rank, place in enumerate(order, 1):
            fused[place] += 1.0 / (RRF_K + rank)
    fused *= (RRF_K + 1) / len(arms)
    best = np.argsort(-fused, kind="stable")[:limit]
    return [(rows[i]["id"], float(fused[i])) for i in best.tolist() if fused[i] > 0]


def _text(row: Mapping[str, Any], names: int = 1) -> str:
    return "\n".join([*[row["name"]] * names, row["source_query"], row["content"] or ""])


def _counted(terms: Sequence[str]) -> dict[str, int]:
    return dict(Counter(terms))


def _by_words(terms: Sequence[Mapping[str, int]], asked: Mapping[str, int]) -> list[int]:
    """Places of the documents with a word of the question, best first (BM25)."""
    lengths = np.array([sum(one.values()) for one in terms], np.float64)
    average = max(1.0, float(lengths.mean()))
    scores = np.zeros(len(terms))
    for term in asked:
        tf = np.array([one.get(term, 0) for one in terms], np.float64)
        df = int((tf > 0).sum())
        if df:
            idf = math.log(1 + (len(terms) - df + 0.5) / (df + 0.5))
            scores += idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * lengths / average))
    order = np.argsort(-scores, kind="stable")
    return [int(i) for i in order if scores[i] > 0]


async def _vectors(
    embedder: Embedder | None, rows: Sequence[Mapping[str, Any]]
) -> tuple[list[bytes | None], str]:
    """The vector of each document, None where there is none yet, and the name of their set."""
    if embedder is None:
        return [row["vector"] for row in rows], ""
    name = made_by(embedder)
    found = [row["vector"] if row["vector_set"] == name else None for row in rows]
    lacking = [i for i, one in enumerate(found) if one is None][:EMBEDDED_AT_ONCE]
    if lacking:
        texts = [tokens.cut(_text(rows[i]), EMBED_TOKENS) for i in lacking]
        try:
            made = await embedder.embed_passages(texts)
        except FourfoldError:
            return found, name
        if (now := made_by(embedder)) != name:  # another model took its place
            found = [row["vector"] if row["vector_set"] == now else None for row in rows]
            name = now
        for i, vector in zip(lacking, made, strict=True):
            found[i] = np.asarray(vector, np.float32).tobytes()
    return found, name


async def _keep(
    pool: Pool,
    head: BankHead,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    terms: Sequence[Mapping[str, int]],
    vectors: Sequence[bytes | None],
) -> None:
    new = [
        (row["id"], row["revision"], counts, vector)
        for row, counts, vector in zip(rows, terms, vectors, strict=True)
        if row["terms"] is None or (vector is not None and vector != row["vector"])
    ]
    if not new:
        return

    async def work(connection: Any) -> None:
        for id, revision, counts, vector in new:
            await pages.index(
                connection, head.bank, id, revision, counts, vector, name if vector else ""
            )

    await write(pool, work)


async def _by_meaning(
    embedder: Embedder, vectors: Sequence[bytes | None], name: str, query: str, tenant: str
) -> list[int]:
    """Places of the documents that resemble the question, best first."""
    there = [i for i, one in enumerate(vectors) if one is not None]
    if not there:
        return []
    try:
        made = await embedder.embed_queries([tokens.cut(query, EMBED_TOKENS)], tenant=tenant)
    except ModelChanged:  # costs an arm, not the answer
        return []
    if made_by(embedder) != name:
        return []
    asked = np.asarray(made[0], np.float32)
    matrix = np.stack([np.frombuffer(vectors[i] or b"", np.float32) for i in there])
    similar = matrix @ asked
    order = np.argsort(-similar, kind="stable")
    return [there[i] for i in order.tolist() if similar[i] >= SIMILAR]
