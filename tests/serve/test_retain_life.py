"""What a retain by a language model promises, through the real application and a scripted server:
nobody pays twice, nothing is lost, nobody is in another's way."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest

from retrieval.ingest.operations.worker import submit
from retrieval.store import memories, operation_views
from serve import app
from serve.admission.controller import AdmissionController
from tests.models.llm_server import Asked, LLMServer, Reply
from tests.retrieval.store.servers import database, deps
from tests.retrieval.store.servers import server as postgres
from tests.serve.conftest import B, Live, settings_for
from tests.serve.test_llm import application

pytestmark = pytest.mark.integration


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with LLMServer() as made:
        yield made


def content(asked: Asked) -> str:
    return asked.text.split("Content:\n")[-1].split("\n", 1)[1].rsplit("\n</", 1)[0]


def every_line(asked: Asked) -> Reply:
    """Every line of the content is a fact."""
    lines = [line for line in content(asked).splitlines() if line.strip()]
    return Reply(json={"facts": [{"what": line, "entities": []} for line in lines]})


def lines(count: int, about: str = "kiln") -> str:
    """Each line is a chunk of its own, of 200 characters at most."""
    return "\n".join(
        f"Line {i:03} says that the {about} is warm. {'It is so. ' * 13}" for i in range(count)
    )


@asynccontextmanager
async def retaining(dsn: str, server: LLMServer, **more: Any) -> AsyncIterator[Live]:
    llm = {
        "llm_provider": "vllm",
        "llm_model": "m",
        "llm_base_url": server.url,
        "llm_initial_backoff": 0.01,
        **more,
    }
    alone = {"enable_auto_consolidation": False}
    chunks = {"retain_chunk_size": 200}
    schema = "retain_life"
    async with application(dsn, consolidation=alone, retain=chunks, schema=schema, **llm) as live:
        yield live


@pytest.fixture
def bank() -> str:
    return f"life-{uuid4().hex[:8]}"


async def put(live: Live, bank: str, text: str, **item: Any) -> dict[str, Any]:
    body = {"items": [{"content": text, "document_id": "d", **item}]}
    answer = await live.http.post(f"{B}/{bank}/memories", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def units(live: Live, bank: str) -> dict[str, str]:
    """Ids by text."""
    answer = await live.http.get(f"{B}/{bank}/memories/list", params={"limit": 1000})
    assert answer.status_code == 200, answer.text
    return {item["text"]: item["id"] for item in answer.json()["items"]}


async def ended(live: Live, bank: str, id: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = (await live.http.get(f"{B}/{bank}/operations/{id}")).json()
            if found["status"] not in ("pending", "processing"):
                return found
            await asyncio.sleep(0.05)


async def test_a_document_that_changes(dsn: str, server: LLMServer, bank: str) -> None:
    """A line on top, an append, the same again, other labels: only what is new is paid for."""
    server.rule("facts", every_line)
    async with retaining(dsn, server) as live:
        text = lines(20)
        await put(live, bank, text)
        assert len(server.asked) == 20
        before = await units(live, bank)
        text = f"A new line stands on top.\n{text}"
        await put(live, bank, text)
        assert len(server.asked) - 20 <= 2
        assert before.items() <= (await units(live, bank)).items()
        asked, before = len(server.asked), await units(live, bank)
        for again in ({}, {"tags": ["a"]}, {"context": "talk", "tags": ["a"]}):
            done = await put(live, bank, text, **again)
            assert (len(server.asked), done["usage"]["total_tokens"]) == (asked, 0), again
        assert await units(live, bank) == before
        await put(live, bank, lines(1, "oven"), update_mode="append")
        assert len(server.asked) - asked <= 2
        after = await units(live, bank)
        assert len(before.items() & after.items()) >= len(before) - 1
        shorter = "\n".join(text.splitlines()[:5] + text.splitlines()[15:])
        asked = len(server.asked)
        await put(live, bank, shorter)
        assert len(server.asked) - asked <= 1
        assert (await units(live, bank)).items() <= after.items()


async def test_the_same_text_twice_in_one_content(dsn: str, server: LLMServer, bank: str) -> None:
    server.rule("facts", every_line)
    async with retaining(dsn, server) as live:
        await put(live, bank, "\n".join([lines(1)] * 3))
        assert len(server.asked) == 1
        found = await live.http.get(f"{B}/{bank}/memories/list")
        assert found.json()["total"] == 3


async def test_a_limit_holds_everybody_of_the_account(
    dsn: str, server: LLMServer, bank: str
) -> None:
    server.then(Reply(status=429, headers={"Retry-After": "2"}, error="slow down"))
    server.rule("facts", every_line)
    async with retaining(dsn, server) as live:
        await asyncio.gather(
            *(put(live, f"{bank}-{i}", f"{who} likes tea.") for i, who in enumerate("ABCDEF"))
        )
        # What was on its way when the limit was told may still come in.
        first = server.asked[0].at
        late = [asked.at - first for asked in server.asked]
        assert len(late) == 7
        assert not [at for at in late if 1.0 < at < 1.95], late
        assert max(late) >= 1.95
        for i in range(6):
            assert len(await units(live, f"{bank}-{i}")) == 1


async def test_writers_of_one_document(dsn: str, server: LLMServer, bank: str) -> None:
    server.rule("facts", lambda asked: dataclasses.replace(every_line(asked), delay_s=0.05))
    async with retaining(dsn, server) as live:
        texts = [lines(2, f"kiln {i}") for i in range(10)]
        await asyncio.gather(*(put(live, bank, text) for text in texts))
        document = (await live.http.get(f"{B}/{bank}/documents/d")).json()
        assert document["original_text"] in texts
        assert sorted(await units(live, bank)) == sorted(
            line.strip() for line in document["original_text"].splitlines()
        )
        listed = (await live.http.get(f"{B}/{bank}/documents")).json()
        assert listed["total"] == 1
        assert len(server.asked) == 20
        ids = []
        for i in range(4):  # one after another, while none is done
            body = {
                "items": [{"content": f"Piece {i}.", "document_id": "e", "update_mode": "append"}],
                "async": True,
            }
            answer = await live.http.post(f"{B}/{bank}/memories", json=body)
            ids.append(answer.json()["operation_id"])
        assert [(await ended(live, bank, id))["status"] for id in ids] == ["completed"] * 4
        document = (await live.http.get(f"{B}/{bank}/documents/e")).json()
        assert document["original_text"] == "Piece 0.\nPiece 1.\nPiece 2.\nPiece 3."


async def test_a_running_retain_can_be_cancelled(dsn: str, server: LLMServer, bank: str) -> None:
    server.rule("facts", lambda asked: dataclasses.replace(every_line(asked), delay_s=0.2))
    async with retaining(dsn, server, llm_max_concurrent=1) as live:
        body = {"items": [{"content": lines(60), "document_id": "d"}], "async": True}
        id = (await live.http.post(f"{B}/{bank}/memories", json=body)).json()["operation_id"]
        async with asyncio.timeout(60):
            while len(server.asked) < 2:  # noqa: ASYNC110 - a server's thread counts
                await asyncio.sleep(0.02)
        gone = await live.http.delete(f"{B}/{bank}/operations/{id}")
        assert gone.status_code == 200
        again = await live.http.delete(f"{B}/{bank}/operations/{id}")
        assert again.status_code == 409
        await put(live, bank, "Behind it in its lane.", document_id="d")
        assert len(server.asked) < 40
        assert (await ended(live, bank, id))["status"] == "cancelled"
        assert list(await units(live, bank)) == ["Behind it in its lane."]
        retried = await live.http.post(f"{B}/{bank}/operations/{id}/retry")
        assert retried.status_code == 200
        assert (await ended(live, bank, id))["status"] == "completed"
        assert len(await units(live, bank)) == 60
        asked = Counter(content(a)[:8] for a in server.asked)
        assert asked.total() <= 63  # what was read before it was cancelled is not read again


async def test_who_waits_for_a_document_holds_no_place(live: Live) -> None:
    """Eight writers of one document, two places for their tenant: others are written meanwhile."""
    begun, go = asyncio.Event(), asyncio.Event()
    real = live.services.writer

    class Slow:
        async def retain(self, tenant: str, bank_id: str, items: Any, *more: Any) -> Any:
            if items[0].get("document_id") == "slow":
                begun.set()
                await go.wait()
            return await real.retain(tenant, bank_id, items, *more)

    dsn = live.services.settings.database.database_url
    assert dsn is not None
    settings = settings_for(dsn.get_secret_value())
    admission = AdmissionController(3, 64)  # one is kept for other tenants
    services = dataclasses.replace(
        live.services, settings=settings, writer=cast(Any, Slow()), write_admission=admission
    )
    transport = httpx.ASGITransport(app.create(settings, services))
    bank = f"{B}/life-{uuid4().hex[:8]}/memories"
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as http:

        def send(document: str) -> asyncio.Task[httpx.Response]:
            item = {"content": f"About {document}.", "document_id": document}
            return asyncio.create_task(http.post(bank, json={"items": [item]}))

        slow = [send("slow") for _ in range(8)]
        await begun.wait()
        for document in ("a", "b", "c"):
            assert (await send(document)).status_code == 200
        assert admission.running == 1
        impatient = await http.post(
            bank,
            json={"items": [{"content": "x", "document_id": "slow"}]},
            headers={"X-Request-Timeout-S": "0.05"},
        )
        assert impatient.status_code == 409
        assert "slow" in impatient.json()["detail"]
        go.set()
        assert {(await one).status_code for one in slow} == {200}


async def test_who_waits_for_a_model_holds_no_place(dsn: str, server: LLMServer, bank: str) -> None:
    held: list[int] = []

    def answer(asked: Asked) -> Reply:
        held.append(live.services.write_admission.running)
        return every_line(asked)

    server.rule("facts", answer)
    async with retaining(dsn, server) as live:
        await put(live, bank, "Ann likes tea.")
        dry = await live.http.post(
            f"{B}/{bank}/memories/dry-run-extract", json={"content": "Bo likes coffee."}
        )
        assert [fact["text"] for fact in dry.json()["facts"]] == ["Bo likes coffee."]
    assert held == [0, 0]


@pytest.mark.timeout(180)
async def test_killed_in_the_middle(server: LLMServer) -> None:
    """kill -9 while a chunk is read, twice: nothing is lost or doubled, and what was answered
    before is not asked for again."""
    answered: list[str] = []
    running: list[int] = []
    kills = {2, 4}

    def answer(asked: Asked) -> Reply:
        name = content(asked)[:8]
        if running and len(answered) in kills:
            kills.remove(len(answered))
            os.kill(running.pop(), signal.SIGKILL)
            return Reply(hang=True)
        answered.append(name)
        return every_line(asked)

    server.rule("facts", answer)
    async with database() as pool:
        ingest = deps(pool)
        item = {"content": lines(6), "document_id": "d"}
        more = {"content": "A last line.", "document_id": "d", "update_mode": "append"}
        ids = [
            (await submit(ingest, "default", "b", [one]))["operation_id"] for one in (item, more)
        ]
        for _ in range(3):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.serve.retain_worker",
                postgres().dsn,
                pool.schema,
                server.url,
            )
            running[:] = [process.pid]
            begin = time.monotonic()
            try:
                while process.returncode is None and time.monotonic() - begin < 120:
                    told = await operation_views.get(pool, "default", "b", ids[1])
                    if told["status"] == "completed":
                        break
                    await asyncio.sleep(0.1)
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()
        states = [(await operation_views.get(pool, "default", "b", id))["status"] for id in ids]
        assert states == ["completed", "completed"]
        assert sorted(answered) == sorted([*(f"Line {i:03}" for i in range(6)), "A last l"])
        found = await memories.list_memories(pool, "default", "b", limit=100)
        assert found["total"] == 7
