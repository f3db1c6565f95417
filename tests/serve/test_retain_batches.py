"""Retains whose chunks are read by batches of the provider, through the real application. A
scripted server keeps the batch API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from retrieval.errors import DeadlineExceeded
from retrieval.ingest.extract.by_batch import BatchExtractor
from retrieval.ingest.operations.worker import Worker
from retrieval.store import operation_views
from retrieval.store.tenants import DEFAULT_TENANT
from serve.settings import SettingsError, parse
from serve.writer import LocalWriter
from tests.models.llm_server import Asked, LLMServer, Reply
from tests.serve.conftest import B, Live
from tests.serve.test_llm import application, texts

pytestmark = pytest.mark.integration

LINES = [f"Line {i} says that the kiln is warm. {'It is so. ' * 13}" for i in range(4)]
TEXT = "\n".join(LINES)
SCHEMA = "retain_batches"


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with LLMServer() as made:
        made.rule("facts", first_sentence)
        yield made


def first_sentence(asked: Asked) -> Reply:
    content = asked.text.split("Content:\n")[-1].split("\n", 1)[1].rsplit("\n</", 1)[0]
    return Reply(json={"facts": [{"what": content.split(".")[0] + ".", "entities": []}]})


class Steps:
    """The application, whose queued operations are done one after another, when a test says so."""

    def __init__(self, live: Live) -> None:
        writer = live.services.writer
        assert isinstance(writer, LocalWriter)
        self.live, self.pool, self.deps = live, live.services.pool, writer.deps
        assert isinstance(self.deps.extractor, BatchExtractor)
        self.extractor = self.deps.extractor

    async def step(self, bank: str, id: str) -> dict[str, Any]:
        """Does what waits now, and looks at the operation."""
        await self.pool.execute("update operations set next_retry_at = null")
        await Worker(self.deps).step()
        return await self.shown(bank, id)

    async def shown(self, bank: str, id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.live.http.get(f"{B}/{bank}/operations/{id}")).json()
        return found

    async def submit(self, bank: str, text: str = TEXT, **item: Any) -> str:
        body = {"items": [{"content": text, "document_id": "d", **item}], "async": True}
        answer = await self.live.http.post(f"{B}/{bank}/memories", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["operation_id"])

    async def noted(self, bank: str) -> list[Any]:
        rows = await self.pool.fetch("select * from extraction_batches where bank_id = $1", bank)
        return list(rows)


@asynccontextmanager
async def batching(dsn: str, server: LLMServer, **more: Any) -> AsyncIterator[Steps]:
    llm = {
        "llm_provider": "openai",
        "llm_model": "m",
        "llm_api_key": "sk-secret",
        "llm_base_url": server.url,
        "llm_initial_backoff": 0.01,
        "retain_batch_enabled": True,
        **more,
    }
    worker = {"worker_enabled": False}
    chunks = {"retain_chunk_size": 200}
    async with application(dsn, retain=chunks, worker=worker, schema=SCHEMA, **llm) as live:
        yield Steps(live)


async def test_a_batch_to_its_end(dsn: str, server: LLMServer) -> None:
    server.batches.held = True
    async with batching(dsn, server) as steps:
        id = await steps.submit("whole")
        for _ in range(3):
            shown = await steps.step("whole", id)
            assert (shown["status"], shown["retry_count"]) == ("pending", 0)
            assert "0 of 4 done" in shown["error_message"]
            assert shown["next_retry_at"] is not None
            assert (shown["progress"]["stage"], shown["progress"]["total"]) == ("extracting", 4)
        assert len(server.batches.batches) == 1
        server.batches.held = False
        shown = await steps.step("whole", id)
        assert (shown["status"], shown["error_message"]) == ("completed", None)
        result = shown["result_metadata"]
        assert (result["unit_ids_count"], result["chunks_total"]) == (4, 4)
        assert (result["chunks_reused"], result["usage"]["input_tokens"]) == (0, 400)
        assert len(await texts(steps.live, "whole")) == 4
        assert server.asked == []
        assert server.batches.files == {}  # nothing of the users stays there
        used = await steps.pool.fetch(
            "select calls, input_tokens from llm_usage where tenant_id = $1 and bank_id = $2",
            DEFAULT_TENANT,
            "whole",
        )
        assert [row["input_tokens"] for row in used] == [400]
        again = await steps.submit("whole")  # the same content: nothing to ask
        assert (await steps.step("whole", again))["status"] == "completed"
        assert len(server.batches.rows) == 4
        await steps.extractor.sweep(steps.pool)
        assert await steps.noted("whole") == []


async def test_what_a_batch_leaves_open_is_asked_singly(dsn: str, server: LLMServer) -> None:
    def rows(asked: Asked) -> Reply | None:
        if asked.headers:
            return None
        if "Line 1" in asked.text:
            return Reply(text="I cannot")
        return Reply(status=500) if "Line 2" in asked.text else None

    server.rules.insert(0, (lambda asked: True, rows))
    server.batches.final = "expired"
    async with batching(dsn, server) as steps:
        id = await steps.submit("gaps")
        await steps.step("gaps", id)
        shown = await steps.step("gaps", id)
        assert shown["status"] == "completed", shown
        assert sorted(a.text.split("Line ")[-1][0] for a in server.asked) == ["1", "2"]
        assert len(await texts(steps.live, "gaps")) == 4
        assert len(server.batches.rows) == 4


async def test_killed_between_sending_and_naming(dsn: str, server: LLMServer) -> None:
    """The provider has the batch, and nobody noted so: it is found there, behind other ones."""
    async with batching(dsn, server) as steps:
        server.batches.page = 2
        server.batches.lost = True
        id = await steps.submit("killed")
        shown = await steps.step("killed", id)
        assert (shown["status"], shown["retry_count"]) == ("pending", 0)
        assert [row["batch_id"] for row in await steps.noted("killed")] == [None]
        for other in ("a", "b", "c"):
            await steps.step("killed-" + other, await steps.submit("killed-" + other, other))
        shown = await steps.step("killed", id)
        for _ in range(5):
            shown = await steps.step("killed", id)
        assert shown["status"] == "completed", shown
        assert len([row for row in server.batches.rows if "Line" in str(row)]) == 4
        assert server.asked == []


async def test_killed_before_anything_was_sent(dsn: str, server: LLMServer) -> None:
    async with batching(dsn, server) as steps:
        id = await steps.submit("early")
        server.batches.refused = (503, "busy")
        shown = await steps.step("early", id)
        assert (shown["status"], shown["retry_count"]) == ("pending", 0)
        assert "busy" in shown["error_message"]
        server.batches.refused = None
        await steps.step("early", id)
        assert (await steps.step("early", id))["status"] == "completed"
        assert len(server.batches.rows) == 4


async def test_killed_while_answers_are_read(
    dsn: str, server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with batching(dsn, server) as steps:
        id = await steps.submit("torn")
        await steps.step("torn", id)
        keep, kept = type(steps.extractor.singly).keep, 0

        async def breaking(*args: Any) -> None:
            nonlocal kept
            kept += 1
            if kept == 3:
                raise DeadlineExceeded("dying")
            await keep(*args)

        monkeypatch.setattr(type(steps.extractor.singly), "keep", breaking)
        assert (await steps.step("torn", id))["status"] == "pending"
        monkeypatch.undo()
        assert (await steps.step("torn", id))["status"] == "completed"
        assert len(await texts(steps.live, "torn")) == len(server.batches.rows) == 4
        assert server.asked == []


@pytest.mark.parametrize("how", ["cancel", "delete bank"])
async def test_a_cancelled_operation_stops_its_batch(dsn: str, server: LLMServer, how: str) -> None:
    server.batches.held = True
    bank = "cancelled-" + how[:3]
    async with batching(dsn, server) as steps:
        id = await steps.submit(bank)
        await steps.step(bank, id)
        await steps.extractor.sweep(steps.pool)
        (batch,) = server.batches.batches.values()
        assert batch["status"] == "in_progress"
        if how == "cancel":
            gone = await steps.live.http.delete(f"{B}/{bank}/operations/{id}")
        else:
            gone = await steps.live.http.delete(f"{B}/{bank}")
        assert gone.status_code == 200, gone.text
        await steps.extractor.sweep(steps.pool)
        assert batch["status"] == "cancelled"
        assert await steps.noted(bank) == []
        await Worker(steps.deps).step()
        if how == "cancel":
            assert await texts(steps.live, bank) == []
            server.batches.held = False  # tried again it is paid for, and only then
            await steps.live.http.post(f"{B}/{bank}/operations/{id}/retry")
            await steps.step(bank, id)
            assert (await steps.step(bank, id))["status"] == "completed"
            assert len(server.batches.batches) == 2


async def test_cancelled_while_it_was_being_sent(dsn: str, server: LLMServer) -> None:
    server.batches.held = True
    async with batching(dsn, server) as steps:
        server.batches.lost = True
        id = await steps.submit("unnamed")
        await steps.step("unnamed", id)
        await operation_views.cancel(steps.pool, DEFAULT_TENANT, "unnamed", id)
        await steps.extractor.sweep(steps.pool)
        assert [b["status"] for b in server.batches.batches.values()] == ["cancelled"]
        assert await steps.noted("unnamed") == []


async def test_a_batch_that_is_not_known_any_more_is_sent_again(
    dsn: str, server: LLMServer
) -> None:
    async with batching(dsn, server) as steps:
        id = await steps.submit("lost")
        await steps.step("lost", id)
        server.batches.batches.clear()
        await steps.step("lost", id)
        assert (await steps.step("lost", id))["status"] == "completed"
        assert len(server.batches.rows) == 8


async def test_a_server_without_batches_is_asked_singly(dsn: str, server: LLMServer) -> None:
    server.batches.refused = (404, "no such address")
    async with batching(dsn, server) as steps:
        id = await steps.submit("none")
        assert (await steps.step("none", id))["status"] == "completed"
        assert len(server.asked) == 4
        assert await steps.noted("none") == []


async def test_reprocessing_reads_all_anew_and_once(dsn: str, server: LLMServer) -> None:
    async with batching(dsn, server) as steps:
        id = await steps.submit("anew")
        await steps.step("anew", id)
        await steps.step("anew", id)
        answer = await steps.live.http.post(f"{B}/anew/documents/d/reprocess")
        id = answer.json()["operation_id"]
        await steps.step("anew", id)
        assert (await steps.step("anew", id))["status"] == "completed"
        assert len(server.batches.rows) == 8
        assert server.asked == []
        assert len(await texts(steps.live, "anew")) == 4


async def test_a_budget_is_looked_at_first(dsn: str, server: LLMServer) -> None:
    async with batching(dsn, server, llm_tenant_tokens_per_day=1) as steps:
        await steps.pool.execute("delete from llm_budgets")
        id = await steps.submit("poor")
        await steps.step("poor", id)
        assert (await steps.step("poor", id))["status"] == "completed"
        id = await steps.submit("poor", "Another text.", document_id="e")
        shown = await steps.step("poor", id)
        assert (shown["status"], shown["retry_count"]) == ("pending", 0)
        assert "budget" in shown["error_message"]
        assert len(server.batches.batches) == 1
        await steps.pool.execute("delete from llm_budgets")


async def test_sync_retains_are_refused(dsn: str, server: LLMServer) -> None:
    async with batching(dsn, server) as steps:
        body = {"items": [{"content": "Ann likes tea."}]}
        answer = await steps.live.http.post(f"{B}/sync/memories", json=body)
        assert answer.status_code == 400
        assert "async" in answer.json()["detail"]
        missing = await steps.live.http.get(f"{B}/sync/memories/list")
        assert missing.status_code == 404


async def test_by_a_running_worker(dsn: str, server: LLMServer) -> None:
    llm: dict[str, Any] = {
        "llm_provider": "openai", "llm_model": "m", "llm_api_key": "k",
        "llm_base_url": server.url, "retain_batch_enabled": True,
        "retain_batch_poll_interval_seconds": 1,
    }  # fmt: skip
    async with application(dsn, schema=SCHEMA, **llm) as live:
        body = {"items": [{"content": "Ann likes tea."}], "async": True}
        id = (await live.http.post(f"{B}/running/memories", json=body)).json()["operation_id"]
        assert UUID(id)
        async with asyncio.timeout(60):
            while (shown := (await live.http.get(f"{B}/running/operations/{id}")).json())[
                "status"
            ] != "completed":
                assert shown["status"] in ("pending", "processing")
                await asyncio.sleep(0.1)
        assert await texts(live, "running") == ["Ann likes tea."]
        assert len(server.batches.rows) == 1


def test_settings() -> None:
    llm = {"llm_provider": "vllm", "llm_model": "m", "llm_base_url": "http://x"}
    with pytest.raises(SettingsError, match="needs a provider with a batch API"):
        parse({"llm": {**llm, "retain_batch_enabled": True}}, {})
    env = {"HINDSIGHT_API_RETAIN_BATCH_ENABLED": "true"}
    assert parse({}, env).llm.batch_enabled  # of no effect where there is no model
