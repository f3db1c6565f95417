"""Banks that hold something in every field, and what can be asked of them, on a real database."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from models.passthrough import Passthrough
from retrieval.bank.cache import ResidencySettings
from retrieval.bank.residency import Residency
from retrieval.ingest.context import WriteContext
from retrieval.ingest.curation import patch_memory
from retrieval.ingest.entities.curation import merge_entities
from retrieval.ingest.importing import import_memories
from retrieval.ingest.operations.worker import Worker
from retrieval.ingest.retain import retain
from retrieval.ingest.write.stored import load, rewrite
from retrieval.ingest.write.transaction import Change
from retrieval.ingest.write.transaction import write as change_bank
from retrieval.lifecycle.transfer import jobs
from retrieval.lifecycle.transfer.archive import ArchiveContents
from retrieval.lifecycle.transfer.exporting import Wanted
from retrieval.lifecycle.transfer.jobs import ImportRequest
from retrieval.recall.engine import RecallEngine
from retrieval.recall.retriever import LocalRetriever
from retrieval.settings import RecallSettings
from retrieval.settings.transfer import TransferSettings
from retrieval.store import banks, operation_views, operations
from retrieval.store import stored_files as files
from retrieval.store.database.pool import Connection, Pool, read, write
from retrieval.types import RecallQuery
from serve.opening.translation import OpenedReranker
from tests.retrieval.store.servers import HashEmbedder, deps

TENANT = "default"
NAMES = ("Ann Smith", "Bob", "Carla Jones", "Dora", "Emil Berg", "Fourfold Ltd", "Lisbon", "Oslo")
VERBS = ("visited", "called", "painted", "met", "sold", "repaired", "forgot", "invited")
THINGS = ("the boat", "a clock", "the old mill", "three letters", "the harbour", "a red bicycle")


@asynccontextmanager
async def context(pool: Pool, **changes: Any) -> AsyncIterator[WriteContext]:
    """Ingest over a resident bank."""
    residency = Residency(pool, ResidencySettings())
    try:
        yield deps(pool, neighbours=residency, committed=residency.refresh, **changes)
    finally:
        await residency.close()


def memories(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Items of an import with all fields, and observations on them."""
    dice = random.Random(seed)
    begin = datetime(2024, 1, 1, 9, tzinfo=UTC)
    found: list[dict[str, Any]] = []
    for i in range(count):
        first, second = dice.sample(NAMES, 2)
        when = begin + timedelta(hours=7 * i)
        what = f"{dice.choice(VERBS)} {dice.choice(THINGS)}"
        item: dict[str, Any] = {
            "key": f"m{i}",
            "text": f"{first} {what} with {second} ({i}).",
            "type": dice.choice(("world", "world", "experience")),
            "mentioned_at": when.isoformat(),
            "entities": [second, first],
            "tags": dice.sample(["work", "home", "sea", "Größe"], dice.randint(0, 2)),
        }
        if i % 3 == 0:
            item |= {
                "context": f"talk {i}",
                "occurred_start": when.isoformat(),
                "occurred_end": (when + timedelta(days=i % 4)).isoformat(),
            }
        if i % 4:
            item["document_id"] = f"notes/{i // 10}"
        if i % 5 == 0:
            item["metadata"] = {"source": "mail", "n": str(i)}
        if i % 7 == 0 and i:
            kind = dice.choice(("causes", "enables", "prevents"))
            item["links"] = [{"to": f"m{i - 1}", "type": kind, "weight": 0.3}]
        found.append(item)
    found += [
        {
            "key": f"o{i}",
            "text": f"Somebody is often at the harbour ({i}).",
            "type": "observation",
            "sources": [f"m{i}", f"m{i + 3}"],
            "tags": ["sea"],
            "entities": [NAMES[i // 10 % len(NAMES)]],
            "mentioned_at": begin.isoformat(),
        }
        for i in range(0, count - 10, 10)
    ]
    return found


def attached() -> list[dict[str, Any]]:
    """Blocks of an image, of more than one part, and a file."""
    found = []
    for kind, media_type, data in (
        ("image", "image/png", random.Random(7).randbytes(1_500_000)),
        ("file", "text/csv", b"a,b\n1,2\n"),
    ):
        source = {
            "type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()
        }  # fmt: skip
        found.append({"type": kind, "source": source, "filename": f"{kind}.ü"})
    return found


async def fill(
    context: WriteContext, bank_id: str, count: int = 120, *, merged: bool = True
) -> None:
    """A bank with memories, documents, chunks, edits, histories, models, pages, rules. `merged`:
    two entities are one now, which leaves vectors that nobody could make again from the rows."""
    pool = context.pool
    await banks.put(
        pool,
        TENANT,
        bank_id,
        {
            "name": f"Bank {bank_id}",
            "mission": "to remember",
            "disposition": {"skepticism": 5, "literalism": 1, "empathy": 2},
            "recall_budget_fixed_low": 77,
        },
    )
    items = memories(count)
    for begin in range(0, len(items), 50):
        await import_memories(context, TENANT, bank_id, items[begin : begin + 50])
    content = (
        "Gus Hill winds the tower clock every Sunday. " * 30 + "It rains in Oslo.\n\nDora waits."
    )
    await retain(
        context,
        TENANT,
        bank_id,
        [
            {
                "content": [{"type": "text", "text": content}, *attached()],
                "document_id": "letters/ünï 1",
                "tags": ["clock"],
                "metadata": {"from": "Gus"},
                "context": "a letter",
                "timestamp": "2024-05-06T10:00:00+02:00",
            }
        ],
    )
    ids = {row["key"]: row["id"] for row in await rows(pool, bank_id, "memory_units")}
    await patch_memory(context, TENANT, bank_id, str(ids["m5"]), {"text": "Bob forgot a clock."})
    gone = {"state": "invalidated", "reason": "it was a joke"}
    await patch_memory(context, TENANT, bank_id, str(ids["m7"]), gone)
    again = next(item for item in items if item["key"] == "o20")
    await import_memories(context, TENANT, bank_id, [{**again, "text": "Somebody sails (20)."}])
    named = {row["canonical_name"]: row["id"] for row in await rows(pool, bank_id, "entities")}
    if merged:
        one, other = str(named["Oslo"]), str(named["Lisbon"])
        await merge_entities(context, TENANT, bank_id, one, [other])

    async def over(change: Change) -> None:
        (held,) = await load(change.connection, change.bank, [ids["o30"]])
        when = datetime(2024, 2, 1, tzinfo=UTC)
        fact = replace(held.fact, valid_from=when, superseded_by=ids["o40"])
        await rewrite(change, [(held, fact)])

    await change_bank(context, TENANT, bank_id, over)

    async def more(connection: Connection) -> None:
        bank = await banks.number_of(connection, TENANT, bank_id)
        await connection.execute(
            "update memory_units set consolidated_at = created_at + interval '1 minute',"
            " consolidated_scopes = '{\"[\\\"sea\\\"]\"}' where bank = $1 and key like 'm1%'",
            bank,
        )
        await connection.execute(
            "update memory_units set consolidation_failed_at = now(), consolidation_error = 'no'"
            " where bank = $1 and key = 'm2'",
            bank,
        )
        await connection.execute(
            "insert into directives (bank, id, name, content, priority, is_active, tags)"
            " values ($1, $2, 'Short', 'Answer in one line.', 3, false, '{sea}')",
            bank, uuid4(),
        )  # fmt: skip
        for id, page in (("harbour", False), ("clock-page", True)):
            await connection.execute(
                "insert into mental_models (bank, id, name, source_query, tags, max_tokens,"
                " trigger, is_page, content, document, watermark, last_refreshed_at,"
                " reflect_response)"
                " values ($1, $2, $2, 'What of it?', '{sea}', 512, $4, $3, 'Much.', $5, 60,"
                " now(), $6)",
                bank, id, page, {"mode": "delta"}, {"sections": [None, {"a": None}]},
                {"text": "Much.", "based_on": {}},
            )  # fmt: skip
            await connection.execute(
                "insert into mental_model_history (bank, model_id, previous_content, changed_at)"
                " values ($1, $2, 'Little.', '2024-01-01'), ($1, $2, 'More.', '2024-02-01')",
                bank, id,
            )  # fmt: skip
            await connection.execute(
                "insert into mental_model_citations values ($1, $2, $3)", bank, id, ids["m1"]
            )
        await connection.execute(
            "insert into knowledge_nodes (bank, id, parent_id, name, name_key, mental_model_id)"
            " values ($1, 'kf-1', null, 'Zeit', 'zeit', null),"
            " ($1, 'kf-2', 'kf-1', 'Uhr', 'uhr', null),"
            " ($1, 'kp-1', 'kf-2', 'Clock', 'clock', 'clock-page')",
            bank,
        )
        await connection.execute(
            "insert into llm_requests (id, tenant_id, bank_id, operation, provider, model, status,"
            " started_at, duration_ms, requests, input_tokens, output_tokens, cached_tokens,"
            " thoughts_tokens, input) values ($1, $2, $3, 'retain', 'p', 'm', 'success', now(), 5,"
            " 1, 2, 3, 0, 0, $4)",
            uuid4(), TENANT, bank_id, [{"role": "user", "content": None}],
        )  # fmt: skip
        done, _ = await operations.create(connection, bank, "consolidation", {"texts": "secret"})
        await connection.execute(
            "update operations set status = 'failed', error_message = 'no model'"
            " where bank = $1 and operation_id = $2",
            bank, done,
        )  # fmt: skip
        await connection.execute("delete from operation_lanes where bank = $1", bank)

    await write(pool, more)


async def rows(pool: Pool, bank_id: str, table: str, order: str = "1") -> list[dict[str, Any]]:
    """The rows of one bank's table."""
    found = await read(
        pool,
        lambda c: c.fetch(
            f"select t.* from {table} t join banks b using (bank)"
            f" where b.tenant_id = $1 and b.bank_id = $2 order by {order}",
            TENANT,
            bank_id,
        ),
    )
    return [dict(row) for row in found]


SAME = {
    "documents": ("document_id", {"bank"}),
    "chunks": ("document_id, chunk_index", {"bank", "chunk_id"}),
    "memory_units": ("ordinal, id", {"bank", "ordinal", "chunk_id"}),
    "entities": ("entity_no", {"bank", "version", "entity_no", "merged_into"}),
    "unit_entities": ("unit_id, mention", {"bank", "entity_no"}),
    "links": ("from_id, to_id, type", {"bank"}),
    "observation_history": ("observation_id, changed_at", {"bank"}),
    "document_history": ("document_id, place", {"bank", "place"}),
    "mental_models": ("id", {"bank", "watermark", "vector", "vector_set", "terms"}),
    "mental_model_citations": ("model_id, memory_id", {"bank"}),
    "mental_model_history": ("model_id, entry", {"bank", "entry"}),
    "knowledge_nodes": ("id", {"bank"}),
    "directives": ("id", {"bank"}),
    "attachments": ("id", {"bank", "created_at"}),
    "attachment_parts": ("id, part", {"bank"}),
    "document_attachments": ("document_id, id", {"bank"}),
}
"""Table -> its order, and the columns that are another's numbers after a move."""


async def contents(pool: Pool, bank_id: str) -> dict[str, list[dict[str, Any]]]:
    """All that a bank holds, but for its numbers."""
    found = {}
    for table, (order, numbers) in SAME.items():
        found[table] = [
            {k: v for k, v in row.items() if k not in numbers}
            for row in await rows(pool, bank_id, table, order)
        ]
    return found


QUESTIONS = [
    *(f"Who {verb} {thing}?" for verb in VERBS for thing in THINGS),
    *(f"What did {name} do in spring 2024?" for name in NAMES),
    "Why did Bob forget a clock?",
    "Who winds the tower clock?",
    "Who sails?",
]


async def recalls(context: WriteContext, bank_id: str, questions: list[str]) -> list[Any]:
    """What recalls answer, with every score and why."""
    pool = context.pool
    residency: Any = context.neighbours
    executor = ThreadPoolExecutor(1)
    settings = RecallSettings()
    try:
        retriever = LocalRetriever(
            pool,
            residency,
            context.embedder,
            settings,
            executor,
            lambda head: context.analyser(context.settings.with_overrides(head.config)),
        )
        engine = RecallEngine(pool, retriever, OpenedReranker(Passthrough("rrf")), settings)
        found = []
        for text in questions:
            query = RecallQuery(
                tenant=TENANT,
                bank_id=bank_id,
                text=text,
                explain=True,
                now=datetime(2024, 7, 1, tzinfo=UTC),
            )
            result = await engine.recall(query)
            found.append((text, [_plain(each) for each in result.body["results"]]))
        return found
    finally:
        executor.shutdown()


def _plain(result: Any) -> Any:
    plain = {k: v for k, v in result.items() if k != "chunk_id"}  # it names the bank
    if "attachments" in plain:
        plain["attachments"] = [{**one, "url": None} for one in plain["attachments"]]
    return plain


# Transfers, from asking to the end


def worker(context: WriteContext, settings: TransferSettings | None = None, **more: Any) -> Worker:
    handlers = jobs.handlers(settings or TransferSettings())
    return Worker(context, handlers=handlers, **more)


async def finished(
    context: WriteContext, bank_id: str, submitted: dict[str, Any]
) -> dict[str, Any]:
    """The operation after a worker has done what waits."""
    while await worker(context).step():
        pass
    return await operation_views.get(context.pool, TENANT, bank_id, submitted["operation_id"])


async def exported(
    context: WriteContext, bank_id: str, to: Path, wanted: Wanted | None = None, **more: Any
) -> dict[str, Any]:
    """Exports a bank into a local file, through the queue; the operation's result."""
    given = wanted or Wanted(ArchiveContents(history=True), vectors=True)
    asked = await jobs.submit_export(context.pool, TENANT, bank_id, given, **more)
    done = await finished(context, bank_id, asked)
    assert done["status"] == "completed", done
    result: dict[str, Any] = done["result_metadata"]
    stored = await files.find(context.pool, TENANT, result["storage_key"])
    data = b"".join([part async for part in files.chunks(context.pool, stored)])
    await asyncio.to_thread(to.write_bytes, data)
    return result


async def imported(
    context: WriteContext, bank_id: str, archive: Path, asked: ImportRequest | None = None
) -> dict[str, Any]:
    """The operation of an import, after it ended."""
    given = asked or ImportRequest(include=ArchiveContents(history=True))
    with archive.open("rb") as file:
        made = await jobs.submit_import(context.pool, TENANT, bank_id, file, given)
    return await finished(context, bank_id, made)


def hashed(context: WriteContext, model_id: str) -> WriteContext:
    return replace(context, embedder=HashEmbedder(model_id=model_id))


__all__ = ["UUID", "context", "fill", "memories"]
