"""Language models through the real application: a scripted server keeps the real protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from retrieval.store import limits
from retrieval.store.tenants import DEFAULT_TENANT
from serve import app, composition
from serve.composition import Stages
from serve.settings import SettingsError, parse
from serve.settings.llm import LLMSection
from tests.models.llm_server import Asked, LLMServer, Reply
from tests.serve.conftest import B, Live, migrated, settings_for

pytestmark = pytest.mark.integration


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with LLMServer() as made:
        yield made


@asynccontextmanager
async def application(
    dsn: str,
    consolidation: dict[str, Any] | None = None,
    retain: dict[str, Any] | None = None,
    worker: dict[str, Any] | None = None,
    schema: str | None = None,
    **llm: Any,
) -> AsyncIterator[Live]:
    """`schema`: a queue of its own, where nobody else's worker takes anything."""
    sections = {"consolidation": consolidation, "retain": retain, "worker": worker}
    given = {name: section for name, section in sections.items() if section is not None}
    if schema is not None:
        given["database"] = {"database_url": dsn, "db_pool_min_size": 1, "database_schema": schema}
    settings = settings_for(dsn, llm=llm, **given)
    async with AsyncExitStack() as stack:
        await migrated(settings, stack)
        services = await composition.open_services(settings, Stages(), stack)
        api = app.create(settings, services)
        http = await stack.enter_async_context(
            httpx.AsyncClient(
                transport=httpx.ASGITransport(api), base_url="http://test", timeout=60
            )
        )
        yield Live(services, http, api)


def one(server: LLMServer, **more: Any) -> dict[str, Any]:
    return {
        "llm_provider": "vllm",
        "llm_model": "m",
        "llm_base_url": server.url,
        "llm_initial_backoff": 0.01,
        **more,
    }


def facts(*texts: str) -> Reply:
    return Reply(json={"facts": [{"what": text, "entities": []} for text in texts]})


def quoted(asked: Asked) -> Reply:
    """Every sentence of the content is a fact."""
    content = asked.text.split("Content:\n")[-1].split("\n", 1)[1].rsplit("\n</", 1)[0]
    return facts(*(f"{part.strip()}." for part in content.split(".") if part.strip()))


async def texts(live: Live, bank: str) -> list[str]:
    answer = await live.http.get(f"{B}/{bank}/memories/list")
    assert answer.status_code == 200, answer.text
    return sorted(item["text"] for item in answer.json()["items"])


async def test_retain_extracts(dsn: str, server: LLMServer) -> None:
    server.rule("facts", quoted)
    async with application(dsn, **one(server)) as live:
        body = {"items": [{"content": "Ann likes tea. Bo likes coffee.", "document_id": "d"}]}
        answer = await live.http.post(f"{B}/extracts/memories", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["input_tokens"] == 100
        assert await texts(live, "extracts") == ["Ann likes tea.", "Bo likes coffee."]
        again = await live.http.post(f"{B}/extracts/memories", json=body)
        assert again.json()["usage"]["input_tokens"] == 0
        assert len(server.asked) == 1
        used = await live.services.pool.fetch(
            "select calls, input_tokens from llm_usage where tenant_id = $1 and bank_id = $2",
            DEFAULT_TENANT,
            "extracts",
        )
        assert [tuple(row) for row in used] == [(1, 100)]


async def test_a_chunk_is_never_paid_for_twice(dsn: str, server: LLMServer) -> None:
    bad = True

    def answer(asked: Asked) -> Reply:
        if bad and "Second" in asked.text:
            return Reply(text="I cannot")
        return quoted(asked)

    server.rule("facts", answer)
    async with application(dsn, **one(server)) as live:
        body = {"items": [{"content": f"First {'a' * 2900}.\n\nSecond {'b' * 2900}."}]}
        failed = await live.http.post(f"{B}/twice/memories", json=body)
        assert failed.status_code == 502
        assert "chunk 1 of document" in failed.json()["detail"]
        missing = await live.http.get(f"{B}/twice/memories/list")
        assert missing.status_code == 404
        assert [("First" in asked.text) for asked in server.asked].count(True) == 1
        bad = False
        done = await live.http.post(f"{B}/twice/memories", json=body)
        assert done.status_code == 200
        assert len(await texts(live, "twice")) == 2
        assert [("First" in asked.text) for asked in server.asked].count(True) == 1


@pytest.mark.parametrize("path", ["documents/d", "memories"])
async def test_deleting_forgets_what_was_extracted(dsn: str, server: LLMServer, path: str) -> None:
    server.rule("facts", quoted)
    async with application(dsn, **one(server)) as live:
        bank = f"{B}/forgets-{len(path)}"
        body = {"items": [{"content": "Ann likes tea.", "document_id": "d"}]}
        for asked in (1, 2):
            retained = await live.http.post(f"{bank}/memories", json=body)
            assert retained.status_code == 200, retained.text
            assert len(server.asked) == asked
            kept = await live.services.pool.fetchval(
                "select count(*) from extraction_ledger where bank_id = $1", bank.split("/")[-1]
            )
            assert kept == 1
            gone = await live.http.delete(f"{bank}/{path}")
            assert gone.status_code == 200, gone.text


@pytest.mark.parametrize(
    ("reply", "status", "retry_after"),
    [
        (Reply(text="no", finish="content_filter"), 422, False),
        (Reply(text="[", finish="length"), 422, False),
        (Reply(text="nothing"), 502, False),
        (Reply(status=500), 503, True),
        (Reply(status=401), 503, True),
        (Reply(status=429, error={"message": "x", "code": "insufficient_quota"}), 503, True),
        (Reply(status=429, headers={"Retry-After": "1000"}), 503, True),
    ],
    ids=["refused", "cut", "unreadable", "down", "key", "quota", "limited"],
)
async def test_failures_leave_nothing(
    dsn: str, server: LLMServer, reply: Reply, status: int, retry_after: bool
) -> None:
    server.rule("facts", reply)
    async with application(dsn, **one(server)) as live:
        body = {"items": [{"content": "Ann likes tea."}]}
        answer = await live.http.post(f"{B}/fails-{status}/memories", json=body)
        assert answer.status_code == status, answer.text
        assert ("retry-after" in answer.headers) == retry_after
        if status in (422, 502):
            assert "chunk 0 of document" in answer.json()["detail"]
        assert (await live.http.get(f"{B}/fails-{status}/memories/list")).status_code == 404


async def test_dry_run(dsn: str, server: LLMServer) -> None:
    server.rule("facts", quoted)
    async with application(dsn, **one(server)) as live:
        url = f"{B}/dry/memories/dry-run-extract"
        body = {"content": "Ann likes tea. Bo likes coffee.", "retain_mission": "drinks"}
        assert (await live.http.post(url, json=body)).status_code == 404
        await live.http.put(f"{B}/dry", json={})
        found = (await live.http.post(url, json=body)).json()
        assert [fact["text"] for fact in found["facts"]] == ["Ann likes tea.", "Bo likes coffee."]
        assert found["chunks"] == [{"text": body["content"], "fact_count": 2}]
        assert found["usage"]["input_tokens"] == 100
        assert "What this memory is for: drinks" in server.asked[0].text
        assert await texts(live, "dry") == []
        chunks = await live.http.post(url, json={**body, "retain_extraction_mode": "chunks"})
        assert chunks.json()["usage"]["input_tokens"] == 0
        wrong = await live.http.post(url, json={"content": "x", "strategy": "none"})
        assert wrong.status_code == 400


async def test_without_a_model(dsn: str) -> None:
    async with application(dsn) as live:
        await live.http.put(f"{B}/none", json={})
        url = f"{B}/none/memories/dry-run-extract"
        assert (await live.http.post(url, json={"content": "Ann."})).status_code == 200
        verbose = {"content": "Ann.", "retain_extraction_mode": "verbose"}
        assert (await live.http.post(url, json=verbose)).status_code == 400
        shown = (await live.http.post(f"{B}/none/prompts/preview", json={})).json()
        assert (shown["messages"], "no language model" in shown["skipped_reason"]) == ([], True)
        assert (await live.http.post(f"{B}/none/health/llm")).status_code == 404
        empty = (await live.http.get(f"{B}/none/llm-requests")).json()
        assert (empty["total"], empty["items"]) == (0, [])
        assert (await live.http.get(f"{B}/none/llm-requests/stats")).json()["buckets"] == []


async def test_rules_stand_in(dsn: str) -> None:
    async with application(dsn, llm_provider="extractive") as live:
        body = {"items": [{"content": "Ann moved to Lisbon. Bo stayed in Porto."}]}
        assert (await live.http.post(f"{B}/rules/memories", json=body)).status_code == 200
        assert await texts(live, "rules") == ["Ann moved to Lisbon.", "Bo stayed in Porto."]


async def test_health(dsn: str, server: LLMServer) -> None:
    server.rule(lambda asked: asked.body["model"] == "m", Reply(text="yes"))
    server.rule(lambda asked: asked.body["model"] == "locked", Reply(status=401))
    more = {"reflect_llm_model": "locked", "consolidation_llm_provider": "none"}
    given = one(server, enable_bank_llm_health="true", **more)
    async with application(dsn, **given) as live:
        await live.http.put(f"{B}/well", json={})
        found = (await live.http.post(f"{B}/well/health/llm")).json()
        assert {one["operation"]: one["status"] for one in found["operations"]} == {
            "retain": "connected",
            "consolidation": "not_configured",
            "reflect": "auth_failed",
        }
        offered = {asked.body["model"]: "tools" in asked.body for asked in server.asked}
        assert offered == {"m": False, "locked": True}  # a reflect needs tools


async def test_traces_hold_no_credentials(dsn: str, server: LLMServer) -> None:
    server.rule("facts", quoted)
    given = one(server, llm_api_key="sk-live-0123456789abcdef", llm_trace_enabled="true")
    async with application(dsn, **given) as live:
        secret = "sk-proj-abcdefghijklmnop1234"
        body = {"items": [{"content": f"The key is {secret}.", "document_id": "d"}]}
        assert (await live.http.post(f"{B}/traced/memories", json=body)).status_code == 200
        listed = (await live.http.get(f"{B}/traced/llm-requests?document_id=d")).json()
        (entry,) = listed["items"]
        assert (entry["status"], entry["operation"], entry["scope"]) == (
            "success", "retain", "extract_facts",
        )  # fmt: skip
        assert (entry["input_tokens"], entry["total_tokens"]) == (100, 110)
        assert "The key is [removed]" in json.dumps(entry)
        assert secret not in json.dumps(listed)
        assert "0123456789abcdef" not in json.dumps(listed)
        memory = (await live.http.get(f"{B}/traced/memories/list")).json()["items"][0]["id"]
        runs = (
            await live.http.get(f"{B}/traced/llm-requests?group=true&memory_id={memory}")
        ).json()
        assert (runs["total"], runs["items"]) == (1, [entry])
        assert (await live.http.get(f"{B}/traced/llm-requests?call_type=rerank")).json()[
            "total"
        ] == 0
        stats = (await live.http.get(f"{B}/traced/llm-requests/stats?period=1d")).json()
        assert stats["buckets"][0]["statuses"] == {"success": 1}
        assert (await live.http.get(f"{B}/traced/llm-requests/stats?period=x")).status_code == 400
        await live.http.delete(f"{B}/traced")
        await live.http.put(f"{B}/traced", json={})
        assert (await live.http.get(f"{B}/traced/llm-requests")).json()["total"] == 0


async def test_a_tenant_has_a_budget(dsn: str, server: LLMServer) -> None:
    server.rule("facts", quoted)
    async with application(dsn, **one(server)) as live:
        pool = live.services.pool
        await limits.change(pool, DEFAULT_TENANT, {"llm_tokens_per_day": 20_000})
        try:
            for i in range(4):  # two at once would not fit, one after the other do
                body = {"items": [{"content": f"Ann likes tea {i}."}]}
                answer = await live.http.post(f"{B}/budget/memories", json=body)
                assert answer.status_code == 200, answer.text
            body = {"items": [{"content": "Ann likes coffee."}]}
            await limits.change(pool, DEFAULT_TENANT, {"llm_tokens_per_day": 500})
            refused = await live.http.post(f"{B}/budget/memories", json=body)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) > 1
            assert len(await texts(live, "budget")) == 4
        finally:
            await limits.change(pool, DEFAULT_TENANT, {"llm_tokens_per_day": None})


async def test_who_goes_away_stops_the_call(dsn: str, server: LLMServer) -> None:
    server.rule("facts", Reply(hang=True))
    async with application(dsn, **one(server)) as live:
        body = {"items": [{"content": "Ann likes tea."}]}
        asking = asyncio.create_task(live.http.post(f"{B}/gone/memories", json=body))
        async with asyncio.timeout(10):
            while not server.asked:  # noqa: ASYNC110 - another thread's work
                await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        account = live.services.llm.retain.model.members[0].account  # type: ignore[union-attr]
        assert account.running == 0


# Settings


def section(**env: str) -> LLMSection:
    return parse({}, {f"HINDSIGHT_API_{name}": value for name, value in env.items()}).llm


@pytest.mark.unit
def test_settings_of_operations() -> None:
    llm = section(
        LLM_PROVIDER="openai",
        LLM_MODEL="gpt",
        LLM_API_KEY="sk-1",
        LLM_TIMEOUT="30",
        LLM_EXTRA_BODY='{"seed": 1}',
        LLM_TEMPERATURE_REFLECT="none",
        RETAIN_LLM_MODEL="small",
        CONSOLIDATION_LLM_PROVIDER="groq",
        CONSOLIDATION_LLM_MODEL="llama",
        CONSOLIDATION_LLM_API_KEY="gsk",
        LLM_1_PROVIDER="anthropic",
        LLM_1_MODEL="claude",
        LLM_1_API_KEY="ak",
        LLM_STRATEGY='{"mode": "round-robin", "weights": [3, 1]}',
    )
    retain, consolidation, reflect = (
        llm.chain(one).settings(one) for one in ("retain", "consolidation", "reflect")
    )
    assert [(m.provider, m.model, m.api_key) for m in retain] == [
        ("openai", "small", "sk-1"),
        ("anthropic", "claude", "ak"),
    ]
    assert [(m.provider, m.api_key, m.timeout_s) for m in consolidation] == [("groq", "gsk", 30)]
    assert [m.model for m in reflect] == ["gpt", "claude"]
    assert (retain[0].temperature, reflect[0].temperature) == (0.1, None)
    assert (consolidation[0].temperature, retain[0].extra_body) == (0.0, {"seed": 1})
    assert llm.chain("retain").weights == [3, 1]
    assert llm.chain("consolidation").weights is None
    assert "sk-1" not in repr(llm)


@pytest.mark.unit
def test_a_key_never_reaches_another_host() -> None:
    with pytest.raises(SettingsError, match="llm_api_key"):
        section(
            LLM_PROVIDER="openai",
            LLM_MODEL="gpt",
            LLM_API_KEY="sk-1",
            REFLECT_LLM_PROVIDER="deepseek",
            REFLECT_LLM_MODEL="chat",
        )


@pytest.mark.unit
@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"LLM_PROVIDER": "openai"}, "llm_model"),
        ({"LLM_PROVIDER": "bedrock", "LLM_MODEL": "m"}, "LiteLLM proxy"),
        ({"LLM_PROVIDER": "openai", "LLM_MODEL": "m", "LLM_TIMEOUT": "soon"}, "llm_timeout"),
        ({"LLM_PROVIDER": "ollama", "LLM_MODEL": "m", "LLM_EXTRA_BODY": "["}, "JSON object"),
        ({"RETAIN_LLM_PROVIDER": "ollama"}, "llm_model"),
        ({"LLM_PROVIDER": "extractive", "LLM_1_PROVIDER": "ollama"}, None),
    ],
)
def test_wrong_settings(env: dict[str, str], says: str | None) -> None:
    if says is None:
        assert section(**env).chain("retain").by_rules
        return
    with pytest.raises(SettingsError, match=says):
        section(**env)


@pytest.mark.unit
def test_nothing_is_the_default() -> None:
    assert section().chain("retain").members == ()
    assert section(LLM_PROVIDER="none").chain("reflect").members == ()
    assert section(LLM_API_KEY="sk-1").chain("reflect").members == ()
