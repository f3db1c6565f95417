"""A bank in which a person's name stands in every place where something can be kept of it."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

from retrieval.ingest.context import WriteContext
from retrieval.ingest.importing import import_memories
from retrieval.ingest.operations.worker import Worker
from retrieval.ingest.retain import retain
from retrieval.lifecycle.erasure.running import Eraser, handlers, submit
from retrieval.lifecycle.erasure.selection import Selectors
from retrieval.store import banks, operation_views
from retrieval.store.answers import Key
from retrieval.store.database.pool import Pool
from tests.retrieval.store.servers import database, deps


def file(name: str, data: bytes) -> dict[str, Any]:
    source = {
        "type": "base64", "media_type": "text/plain", "data": base64.b64encode(data).decode()
    }  # fmt: skip
    return {"type": "file", "source": source, "filename": name}


NAME, TENANT, BANK = "Xanthippe", "t", "b"
DOCUMENT = f"{NAME} keeps bees on the roof.\n\n" + "The harbour opens at six. " * 20


class World:
    def __init__(self, pool: Pool, ingest: WriteContext) -> None:
        self.pool, self.deps = pool, ingest
        self.ids: dict[str, str] = {}
        self.bank = 0

    async def fill(self) -> None:
        ingest = self.deps
        await retain(ingest, TENANT, BANK, [
            {"content": DOCUMENT, "document_id": "mixed", "tags": ["bees"]},
            {"content": "Bo sails.", "document_id": "other"},
            {"content": [{"type": "text", "text": "See the list."}, file(NAME, b"bees")],
             "document_id": "listed"},
            {"content": [{"type": "text", "text": "Or this."}, file("n", NAME.encode())],
             "document_id": "told"},
        ])  # fmt: skip
        done = await import_memories(ingest, TENANT, BANK, [
            {"key": "a", "text": f"{NAME} likes thyme honey", "document_id": "own",
             "entities": [NAME], "tags": [f"user:{NAME}"], "metadata": {"who": NAME},
             "context": f"talk with {NAME}"},
            {"key": "b", "text": "She sings at night", "entities": [NAME, "Bo"]},
            {"key": "c", "text": "Bo sells honey", "entities": ["Bo"], "tags": ["trade"],
             "links": [{"to": "a", "type": "caused_by", "weight": 0.5}]},
            {"key": "o", "text": f"{NAME} is fond of honey", "type": "observation",
             "sources": ["a"]},
            {"key": "p", "text": "Honey is loved", "type": "observation", "sources": ["a", "c"]},
            {"key": "q", "text": "Fondness of honey", "type": "observation", "sources": ["o"]},
        ])  # fmt: skip
        self.ids = done["ids"]
        self.bank = (await banks.head(self.pool, TENANT, BANK)).bank
        await self._logs()

    async def _logs(self) -> None:
        execute, bank = self.pool.execute, self.bank
        await execute(
            "insert into observation_history (bank, observation_id, content) values ($1, $2, $3)",
            bank, UUID(self.ids["p"]), {"text": f"Honey of {NAME}"},
        )  # fmt: skip
        await execute(
            "insert into mental_models (bank, id, name, source_query, max_tokens, content,"
            " reflect_response) values ($1, 'm', 'Honey', 'Who likes honey?', 100, $2, $3),"
            " ($1, 'n', 'Sails', 'Who sails?', 100, 'Bo sails.', null)",
            bank, f"{NAME} likes honey", {"based_on": [self.ids["a"]], "text": NAME},
        )  # fmt: skip
        await execute(
            "insert into mental_model_citations (bank, model_id, memory_id) values ($1, 'm', $2)",
            bank, UUID(self.ids["b"]),
        )  # fmt: skip
        await execute(
            "insert into mental_model_history (bank, model_id, previous_content)"
            " values ($1, 'n', $2)", bank, f"{NAME} sails",
        )  # fmt: skip
        await execute(
            "insert into llm_requests (id, tenant_id, bank_id, operation, provider, model, status,"
            " started_at, duration_ms, requests, input_tokens, output_tokens, cached_tokens,"
            " thoughts_tokens, input, output) values ($1, $2, $3, 'reflect', 'p', 'm', 'success',"
            " now(), 1, 1, 1, 1, 0, 0, $4, $5)",
            uuid4(), TENANT, BANK, [{"role": "user", "content": NAME}], NAME,
        )  # fmt: skip
        await execute(
            "insert into extraction_ledger (tenant_id, bank_id, key, facts) values ($1, $2, 'k',"
            " $3)", TENANT, BANK, [{"text": NAME}],
        )  # fmt: skip
        await execute(
            "insert into operations (operation_id, bank, type, status, payload)"
            " values ($1, $2, 'retain', 'failed', $3)",
            uuid4(), bank, {"items": [{"content": NAME}]},
        )  # fmt: skip
        await execute(
            "insert into audit_logs (tenant_id, bank_id, id, action, transport, started_at,"
            " request) values ($1, $2, $3, 'retain', 'http', now(), $4)",
            TENANT, BANK, uuid4(), {"content": NAME},
        )  # fmt: skip
        await execute(
            "insert into webhook_deliveries (tenant_id, bank_id, id, event_id, event_type, url,"
            " receiver, status, body) values ($1, $2, $3, $3, 'retain.completed', 'u', 'r',"
            " 'completed', $4)",
            TENANT, BANK, uuid4(), json.dumps({"data": {"tags": [NAME]}}).encode(),
        )  # fmt: skip

        await execute(
            "insert into answers (bank, key, body_hash, answer) values ($1, $2, $3, '{}')",
            bank, Key(f"{NAME}-1", b"").stored, b"",
        )  # fmt: skip
        await execute(
            "insert into knowledge_nodes (bank, id, name, name_key) values ($1, 'kf', $2, 'x')",
            bank, f"All of {NAME}",
        )  # fmt: skip
        await execute(
            "insert into operations (operation_id, bank, type, status, result_metadata, progress,"
            " error_message, document_id) values ($1, $2, 'transfer_import', 'completed', $3, $3,"
            " $4, $4)", uuid4(), bank, {"skipped_document_ids": [NAME]}, NAME,
        )  # fmt: skip

    async def erase(
        self, wanted: Selectors, observations: Any = "delete", **options: Any
    ) -> dict[str, Any]:
        """The operation, once it ended."""
        queued = await submit(self.pool, TENANT, BANK, wanted, observations)
        eraser = Eraser(**{"lost_s": 5.0, **options})
        assert await Worker(self.deps, handlers=handlers(eraser)).step()
        return await operation_views.get(
            self.pool, TENANT, BANK, queued["operation_id"], include_payload=True
        )

    async def saying(self, word: str = NAME) -> dict[str, int]:
        """Tables that hold the word, in any column, in bytes too."""
        names = await self.pool.fetch(
            "select table_name from information_schema.tables where table_schema = $1"
            " and table_name <> 'schema_migrations'", self.pool.schema,
        )  # fmt: skip
        found = {}
        for row in names:
            count = await self.pool.fetchval(
                f"select count(*) from {row['table_name']} t where strpos(lower(t::text), $1) > 0"
                " or strpos(t::text, $2) > 0 or strpos(t::text, $3) > 0",
                word.lower(), word.encode().hex(), word.lower().encode().hex(),
            )  # fmt: skip
            if count:
                found[row["table_name"]] = count
        return found

    async def keys(self) -> set[str]:
        rows = await self.pool.fetch(
            "select key from memory_units where bank = $1 and key is not null", self.bank
        )
        return {row["key"] for row in rows}


@asynccontextmanager
async def world(**changes: Any) -> AsyncIterator[World]:
    async with database() as pool:
        ingest = deps(pool)
        settings = ingest.settings.with_overrides({"retain_chunk_size": 500})
        found = World(pool, deps(pool, settings=settings, **changes))
        await found.fill()
        yield found
