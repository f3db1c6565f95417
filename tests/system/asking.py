"""A bank in a running system, asked in process and answering with the caller's own keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from retrieval.protocols import Reranker
from retrieval.recall.engine import RecallResult
from retrieval.settings import RecallSettings
from retrieval.types import Include, RecallQuery
from tests.support.system import Memory, System

NOW = datetime(2024, 6, 5, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bank:
    """An imported bank. What is `asked` are fields of RecallQuery."""

    run: System
    name: str
    ids: dict[str, str]

    async def recall(
        self,
        text: str,
        settings: RecallSettings | None = None,
        reranker: Reranker | str = "fused",
        **asked: Any,
    ) -> RecallResult:
        fields: dict[str, Any] = {
            "now": NOW,
            "include": Include(entities=None),
            "explain": True,
        } | asked
        query = RecallQuery(tenant=self.run.tenant, bank_id=self.name, text=text, **fields)
        return await self.run.engine(settings, reranker).recall(query)

    async def keys(
        self,
        text: str,
        settings: RecallSettings | None = None,
        reranker: Reranker | str = "fused",
        **asked: Any,
    ) -> list[str]:
        answer = await self.recall(text, settings, reranker, **asked)
        return self.named(answer.body["results"])

    def named(self, results: Sequence[dict[str, Any]]) -> list[str]:
        keys = {memory: key for key, memory in self.ids.items()}
        return [keys[result["id"]] for result in results]


async def bank(run: System, name: str, *parts: Sequence[Memory]) -> Bank:
    memories = [memory for part in parts for memory in part]
    return Bank(run, name, await run.import_bank(name, memories))
