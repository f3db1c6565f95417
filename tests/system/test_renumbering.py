"""A recall during which the bank's ordinals are given anew: it answers from the new ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from retrieval.ingest.curation import delete_memory
from retrieval.ingest.importing import import_memories
from retrieval.ranking.shortlist import Shortlist
from retrieval.recall.engine import Retriever
from retrieval.settings import RecallSettings
from retrieval.store.segments import table as segments
from retrieval.types import Include, RecallQuery
from tests.support.system import System, system
from tests.system.embedding import HashEmbedder

pytestmark = pytest.mark.integration

BANK = "renumbered"


class Overtaken:
    """A retriever whose first shortlist is out of date by the time that it is read."""

    def __init__(self, run: System, inner: Retriever) -> None:
        self._run, self._inner = run, inner
        self.asked = 0

    async def look(self, name: str, arguments: Mapping[str, Any]) -> Any:
        return await self._inner.look(name, arguments)

    async def retrieve(self, query: RecallQuery, *, texts: bool) -> Shortlist:
        shortlist = await self._inner.retrieve(query, texts=texts)
        self.asked += 1
        if self.asked == 1:
            await segments.compact(self._run.pool, self._run.tenant, BANK, force=True)
        return shortlist


async def test_what_was_ranked_is_what_is_shown() -> None:
    async with system(embedder=HashEmbedder()) as run:
        items = [{"key": str(i), "text": f"the boat number {i} sails"} for i in range(12)]
        ids = (await import_memories(run.ingest, run.tenant, BANK, items))["ids"]
        for key in ("0", "3", "5"):
            await delete_memory(run.ingest, run.tenant, BANK, ids[key])
        retriever = Overtaken(run, run.retriever(RecallSettings()))
        engine = run.engine(retriever=retriever)
        query = RecallQuery(
            tenant=run.tenant,
            bank_id=BANK,
            text="which boat sails",
            now=datetime.now(UTC),
            include=Include(entities=None),
        )
        found = (await engine.recall(query)).body["results"]
        assert retriever.asked == 2
        texts = {ids[item["key"]]: item["text"] for item in items}
        assert {row["id"]: row["text"] for row in found} == {
            id: text for id, text in texts.items() if id not in (ids["0"], ids["3"], ids["5"])
        }
        assert (await engine.recall(query)).body["results"] == found
