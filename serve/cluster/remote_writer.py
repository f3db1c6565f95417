"""The writer behind a Serve handle."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from retrieval import errors
from retrieval.lifecycle.audit.recorder import noted
from serve.cluster import remote
from serve.cluster.remote import Handle, call

if TYPE_CHECKING:  # the launcher, which reads this too, needs none of it
    from retrieval.store.answers import Key


class RemoteWriter:
    """A Writer behind a handle. A bank's writes go to the same replica while it is there: each
    holds the banks that it writes.

    A call that its stage does not answer ends after `remote.BULK_WAIT_S` with Unavailable: what
    became of it is not known, and a key (see `Key`) makes repeating it safe.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def _do(self, method: str, tenant: str, bank_id: str, *more: Any) -> dict[str, Any]:
        near = self._handle.options(session_id=f"{tenant}/{bank_id}")
        args = (tenant, bank_id, *more)
        try:
            entry = noted.get()
            with_entry = {} if entry is None else {"noted": dataclasses.asdict(entry)}
            answer: dict[str, Any] = await call(
                "ingest",
                partial(near.do.remote, **with_entry),
                method,
                args,
                left_s=remote.BULK_WAIT_S,
            )
        except errors.DeadlineExceeded as error:
            if error.stage != "ingest":  # its own, about a part of the work
                raise
            raise errors.Unavailable(
                "the writer", "it does not answer: look before you repeat"
            ) from error
        return answer

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
        return await self._do("retain", tenant, bank_id, items, document_tags, key, left_s, limit_s)

    async def retain_later(
        self,
        tenant: str,
        bank_id: str,
        items: Sequence[Mapping[str, Any]],
        document_tags: Sequence[str],
        operation_id: str | None,
        key: Key | None = None,
    ) -> dict[str, Any]:
        return await self._do(
            "retain_later", tenant, bank_id, items, document_tags, operation_id, key
        )

    async def import_memories(
        self, tenant: str, bank_id: str, memories: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        return await self._do("import_memories", tenant, bank_id, memories)

    async def patch_memory(
        self, tenant: str, bank_id: str, memory_id: str, changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        return await self._do("patch_memory", tenant, bank_id, memory_id, changes)

    async def delete_memory(self, tenant: str, bank_id: str, memory_id: str) -> dict[str, Any]:
        return await self._do("delete_memory", tenant, bank_id, memory_id)

    async def delete_derived(self, tenant: str, bank_id: str, memory_id: str) -> dict[str, Any]:
        return await self._do("delete_derived", tenant, bank_id, memory_id)

    async def clear(self, tenant: str, bank_id: str, kind: str | None) -> dict[str, Any]:
        return await self._do("clear", tenant, bank_id, kind)

    async def delete_document(self, tenant: str, bank_id: str, document_id: str) -> dict[str, Any]:
        return await self._do("delete_document", tenant, bank_id, document_id)

    async def patch_document(
        self,
        tenant: str,
        bank_id: str,
        document_id: str,
        tags: Sequence[str] | None,
        observation_scopes: Any,
    ) -> dict[str, Any]:
        return await self._do(
            "patch_document", tenant, bank_id, document_id, tags, observation_scopes
        )

    async def merge_entities(
        self, tenant: str, bank_id: str, into: str, others: Sequence[str]
    ) -> dict[str, Any]:
        return await self._do("merge_entities", tenant, bank_id, into, others)

    async def split_entity(
        self,
        tenant: str,
        bank_id: str,
        entity_id: str,
        name: str,
        memory_ids: Sequence[str] | None,
    ) -> dict[str, Any]:
        return await self._do("split_entity", tenant, bank_id, entity_id, name, memory_ids)

    async def preview_erasure(
        self, tenant: str, bank_id: str, selectors: Mapping[str, Any], observations: str
    ) -> dict[str, Any]:
        return await self._do("preview_erasure", tenant, bank_id, selectors, observations)

    async def preview_consolidation(
        self,
        tenant: str,
        bank_id: str,
        scopes: Sequence[Sequence[str]] | None,
        run: bool,
        left_s: float | None = None,
    ) -> dict[str, Any]:
        return await self._do("preview_consolidation", tenant, bank_id, scopes, run, left_s)
