"""A bank built out of an archive of ours: each part is checked before its rows are stored, a batch
of them in one transaction with a note of how far it has come. Who dies on the way is followed by
somebody who goes on from that note; nobody sees the bank before its last transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

import asyncpg
import numpy as np
import orjson

from retrieval.errors import InvalidInput, ModelChanged
from retrieval.ingest.context import WriteContext
from retrieval.ingest.write.enrich import Vectors
from retrieval.lifecycle.transfer import storing, watchers
from retrieval.lifecycle.transfer.archive import (
    BANK,
    BLOBS,
    LINE_BYTES,
    ArchiveContents,
    ArchivePart,
    BadArchive,
    Manifest,
)
from retrieval.lifecycle.transfer.exporting import EDGE, Report, no_report
from retrieval.lifecycle.transfer.lines import Line
from retrieval.lifecycle.transfer.storing import TargetBank
from retrieval.lifecycle.transfer.unpacking import Unpacker
from retrieval.lifecycle.transfer.watchers import BROUGHT
from retrieval.lifecycle.webhooks.vault import Vault
from retrieval.store import banks, building, operations, planner
from retrieval.store.attachments import BYTES_MOST
from retrieval.store.bankconfig import TRAITS
from retrieval.store.bankconfig import problem as setting_problem
from retrieval.store.database.pool import Connection, read, write
from retrieval.store.operations import Claim
from retrieval.store.segments.table import MERGE_LIMIT_BYTES
from retrieval.types import Floats, LinkType

BATCH_ROWS: Final = 1_000
BATCH_BYTES: Final = 2 << 20
"""Lines of one transaction, by their number and by what they unpack to."""

REFUSED = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
)
"""What wrong values in lines end in."""

Store: TypeAlias = Callable[[Connection, TargetBank, Sequence[Line]], Awaitable[None]]

_STORES: Mapping[str, Store] = {
    "documents": storing.store_documents,
    "chunks": storing.store_chunks,
    "attachments": storing.store_attachments,
    "entities": storing.store_entities,
    "merges": storing.store_merges,
    "cooccurrences": storing.store_cooccurrences,
    "links": storing.store_links,
    "document-history": storing.store_document_history,
    "mental-models": storing.store_mental_models,
    "knowledge": storing.store_knowledge,
    "directives": storing.store_directives,
    "webhooks": lambda connection, target, lines: watchers.store_webhooks(
        connection, target.bank, lines, target.vault
    ),
    "history/operations": storing.store_operations,
    "history/llm-requests": storing.store_llm_requests,
    "history/audit": lambda connection, target, lines: watchers.store_audit_entries(
        connection, target.tenant, target.bank_id, lines
    ),
}


@dataclass(frozen=True, slots=True)
class _Step:
    """One part to store, as what."""

    stage: str
    parts: Sequence[ArchivePart]


def steps(manifest: Manifest, include: ArchiveContents) -> list[_Step]:
    """What is to be stored, in order. Some parts are read a second time, when all that their rows
    refer to is there."""
    kinds = include.kinds
    order: list[tuple[str, str]] = []
    for kind in kinds:
        if kind == "memories":
            order += [("memories", "memories"), ("links", "memories")]
        elif kind == "entities":
            order += [("entities", "entities"), ("merges", "entities")]
        elif kind in _STORES or kind == "blobs":
            order.append((kind, kind))
    found = [_Step(stage, [part]) for stage, kind in order for part in manifest.of(kind)]
    if include.data:
        groups: dict[int, list[ArchivePart]] = {}
        for part in manifest.of("edges"):
            groups.setdefault(int(part.details.get("segment", 0)), []).append(part)
        found += [_Step("edges", groups[number]) for number in sorted(groups)]
    return found


async def restore(
    deps: WriteContext,
    claimed: Claim,
    unpacker: Unpacker,
    bank: int,
    include: ArchiveContents,
    report: Report = no_report,
    *,
    keys: Sequence[str] = (),
) -> dict[str, Any]:
    """Builds the reserved bank and opens it: the counts. BadArchive, with nothing opened; Conflict
    where the operation is not ours any more. `keys`: the first seals what webhooks keep."""
    manifest = unpacker.manifest
    assert manifest is not None
    vault = Vault(deps.pool, keys)
    return await _Restore(deps, claimed, unpacker, bank, manifest, include, report, vault).run()


class _Restore:
    def __init__(
        self,
        deps: WriteContext,
        claimed: Claim,
        unpacker: Unpacker,
        bank: int,
        manifest: Manifest,
        include: ArchiveContents,
        report: Report,
        vault: Vault,
    ) -> None:
        self._vault = vault
        self._deps = deps
        self._claimed = claimed
        self._unpacker = unpacker
        self._bank = bank
        self._manifest = manifest
        self._include = include.narrowed(manifest.include)
        self._report = report
        self._known: set[str] = set()
        """Parts whose checksum was looked at."""

    async def run(self) -> dict[str, Any]:
        row = await read(
            self._deps.pool,
            lambda c: c.fetchrow(
                "select bank_id, tenant_id, building from banks where bank = $1", self._bank
            ),
        )
        if row is None:
            raise InvalidInput("the bank that was being built was deleted meanwhile")
        own = await asyncio.to_thread(self._own)
        config = storing.checked_config(own.get("config") if self._include.bank_config else None)
        settings = self._deps.settings.with_overrides(config)
        self._target = TargetBank(
            self._bank, row["tenant_id"], row["bank_id"], settings, self._vault
        )
        at = row["building"] or {"step": 0, "rows": 0}
        plan = steps(self._manifest, self._include)
        total = sum(part.rows for step in plan for part in step.parts)
        done = sum(part.rows for step in plan[: at["step"]] for part in step.parts)
        for number, step in enumerate(plan):
            if number < at["step"]:
                continue
            skip = at["rows"] if number == at["step"] else 0
            await self._report(step.stage, done + skip, total)
            try:
                await self._step(number, step, skip)
            except BadArchive:
                raise
            except (*REFUSED, InvalidInput) as error:
                raise BadArchive(
                    f"the part {step.parts[0].name[:80]!r} holds rows that cannot be stored"
                    f" ({kind_of(error)})"
                ) from error
            done += sum(part.rows for part in step.parts)
        return await self._finish(own, config)

    def _own(self) -> Mapping[str, Any]:
        try:
            own = orjson.loads(self._unpacker.whole(BANK, LINE_BYTES))
        except orjson.JSONDecodeError:
            own = None
        if not isinstance(own, dict):
            raise BadArchive(f"{BANK} is not a JSON object")
        return own

    async def _verify(self, part: ArchivePart) -> None:
        if part.name not in self._known:
            await asyncio.to_thread(self._unpacker.verify, part)
            self._known.add(part.name)

    async def _step(self, number: int, step: _Step, skip: int) -> None:
        for part in step.parts:
            await self._verify(part)
        if step.stage == "edges":
            await self._edges(number, step.parts)
            return
        (part,) = step.parts
        if step.stage == "blobs":
            store = partial(self._blob, part)
            await self._commit(store, (), {"step": number + 1, "rows": 0})
            return
        with closing(self._unpacker.lines(part, skip)) as rows:
            await self._rows(number, step.stage, part, rows, skip)

    async def _rows(
        self, number: int, stage: str, part: ArchivePart, rows: Iterator[Line], skip: int
    ) -> None:
        vectors = await self._vectors_of(part) if stage == "memories" else None
        while lines := await asyncio.to_thread(_batch, rows):
            begin, skip = skip, skip + len(lines)
            last = skip >= part.rows
            how_far = {"step": number + last, "rows": 0 if last else skip}
            if stage == "memories":
                await self._memories(part, vectors, begin, lines, how_far)
            else:
                await self._commit(_STORES[stage], lines, how_far)
        if skip != part.rows:
            raise BadArchive(f"{part.name[:80]!r} has {skip} rows, the manifest says {part.rows}")

    async def _commit(
        self, store: Store, lines: Sequence[Line], how_far: Mapping[str, Any]
    ) -> None:
        async def work(connection: Connection) -> None:
            await operations.proceed(connection, self._claimed)
            await building.lock(connection, self._bank, self._claimed)
            await store(connection, self._target, lines)
            await building.reached(connection, self._bank, how_far)

        await write(self._deps.pool, work)

    async def _blob(
        self, part: ArchivePart, connection: Connection, target: TargetBank, _: Sequence[Line]
    ) -> None:
        if part.bytes > BYTES_MOST or part.name != f"{BLOBS}{part.sha256}":
            raise BadArchive(f"the part {part.name[:80]!r} is no attachment that can be kept")
        await storing.store_blob(connection, target, part, self._unpacker)

    # Memories and arrays

    async def _vectors_of(self, part: ArchivePart) -> ArchivePart | None:
        """The part with the vectors of the memories of another, where they are of our model."""
        about = self._manifest.vectors
        if about is None or about["vector_set"] != self._deps.vector_set:
            return None
        if about["dimension"] != self._deps.embedder.dimension:
            raise BadArchive(
                f"the archive's vectors have {about['dimension']} dimensions, those of"
                f" {self._deps.vector_set!r} have {self._deps.embedder.dimension}"
            )
        name = part.name.replace("memories-", "vectors-").replace(".ndjson", ".bin")
        found = next((p for p in self._manifest.parts if p.name == name), None)
        if found is not None:
            if found.bytes != 4 * found.rows * about["dimension"] or found.rows > part.rows:
                raise BadArchive(f"the part {name[:80]!r} is not as large as its vectors")
            await self._verify(found)
        return found

    async def _memories(
        self,
        part: ArchivePart,
        vectors: ArchivePart | None,
        begin: int,
        lines: Sequence[Line],
        how_far: Mapping[str, Any],
    ) -> None:
        live = sum(map(storing.is_live, lines))
        held, ours = None, self._deps.vector_set
        if vectors is not None:
            held = Vectors(await asyncio.to_thread(self._held, vectors, begin, live), ours)
        batch = await storing.prepare(self._deps, self._target, lines, held)
        if batch.prepared.vector_set != ours:
            raise ModelChanged(ours, batch.prepared.vector_set)

        async def store(connection: Connection, target: TargetBank, _: Sequence[Line]) -> None:
            await storing.store_memories(connection, target, batch)

        await self._commit(store, lines, how_far)

    def _held(self, vectors: ArchivePart, begin: int, live: int) -> Floats:
        """The vectors of `live` memories from row `begin` of their part on."""
        width = self._deps.embedder.dimension
        if begin + live > vectors.rows and live:
            raise BadArchive(f"the part {vectors.name[:80]!r} lacks vectors")
        data = self._unpacker.array(vectors, 4 * begin * width, 4 * live * width)
        found = np.frombuffer(data, "<f4").reshape(live, width).astype(np.float32)
        lengths = np.linalg.norm(found, axis=1)
        if not np.isfinite(found).all() or (live and np.abs(lengths - 1).max() > 0.01):
            raise BadArchive(f"the part {vectors.name[:80]!r} holds what is no unit vector")
        return found

    async def _edges(self, number: int, parts: Sequence[ArchivePart]) -> None:
        size = sum(part.bytes for part in parts)
        if size > 8 * MERGE_LIMIT_BYTES:
            raise BadArchive("a segment of links in the archive is too large")
        if any(part.bytes != part.rows * EDGE.itemsize for part in parts):
            raise BadArchive("a part with links is not as large as its rows")
        raw = await asyncio.to_thread(
            lambda: b"".join(self._unpacker.array(part, 0, part.bytes) for part in parts)
        )
        edges = np.frombuffer(raw, EDGE)

        async def store(connection: Connection, target: TargetBank, _: Sequence[Line]) -> None:
            size, before = await connection.fetchrow(
                "select next_ordinal, (select coalesce(max(first_ordinal + count), 0) from segments"
                " where bank = $1 and kind = 'links') from banks where bank = $1",
                target.bank,
            )
            newest = np.maximum(edges["source"], edges["target"])
            oldest = np.minimum(edges["source"], edges["target"])
            if len(edges) and not (
                oldest.min() >= 0
                and newest.max() < size
                and edges["type"].max() <= max(LinkType)
                and np.isfinite(edges["weight"]).all()
                and edges["weight"].min() >= 0
                and edges["weight"].max() <= 1
            ):
                raise BadArchive("the archive holds links that lead nowhere")
            if len(edges):
                # Neighbouring segments may not overlap: a link belongs to the newer of its ends.
                first = max(int(newest.min()), before)
                if first > newest.max() or first > newest.min():
                    raise BadArchive("the links in the archive are not in order")
                await storing.store_edges(connection, target, edges, first, int(newest.max()) + 1)

        await self._commit(store, (), {"step": number + 1, "rows": 0})

    # The end

    async def _finish(self, own: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        deps, target = self._deps, self._target
        analyser = deps.analyser(target.settings).version

        async def work(connection: Connection) -> tuple[dict[str, Any], Any]:
            counted = await counts(connection, target, self._include)
            await operations.finish(connection, self._claimed, counted)
            row = await building.lock(connection, self._bank, self._claimed)
            filled = row["next_ordinal"] > 0
            await dress(connection, self._bank, own, config, self._include)
            await connection.execute(
                "update banks set vector_set = $2, analyser = $3 where bank = $1",
                self._bank,
                deps.vector_set if filled else "",
                analyser if filled else "",
            )
            await building.open_bank(connection, self._bank, self._manifest.bank_version)
            return counted, await banks.head_of(connection, target.tenant, target.bank_id)

        await planner.inform(deps.pool, self._bank)
        try:
            counted, head = await write(deps.pool, work)
        except REFUSED as error:
            raise BadArchive(
                f"{BANK} holds values that cannot be stored ({kind_of(error)})"
            ) from error
        deps.committed(head)
        return counted


async def dress(
    connection: Connection,
    bank: int,
    own: Mapping[str, Any],
    config: Mapping[str, Any],
    include: ArchiveContents,
) -> None:
    """The bank's own fields."""
    disposition, mission = own.get("disposition"), own.get("mission")
    if not include.bank_config:
        disposition = mission = None
    if disposition is not None:
        disposition = {trait: disposition[trait] for trait in TRAITS if trait in disposition}
        for trait, value in disposition.items():
            if said := setting_problem(f"disposition_{trait}", value):
                raise BadArchive(f"the bank's disposition cannot be kept: {said}")
    name = own.get("name")
    await connection.execute(
        "update banks b set name = coalesce(w.name, b.name),"
        " mission = coalesce(w.mission, b.mission),"
        " disposition = b.disposition || coalesce(w.disposition, '{}'), config = $3,"
        " created_at = coalesce(w.created_at, b.created_at),"
        " last_document_at = w.last_document_at,"
        " last_write_at = w.last_write_at, name_folding = coalesce(w.name_folding, 0),"
        " search_key = $4"
        " from jsonb_populate_record(null::banks, $2) w where b.bank = $1",
        bank,
        {
            "name": name,
            "mission": mission,
            "disposition": disposition,
            "created_at": own.get("created_at"),
            "last_document_at": own.get("last_document_at") if include.data else None,
            "last_write_at": own.get("last_write_at") if include.data else None,
            "name_folding": own.get("name_folding"),
        },
        dict(config),
        None,
    )
    row = await connection.fetchrow("select bank_id, name from banks where bank = $1", bank)
    await connection.execute(
        "update banks set search_key = $2 where bank = $1",
        bank,
        banks.search_key(row["bank_id"], row["name"]),
    )


_COUNTED = {
    "documents_imported": "documents",
    "facts_imported": "memory_units where fact_type <> 2 and",
    "observations_imported": "memory_units where fact_type = 2 and",
    "invalidated_memories_imported": "memory_units where ordinal is null and",
    "operations_imported": "operations where operation_id <> $2 and",
    "mental_models_imported": "mental_models",
    "mental_model_history_imported": "mental_model_history",
    "knowledge_pages_imported": "knowledge_nodes",
    "directives_imported": "directives",
    "attachments_imported": "attachments",
    "webhooks_imported": "webhooks",
}


async def counts(
    connection: Connection, target: TargetBank, include: ArchiveContents
) -> dict[str, Any]:
    """What a bank that was built holds, as an import tells it."""
    found: dict[str, Any] = {"bank_id": target.bank_id}
    for name, source in _COUNTED.items():
        where = source if source.endswith("and") else f"{source} where"
        own = where.replace("operation_id <> $2 and", "status <> 'processing' and")
        found[name] = await connection.fetchval(
            f"select count(*) from {own} bank = $1", target.bank
        )
    found["history_rows_imported"] = await connection.fetchval(
        "select count(*) from llm_requests where tenant_id = $1 and bank_id = $2",
        target.tenant,
        target.bank_id,
    )
    found["history_rows_imported"] += await connection.fetchval(
        "select count(*) from audit_logs where tenant_id = $1 and bank_id = $2 and metadata @> $3",
        target.tenant,
        target.bank_id,
        BROUGHT,
    )
    none = ("maintenance_queue_rows_imported", "documents_skipped", "observations_skipped")
    return {
        **found,
        **dict.fromkeys(none, 0),
        "skipped_document_ids": [],
        "remapped_document_ids": {},
    }


def _batch(rows: Iterator[Line]) -> list[Line]:
    found: list[Line] = []
    size = 0
    for line in islice(rows, BATCH_ROWS):
        found.append(line)
        size += sum(len(value) for value in line.values() if isinstance(value, str))
        if size >= BATCH_BYTES:
            break
    return found


def kind_of(error: Exception) -> str:
    """What went wrong, without any value of a row."""
    if isinstance(error, asyncpg.PostgresError):
        return f"SQLSTATE {error.sqlstate}"
    return type(error).__name__
