"""Another analyser for a bank: its postings rebuilt from the stored memories.

The analyser changes with the bank's language or segmenter, with the deployment's, and with the
program. Meanwhile the old postings serve, and answers say that the keyword arm is degraded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from numpy.typing import NDArray

from retrieval.keyword.analyser import Analyser, IndexedText
from retrieval.keyword.analysers import analyser_for
from retrieval.keyword.backends.backend import BuildProgress
from retrieval.maintenance import jobs, rebuild
from retrieval.settings import RetainSettings
from retrieval.store import bankconfig, banks
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.heads import BankHead
from retrieval.store.rebuilds import REINDEX

BATCH = 2000
"""Ordinals per step: some 50 ms of analysis, also while writers wait."""


class Analysing:
    """Makes postings segments; a `rebuild.Maker`."""

    family: Literal["postings"] = "postings"

    def __init__(self, analyser: Analyser, batch: int = BATCH) -> None:
        self._analyser = analyser
        self.target = analyser.version
        self.batch = self.last = batch

    async def read(
        self, connection: Connection, bank: int, first: int, end: int
    ) -> Sequence[Mapping[str, Any]]:
        rows: Sequence[Mapping[str, Any]] = await connection.fetch(
            "select ordinal, text, context, text_signals from memory_units"
            " where bank = $1 and ordinal >= $2 and ordinal < $3",
            bank,
            first,
            end,
        )
        return rows

    async def make(
        self, rows: Sequence[Mapping[str, Any]], first: int, end: int
    ) -> Mapping[str, NDArray[Any]]:
        documents = [IndexedText("")] * (end - first)
        for row in rows:
            documents[row["ordinal"] - first] = IndexedText(
                row["text"], row["context"], row["text_signals"]
            )
        return await asyncio.to_thread(self._analyser.weigh, documents)


async def reindex(
    pool: Pool,
    settings: RetainSettings,
    tenant: str,
    bank_id: str,
    *,
    changes: Mapping[str, Any] | None = None,
    analysers: Callable[[RetainSettings], Analyser] = analyser_for,
    batch: int = BATCH,
) -> AsyncGenerator[BuildProgress, None]:
    """Makes the bank's postings those of its analyser; progress in ordinals. Nothing where they
    are.

    changes: new values of `text_search_language` and `text_search_segmenter`, which become the
    bank's own in the transaction that switches; InvalidInput if they cannot be. Stopped at any
    point and run again, it keeps what is there. Conflict while another process does it. NotFound if
    there is no such bank.
    """
    changes = bankconfig.checked({k: v for k, v in (changes or {}).items() if v is not None})
    head = await banks.head(pool, tenant, bank_id)
    wanted = {**head.config, **changes}
    maker = Analysing(analysers(settings.with_overrides(wanted)), batch)
    kind = f"postings:{maker.target}"
    if (
        wanted == head.config
        and head.analyser in ("", maker.target)
        and not await read(pool, lambda c: rebuild.gaps(c, head.bank, kind, head.next_ordinal))
    ):
        return
    details = {"changes": changes} if changes else {}
    claimed = await jobs.begin(pool, tenant, bank_id, REINDEX, maker.target, details)

    async def settle(connection: Connection, held: BankHead) -> None:
        await connection.execute(
            "update banks set config = config || $2 where bank = $1", held.bank, changes
        )

    async with aclosing(rebuild.carry_out(pool, claimed, maker, settle)) as steps:
        async for progress in steps:
            yield progress
