"""A bank as an archive that the peer reads."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from retrieval.lifecycle.transfer import lines
from retrieval.lifecycle.transfer.archive import MANIFEST, PEER_SCHEMA, Manifest
from retrieval.lifecycle.transfer.exporting import (
    Exported,
    Outlet,
    Report,
    Wanted,
    no_report,
    producer,
)
from retrieval.lifecycle.transfer.lines import Chosen, Line
from retrieval.lifecycle.transfer.packing import Packer
from retrieval.store import banks
from retrieval.store.database.pool import Connection, Pool, read
from retrieval.types import CAUSAL, FactType, LinkType

ALONE: Final = 500
"""Memories without a document that we put into one of this size."""


def alone(number: int) -> str:
    """The document that stands for memories without one."""
    return f"memories-without-document-{number:05d}"


async def export(
    pool: Pool,
    tenant: str,
    bank_id: str,
    wanted: Wanted,
    begin: Any,
    report: Report = no_report,
) -> Exported:
    """As retrieval/lifecycle/transfer/exporting.py: export, for the peer."""

    async def work(connection: Connection) -> Exported:
        outlet = await begin()
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            head = await banks.head_of(connection, tenant, bank_id)
            at = await connection.fetchval("select now()")
            packer = Packer(at)
            try:
                return await _Peer(connection, head, wanted, outlet, report, packer, at).run()
            except BaseException:
                packer.abandon()
                raise

    return await read(pool, work)


class _Peer:
    def __init__(
        self,
        connection: Connection,
        head: Any,
        wanted: Wanted,
        outlet: Outlet,
        report: Report,
        packer: Packer,
        at: datetime,
    ) -> None:
        self._connection = connection
        self._head = head
        self._wanted = wanted
        self._outlet = outlet
        self._report = report
        self._packer = packer
        self._at = at
        self._counts: dict[str, int] = defaultdict(int)

    async def run(self) -> Exported:
        include = self._wanted.include
        if include.data:
            async for document in self._documents():
                name = f"documents/{self._counts['documents']:06d}.json"
                self._counts["documents"] += 1
                self._counts["facts"] += len(document["facts"])
                await asyncio.to_thread(self._packer.alone, name, document)
                await self._drain()
                if self._counts["documents"] % 100 == 0:
                    await self._report("documents", self._counts["documents"], 0)
            if self._wanted.observations and self._wanted.documents is None:
                await self._observations()
        if include.bank_config or self._wanted.knowledge_base:
            await self._kept(include.bank_config)
        manifest = {
            "schema_version": PEER_SCHEMA,
            "source_bank_id": self._head.bank_id,
            "exported_at": self._at.isoformat(),
            "document_count": self._counts["documents"],
            "fact_count": self._counts["facts"],
            "observation_count": self._counts["observations"],
            "mental_model_count": self._counts["mental-models"],
            "knowledge_page_count": self._counts["knowledge"],
            "directive_count": self._counts["directives"],
            "webhook_count": 0,
            "archive_type": "bank" if include.bank_config else "documents",
            "includes_history": False,
            "bank_rows_json_encoding": "decoded",
        }
        await asyncio.to_thread(self._packer.close, MANIFEST, manifest)
        await self._drain()
        own = Manifest(
            self._head.bank_id, self._at.isoformat(), self._head.version, producer(), include,
            not include.bank_config, (), dict(self._counts),
        )  # fmt: skip
        return Exported(own, self._packer.sha256)

    async def _drain(self) -> None:
        if packed := self._packer.take():
            await self._outlet(packed)

    async def _documents(self) -> AsyncIterator[Line]:
        bank = self._head.bank
        rows = (
            "select document_id, 1 as size from documents where bank = $1"
            " and ($2::text[] is null or document_id = any($2)) order by document_no"
        )
        chosen = Chosen(bank, self._wanted.documents)
        async for part in lines.slices(self._connection, rows, *chosen.parameters):
            for row in part:
                yield await self._document(row["document_id"])
        if self._wanted.documents is not None:
            return
        number = 0
        while facts := await self._facts(
            "document_id is null order by ordinal limit $2 offset $3", ALONE, number * ALONE
        ):
            yield {"id": alone(number), "original_text": None, "retain_params": None, "tags": [],
                   "created_at": None, "chunks": [], "facts": facts}  # fmt: skip
            number += 1

    async def _document(self, id: str) -> Line:
        bank = self._head.bank
        row = await self._connection.fetchrow(
            "select original_text, retain_params, tags, created_at from documents"
            " where bank = $1 and document_id = $2",
            bank,
            id,
        )
        chunks = await self._connection.fetch(
            "select chunk_index, chunk_text from chunks where bank = $1 and document_id = $2"
            " order by chunk_index",
            bank,
            id,
        )
        return {
            "id": id,
            "original_text": row["original_text"],
            "retain_params": row["retain_params"],
            "tags": row["tags"],
            "created_at": row["created_at"],
            "chunks": [dict(chunk) for chunk in chunks],
            "facts": await self._facts("document_id = $2 order by ordinal", id),
        }

    async def _facts(self, where: str, *parameters: Any) -> list[Line]:
        bank = self._head.bank
        rows = await self._connection.fetch(
            "select m.*, (select c.chunk_index from chunks c where c.bank = m.bank"
            "  and c.chunk_id = m.chunk_id) as chunk_index,"
            " array(select e.canonical_name from unit_entities u join entities e"
            "  on e.bank = u.bank and e.entity_no = u.entity_no"
            "  where u.bank = m.bank and u.unit_id = m.id order by u.entity_no) as names"
            " from memory_units m where bank = $1 and ordinal is not null"
            f" and fact_type <> {int(FactType.OBSERVATION)} and {where}",
            bank,
            *parameters,
        )
        place = {row["id"]: i for i, row in enumerate(rows)}
        causes = defaultdict(list)
        for link in await self._connection.fetch(
            "select from_id, to_id, type from links where bank = $1 and from_id = any($2)"
            " and type = any($3)",
            bank,
            list(place),
            [int(kind) for kind in CAUSAL],
        ):
            if link["to_id"] in place:
                causes[link["from_id"]].append(
                    {
                        "relation_type": LinkType(link["type"]).wire,
                        "target_fact_index": place[link["to_id"]],
                    }
                )
        marks = self._wanted.observations
        return [
            {
                "text": row["text"],
                "source_id": row["id"],
                "fact_type": FactType(row["fact_type"]).wire,
                "context": row["context"],
                "event_date": row["occurred_start"] or row["mentioned_at"] or row["created_at"],
                "occurred_start": row["occurred_start"],
                "occurred_end": row["occurred_end"],
                "mentioned_at": row["mentioned_at"],
                "metadata": row["metadata"] or {},
                "tags": row["tags"],
                "observation_scopes": row["observation_scopes"],
                "chunk_index": row["chunk_index"],
                "entities": row["names"],
                "causal_relations": causes[row["id"]],
                "created_at": row["created_at"],
                "consolidated_at": row["consolidated_at"] if marks else None,
                "consolidation_failed_at": row["consolidation_failed_at"] if marks else None,
            }
            for row in rows
        ]

    async def _observations(self) -> None:
        """One list, as long as it is; only those all of whose sources are in the archive."""
        bank = self._head.bank
        keys = (
            "select id, 1 as size from memory_units where bank = $1 and ordinal is not null"
            f" and fact_type = {int(FactType.OBSERVATION)} order by ordinal"
        )
        stream = self._packer.stream("observations.json")
        out = await asyncio.to_thread(stream.__enter__)
        try:
            before = b"[\n"
            async for part in lines.slices(self._connection, keys, bank):
                rows = await self._sourced([row["id"] for row in part])
                data = b"".join(
                    (b",\n" if i else before) + orjson.dumps(row, str) for i, row in enumerate(rows)
                )
                if rows:
                    before = b",\n"
                    await asyncio.to_thread(out.write, data)
                    await self._drain()
                self._counts["observations"] += len(rows)
            await asyncio.to_thread(out.write, b"[]" if before == b"[\n" else b"\n]\n")
        finally:
            await asyncio.to_thread(stream.__exit__, None, None, None)

    async def _sourced(self, ids: Sequence[Any]) -> list[Line]:
        rows = await self._connection.fetch(
            "with own as (select m.* from memory_units m where m.bank = $1 and m.id = any($2)),"
            " cited as (select distinct s.document_id from own o join memory_units s"
            "  on s.bank = $1 and s.id = any(o.source_ids)),"
            " numbered as materialized (select s.id, s.document_id, s.ordinal,"
            "  row_number() over (partition by s.document_id order by s.ordinal) - 1 as place"
            "  from memory_units s where s.bank = $1 and s.ordinal is not null and s.fact_type <> 2"
            "  and (s.document_id in (select c.document_id from cited c)"
            "   or s.document_id is null"
            "   and exists (select from cited c where c.document_id is null))),"
            " sources as (select o.id, jsonb_agg(jsonb_build_object('document', n.document_id,"
            "  'place', n.place) order by n.ordinal) as sources from own o"
            "  cross join unnest(o.source_ids) source join numbered n on n.id = source"
            "  group by o.id)"
            " select own.*, sources.sources from own left join sources using (id)"
            " order by own.ordinal",
            self._head.bank,
            ids,
        )
        found = []
        for row in rows:
            sources = row["sources"] or []
            if not sources or len(sources) < len(row["source_ids"]):
                continue
            found.append(
                {
                    "source_id": row["id"],
                    "text": row["text"],
                    "tags": row["tags"],
                    "event_date": row["occurred_start"] or row["mentioned_at"] or row["created_at"],
                    "occurred_start": row["occurred_start"],
                    "occurred_end": row["occurred_end"],
                    "mentioned_at": row["mentioned_at"],
                    "observation_scopes": row["observation_scopes"],
                    "proof_count": row["proof_count"] or len(sources),
                    "sources": [_source(each) for each in sources],
                }
            )
        return found

    async def _kept(self, directives: bool) -> None:
        bank = self._head.bank
        models = await self._connection.fetch(
            "select $2::text as bank_id, id, name, source_query, tags, max_tokens, trigger,"
            " content, created_at, last_refreshed_at from mental_models where bank = $1"
            " order by id",
            bank,
            self._head.bank_id,
        )
        history = await self._connection.fetch(
            "select $2::text as bank_id, model_id as mental_model_id, previous_content, changed_at"
            " from mental_model_history where bank = $1 order by model_id, entry",
            bank,
            self._head.bank_id,
        )
        nodes = [line async for part in lines.knowledge(self._connection, bank) for line in part]
        pages = [
            {
                "id": node["id"],
                "parent_id": node["parent_id"],
                "kind": "folder" if node["mental_model_id"] is None else "page",
                "name": node["name"],
                "mental_model_id": node["mental_model_id"],
                "sort_order": 0,
                "managed": node["managed"],
                "created_at": node["created_at"],
                "updated_at": node["updated_at"],
            }
            for node in nodes
        ]
        files: dict[str, list[Any]] = {
            "mental_models.json": [dict(row) for row in models],
            "mental_model_history.json": [dict(row) for row in history],
            "knowledge_pages.json": pages,
        }
        self._counts["mental-models"] = len(models)
        self._counts["knowledge"] = len(pages)
        if directives:
            rules = [line async for part in lines.directives(self._connection, bank)
                     for line in part]  # fmt: skip
            files["directives.json"] = [{**r, "bank_id": self._head.bank_id} for r in rules]
            self._counts["directives"] = len(rules)
        for name, rows in files.items():
            await asyncio.to_thread(self._packer.alone, name, rows)
        await self._drain()


def _source(each: Mapping[str, Any]) -> Line:
    document, place = each["document"], each["place"]
    if document is None:
        return {"document_id": alone(place // ALONE), "fact_index": place % ALONE}
    return {"document_id": document, "fact_index": place}
