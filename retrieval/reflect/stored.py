"""What a reflect reads of the database beside its recalls; obeys the scope where it shows text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from retrieval.store import banks, chunks, memories, outdated
from retrieval.store.database.pool import Pool
from retrieval.store.heads import BankHead
from retrieval.store.visibility import Visibility
from retrieval.types import MemoryRow


class StoredReads(Protocol):
    """`bank` is the number in a bank's head."""

    async def character(self, tenant: str, bank_id: str) -> tuple[BankHead, Mapping[str, Any]]:
        """The bank's head and profile. NotFound."""
        ...

    async def memories(self, bank: int, ids: Sequence[str]) -> list[MemoryRow]:
        """Live memories, in the order of the ids."""
        ...

    async def stored_before(self, bank: int, ids: Sequence[str], bound: datetime) -> set[str]:
        """Those of the ids whose memories were stored before a time."""
        ...

    async def outdated(self, bank: int, ids: Sequence[str]) -> set[str]:
        """Those of these observations about which newer memories wait to be consolidated."""
        ...

    async def passages(
        self, bank: int, chunk_ids: Sequence[str], visibility: Visibility
    ) -> dict[str, str]:
        """Texts of chunks, without those that hold a memory which may not be shown."""
        ...

    async def chunk_ids(self, bank: int, document_id: str) -> list[str]:
        """The first chunks of a document, in its order."""
        ...


@dataclass(frozen=True, slots=True)
class DatabaseReads:
    """`StoredReads` in PostgreSQL."""

    pool: Pool

    async def character(self, tenant: str, bank_id: str) -> tuple[BankHead, Mapping[str, Any]]:
        return await banks.character(self.pool, tenant, bank_id)

    async def memories(self, bank: int, ids: Sequence[str]) -> list[MemoryRow]:
        return await memories.by_ids(self.pool, bank, ids)

    async def stored_before(self, bank: int, ids: Sequence[str], bound: datetime) -> set[str]:
        return await memories.stored_before(self.pool, bank, ids, bound)

    async def outdated(self, bank: int, ids: Sequence[str]) -> set[str]:
        return await outdated.observations(self.pool, bank, ids)

    async def passages(
        self, bank: int, chunk_ids: Sequence[str], visibility: Visibility
    ) -> dict[str, str]:
        hidden: set[str] = set()
        if not visibility.everything:
            told = await memories.of_chunks(self.pool, bank, chunk_ids)
            hidden = {chunk for chunk, memory in told if not visibility.passes(memory)}
        shown = [id for id in chunk_ids if id not in hidden]
        found = await chunks.chunks(self.pool, bank, shown)
        return {chunk["chunk_id"]: chunk["chunk_text"] for chunk in found}

    async def chunk_ids(self, bank: int, document_id: str) -> list[str]:
        return await chunks.ids_of(self.pool, bank, document_id)
