"""The writer of this process: every change to a bank's memories, over retrieval's ingest."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from retrieval.consolidation import preview
from retrieval.consolidation.deps import ConsolidationDeps
from retrieval.ingest import curation, importing
from retrieval.ingest.context import WriteContext
from retrieval.ingest.entities import curation as entity_curation
from retrieval.ingest.operations import worker
from retrieval.ingest.retain import retain
from retrieval.lifecycle.erasure import removal
from retrieval.lifecycle.erasure.removal import Observations
from retrieval.lifecycle.erasure.selection import Selectors
from retrieval.store import backlog
from retrieval.store.answers import Key


class LocalWriter:
    """See serve.http.services.Writer."""

    def __init__(self, deps: WriteContext, consolidation: ConsolidationDeps) -> None:
        self.deps = deps
        self._consolidation = consolidation

    async def oldest_operation_s(self) -> float:
        """Age in seconds of the oldest operation, of any bank, that waits to be worked on."""
        return await backlog.oldest_s(self.deps.pool)

    async def retain(
        self,
        tenant: str,
        bank_id: str,
        items: Sequence[Mapping[str, Any]],
        document_tags: Sequence[str],
        key: Key | None = None,
        left_s: float | None = None,
        limit_s: float | None = None,
    ) -> dict[str, Any]:
        usage = await retain(
            self.deps,
            tenant,
            bank_id,
            items,
            document_tags=document_tags,
            key=key,
            deadline=None if left_s is None else time.monotonic() + left_s,
            until=None if limit_s is None else time.monotonic() + limit_s,
        )
        return dict(usage)

    async def retain_later(
        self,
        tenant: str,
        bank_id: str,
        items: Sequence[Mapping[str, Any]],
        document_tags: Sequence[str],
        operation_id: str | None,
        key: Key | None = None,
    ) -> dict[str, Any]:
        return await worker.submit(
            self.deps,
            tenant,
            bank_id,
            items,
            document_tags=document_tags,
            operation_id=operation_id,
            key=key,
        )

    async def import_memories(
        self, tenant: str, bank_id: str, memories: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        return await importing.import_memories(self.deps, tenant, bank_id, memories)

    async def patch_memory(
        self, tenant: str, bank_id: str, memory_id: str, changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        return await curation.patch_memory(self.deps, tenant, bank_id, memory_id, changes)

    async def delete_memory(self, tenant: str, bank_id: str, memory_id: str) -> dict[str, Any]:
        return await curation.delete_memory(self.deps, tenant, bank_id, memory_id)

    async def delete_derived(self, tenant: str, bank_id: str, memory_id: str) -> dict[str, Any]:
        return await curation.delete_derived(self.deps, tenant, bank_id, memory_id)

    async def clear(self, tenant: str, bank_id: str, kind: str | None) -> dict[str, Any]:
        return await curation.clear(self.deps, tenant, bank_id, kind)

    async def delete_document(self, tenant: str, bank_id: str, document_id: str) -> dict[str, Any]:
        return await curation.delete_document(self.deps, tenant, bank_id, document_id)

    async def patch_document(
        self,
        tenant: str,
        bank_id: str,
        document_id: str,
        tags: Sequence[str] | None,
        observation_scopes: Any,
    ) -> dict[str, Any]:
        return await curation.patch_document(
            self.deps, tenant, bank_id, document_id, tags, observation_scopes
        )

    async def merge_entities(
        self, tenant: str, bank_id: str, into: str, others: Sequence[str]
    ) -> dict[str, Any]:
        return await entity_curation.merge_entities(self.deps, tenant, bank_id, into, others)

    async def split_entity(
        self,
        tenant: str,
        bank_id: str,
        entity_id: str,
        name: str,
        memory_ids: Sequence[str] | None,
    ) -> dict[str, Any]:
        return await entity_curation.split_entity(
            self.deps, tenant, bank_id, entity_id, name, memory_ids
        )

    async def preview_consolidation(
        self,
        tenant: str,
        bank_id: str,
        scopes: Sequence[Sequence[str]] | None,
        run: bool,
        left_s: float | None = None,
    ) -> dict[str, Any]:
        return await preview.preview(
            self._consolidation,
            tenant,
            bank_id,
            scopes,
            run=run,
            deadline=None if left_s is None else time.monotonic() + left_s,
        )

    async def preview_erasure(
        self, tenant: str, bank_id: str, selectors: Mapping[str, Any], observations: str
    ) -> dict[str, Any]:
        wanted = Selectors.of(selectors)
        kind: Observations = "keep_supported" if observations == "keep_supported" else "delete"
        return await removal.preview(self.deps, tenant, bank_id, wanted, kind)
