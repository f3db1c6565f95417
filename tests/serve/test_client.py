"""The public client against the application on a real socket: each of its methods, one by one."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import aiohttp
import hindsight_client_api
import hindsight_client_api.api as apis
import pytest
import pytest_asyncio
import uvicorn
from hindsight_client import Hindsight
from hindsight_client_api.exceptions import ApiException, BadRequestException, NotFoundException
from pydantic import BaseModel

from retrieval.reflect.seams import FoundModel
from serve.http.wire import banks, recall, reflect, writes
from tests.retrieval.reflect.bank import Asked, calls, handle
from tests.serve.conftest import Live
from tests.serve.reflecting import BANK, MEMORIES, Known, scripted

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning"),  # said by the client
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),  # bodies for the unbuilt
]

generated: Any = hindsight_client_api


class Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are the test runner's


@asynccontextmanager
async def on_a_port(api: Any) -> AsyncIterator[str]:
    """The address of an application that serves on a real socket while the block runs."""
    config = uvicorn.Config(
        api, host="127.0.0.1", port=0, lifespan="off", ws="none", log_level="critical"
    )
    server = Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    await serving


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def address(live: Live) -> AsyncIterator[str]:
    async with on_a_port(live.api) as found:
        yield found


Call = Callable[..., Awaitable[Any]]


class Calls:
    """Calls the convenience methods, either the asynchronous ones or, in a thread, the others;
    notes which were called."""

    def __init__(self, address: str, twins: str) -> None:
        self._async = twins == "async"
        self._address = address
        self.called: set[str] = set()
        self._threads = ThreadPoolExecutor(1, initializer=_own_loop)
        self.client: Any = None

    async def __aenter__(self) -> Calls:
        def make() -> Any:
            return Hindsight(base_url=self._address, timeout=60)

        self.client = make() if self._async else await self._in_thread(make)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self("close")
        await self._in_thread(_end_loop)
        self._threads.shutdown()

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def __call__(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        self.called.add(name)
        if self._async:
            return await getattr(self.client, f"a{name}")(*args, **kwargs)
        method = getattr(self.client, name)
        return await self._in_thread(lambda: method(*args, **kwargs))


def _own_loop() -> None:
    asyncio.set_event_loop(asyncio.new_event_loop())


def _end_loop() -> None:
    asyncio.get_event_loop().close()
    asyncio.set_event_loop(None)


def methods(kind: type) -> set[str]:
    """Public methods of a class of the client, without their variants for raw answers."""
    return {
        name
        for name, value in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and not name.endswith(("_with_http_info", "_without_preload_content"))
    }


CONVENIENT = {name for name in methods(Hindsight) if f"a{name}" in methods(Hindsight)}
DOCUMENTS = re.compile(
    "mental_model|knowledge|directive|MentalModelsApi|KnowledgeBaseApi|DirectivesApi"
)
"""Methods that tests/serve/test_client_documents.py calls: they need somebody who writes."""
ALONE = methods(Hindsight) - CONVENIENT - {f"a{name}" for name in CONVENIENT}


def arguments(method: Any) -> dict[str, Any]:
    """Something for every argument that must be given."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.default is not parameter.empty or name == "self":
            continue
        kind = str(parameter.annotation)
        model = getattr(generated, kind.split(".")[-1].rstrip("'>"), None)
        if model is not None and hasattr(model, "model_construct"):
            found[name] = constructed(model)
        elif name == "files":
            found[name] = [__file__] if "Path" in kind else [b"x"]
        else:
            found[name] = b"x" if "bytes" in kind else "sample" if name == "bank_id" else "x"
    return found


def constructed(model: Any) -> Any:
    """An instance with something in every field that must be there."""
    if "actual_instance" in model.model_fields:  # one of several types
        return model("x")
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if not field.is_required():
            continue
        kind = str(field.annotation)
        known = {"list": [], "List": [], "bool": True, "int": 1}
        values[name] = next((v for word, v in known.items() if word in kind), "x")
        if hasattr(field.annotation, "model_construct"):
            values[name] = constructed(field.annotation)
    return model.model_construct(**values)


def refused(error: BaseException) -> int:
    """The status of a refusal, which must come with a sentence."""
    if isinstance(error, aiohttp.ClientResponseError):
        return error.status
    assert isinstance(error, ApiException), repr(error)
    assert '"detail"' in str(error.body), error.body
    return int(error.status or 0)


def test_every_method_has_its_twin() -> None:
    assert sorted(ALONE) == ["suspend_retains"]
    assert len(CONVENIENT) > 40


@pytest.mark.parametrize("twins", ["async", "sync"])
async def test_the_convenience_methods(
    live: Live, address: str, twins: str, tmp_path: Path
) -> None:
    bank = f"client {twins}/1"
    async with Calls(address, twins) as call:
        version = await call("get_version")
        assert version.api_version == "0.9.1"
        made = await call(
            "create_bank",
            bank,
            name="Client",
            mission="m",
            disposition={"skepticism": 4, "literalism": 2, "empathy": 5},
            retain_chunk_size=2000,
            enable_observations=False,
            enable_text_search=True,
            enable_temporal_retrieval=True,
            enable_graph_retrieval=True,
            enable_reranking=True,
        )
        assert (made.bank_id, made.name, made.disposition.empathy) == (bank, "Client", 5)
        assert (await call("set_mission", bank, "new")).mission == "new"
        assert (await call("set_reflect_mission", bank, "newer")).mission == "newer"
        await call("update_bank_config", bank, recall_budget_fixed_low=50)
        config = await call("get_bank_config", bank)
        assert config["overrides"]["recall_budget_fixed_low"] == 50
        assert config["config"]["retain_chunk_size"] == 2000
        assert (await call("reset_bank_config", bank))["overrides"] == {}

        one = await call(
            "retain",
            bank,
            [
                {"type": "text", "text": "Dora mends nets."},
                {"type": "text", "text": "At the pier."},
            ],
            timestamp=datetime(2025, 5, 20, 10, tzinfo=UTC),
            context="talk",
            document_id="d/1",
            metadata={"source": "talk"},
            entities=[{"text": "Dora", "type": "PERSON"}],
            resolve_entities=False,
            tags=["sea"],
            observation_scopes=[["sea"]],
        )
        assert (one.success, one.var_async, one.items_count) == (True, False, 1)
        more = await call(
            "retain",
            bank,
            "She sells them in June.",
            document_id="d/1",
            update_mode="append",
            tags=["sea"],
            entities=[{"text": "Dora"}],
        )
        assert more.success
        batch = [
            {"content": "Emil catches herring.", "tags": ["sea"], "timestamp": "2025-06-01"},
            {"content": "Emil hates herring.", "metadata": {"n": "1"}},
        ]
        several = await call("retain_batch", bank, batch, document_tags=["b"], document_id="d/2")
        assert several.items_count == 2
        later = await call("retain", bank, "Filip waits for the ferry.", retain_async=True)
        assert (later.var_async, bool(later.operation_id)) == (True, True)
        async with asyncio.timeout(20):
            while not (await call("list_memories", bank, search_query="ferry")).total:
                pass

        found = await call(
            "recall",
            bank,
            "What does Dora mend?",
            types=["world", "experience"],
            max_tokens=1000,
            budget="high",
            trace=True,
            query_timestamp="2025-07-01",
            include_entities=True,
            include_chunks=True,
            include_source_facts=True,
            tags=["sea"],
            tags_match="any_strict",
            prefer_observations=True,
            min_scores={"semantic": 0.05, "keyword": 0.0},
            temporal_window={"start": "2025-01-01", "end": datetime(2025, 12, 31, tzinfo=UTC)},
        )
        texts = [result.text for result in found]
        assert texts[:2] == ["Dora mends nets.\nAt the pier.", "She sells them in June."]
        assert "Dora" in found.entities
        assert found.chunks
        assert found.trace["summary"]["phase_metrics"]
        assert all("sea" in result.tags for result in found)
        groups = [{"and": [{"tags": ["b"]}, {"not": {"tags": ["sea"], "match": "any_strict"}}]}]
        grouped = await call("recall", bank, "herring", tag_groups=groups)
        assert [result.text for result in grouped] == ["Emil hates herring."]
        assert "herring" in grouped.to_prompt_string()

        listed = await call(
            "list_memories",
            bank,
            type="world",
            time_field="mentioned_at",
            start_date="2025-05-01",
            end_date="2025-06-02",
            tags=["sea"],
            tags_match="all_strict",
            state="valid",
            consolidation_state="pending",
            limit=1,
            offset=0,
        )
        assert (listed.total, listed.items[0].text) == (2, "Emil catches herring.")
        by_document = await call("list_memories", bank, document_id="d/2")
        assert by_document.total == 2

        await moved(live, call, bank)
        note = tmp_path / "note.txt"
        note.write_text("Gerda mends the nets.")
        uploaded = await call("retain_files", bank, [note], context="harbour")
        assert len(uploaded.operation_ids) == 1
        async with asyncio.timeout(20):
            while not (await call("list_memories", bank, search_query="nets")).total:
                pass

        for wrong in ({"query": "?"}, {"query": "x", "types": ["wish"]}):
            with pytest.raises(ApiException) as error:
                await call("recall", bank, **wrong)
            assert refused(error.value) == 422
        with pytest.raises(BadRequestException) as error:
            await call("reflect", bank, "What is Emil like?", include_facts=True)
        assert refused(error.value) == 400
        assert (await call("delete_bank", bank)).success
        with pytest.raises(NotFoundException):
            await call("recall", bank, "herring")

        done = set(call.called) | {"close"}
        prefix = "a" if twins == "async" else ""
        documents = {name for name in CONVENIENT if DOCUMENTS.search(name)}
        for name in sorted(CONVENIENT - done - documents):
            given = arguments(getattr(Hindsight, f"{prefix}{name}"))
            with pytest.raises((ApiException, aiohttp.ClientResponseError)) as unbuilt:
                await call(name, **given)
            assert refused(unbuilt.value) == 501, name
        assert call.called | documents | {"close"} == CONVENIENT


async def ended(live: Live, bank: str, operation: str) -> dict[str, Any]:
    """An operation, once it has ended."""
    url = f"/v1/default/banks/{quote(bank, safe='')}/operations/{operation}"
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = (await live.http.get(url)).json()
            if found["status"] in ("completed", "failed", "cancelled"):
                return found
            await asyncio.sleep(0.05)


async def moved(live: Live, call: Calls, bank: str) -> None:
    """The client's methods that move banks."""
    texts = {one.text for one in (await call("list_memories", bank)).items}
    archive = await call("export_bank", bank, include_history=True, poll_interval=0.1)
    done = await ended(
        live, bank, await call("import_bank", bank, archive, target_bank_id=f"{bank}-in")
    )
    assert done["status"] == "completed", done
    assert done["result_metadata"]["documents_imported"] == 3
    done = await ended(live, bank, await call("clone_bank", bank, f"{bank}-clone"))
    assert done["status"] == "completed", done
    for target in (f"{bank}-in", f"{bank}-clone"):
        assert {one.text for one in (await call("list_memories", target)).items} == texts
        found = await call("recall", target, "What does Dora mend?")
        assert next(iter(found)).text.startswith("Dora mends nets.")
        assert (await call("delete_bank", target)).success
    documents = await call("export_documents", bank, document_ids=["d/1"], poll_interval=0.1)
    assert documents[:2] == b"PK"


GENERATED: dict[str, type] = {
    name: kind for name, kind in inspect.getmembers(apis, inspect.isclass) if name.endswith("Api")
}


class Generated:
    """Calls the generated methods by `Class.name`; notes which were called."""

    def __init__(self, address: str) -> None:
        self._client: Any = generated.ApiClient(generated.Configuration(host=address))
        self.called: set[str] = set()

    async def __call__(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        self.called.add(name)
        kind, method = name.split(".")
        return await getattr(GENERATED[kind](self._client), method)(*args, **kwargs)

    async def close(self) -> None:
        await self._client.close()


async def test_the_generated_methods(live: Live, address: str) -> None:
    call, bank, make = Generated(address), "generated", generated
    request: Any
    assert (await call("MonitoringApi.get_liveness")).status == "alive"
    for name in ("get_readiness", "health_endpoint_health_get", "metrics_endpoint_metrics_get"):
        await call(f"MonitoringApi.{name}")
    assert (await call("MonitoringApi.get_version")).features.bank_config_api

    # Banks
    request = make.CreateBankRequest(name="G", mission="m")
    made = await call("BanksApi.create_or_update_bank", bank, request)
    assert made.name == "G"
    made = await call("BanksApi.update_bank", bank, make.CreateBankRequest(name="H"))
    assert made == await call("BanksApi.get_bank_profile", bank)
    traits = make.DispositionTraits(skepticism=1, literalism=2, empathy=3)
    request = make.UpdateDispositionRequest(disposition=traits)
    assert (await call("BanksApi.update_bank_disposition", bank, request)).disposition == traits
    told = await call("BanksApi.add_bank_background", bank, make.AddBackgroundRequest(content="b"))
    assert told.mission == "b"
    update = make.BankConfigUpdate(updates={"recall_budget_min": 30})
    found = await call("BanksApi.update_bank_config", bank, update)
    assert found.overrides == {"recall_budget_min": 30}
    assert (await call("BanksApi.get_bank_config", bank)).overrides == found.overrides
    assert (await call("BanksApi.reset_bank_config", bank)).overrides == {}
    listed = await call("BanksApi.list_banks", q="generated", limit=5, offset=0)
    assert [each.bank_id for each in listed.banks] == [bank]

    # Memories
    item = make.MemoryItem(
        content=make.Content("Gus winds the tower clock."),
        document_id="g/1",
        tags=["clock"],
        entities=[make.EntityInput(text="Gus")],
    )
    kept = await call("MemoryApi.retain_memories", bank, make.RetainRequest(items=[item]))
    assert kept.items_count == 1
    await live.import_memories(
        bank, {"key": "o", "text": "Gus is careful.", "type": "observation", "tags": ["clock"]}
    )
    request = make.RecallRequest(query="tower clock")
    recalled = await call("MemoryApi.recall_memories", bank, request)
    assert recalled.results[0].text == "Gus winds the tower clock."
    listed = await call("MemoryApi.list_memories", bank, type="world")
    (memory,) = listed.items
    assert memory.entities == "Gus"
    assert (await call("MemoryApi.get_memory", bank, memory.id))["entities"] == ["Gus"]
    change = make.UpdateMemoryRequest(text="Gus oils the tower clock.", mentioned_at="2024-05-06")
    changed = await call("MemoryApi.update_memory", bank, memory.id, change)
    assert changed["text"] == "Gus oils the tower clock."
    assert changed["mentioned_at"] == "2024-05-06T00:00:00+00:00"
    observation = (await call("MemoryApi.list_memories", bank, type="observation")).items[0]
    assert await call("MemoryApi.get_observation_history", bank, observation.id) is not None
    scopes = await call("MemoryApi.list_observation_scopes", bank)
    assert scopes.scopes[0].tags == ["clock"]
    tags = await call("MemoryApi.list_tags", bank, q="cl*", limit=10)
    assert tags.items[0].tag == "clock"
    await call("MemoryApi.clear_memory_observations", bank, memory.id)
    stats = await call("BanksApi.get_agent_stats", bank, refresh=True)
    assert (stats.total_documents, stats.total_observations) == (1, 1)

    # Documents and entities
    documents = await call("DocumentsApi.list_documents", bank, q="g", tags=["clock"])
    assert documents.items[0].id == "g/1"
    document = await call("DocumentsApi.get_document", bank, "g/1")
    assert document.original_text == "Gus winds the tower clock."
    events = await call("DocumentsApi.get_document_history", bank, "g/1", limit=1000)
    assert events.items[-1].kind == "retain"
    chunks = await call("DocumentsApi.list_document_chunks", bank, "g/1", limit=10)
    chunk = await call("DocumentsApi.get_chunk", chunks.items[0].chunk_id)
    assert chunk.document_id == "g/1"
    later = await call(
        "DocumentsApi.list_documents",
        bank,
        time_field="created_at",
        start_date=documents.items[0].created_at,
        end_date=documents.items[0].created_at,
    )
    assert later.total == 0  # the end is exclusive
    since = {"start_date": documents.items[0].updated_at, "time_field": "updated_at"}
    assert (await call("DocumentsApi.list_documents", bank, **since)).total == 1
    scopes = make.UpdateDocumentObservationScopes("per_tag")
    request = make.UpdateDocumentRequest(tags=["time"], observation_scopes=scopes)
    assert (await call("DocumentsApi.update_document", bank, "g/1", request)).success
    document = await call("DocumentsApi.get_document", bank, "g/1")
    assert document.tags == ["time"]
    assert document.observation_scopes.actual_instance == "per_tag"
    queued = await call("DocumentsApi.reprocess_document", bank, "g/1")
    assert (queued.success, queued.items_count) == (True, 1)
    async with asyncio.timeout(20):
        while True:
            state = await call("OperationsApi.get_operation_status", bank, queued.operation_id)
            if state.status == "completed":
                break
            await asyncio.sleep(0.05)
    entities = await call("EntitiesApi.list_entities", bank, limit=10)
    assert (await call("EntitiesApi.get_entity", bank, entities.items[0].id)).observations == []
    gus = entities.items[0].id
    graph = await call("EntitiesApi.get_entity_graph", bank, limit=10, min_count=1)
    assert graph.total_entities == 1
    for wanted, there in (
        ({"tags": ["time"], "tags_match": "all_strict"}, True),
        ({"tags": ["clock"], "tags_match": "any_strict"}, False),
        ({"tag_groups": json.dumps([{"not": {"tags": ["time"]}}])}, False),
        ({"tag_groups": json.dumps([{"tags": ["time"], "match": "exact"}])}, True),
    ):
        listed = await call("EntitiesApi.list_entities", bank, **wanted)
        assert (listed.total, len(listed.items)) == (there, there), wanted
        graph = await call("EntitiesApi.get_entity_graph", bank, **wanted)
        assert graph.total_entities == there
        if there:
            found = await call("EntitiesApi.get_entity", bank, gus, **wanted)
            assert (found.mention_count, found.last_seen[:10]) == (1, "2024-05-06")
        else:
            with pytest.raises(NotFoundException):
                await call("EntitiesApi.get_entity", bank, gus, **wanted)

    # Operations
    listing = await call("OperationsApi.list_operations", bank, status="completed", limit=5)
    assert listing.operations[0].task_type == "reprocess"
    for name in ("cancel_operation", "retry_operation"):
        with pytest.raises(ApiException) as error:
            await call(f"OperationsApi.{name}", bank, queued.operation_id)
        assert refused(error.value) == 409
    assert (await call("OperationsApi.delete_operation", bank, queued.operation_id)).success

    # Moving banks and documents
    made = await call("BankTransferApi.export_bank_transfer", bank, include_history=True)
    result = (await ended(live, bank, made.operation_id))["result_metadata"]
    key = result["storage_key"]
    archive = bytes(await call("DocumentTransferApi.download_file", key))
    assert (len(archive), result["filename"]) == (result["byte_size"], "generated.zip")
    made = await call(
        "BankTransferApi.import_bank_transfer", bank, archive, target_bank_id="generated-in"
    )
    assert (await ended(live, bank, made.operation_id))["status"] == "completed"
    made = await call("BankTransferApi.clone_bank", bank, "generated-clone")
    assert (await ended(live, bank, made.operation_id))["status"] == "completed"
    made = await call("DocumentTransferApi.export_documents", bank, document_id=["g/1"])
    result = (await ended(live, bank, made.operation_id))["result_metadata"]
    archive = bytes(await call("DocumentTransferApi.download_file", result["storage_key"]))
    made = await call(
        "DocumentTransferApi.import_documents", "generated-in", archive, on_conflict="new-id"
    )
    result = (await ended(live, "generated-in", made.operation_id))["result_metadata"]
    assert result["remapped_document_ids"] == {"g/1": "g/1-2"}
    for target in ("generated-in", "generated-clone"):
        assert (await call("BanksApi.delete_bank", target)).success
    with pytest.raises(ApiException) as error:
        await call("DocumentTransferApi.export_documents_sync_removed", bank)
    assert refused(error.value) == 410

    # Templates
    schema = await call("BankTemplatesApi.get_bank_template_schema")
    assert "mental_models" in schema["properties"]
    request = make.BankTemplateManifest(
        version="1",
        bank=make.BankTemplateConfig(recall_budget_max=3000, disposition_empathy=5),
        mental_models=[make.BankTemplateMentalModel(id="m", name="M", source_query="Who?")],
        directives=[make.BankTemplateDirective(name="D", content="Be short.", priority=2)],
    )
    done = await call("BankTemplatesApi.import_bank_template", "generated-t", request, dry_run=True)
    assert (done.dry_run, done.mental_models_created) == (True, ["m"])
    with pytest.raises(NotFoundException):
        await call("BankTemplatesApi.export_bank_template", "generated-t")
    done = await call("BankTemplatesApi.import_bank_template", "generated-t", request)
    assert (done.config_applied, done.directives_created) == (True, ["D"])
    told = await call("BankTemplatesApi.export_bank_template", "generated-t")
    assert (told.bank.recall_budget_max, told.bank.disposition_empathy) == (3000, 5)
    assert told.mental_models[0].source_query == "Who?"
    done = await call("BankTemplatesApi.import_bank_template", "generated-t", told)
    assert (done.mental_models_updated, done.directives_updated) == ([], [])
    assert (await call("BanksApi.delete_bank", "generated-t")).success

    # Language models: there is none here
    request = make.DryRunExtractRequest(content=make.Content("Ann likes tea."))
    found = await call("MemoryApi.dry_run_extract_memories", bank, request)
    assert [fact.text for fact in found.facts] == ["Ann likes tea."]
    found = await call("BanksApi.preview_prompt", bank, make.PromptPreviewRequest())
    assert "no language model" in found.skipped_reason
    assert (await call("LLMTracesApi.list_llm_requests", bank)).items == []
    assert (await call("LLMTracesApi.llm_request_stats", bank)).buckets == []
    with pytest.raises(ApiException) as error:
        await call("BanksApi.test_bank_llm", bank)
    assert refused(error.value) == 404

    # Consolidation, which needs a model
    assert (await call("BanksApi.recover_consolidation", bank)).retried_count == 0
    pattern = make.ConsolidationScopePattern(tags=["clo*"])
    draft = make.ConsolidationStrategySpec(scopes=[pattern], observations_mission="clocks")
    request = make.ConsolidationStrategiesPreviewRequest(strategies=[draft])
    found = await call("MemoryApi.preview_consolidation_strategies", bank, request)
    assert (found.strategies[0].active, found.complete) == (True, True)
    # Files
    uploads = [("note.txt", b"Gerda mends the nets."), ("more.csv", b"name,city\nAnn,Lisbon")]
    said = json.dumps({"files_metadata": [{"document_id": "g/note", "tags": ["f"]}, {}]})
    sent = await call("FilesApi.file_retain", bank, uploads, said)
    for id in sent.operation_ids:
        async with asyncio.timeout(20):
            while (
                state := await call("OperationsApi.get_operation_status", bank, id)
            ).status != "completed":
                assert state.status in ("pending", "processing"), state
                await asyncio.sleep(0.05)
        assert state.operation_type == "file_convert_retain"
    with pytest.raises(ApiException) as error:
        await call("FilesApi.file_retain", bank, [b"\x89PNG\r\n\x1a\n"], "{}")
    assert refused(error.value) == 422

    # Refusals that are not "not built"
    request = make.ReflectRequest(query="q")
    for name, given, status in (
        ("BanksApi.trigger_consolidation", {}, 400),
        ("MemoryApi.reflect", {"reflect_request": request}, 400),
        ("EntitiesApi.regenerate_entity_observations", {"entity_id": entities.items[0].id}, 410),
    ):
        with pytest.raises(ApiException) as error:
            await call(name, bank, **given)
        assert refused(error.value) == status

    # Webhooks
    request = make.CreateWebhookRequest(
        url="https://hooks.example.org/x",
        secret="s",
        event_types=["retain.completed"],
        enabled=False,
        http_config=make.WebhookHttpConfig(headers={"X-A": "b"}),
    )
    hook = await call("WebhooksApi.create_webhook", bank, request)
    assert (hook.bank_id, hook.secret, hook.http_config.headers) == (bank, None, {"X-A": "b"})
    change = make.UpdateWebhookRequest(event_types=["document.deleted"])
    changed = await call("WebhooksApi.update_webhook", bank, hook.id, change)
    assert (changed.event_types, changed.url) == (["document.deleted"], hook.url)
    listed = await call("WebhooksApi.list_webhooks", bank, limit=10, offset=0)
    assert [one.id for one in listed.items] == [hook.id]
    told = await call("WebhooksApi.list_webhook_deliveries", bank, hook.id, limit=5)
    assert (told.items, told.next_cursor) == ([], None)
    assert (await call("WebhooksApi.delete_webhook", bank, hook.id)).success

    # Other names, and what pages show
    request = make.CreateBankAliasRequest(alias="generated-too", primary=True)
    found = await call("BanksApi.create_bank_alias", bank, request)
    assert [(one.alias, one.primary) for one in found.aliases] == [("generated-too", True)]
    assert (await call("BanksApi.list_bank_aliases", "generated-too")).bank_id == bank
    listed = await call("BanksApi.list_banks", q="generated-t")
    assert (listed.banks[0].display_alias, listed.banks[0].matched_aliases) == (
        "generated-too", ["generated-too"],
    )  # fmt: skip
    request = make.SetBankAliasPrimaryRequest(primary=False)
    found = await call("BanksApi.set_bank_alias_primary", bank, "generated-too", request)
    assert not found.aliases[0].primary
    assert (await call("BanksApi.delete_bank_alias", bank, "generated-too")).aliases == []
    series = await call("BanksApi.get_memories_timeseries", bank, period="7d")
    assert (len(series.buckets), series.trunc) == (7, "day")
    drawn = await call("MemoryApi.get_graph", bank, limit=10)
    assert drawn.total_units == len(drawn.nodes) == len(drawn.table_rows)

    # Audit: it is off here
    assert (await call("AuditApi.list_audit_logs", bank, limit=5)).items == []
    assert (await call("AuditApi.audit_log_stats", bank, period="7d")).trunc == "day"
    with pytest.raises(NotFoundException):
        await call("AuditApi.get_audit_log", bank, str(uuid4()))

    # What is attached: nothing is here
    with pytest.raises(NotFoundException):
        await call("MemoryApi.get_bank_attachment", bank, "0" * 12)

    # Ends
    assert (await call("BanksApi.clear_observations", bank)).success
    assert (await call("MemoryApi.clear_bank_memories", bank, type="world")).success
    assert (await call("DocumentsApi.delete_document", bank, "g/1")).document_id == "g/1"
    assert (await call("BanksApi.delete_bank", bank)).success

    every = {f"{kind}.{name}" for kind, found in GENERATED.items() for name in methods(found)}
    every = {name for name in every if not DOCUMENTS.search(name)}
    for name in sorted(every - call.called):
        kind, method = name.split(".")
        with pytest.raises(ApiException) as error:
            await call(name, **arguments(getattr(GENERATED[kind], method)))
        assert refused(error.value) == 501, name
    assert call.called == every
    await call.close()


PARTS: dict[str, type[BaseModel]] = {
    "MemoryItem": writes.ItemBody,
    "EntityInput": writes.EntityBody,
    "IncludeOptions": recall.IncludeBody,
    "ChunkIncludeOptions": recall.ChunkBudget,
    "EntityIncludeOptions": recall.EntityBudget,
    "SourceFactsIncludeOptions": recall.SourceFactBudget,
    "MinScores": recall.MinScoresBody,
    "TemporalWindow": recall.WindowBody,
    "DispositionTraits": banks.Disposition,
    "ReflectIncludeOptions": reflect.IncludeBody,
    "ToolCallsIncludeOptions": reflect.ToolCallsBody,
}


async def test_what_the_client_can_send_is_read(live: Live) -> None:
    """Every query parameter and body field of a route that is built, by the server's schema."""
    schema = live.api.openapi()
    built = {
        operation["operationId"]: operation
        for path in schema["paths"].values()
        for operation in path.values()
    }
    ignored, seen = set(), set()
    for kind in GENERATED.values():
        for name in methods(kind) & built.keys():
            operation = built[name]
            known = {parameter["name"] for parameter in operation.get("parameters", ())}
            bodies = operation.get("requestBody", {}).get("content", {})
            content = bodies.get("application/json")
            form = bodies.get("multipart/form-data", {}).get("schema", {})
            known |= set(form.get("properties", ()))
            for given, parameter in list(inspect.signature(getattr(kind, name)).parameters.items()):
                if given in ("self", "authorization") or given.startswith("_"):
                    continue
                model = getattr(
                    generated, str(parameter.annotation).split(".")[-1].strip("'>]"), None
                )
                if content is None or model is None:
                    seen.add(f"{name}.{given}")
                    ignored |= {f"{name}.{given}"} - {f"{name}.{one}" for one in known}
                    continue
                sent = content["schema"].get("anyOf", [content["schema"]])[0]
                body = schema["components"]["schemas"][sent["$ref"].split("/")[-1]]
                fields = {info.alias or field for field, info in model.model_fields.items()}
                seen |= {f"{model.__name__}.{field}" for field in fields}
                ignored |= {
                    f"{model.__name__}.{field}" for field in fields - set(body["properties"])
                }
    for name, ours in PARTS.items():
        theirs = getattr(generated, name).model_fields
        ignored |= {f"{name}.{field}" for field in theirs.keys() - ours.model_fields.keys()}
    assert {"list_entities.tag_groups", "RecallRequest.types", "list_memories.state"} <= seen
    assert not ignored


async def test_reflect_with_every_parameter(live: Live, address: str) -> None:
    await live.import_memories(BANK, *MEMORIES)
    known = Known([FoundModel("page", "Ann", "Ann plays chess."), FoundModel("no", "N", "No.")])

    def answered(asked: Asked) -> str:
        return f"Ann moved to Lisbon on 5 May 2024 [{handle(asked, '5 May 2024')}, M1]."

    more = {
        "budget": "mid",
        "context": "We talk about Ann.",
        "max_tokens": 200,
        "response_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
        "include_facts": True,
        "include_tool_calls": True,
        "include_tool_call_output": False,
        "apply_all_directives": True,
        "fact_types": ["world", "observation"],
        "exclude_mental_models": False,
        "exclude_mental_model_ids": ["no"],
        "reflect_search_observations_max_tokens": 500,
        "reflect_search_observations_include_entities": False,
    }
    scopes: list[dict[str, Any]] = [
        {"tags": ["x"], "tags_match": "any"},
        {"tag_groups": [{"not": {"tags": ["work"], "match": "any_strict"}}]},
    ]
    client: Any = Hindsight(base_url=address, timeout=60)
    names = set(inspect.signature(Hindsight.areflect).parameters) - {"self", "bank_id", "query"}
    try:
        for scope in scopes:
            search = calls(("recall", {"query": "Lisbon"}))
            with scripted(live, search, answered, {"city": "Lisbon"}, known=known) as llm:
                found = await client.areflect(BANK, "Where does Ann live?", **more, **scope)
            assert found.text == "Ann moved to Lisbon on 5 May 2024."
            assert [fact.document_id for fact in found.based_on.memories] == ["letters"]
            assert [one.id for one in found.based_on.mental_models] == ["page"]
            assert found.structured_output == {"city": "Lisbon"}
            assert found.structured_output_error is None
            assert found.usage.total_tokens == 330
            assert [call.iteration for call in found.trace.tool_calls] == [0, 0, 0, 1]
            assert all(call.output is None for call in found.trace.tool_calls)
            assert [call.scope for call in found.trace.llm_calls] == ["agent_1", "agent_2"]
            assert "Siemens" not in json.dumps(llm.asked[0].messages) or "tags" in scope
            names -= {*more, *scope}
        assert not names
    finally:
        await client.aclose()


async def test_it_waits_and_tries_again_when_told_to(live: Live, address: str) -> None:
    """A recall that meets a busy server is repeated by the client, and then answered."""
    admission, settings = live.services.recall_admission, live.services.settings

    def refused() -> int:
        return live.services.counting.tenant("default").refused

    admission.resize(1, 0)
    client: Any = Hindsight(base_url=address, timeout=60)
    try:
        async with admission.enter("another"):
            before = refused()
            asking = asyncio.create_task(client.arecall("sample", "flood"))
            async with asyncio.timeout(30):
                while refused() == before:  # noqa: ASYNC110 - a client on another thread
                    await asyncio.sleep(0.01)
            assert not asking.done()
        assert (await asking).results
    finally:
        admission.resize(settings.recall.recall_max_concurrent, settings.limits.recall_queue_max)
        await client.aclose()


NOT_OURS = {
    "consolidation_use_decision_model",
    "reflect_use_decision_model",
    "mental_model_refresh_use_decision_model", "mental_model_delta_use_decision_model",
    "llm_gemini_safety_settings",
}  # fmt: skip
"""Bank settings that the client knows and the server does not."""


async def test_every_setting_of_a_bank(live: Live) -> None:
    """What the client can set is accepted with a right value, or refused by its name."""
    url = "/v1/default/banks/set/config"
    await live.http.put("/v1/default/banks/set", json={})
    parameters = inspect.signature(Hindsight.update_bank_config).parameters
    right: dict[str, Any] = {
        "retain_extraction_mode": "chunks",
        "recall_budget_function": "adaptive",
        "recall_budget_max": 2000,
    }
    examples = {"list": [], "dict": {}, "bool": True, "int": 3, "float": 0.5, "str": "x"}
    assert len(parameters) > 52
    for name in list(parameters)[2:]:
        kind = str(parameters[name].annotation)
        example = next(value for word, value in examples.items() if word in kind)
        given = right.get(name, example)
        answer = await live.http.patch(url, json={"updates": {name: given}})
        if name in NOT_OURS:
            assert answer.status_code == 400, f"{name}: {answer.text}"
            assert name in answer.json()["detail"]
            continue
        assert answer.status_code == 200, f"{name}: {answer.text}"
        assert answer.json()["overrides"] == {name: given}
        wrong = 7 if example in ([], {}) else [1]
        answer = await live.http.patch(url, json={"updates": {name: wrong}})
        assert answer.status_code == 400, f"{name}: {answer.text}"
        assert name in answer.json()["detail"]
        assert (await live.http.delete(url)).json()["overrides"] == {}
