"""Segments of made-up memories, without texts or models: what a replica loads, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.store.database.pool import Pool, write
from retrieval.store.segments.delta import EntityChange
from retrieval.store.segments.format import pack
from retrieval.store.segments.table import append
from retrieval.types import NO_TIME, Longs

VECTORS, ANALYSER = "bench:384", "bench"
DIMENSION = 384
LINKS = 20
"""Semantic links per memory."""
WORDS = 20
"""Distinct terms per memory."""
_START = 1_700_000_000_000_000
_DAY = 86_400_000_000


def pointers(counts: NDArray[Any]) -> NDArray[np.int32]:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


def packed(first: int, count: int, entities: int, seed: int = 0) -> Mapping[str, bytes]:
    """The segments of `count` memories from ordinal `first` on, by kind."""
    chance = np.random.default_rng(seed + first)
    mentions, tags = chance.integers(0, 5, count), chance.integers(0, 3, count)
    occurred = _START + chance.integers(0, 365, count) * _DAY
    occurred = np.where(chance.random(count) < 0.7, occurred, NO_TIME)
    now = np.full(count, _START, np.int64)
    columns: dict[str, NDArray[Any]] = {
        "id": chance.integers(0, 256, (count, 16), dtype=np.uint8),
        "fact_type": chance.choice([0, 0, 0, 1, 2], count).astype(np.uint8),
        "created_at": now,
        "updated_at": now,
        "occurred_start": occurred,
        "occurred_end": occurred,
        "mentioned_at": now,
        "document": (first + np.arange(count, dtype=np.int32)) // 30,
        "position": np.arange(count, dtype=np.int32) % 30,
        "proof": np.full(count, -1, np.int32),
        "tokens": np.full(count, 30, np.int32),
        "subject": np.full(count, -1, np.int32),
        "flags": np.zeros(count, np.uint8),
        "tag_ptr": pointers(tags),
        "tag": chance.integers(0, 50, tags.sum()).astype(np.int32),
        "entity_ptr": pointers(mentions),
        "entity": np.minimum(chance.zipf(1.3, mentions.sum()), entities - 1).astype(np.int32),
        "source_ptr": np.zeros(count + 1, np.int32),
        "source": np.empty((0, 16), np.uint8),
    }
    source = np.repeat(np.arange(first, first + count, dtype=np.int32), LINKS)
    links: dict[str, NDArray[Any]] = {
        "source": source,
        "target": (chance.random(len(source)) * np.maximum(source, 1)).astype(np.int32),
        "type": np.ones(len(source), np.uint8),
        "weight": np.full(len(source), 0.8, np.float32),
    }
    vectors = chance.standard_normal((count, DIMENSION), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return {
        "columns": pack(columns),
        "links": pack(links),
        f"vectors:{VECTORS}": pack({"vectors": vectors}),
        f"postings:{ANALYSER}": pack(_postings(count, chance)),
    }


def entity_rows(count: int) -> list[EntityChange]:
    return [
        EntityChange(n, n.to_bytes(16, "big"), f"Name{n} Sur{n % 97}", None) for n in range(count)
    ]


def _postings(count: int, chance: np.random.Generator) -> dict[str, NDArray[Any]]:
    words = chance.zipf(1.2, (count, WORDS)) % 30_000
    pairs = np.unique(words.astype(np.int64) << 32 | np.arange(count)[:, None])
    term: Longs = (pairs >> 32) * 0x9E3779B97F4A7C1  # spread as hashes are
    order = np.argsort(term, kind="stable")
    terms, counts = np.unique(term, return_counts=True)
    return {
        "term": terms.astype(np.uint64),
        "ptr": pointers(counts),
        "document": (pairs & 0xFFFFFFFF)[order].astype(np.int32),
        "tf": np.ones(len(pairs), np.float32),
        "length": np.full(count, WORDS, np.float32),
    }


async def store(
    pool: Pool, bank: int, first: int, count: int, entities: int, segment: int = 10_000
) -> None:
    """Commits `count` more memories of a bank in one write, `segment` of them a segment."""

    async def work(connection: Any) -> None:
        version = 1 + await connection.fetchval(
            "select version from banks where bank = $1 for update", bank
        )
        for begin in range(first, first + count, segment):
            part = min(segment, first + count - begin)
            for kind, payload in packed(begin, part, entities).items():
                await append(connection, bank, kind, begin, part, version, payload)
        if not first:
            await connection.executemany(
                "insert into entities (bank, entity_no, id, canonical_name, name_key, version)"
                " values ($1, $2, gen_random_uuid(), $3, lower($3), $4)",
                [(bank, row.entity_no, row.name, version) for row in entity_rows(entities)],
            )
        await connection.execute(
            "update banks set version = $2, next_ordinal = $3, vector_set = $4, analyser = $5,"
            " next_entity = $6 where bank = $1",
            bank,
            version,
            first + count,
            VECTORS,
            ANALYSER,
            entities,
        )

    await write(pool, work)
