"""Another embedding model for a bank: its vectors rebuilt from the stored memories.

Meanwhile the bank answers by keywords, graph and time where the asking server has the new model,
and in full where it has the old one. Writers of either model go on; the old ones' memories are
embedded before the switch.

Semantic links are kept: they say that two memories were alike when they were written, which the
walk only takes as a hint, and to find them all again is quadratic in the size of the bank. Memories
that were written with the new model before the switch get theirs at the switch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from retrieval.errors import ModelChanged
from retrieval.ingest.write import stored
from retrieval.ingest.write.enrich import embedded
from retrieval.ingest.write.stored import StoredMemory
from retrieval.keyword.backends.backend import BuildProgress
from retrieval.maintenance import jobs, linking, rebuild
from retrieval.protocols import Embedder
from retrieval.settings import RetainSettings
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.heads import BankHead, made_by
from retrieval.store.rebuilds import REEMBED

BATCH = 256
"""Ordinals per step: what is lost when the process dies."""

LAST = 64
"""Texts embedded while writers wait."""


class Embedding:
    """Makes vectors segments; a `rebuild.Maker`."""

    family: Literal["vectors"] = "vectors"

    def __init__(self, embedder: Embedder, tenant: str, batch: int = BATCH) -> None:
        self._embedder = embedder
        self._tenant = tenant
        self.target = made_by(embedder)
        self.batch = batch
        self.last = min(LAST, batch)

    async def read(
        self, connection: Connection, bank: int, first: int, end: int
    ) -> Sequence[StoredMemory]:
        rows = await connection.fetch(
            "select id from memory_units where bank = $1 and ordinal >= $2 and ordinal < $3",
            bank,
            first,
            end,
        )
        return await stored.load(connection, bank, [row["id"] for row in rows])

    async def make(
        self, rows: Sequence[StoredMemory], first: int, end: int
    ) -> Mapping[str, NDArray[Any]]:
        vectors = np.zeros((end - first, self._embedder.dimension), np.float32)
        if rows:
            found = await embedded(self._embedder, [row.fact for row in rows], self._tenant)
            if found.vector_set != self.target:
                raise ModelChanged(self.target, found.vector_set)
            at = [row.ordinal - first for row in rows if row.ordinal is not None]
            vectors[at] = found.rows
        return {"vectors": vectors}


async def reembed(
    pool: Pool,
    embedder: Embedder,
    tenant: str,
    bank_id: str,
    *,
    settings: RetainSettings | None = None,
    batch: int = BATCH,
) -> AsyncGenerator[BuildProgress, None]:
    """Makes the bank's vectors those of `embedder`; progress in ordinals. Nothing where they are.

    Stopped at any point and run again, by this process or another, it keeps what is there. Conflict
    while another process does it. NotFound if there is no such bank. `settings`, with the bank's
    overrides, say which memories are linked.
    """
    maker, settings = Embedding(embedder, tenant, batch), settings or RetainSettings()
    head = await banks.head(pool, tenant, bank_id)
    if head.vector_set in ("", maker.target) and not await read(
        pool, lambda c: rebuild.gaps(c, head.bank, f"vectors:{maker.target}", head.next_ordinal)
    ):
        return
    claimed = await jobs.begin(pool, tenant, bank_id, REEMBED, maker.target)

    async def settle(connection: Connection, held: BankHead) -> None:
        if held.vector_set not in ("", maker.target):
            former = f"vectors:{held.vector_set}"
            unlinked = await rebuild.gaps(connection, held.bank, former, held.next_ordinal)
            own = settings.with_overrides(held.config)
            await linking.link(connection, held, f"vectors:{maker.target}", unlinked, own)

    async with aclosing(rebuild.carry_out(pool, claimed, maker, settle)) as steps:
        async for progress in steps:
            yield progress
