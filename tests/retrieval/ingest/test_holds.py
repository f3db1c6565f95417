"""No step of a write holds the event loop up, however much is written."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from retrieval.errors import TooMuch
from retrieval.ingest import curation
from retrieval.ingest.context import WriteContext
from retrieval.ingest.importing import import_memories
from retrieval.ingest.operations import worker
from retrieval.ingest.retain import retain
from retrieval.store import chunks, documents, history, memories, operation_views
from retrieval.store.database.pool import Pool
from tests.hold import longest_hold
from tests.retrieval.store.servers import database, deps

pytestmark = pytest.mark.integration

LONGEST_S = 0.5
"""Far below the seconds that such writes take; a busy machine stretches what is 20 ms on an idle
one, and a thread that has the interpreter may wait for a processor itself."""


class Quick:
    """Vectors without work: what is measured is ours."""

    dimension = 32
    model_id = "quick"

    async def embed_queries(self, texts: Any, **_: Any) -> Any:
        return await self.embed_passages(texts)

    async def embed_passages(self, texts: Any, **_: Any) -> Any:
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        vectors[:, 0] = 1.0
        return vectors


class Nobody:
    async def neighbours(self, *_: Any, **__: Any) -> Any:
        none = np.empty(0, np.int32)
        return none, none, np.empty(0, np.float32)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with database() as opened:
        yield opened


@pytest.fixture
def ingest(pool: Pool) -> WriteContext:
    return deps(pool, embedder=Quick(), neighbours=Nobody())


async def calm(work: Awaitable[Any]) -> Any:
    async with longest_hold() as held:
        result = await work
    assert held.longest < LONGEST_S
    return result


TEXT = ("The quick brown fox jumps over the lazy dog near Lisbon. " * 90_000)[:4_800_000]


async def test_a_long_document_over_its_life(pool: Pool, ingest: WriteContext) -> None:
    bank = f"bank-{uuid4().hex[:8]}"

    async def put(content: str, **item: Any) -> None:
        await calm(
            retain(ingest, "default", bank, [{"document_id": "d", "content": content, **item}])
        )

    await put(TEXT, tags=["a"], metadata={"k": "v"}, entities=["Ann"])
    await put(TEXT)
    await put("A line on top.\n" + TEXT)
    await put("x" * 4_000_000, update_mode="append")
    await calm(curation.patch_document(ingest, "default", bank, "d", ["b"]))
    await calm(worker.submit_reprocess(pool, "default", bank, "d"))
    await calm(worker.Worker(ingest).step())
    (operation,) = (await operation_views.list_operations(pool, "default", bank))["operations"]
    assert (operation["status"], operation["error_message"]) == ("completed", None)
    await calm(documents.get(pool, "default", bank, "d"))
    await calm(chunks.of_document(pool, "default", bank, "d", limit=1000))
    await calm(memories.list_memories(pool, "default", bank, limit=1000))
    await calm(history.of_document(pool, "default", bank, "d"))
    await calm(curation.delete_document(ingest, "default", bank, "d"))


async def test_many_memories_at_once(pool: Pool, ingest: WriteContext) -> None:
    bank = f"bank-{uuid4().hex[:8]}"
    items: list[dict[str, Any]] = [
        {
            "key": f"k{i}",
            "text": f"memory {i} " + "of some words " * 5,
            "entities": [f"Entity {i % 300}"],
            "tags": ["t", f"u{i % 50}"],
            "document_id": f"d{i % 10}",
            "metadata": {"a": str(i)},
            "links": [{"to": f"k{(i + j) % 5000}", "type": "causes"} for j in range(1, 20)],
        }
        for i in range(5000)
    ]
    for _ in range(2):
        await calm(import_memories(ingest, "default", bank, items))
    await calm(curation.clear(ingest, "default", bank))
    crowded = [{"text": "x", "links": items[0]["links"] * 6}] * 5000
    with pytest.raises(TooMuch, match="links"):
        await calm(import_memories(ingest, "default", bank, crowded))


async def test_many_documents_at_once(pool: Pool, ingest: WriteContext) -> None:
    bank = f"bank-{uuid4().hex[:8]}"
    items = [{"content": f"item {i} is here. " * 10, "document_id": f"x{i}"} for i in range(3000)]
    for _ in range(2):
        await calm(retain(ingest, "default", bank, items))
    answer = await calm(worker.submit(ingest, "default", bank, items))
    await calm(worker.Worker(ingest).step())
    done = await operation_views.get(pool, "default", bank, answer["operation_id"])
    assert done["status"] == "completed"


async def test_the_probe_sees_work_on_the_loop() -> None:
    async def busy() -> None:
        await asyncio.sleep(0.01)
        time.sleep(2 * LONGEST_S)  # noqa: ASYNC251

    with pytest.raises(AssertionError):
        await calm(busy())
