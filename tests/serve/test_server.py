"""The whole server: Ray Serve, HAProxy, embedded PostgreSQL, and the public client against it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import psutil
import pytest
import pytest_asyncio
from hindsight_client import Hindsight
from hindsight_client_api.exceptions import ApiException, NotFoundException

from tests.serve.server import ROOT, Server, until

pytestmark = [pytest.mark.serve, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("server") / "data")
    try:
        yield started.start()
    finally:
        started.kill()


@pytest_asyncio.fixture
async def client(server: Server) -> AsyncIterator[Any]:
    found: Any = Hindsight(base_url=server.url, timeout=60)
    yield found
    await found.aclose()


async def test_the_public_client(client: Any) -> None:
    """Every convenience method that has something behind it, one by one."""
    version = await client.aget_version()
    assert version.api_version == "0.9.1"
    assert version.features.bank_config_api

    made = await client.acreate_bank("alice", name="Alice", disposition={"skepticism": 4})
    assert (made.name, made.mission) == ("Alice", "")
    await client.aset_mission("alice", "Remember Alice.")
    await client.aset_reflect_mission("alice", "Remember Alice well.")

    one = await client.aretain(
        "alice",
        "Alice moved to Lisbon in May.",
        timestamp="2025-05-20T10:00:00Z",
        context="chat",
        document_id="d1",
        metadata={"source": "chat"},
        entities=[{"text": "Alice"}, {"text": "Lisbon"}],
        tags=["home"],
    )
    assert one.success
    assert not one.var_async
    several = await client.aretain_batch(
        "alice",
        [
            {"content": "Alice works at a ceramics studio.", "tags": ["work"]},
            {"content": "The studio fires its kiln on Fridays.", "tags": ["work"]},
        ],
        document_id="d2",
        document_tags=["imported"],
    )
    assert several.items_count == 2
    later = await client.aretain("alice", "Alice sings in a choir.", retain_async=True)
    assert later.var_async
    for _ in range(100):
        state = await client.operations.get_operation_status("alice", later.operation_id)
        if state.status == "completed":
            break
        await asyncio.sleep(0.1)
    assert state.status == "completed"

    found = await client.arecall(
        "alice",
        "Where does Alice live?",
        types=["world"],
        include_entities=True,
        include_chunks=True,
        include_source_facts=True,
        trace=True,
        query_timestamp="2025-06-01T00:00:00",
        tags=["home", "work"],
        min_scores={"semantic": 0.05},
        temporal_window={"start": "2025-01-01", "end": "2025-12-31"},
    )
    assert "Lisbon" in found.results[0].text
    assert found.results[0].metadata == {"source": "chat"}
    assert set(found.entities) >= {"Alice", "Lisbon"}
    assert found.chunks
    assert found.trace["query"]["query_text"] == "Where does Alice live?"
    assert "Lisbon" in found.to_prompt_string()
    grouped = await client.arecall("alice", "studio", tag_groups=[{"tags": ["imported"]}])
    assert {"work", "imported"} <= set(grouped[0].tags)

    listed = await client.alist_memories("alice", search_query="kiln", tags=["work"])
    assert listed.total == 1
    window = await client.alist_memories(
        "alice", time_field="mentioned_at", start_date="2025-05-01", end_date="2025-06-01"
    )
    assert [item.text for item in window.items] == ["Alice moved to Lisbon in May."]

    config = await client.aupdate_bank_config("alice", recall_budget_fixed_low=50)
    assert config["overrides"]["recall_budget_fixed_low"] == 50
    assert (await client.aget_bank_config("alice"))["config"]["recall_budget_fixed_low"] == 50
    assert (await client.areset_bank_config("alice"))["overrides"] == {}

    documents = await client.documents.list_documents("alice")
    assert {item.id for item in documents.items} >= {"d1", "d2"}
    document = await client.documents.get_document("alice", "d1")
    assert document.original_text == "Alice moved to Lisbon in May."
    chunks = await client.documents.list_document_chunks("alice", "d1")
    assert (await client.documents.get_chunk(chunks.items[0].chunk_id)).document_id == "d1"
    entities = await client.entities.list_entities("alice")
    entity = await client.entities.get_entity("alice", entities.items[0].id)
    assert entity.observations == []
    await client.entities.get_entity_graph("alice")
    tags = await client.memory.list_tags("alice")
    assert "home" in [item.tag for item in tags.items]
    memory = await client.memory.get_memory("alice", listed.items[0].id)
    assert memory
    stats = await client.banks.get_agent_stats("alice")
    assert stats.total_documents >= 3
    banks = await client.banks.list_banks()
    assert {"alice", "sample"} <= {bank.bank_id for bank in banks.banks}
    operations = await client.operations.list_operations("alice")
    assert operations.operations[0].id == later.operation_id

    gone = await client.documents.delete_document("alice", "d2")
    assert gone.memory_units_deleted == 2
    await client.memory.clear_bank_memories("alice")
    assert len(await client.arecall("alice", "Lisbon")) == 0
    assert (await client.adelete_bank("alice")).success
    with pytest.raises(NotFoundException):
        await client.arecall("alice", "Lisbon")


async def test_reflect_and_documents_without_a_model(client: Any) -> None:
    with pytest.raises(ApiException) as refused:
        await client.areflect("sample", "What happened?")
    assert refused.value.status == 400
    assert (await client.alist_mental_models("sample")).items == []
    assert (await client.alist_directives("sample")).items == []


def test_the_synchronous_client(server: Server) -> None:
    def work() -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        client: Any
        with Hindsight(base_url=server.url) as client:
            client.retain("bob", "Bob keeps two ferrets.")
            assert "ferrets" in client.recall("bob", "Which pets does Bob have?")[0].text
            assert client.list_memories("bob").total == 1
            client.delete_bank("bob")
        loop.close()

    with ThreadPoolExecutor(1) as threads:  # the client runs a loop of its own
        threads.submit(work).result()


async def test_recalls_while_an_import_runs(server: Server) -> None:
    acknowledged = 0
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:

        async def put(bank: str, *texts: str) -> None:
            memories = [{"key": text, "text": text} for text in texts]
            answer = await http.post(
                f"/v1/default/banks/{bank}/memories/import", json={"memories": memories}
            )
            assert answer.status_code == 200, answer.text

        async def grow() -> None:
            nonlocal acknowledged
            for i in range(6):
                await put("growing", *(f"Beacon {i}.{j} was lit." for j in range(10)))
                await put("secret", *(f"Safe {i}.{j} was locked." for j in range(10)))
                acknowledged = 10 * (i + 1)

        async def ask() -> None:
            seen = acknowledged
            body = {"query": "beacon was lit", "max_tokens": 100_000, "budget": "high"}
            answer = await http.post("/v1/default/banks/growing/memories/recall", json=body)
            assert answer.status_code == 200, answer.text
            texts = [result["text"] for result in answer.json()["results"]]
            assert all(text.startswith("Beacon") for text in texts)
            assert len(texts) >= seen

        await put("growing", "Beacon zero was lit.")
        growing = asyncio.create_task(grow())
        while not growing.done():
            await asyncio.gather(*(ask() for _ in range(40)))
        await growing


def test_everything_listens_on_loopback(server: Server) -> None:
    """Our own ports and Ray's: nothing can be reached from another machine."""
    listening = {
        (process.name(), connection.laddr.ip.removeprefix("::ffff:"))
        for process in server.processes()
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    assert {address for _, address in listening} == {"127.0.0.1"}, listening


async def test_time_and_patience_that_run_out(server: Server) -> None:
    """The database holds a recall up: its time ends, then its client goes; the work stops."""
    dsn = json.loads((server.data / "run.json").read_text())["dsn"]
    url = "/v1/default/banks/sample/memories/recall"
    body = {"query": "flood"}
    holder = await asyncpg.connect(dsn)
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            assert (await http.post(url, json=body)).status_code == 200
            async with holder.transaction():
                await holder.execute("lock table banks in access exclusive mode")
                late = await http.post(url, json=body, headers={"X-Request-Timeout-S": "0.4"})
                assert (late.status_code, late.json()["stage"]) == (504, "backend_acquisition")
                for _ in range(3):
                    with pytest.raises(httpx.ReadTimeout):
                        await http.post(url, json=body, timeout=0.4)
                stop_at = time.monotonic() + 5
                while left := await waiting(http, holder):
                    assert time.monotonic() < stop_at, left
            assert (await http.post(url, json=body)).status_code == 200
    finally:
        await holder.close()
    assert "Traceback" not in (server.data / "server.log").read_text()


async def waiting(http: httpx.AsyncClient, connection: Any) -> list[Any]:
    """Recalls inside the server, and statements of theirs that the database still works on."""
    scrape = (await http.get("/metrics")).text
    inside = [
        line for line in scrape.splitlines() if 'admission_running{controller="recall"' in line
    ]
    assert inside
    statements = await connection.fetch(
        "select query from pg_stat_activity where state = 'active' and wait_event_type = 'Lock'"
        " and query like 'select bank, tenant_id%'"
    )
    return [line for line in inside if float(line.split()[-1])] + [row[0] for row in statements]


def test_a_second_server_on_the_same_data_or_port(server: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "serve.cli.main", "serve", "--config", str(server.config)]
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    for options, named in (
        (["--port", str(server.port), "--data", str(tmp_path)], str(server.port)),
        (["--port", "1", "--data", str(server.data)], str(server.data)),
    ):
        if "1" in options:
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                options[1] = str(listener.getsockname()[1])
        done = subprocess.run(
            command + options, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 1
        assert named in done.stderr
        assert "Traceback" not in done.stderr


def test_the_command_line(server: Server, tmp_path: Path) -> None:
    def fourfold(*args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "serve.cli.main", *args],
            cwd=ROOT,
            env={**os.environ, "PYTHONWARNINGS": "ignore", "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    file = tmp_path / "m.jsonl"
    file.write_text('{"key": "a", "text": "The heron nests by the weir."}\n')
    assert "1 imported, 0" in fourfold("import", "cli", str(file), "--url", server.url)
    assert "0 imported, 1" in fourfold("import", "cli", str(file), "--url", server.url)
    shown = fourfold("recall", "cli", "heron", "--explain", "--url", server.url)
    assert "The heron nests by the weir." in shown
    assert "bm25" in shown
    data = ("--data", str(server.data))
    key = fourfold("keys", "create", "--tenant", "t1", "--label", "test", *data).strip()
    assert key.startswith("ff_")
    listed = fourfold("keys", "list", *data)
    assert "  valid  read,write,admin  " in listed
    assert listed.rstrip().endswith("  test")
    assert "revoked" in fourfold("keys", "revoke", key, *data)
    limited = fourfold(
        "tenants", "limit", "t1", "--recalls-per-s", "2.5", "--max-items", "9", *data
    )
    assert limited.split() == ["t1", "recalls_per_s=2.5", "max_items=9"]
    fourfold("tenants", "limit", "t1", "--unset", "max-items", *data)
    assert "t1  0 keys  recalls_per_s=2.5\n" in fourfold("tenants", "list", *data)


def test_killed_parts_come_back(server: Server) -> None:
    """PostgreSQL, then the replica, during an import: no half import, nothing acknowledged lost."""
    done: list[str] = []
    with ThreadPoolExecutor(1) as threads:
        for words in (("bin/postgres", "postgres"), ("ServeReplica",)):

            def grown(known: int = len(done)) -> bool:
                return len(done) > known

            importing = threads.submit(_import_until, server, done, time.monotonic() + 3)
            until(grown)
            victims = server.named(*words)
            assert victims, f"no process is called {words}"
            for process in victims:
                process.kill()
            spent = server.wait_answer(60)
            importing.result(60)
            print(f"{words[0]}: recall again after {spent:.1f} s")
            _check_imported(server, done)
    assert "Traceback" not in (server.data / "server.log").read_text()


def _import_until(server: Server, done: list[str], stop_at: float) -> None:
    """Imports batches of two; notes what was acknowledged."""
    with httpx.Client(base_url=server.url, timeout=30) as http:
        while time.monotonic() < stop_at:
            number = f"{len(done)}-{time.monotonic_ns()}"
            pair = [{"key": f"{number}-{half}", "text": f"Pair {number} {half}."} for half in "ab"]
            try:
                answer = http.post(
                    "/v1/default/banks/killed/memories/import", json={"memories": pair}
                )
            except httpx.TransportError:
                continue
            if answer.status_code == 200:
                done.append(number)


def _check_imported(server: Server, done: list[str]) -> None:
    texts: list[str] = []
    with httpx.Client(base_url=server.url, timeout=30) as http:
        while True:
            page: dict[str, Any] = http.get(
                f"/v1/default/banks/killed/memories/list?limit=1000&offset={len(texts)}"
            ).json()
            texts += [item["text"] for item in page["items"]]
            if not page["items"]:
                break
    stored = set(texts)
    for number in done:
        assert {f"Pair {number} a.", f"Pair {number} b."} <= stored, f"{number} was lost"
    halves = {text.rsplit(" ", 1)[0] for text in stored}
    assert len(stored) == 2 * len(halves), "half an import was stored"


def test_a_killed_server_starts_again_and_says_farewell(server: Server) -> None:
    """kill -9 of the whole server; then a start, the data, Ctrl-C, and nothing left."""
    assert server.process is not None
    server.process.kill()
    server.process.wait()
    before = server.processes()
    server.start()
    left = [process for process in before if process.is_running()]
    assert not left, [process.cmdline() for process in left]
    server.wait_answer(60)
    folder = Path(json.loads((server.data / "run.json").read_text())["folder"])
    assert folder.exists()
    spent = server.interrupt()
    assert server.process.returncode == 0, server.said()
    assert spent < 20, f"{spent:.1f} s to stop"
    assert server.said().rstrip().endswith("stopped")
    assert not server.processes(), [process.cmdline() for process in server.processes()]
    assert not folder.exists()
    assert not list(server.data.rglob("*.sock")), "a socket was left"
    assert not (server.data / "run.json").exists()


def test_a_signal_while_it_starts(tmp_path: Path) -> None:
    states: tuple[tuple[signal.Signals, Callable[[Server], object]], ...] = (
        (signal.SIGTERM, lambda server: server.process and server.process.poll() is None),
        (signal.SIGINT, lambda server: server.named("postgres")),
    )
    for number, state in states:
        server = Server(tmp_path / f"d{number}")
        command = [sys.executable, "-m", "serve.cli.main", "serve", "--port", str(server.port)]
        with server.log.open("wb") as out:
            server.process = subprocess.Popen(
                [*command, "--data", str(server.data), "--config", str(server.config)],
                cwd=ROOT,
                env=server._env,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            until(lambda: bool(state(server)), 60)  # noqa: B023
            spent = server.interrupt(number)
            assert spent < 20, server.said()
            early = server.process.returncode == -number or "Aborted" in server.said()
            assert early or server.process.returncode == 0, (
                server.said()
            )  # early: it still imported
            assert not server.processes(), [process.cmdline() for process in server.processes()]
        finally:
            server.kill()
