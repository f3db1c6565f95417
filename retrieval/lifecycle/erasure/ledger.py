"""The ledger of erasures: a file outside of the database, so that a restore does not roll it back.

One JSON object a line, ids only. `replay` erases again what a restored backup brought back.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson

from retrieval.errors import NeedsModel, NotFound, Unavailable
from retrieval.ingest.context import WriteContext
from retrieval.lifecycle.erasure.removal import remove
from retrieval.lifecycle.erasure.selection import Selectors
from retrieval.lifecycle.erasure.settling import settle
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.store.erasure import ErasureEntry
from retrieval.types import Floats

log = logging.getLogger(__name__)

VERSION = 1


class Ledger:
    """A file that is only added to. The folder must be there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = asyncio.Lock()

    async def __call__(self, entry: ErasureEntry) -> None:
        """Adds an entry, on disk when this returns. Unavailable where it cannot be written: then
        nothing is erased."""
        async with self._turn:
            try:
                await asyncio.to_thread(self._append, entry)
            except OSError as error:
                raise Unavailable("the ledger of erasures", str(error.strerror)) from error

    def _append(self, entry: ErasureEntry) -> None:
        line = orjson.dumps({"version": VERSION, **_wire(entry)}) + b"\n"
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line  # what a crash cut off is not to spoil what follows
            while line:
                line = line[os.write(file, line) :]
            os.fsync(file)
        finally:
            os.close(file)


def _wire(entry: ErasureEntry) -> dict[str, Any]:
    return {
        "tenant": entry.tenant,
        "bank_id": entry.bank_id,
        "at": entry.at.isoformat(),
        "memories": [str(id) for id in entry.memories],
        "documents": list(entry.documents),
        "whole": entry.whole,
        "operation_id": None if entry.operation_id is None else str(entry.operation_id),
        "bank": entry.bank,
    }


def entries(path: Path) -> Iterator[ErasureEntry]:
    """The entries of a ledger, oldest first. A line that was not written to its end, as a crash
    leaves it, was of nothing that was committed: it is passed over, with a warning."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield _entry(orjson.loads(line))
            except (orjson.JSONDecodeError, KeyError, ValueError, TypeError) as error:
                log.warning("line %d of the ledger is passed over: %s", number, error)


def _entry(wire: Mapping[str, Any]) -> ErasureEntry:
    return ErasureEntry(
        wire["tenant"],
        wire["bank_id"],
        datetime.fromisoformat(wire["at"]),
        [UUID(id) for id in wire["memories"]],
        wire["documents"],
        wire["whole"],
        bank=wire.get("bank"),
    )


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay took away again."""

    entries: int = 0
    memories: int = 0
    documents: int = 0
    banks: Sequence[str] = ()


async def replay(pool: Pool, path: Path) -> Replayed:
    """Erases again what is in the ledger and in the database. It may be repeated.

    Ids of memories are never used again. A document or a bank of the same name that is younger than
    the entry is another one and stays.
    """
    deps = _removing(pool)
    count = memories = documents = 0
    ended: list[str] = []
    touched: dict[tuple[str, str], None] = {}
    for entry in entries(path):
        count += 1
        if entry.whole:
            if await _older_bank(pool, entry):
                await banks.delete(pool, entry.tenant, entry.bank_id)
                ended.append(entry.bank_id)
            continue
        try:
            gone, texts = await _again(deps, entry)
        except NotFound:
            continue
        memories += gone
        documents += texts
        if gone or texts:
            touched[entry.tenant, entry.bank_id] = None
    for tenant, bank_id in touched:
        try:
            await settle(deps, tenant, bank_id)
        except NotFound:  # a later entry ended it
            continue
    return Replayed(count, memories, documents, tuple(ended))


async def _again(deps: WriteContext, entry: ErasureEntry) -> tuple[int, int]:
    async def look(connection: Connection) -> tuple[list[str], list[str]]:
        bank = (await banks.head_of(connection, entry.tenant, entry.bank_id)).bank
        ids = await connection.fetch(
            "select id from memory_units where bank = $1 and id = any($2)",
            bank,
            list(entry.memories),
        )
        rows = await connection.fetch(
            "select document_id from documents"
            " where bank = $1 and document_id = any($2) and created_at <= $3",
            bank,
            list(entry.documents),
            entry.at,
        )
        return [str(row["id"]) for row in ids], [row["document_id"] for row in rows]

    async def nothing(*_: object) -> None:
        pass

    ids, documents = await read(deps.pool, look)
    for wanted in (Selectors(memory_ids=ids), Selectors(document_ids=documents)):
        if wanted.memory_ids or wanted.document_ids:
            await remove(deps, entry.tenant, entry.bank_id, wanted, "delete", nothing)
    return len(ids), len(documents)


async def _older_bank(pool: Pool, entry: ErasureEntry) -> bool:
    found: bool | None = await read(
        pool,
        lambda connection: connection.fetchval(
            # One that came out of an archive has the time of the one that it was.
            "select created_at <= $3 and bank = coalesce($4, bank) from banks"
            " where tenant_id = $1 and bank_id = $2",
            entry.tenant,
            entry.bank_id,
            entry.at,
            entry.bank,
        ),
    )
    return bool(found)


class _NoNeighbours:
    """Stands where a removal needs neither vectors nor neighbours."""

    model_id, dimension = "", 0

    async def embed_queries(self, *_: Any, **__: Any) -> Floats:
        raise NeedsModel("an erasure embeds nothing")

    embed_passages = embed_queries

    async def neighbours(self, *_: Any, **__: Any) -> Any:
        raise NeedsModel("an erasure links nothing")


def _removing(pool: Pool) -> WriteContext:
    return WriteContext(pool, _NoNeighbours(), _NoNeighbours())
