"""A bank as an archive: one snapshot, read while writes go on, packed in a thread.

The connection that reads is held for the whole time, and a long snapshot holds back the database's
vacuum: that is what the time limit is for. What is packed leaves at once, so that an export takes
the same memory whatever the bank's size.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from importlib import metadata
from typing import Any, Final, TypeAlias

import numpy as np

from retrieval.errors import Conflict
from retrieval.ingest.collecting import held_off
from retrieval.lifecycle.transfer import archive, lines, watchers
from retrieval.lifecycle.transfer.archive import BANK, BLOBS, MANIFEST, ArchiveContents, Manifest
from retrieval.lifecycle.transfer.lines import Chosen, Line
from retrieval.lifecycle.transfer.packing import Packer
from retrieval.lifecycle.webhooks.vault import Vault
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.heads import BankHead
from retrieval.store.segments.slices import Place, places
from retrieval.types import Ints

Outlet: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Takes the archive's bytes, in order."""
Report: TypeAlias = Callable[[str, int, int], Awaitable[None]]
"""Is told the stage, and how many rows of it are done, of how many."""

EDGE = np.dtype([("source", "<i4"), ("target", "<i4"), ("type", "u1"), ("weight", "<f4")])
"""One stored link between two memories that travel, by their places among them."""
EDGES_AT_ONCE: Final = 1 << 16
VECTORS_AT_ONCE: Final = 512


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an export is to hold. documents: only these documents and their memories; None: all.
    documents_only: contents to be put beside others, not a bank. vectors: the stored vectors, too,
    so that the same model need not make them again."""

    include: ArchiveContents = field(default_factory=ArchiveContents)
    documents: Sequence[str] | None = None
    observations: bool = True
    knowledge_base: bool = False
    documents_only: bool = False
    vectors: bool = False


@dataclass(frozen=True, slots=True)
class Exported:
    """What an archive came to. `sha256`: of the file, 32 bytes."""

    manifest: Manifest
    sha256: bytes


async def no_report(stage: str, processed: int, total: int) -> None:
    """For exports that nobody watches."""


def producer() -> str:
    try:
        return f"fourfold {metadata.version('fourfold')}"
    except metadata.PackageNotFoundError:  # run from a checkout that was not installed
        return "fourfold"


async def export(
    pool: Pool,
    tenant: str,
    bank_id: str,
    wanted: Wanted,
    begin: Callable[[], Awaitable[Outlet]],
    report: Report = no_report,
    *,
    keys: Sequence[str] = (),
) -> Exported:
    """Writes the bank's archive into what `begin` opens, which is called again where a lost
    connection makes the export start anew. `keys`: those that open what webhooks keep sealed.
    NotFound for an unknown bank."""
    vault = Vault(pool, keys)

    async def work(connection: Connection) -> Exported:
        outlet = await begin()
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            head = await banks.head_of(connection, tenant, bank_id)
            return await _Export(connection, head, wanted, outlet, report, vault).run()

    return await read(pool, work)


class _Export:
    """One export, on a connection with its snapshot."""

    def __init__(
        self,
        connection: Connection,
        head: BankHead,
        wanted: Wanted,
        outlet: Outlet,
        report: Report,
        vault: Vault,
    ) -> None:
        self._connection = connection
        self._head = head
        self._wanted = wanted
        self._chosen = Chosen(head.bank, wanted.documents, wanted.observations)
        self._outlet = outlet
        self._report = report
        self._vault = vault
        self._counts: dict[str, int] = {}
        self._places: Ints = np.full(head.next_ordinal, -1, np.int32)
        self._dimension: int | None = None

    async def run(self) -> Exported:
        row = await self._connection.fetchrow(
            "select *, now() as at,"
            " (select count(*) from memory_units m where m.bank = b.bank) as n"
            " from banks b where bank = $1",
            self._head.bank,
        )
        self._packer = Packer(row["at"])
        self._total = row["n"]
        try:
            with held_off(self._total):
                return await self._pack(row)
        except BaseException:
            self._packer.abandon()
            raise

    async def _pack(self, row: Mapping[str, Any]) -> Exported:
        await asyncio.to_thread(self._bank, row)
        include = self._wanted.include
        if include.data:
            await self._data()
        if include.bank_config or self._wanted.knowledge_base:
            models = lines.mental_models(self._connection, self._head.bank, self._places)
            await self._all("mental-models", models)
            await self._all("knowledge", lines.knowledge(self._connection, self._head.bank))
        if include.bank_config:
            await self._all("directives", lines.directives(self._connection, self._head.bank))
            told = watchers.webhooks(self._connection, self._head.bank, self._vault)
            await self._all("webhooks", told)
        if include.history:
            operations = lines.ended_operations(self._connection, self._head.bank)
            await self._all("history/operations", operations)
            asked = lines.llm_requests(self._connection, self._head.tenant, self._head.bank_id)
            await self._all("history/llm-requests", asked)
            noted = watchers.audit_entries(self._connection, self._head.tenant, self._head.bank_id)
            await self._all("history/audit", noted)
        manifest = self._manifest(row["at"], row["stored_bytes"])
        await asyncio.to_thread(self._packer.close, MANIFEST, manifest.wire())
        await self._drain()
        return Exported(manifest, self._packer.sha256)

    def _bank(self, row: Mapping[str, Any]) -> None:
        config = self._wanted.include.bank_config
        own: Line = {
            "name": row["name"],
            "created_at": row["created_at"],
            "vector_set": row["vector_set"],
            "analyser": row["analyser"],
            "name_folding": row["name_folding"],
            "last_document_at": row["last_document_at"],
            "last_write_at": row["last_write_at"],
            "disposition": row["disposition"] if config else None,
            "mission": row["mission"] if config else None,
            "config": row["config"] if config else None,
        }
        self._packer.alone(BANK, own)

    async def _data(self) -> None:
        connection, chosen = self._connection, self._chosen
        await self._all("documents", lines.documents(connection, chosen))
        await self._all("chunks", lines.chunks(connection, chosen))
        await self._blobs()
        await self._all("attachments", lines.attachments(connection, chosen))
        await self._all("entities", lines.entities(connection, chosen))
        await self._all("cooccurrences", lines.cooccurrences(connection, chosen))
        await self._memories()
        if chosen.whole:
            await self._edges()
            await self._all("document-history", lines.document_history(connection, chosen))

    async def _all(self, kind: str, rows: AsyncIterator[list[Line]]) -> None:
        """All lines of a kind, in parts."""
        done = 0
        async for part in rows:
            done += len(part)
            if await asyncio.to_thread(self._put, kind, part):
                await self._drain()
                await self._report(kind, done, 0)
        if await asyncio.to_thread(self._packer.part, kind):
            await self._drain()
        self._counts[kind] = done

    def _put(self, kind: str, part: Sequence[Line]) -> bool:
        """Adds lines to the open part; was it closed?"""
        self._packer.add(part)
        return self._packer.full and self._packer.part(kind) is not None

    async def _drain(self) -> None:
        if packed := self._packer.take():
            await self._outlet(packed)

    async def _blobs(self) -> None:
        """Files that came with contents, each once."""
        held = await lines.blobs(self._connection, self._chosen)
        for blob in held:
            stack = ExitStack()
            try:
                name = f"{BLOBS}{blob['hash'].hex()}"
                out = await asyncio.to_thread(stack.enter_context, self._packer.blob(name))
                async for data in lines.parts(self._connection, self._head.bank, blob["id"]):
                    await asyncio.to_thread(out, data)
                    await self._drain()
            finally:
                await asyncio.to_thread(stack.close)
        self._counts["blobs"] = len(held)

    # Memories, and the arrays beside them

    async def _memories(self) -> None:
        connection, bank = self._connection, self._head.bank
        columns = await places(connection, bank, "columns")
        vectors: list[Place] = []
        if self._wanted.vectors and self._head.vector_set:
            vectors = await places(connection, bank, f"vectors:{self._head.vector_set}")
        done = live = 0
        pending: list[int] = []
        async for keys in lines.memory_keys(connection, self._chosen):
            ordinals = [row["ordinal"] for row in keys if row["ordinal"] is not None]
            ids = [row["id"] for row in keys]
            part = await lines.memories(connection, self._chosen, ids, columns)
            self._places[ordinals] = np.arange(live, live + len(ordinals), dtype=np.int32)
            live += len(ordinals)
            pending += ordinals
            done += len(part)
            if await asyncio.to_thread(self._put, "memories", part):
                await self._vectors(vectors, pending)
                pending.clear()
                await self._report("memories", done, self._total)
        if await asyncio.to_thread(self._packer.part, "memories"):
            await self._vectors(vectors, pending)
        self._counts["memories"] = done
        self._counts["live_memories"] = live

    async def _vectors(self, stored: Sequence[Place], ordinals: Sequence[int]) -> None:
        """The vectors of a part's live memories, in its order."""
        await self._drain()
        if not stored or not ordinals:
            return
        data = bytearray()
        for begin in range(0, len(ordinals), VECTORS_AT_ONCE):
            data += await self._rows_of(stored, ordinals[begin : begin + VECTORS_AT_ONCE])
        await asyncio.to_thread(self._packer.array, "vectors", bytes(data), len(ordinals))
        await self._drain()

    async def _rows_of(self, stored: Sequence[Place], ordinals: Sequence[int]) -> bytes:
        wanted = np.asarray(ordinals)
        data = bytearray()
        for place in stored:
            own = wanted[(wanted >= place.first) & (wanted < place.end)] - place.first
            if not len(own):
                continue
            first, last = int(own[0]), int(own[-1]) + 1
            rows = await place.rows(self._connection, "vectors", first, last)
            self._dimension = rows.shape[1]
            data += np.ascontiguousarray(rows[own - first], "<f4").tobytes()
        if len(data) != 4 * len(ordinals) * (self._dimension or 0):
            raise Conflict("vectors of the bank are being made: try again, or export without them")
        return bytes(data)

    async def _edges(self) -> None:
        """Links as the replicas hold them, among them those by meaning, which nobody stated."""
        count = 0
        held = await places(self._connection, self._head.bank, "links")
        for number, place in enumerate(held):
            total = place.arrays["source"][1][0]
            for begin in range(0, total, EDGES_AT_ONCE):
                end = min(begin + EDGES_AT_ONCE, total)
                edges = await self._live_edges(place, begin, end)
                if len(edges):
                    await asyncio.to_thread(
                        self._packer.array, "edges", edges.tobytes(), len(edges), segment=number
                    )
                    await self._drain()
                    count += len(edges)
        self._counts["edges"] = count

    async def _live_edges(self, place: Place, begin: int, end: int) -> Any:
        held = {
            name: await place.rows(self._connection, name, begin, end)
            for name in ("source", "target", "type", "weight")
        }
        return await asyncio.to_thread(_renumbered, self._places, held)

    def _manifest(self, at: datetime, stored_bytes: int) -> Manifest:
        vectors = None
        if self._dimension is not None:
            vectors = {"vector_set": self._head.vector_set, "dimension": self._dimension}
        return Manifest(
            bank_id=self._head.bank_id,
            exported_at=at.isoformat(),
            bank_version=self._head.version,
            producer=producer(),
            include=self._wanted.include,
            documents_only=self._wanted.documents_only,
            parts=tuple(self._packer.parts),
            counts=dict(self._counts),
            vectors=vectors,
            stored_bytes=stored_bytes if self._wanted.include.data else 0,
            version=archive.VERSION,
        )


def _renumbered(places: Ints, held: Mapping[str, Any]) -> Any:
    """The edges both of whose ends travel, by their places."""
    source, target = places[held["source"]], places[held["target"]]
    keep = (source >= 0) & (target >= 0)
    edges = np.empty(int(keep.sum()), EDGE)
    edges["source"], edges["target"] = source[keep], target[keep]
    edges["type"], edges["weight"] = held["type"][keep], held["weight"][keep]
    return edges
