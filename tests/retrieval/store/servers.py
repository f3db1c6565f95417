"""A real Postgres for tests, started once per process, and fakes of the other rooms' parts.

`from tests.retrieval.store.servers import database` gives a pool on a schema of its own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from retrieval.ingest.context import WriteContext
from retrieval.settings import RetainSettings
from retrieval.store.database.embedded import EmbeddedPostgres
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from retrieval.store.database.roles import Roles
from retrieval.store.heads import BankHead
from retrieval.store.segments import delta as deltas
from retrieval.store.segments.format import unpack
from retrieval.store.segments.merge import SegmentPart
from retrieval.types import Floats, Ints
from tests.retrieval.store.roles import granted, made, pool_of

QUICK = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB"}
"""Server settings for tests: they need not survive a power cut."""


AS_APP = "FOURFOLD_TEST_AS_APP"
"""Where this variable is set, tests have the rights of a server's role and not of the owner."""


@cache
def _template() -> Path:
    """An initialised data folder, at rest: initdb is the slowest part of a new server."""
    folder = Path(tempfile.mkdtemp(prefix="fourfold-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with EmbeddedPostgres(folder, settings=QUICK):
        pass
    return folder


def fresh(folder: Path) -> Path:
    """`folder`, made and filled with an empty database."""
    # cp keeps the owner of the files, who may be another than we are
    subprocess.run(["cp", "-a", str(_template()), str(folder)], check=True)
    return folder


@cache
def server() -> EmbeddedPostgres:
    """The server that tests share."""
    folder = _template().with_name(_template().name + "-shared")
    postgres = EmbeddedPostgres(fresh(folder), settings=QUICK)
    postgres.start()

    def stop() -> None:
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    return postgres


@asynccontextmanager
async def database(schema: str | None = None, max_size: int = 8) -> AsyncIterator[Pool]:
    """A pool on a migrated schema; a new one unless named. Dropped at the end if new."""
    name = schema or f"t{uuid4().hex[:12]}"
    pool = await open_pool(
        PoolSettings(server().dsn, schema=name, min_size=1, max_size=max_size, command_timeout_s=20)
    )
    try:
        await migrate(pool)
        if AS_APP not in os.environ:
            yield pool
            return
        async with made(pool, "app") as (role,):
            await granted(pool, Roles(app=role))
            async with pool_of(pool, server().dsn, role, max_size) as restricted:
                yield restricted
    finally:
        if schema is None:
            await pool.execute(f'drop schema "{name}" cascade')
        await pool.close()


class HashEmbedder:
    """Texts to unit vectors by hashed words: alike where words are shared, the same every time."""

    def __init__(self, dimension: int = 64, model_id: str = "hash") -> None:
        self.dimension = dimension
        self.model_id = model_id
        self.seen: list[str] = []

    async def embed_queries(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        return self._embed(texts)

    async def embed_passages(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        self.seen += texts
        return self._embed(texts)

    def _embed(self, texts: Sequence[str]) -> Floats:
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in text.lower().split():
                digest = blake2b(word.encode(), digest_size=8).digest()
                row[digest[0] % self.dimension] += 1.0 if digest[1] & 1 else -1.0
            row[0] += 1e-3
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        found: Floats = (vectors / norms).astype(np.float32)
        return found


class ExactNeighbours:
    """Neighbours straight from the stored segments, by brute force."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def neighbours(
        self, head: BankHead, vectors: Floats, types: NDArray[np.uint8], *, k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        bank = await Replica.of(self._pool, head)
        assert bank.head.version == head.version
        similar = vectors @ bank.vectors.T
        allowed = bank.live[None, :] & (types[:, None] == bank.types[None, :])
        similar = np.where(allowed & (similar >= floor), similar, -np.inf)
        order = np.argsort(-similar, axis=1, kind="stable")[:, :k]
        row, column = np.nonzero(np.take_along_axis(similar, order, 1) > -np.inf)
        ordinals = order[row, column]
        return row.astype(np.int32), ordinals.astype(np.int32), similar[row, ordinals]


def unpacked(delta: deltas.Delta, kind: str) -> list[SegmentPart]:
    """The delta's segments of one kind, as arrays."""
    return [
        SegmentPart(first, count, unpack(payload)) for first, count, payload in delta.segments[kind]
    ]


class Replica:
    """What a replica would hold of a bank, loaded whole; for looking at in tests."""

    def __init__(self, delta: deltas.Delta) -> None:
        self.head = delta.head
        self.delta = delta
        size = delta.head.next_ordinal
        self.live = np.ones(size, np.bool_)
        self.live[delta.tombstones] = False
        self.columns = unpacked(delta, "columns")
        self.parts = {kind: unpacked(delta, kind) for kind in delta.segments}
        assert [p.first for p in self.columns] == [0, *[p.end for p in self.columns[:-1]]][
            : len(self.columns)
        ]
        assert sum(p.count for p in self.columns) == size
        self.types = self.column("fact_type")
        self.vectors = np.concatenate(
            [p.arrays["vectors"] for p in self.parts[f"vectors:{delta.head.vector_set}"]]
            or [np.empty((0, 0), np.float32)]
        )

    @staticmethod
    async def of(pool: Pool, head: BankHead) -> Replica:
        kinds = ["columns", "links", f"vectors:{head.vector_set}", f"postings:{head.analyser}"]
        delta = await deltas.load(
            pool, head, have_generation=-1, have_version=-1, have_ordinal=0, kinds=kinds
        )
        return Replica(delta)

    def column(self, name: str) -> NDArray[np.generic]:
        empty = np.empty(0, np.uint8)
        return np.concatenate([p.arrays[name] for p in self.columns] or [empty])

    def ids(self) -> list[str]:
        """Ids of the live memories, by ordinal."""
        from uuid import UUID

        return [str(UUID(bytes=row.tobytes())) for row in self.column("id")[self.live]]

    def links(self) -> set[tuple[str, str, int]]:
        """(source id, target id, type) of the links between live memories."""
        from uuid import UUID

        ids = [str(UUID(bytes=row.tobytes())) for row in self.column("id")]
        return {
            (ids[s], ids[t], int(kind))
            for part in self.parts["links"]
            for s, t, kind in zip(
                part.arrays["source"], part.arrays["target"], part.arrays["type"], strict=True
            )
            if self.live[s] and self.live[t]
        }


def deps(pool: Pool, **changes: object) -> WriteContext:
    """Ingest on real Postgres with the fakes above; `changes` replace fields."""
    base = WriteContext(pool, HashEmbedder(), ExactNeighbours(pool), RetainSettings())
    from dataclasses import replace

    return replace(base, **changes)  # type: ignore[arg-type]
