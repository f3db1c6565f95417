"""Whether what was restored can be used: every bank is opened as a replica does, one is asked.
No model is needed: without the one that made its vectors a bank is searched by words."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.errors import FourfoldError, InvalidInput
from retrieval.ingest.context import utc_now
from retrieval.keyword.analysers import analyser_for
from retrieval.recall.retriever import LocalRetriever
from retrieval.settings import RecallSettings, RetainSettings
from retrieval.store import banks
from retrieval.store.database.pool import Pool, read
from retrieval.store.heads import BankHead
from retrieval.types import Floats, RecallQuery


class _NoModel:
    """An embedder of a model that no bank has."""

    model_id = ""
    dimension = 1

    async def embed_queries(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        return np.ones((len(texts), 1), np.float32)

    async def embed_passages(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        return np.ones((len(texts), 1), np.float32)


async def ask(pool: Pool) -> dict[str, Any]:
    """{opened, recalled}: how many banks could be opened, and how many memories a recall of the
    largest found by the words of one of them. InvalidInput names a bank that is not as it should
    be."""
    rows = await read(
        pool,
        lambda c: c.fetch(
            f"select {banks.HEAD_COLUMNS} from banks where state = 'open'"
            " order by next_ordinal desc, bank"
        ),
    )
    recalled: int | None = None
    for row in rows:
        head = banks.as_head(row)
        residency = Residency(pool, ResidencySettings())
        try:
            bank = await residency.open(head)
            live, count = int(bank.live.sum()), await _count(pool, head)
            if live != count:
                raise InvalidInput(f"bank {head.bank_id!r} opens with {live} of {count} memories")
            if recalled is None and live:
                recalled = await _recalled(pool, residency, head)
        except FourfoldError as error:
            raise InvalidInput(f"bank {head.bank_id!r} cannot be used: {error}") from error
        finally:
            await residency.close()
    return {"opened": len(rows), "recalled": recalled}


async def _count(pool: Pool, head: BankHead) -> int:
    found: int = await read(
        pool,
        lambda c: c.fetchval(
            "select count(*) from memory_units where bank = $1 and ordinal is not null", head.bank
        ),
    )
    return found


async def _recalled(pool: Pool, residency: Residency, head: BankHead) -> int:
    text = await read(
        pool,
        lambda c: c.fetchval(
            "select left(text, 200) from memory_units where bank = $1 and ordinal is not null"
            " order by ordinal limit 1",
            head.bank,
        ),
    )
    retain = RetainSettings()
    with ThreadPoolExecutor(1) as executor:
        retriever = LocalRetriever(
            pool,
            residency,
            _NoModel(),
            RecallSettings(),
            executor,
            lambda own: analyser_for(retain.with_overrides(own.config)),
        )
        query = RecallQuery(tenant=head.tenant, bank_id=head.bank_id, text=text, now=utc_now())
        shortlist = await retriever.retrieve(query, texts=True)
    if not len(shortlist.found.ordinals):
        raise InvalidInput("a recall finds nothing of what it holds")
    return len(shortlist.found.ordinals)
