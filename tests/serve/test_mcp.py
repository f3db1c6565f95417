"""Every tool of the Model Context Protocol, called by its public client over a real socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from mcp import Client

from serve.local import sample
from serve.mcp.tools import TOOLS
from tests.serve.conftest import B, Live
from tests.serve.mcp_server import (
    ERAS,
    SAMPLE,
    TEXT,
    Address,
    done,
    refused,
)

pytestmark = pytest.mark.integration


# Every tool


@pytest.mark.parametrize("era", ERAS)
async def test_every_tool_with_right_arguments(live: Live, open_address: Address, era: str) -> None:
    bank, called = f"mcp {era}/1", set()
    async with open_address.client(era=era) as client:

        async def call(name: str, /, **arguments: Any) -> dict[str, Any]:
            called.add(name)
            return done(await client.call_tool(name, {"bank_id": bank, **arguments}))

        made = await call("create_bank", name="Field notes", mission="turbines")
        assert (made["bank_id"], made["name"]) == (bank, "Field notes")
        stored = await call(
            "sync_retain",
            content=TEXT,
            context="letters",
            timestamp="2024-04-01T10:00:00Z",
            tags=["travel"],
            metadata={"from": "post"},
            document_id="letter/1",
        )
        assert stored["status"] == "completed"
        later = await call("retain", content="Mira bought a boat.", update_mode="replace")
        assert later["status"] == "accepted"
        operation = later["operation_id"]
        assert (await call("get_operation", operation_id=operation))["id"] == operation
        assert (await call("list_operations", limit=5))["total"] >= 1
        await settled(client, bank, operation)

        found = await call(
            "recall",
            query="Where does Mira live?",
            max_tokens=500,
            budget="low",
            types=["world", "experience"],
            prefer_observations=False,
            tags=["travel"],
            tags_match="any_strict",
            query_timestamp="2024-06-01",
            min_scores={"final": 0.0},
            temporal_window={"start": "2020-01-01"},
            include_chunks=True,
            include_entities=True,
            include_source_facts=True,
        )
        assert any("Mira" in one["text"] for one in found["results"])
        assert found["chunks"]
        memory = found["results"][0]["id"]
        groups = await call("recall", query="Mira", tag_groups=[{"tags": ["nowhere"]}])
        assert groups["results"] == []

        listed = await call("list_memories", q="Mira", limit=10, tags=["travel"])
        assert memory in [one["id"] for one in listed["items"]]
        assert (await call("get_memory", memory_id=memory))["id"] == memory
        changed = await call(
            "update_memory", memory_id=memory, text="Mira lives in Bergen.", entities=["Mira"]
        )
        assert changed["text"] == "Mira lives in Bergen."
        gone = await call("invalidate_memory", memory_id=memory, reason="she moved")
        assert gone["state"] == "invalidated"
        back = await call("invalidate_memory", memory_id=memory, restore=True)
        assert back["state"] == "valid"

        assert (await call("list_documents", q="letter"))["total"] == 1
        document = await call("get_document", document_id="letter/1")
        assert document["original_text"] == TEXT
        assert (await call("list_tags"))["items"][0]["tag"] == "travel"
        assert (await call("get_bank"))["mission"] == "turbines"
        updates = {"enable_reranking": False}
        updated = await call("update_bank", name="Notes", config_updates=updates)
        assert (updated["name"], updated["overrides"]["enable_reranking"]) == ("Notes", False)
        assert (
            "enable_reranking"
            not in (await call("update_bank", config_updates={"enable_reranking": None}))[
                "overrides"
            ]
        )
        assert (await call("get_bank_stats"))["total_documents"] >= 1
        assert bank in [one["bank_id"] for one in (await call("list_banks", query="MCP"))["banks"]]

        assert (await call("delete_document", document_id="letter/1"))["success"]
        waiting = await call("retain", content="Never mind.")
        cancelled = await client.call_tool(
            "cancel_operation", {"bank_id": bank, "operation_id": waiting["operation_id"]}
        )
        called.add("cancel_operation")
        if cancelled.is_error:  # the worker was faster
            assert "completed" in refused(cancelled)
        assert (await call("clear_memories", type="world"))["success"]
        assert (await call("delete_bank"))["success"]
        assert "there is no bank" in refused(await client.call_tool("get_bank", {"bank_id": bank}))
    assert called == {name for name, tool in TOOLS.items() if not tool.NEEDS_MODEL}


async def settled(client: Client, bank: str, operation: str) -> None:
    """Returns when an operation has ended."""
    async with asyncio.timeout(60):
        while True:
            found = await client.call_tool(
                "get_operation", {"bank_id": bank, "operation_id": operation}
            )
            if done(found)["status"] not in ("pending", "processing"):
                return
            await asyncio.sleep(0.05)


WRONG: list[tuple[str, Any, str]] = [
    ("retain", {}, "content"),
    ("retain", {"content": ""}, "content"),
    ("retain", {"content": 7}, "content"),
    ("retain", {"content": "a", "timestamp": "yesterday-ish"}, "timestamp"),
    ("retain", {"content": "a", "update_mode": "merge"}, "update_mode"),
    ("retain", {"content": "a", "tags": [1, 2]}, "tags"),
    ("retain", {"content": "a", "metadata": "none"}, "metadata"),
    ("retain", {"content": "a", "document_id": "d" * 2000}, "document_id"),
    ("sync_retain", {"content": "  \n "}, "content"),
    ("recall", {}, "query"),
    ("recall", {"query": "?!"}, "query"),
    ("recall", {"query": "a" * 30_000}, "query"),
    ("recall", {"query": "a", "budget": "enormous"}, "budget"),
    ("recall", {"query": "a", "types": ["rumour"]}, "types"),
    ("recall", {"query": "a", "max_tokens": "many"}, "max_tokens"),
    ("recall", {"query": "a", "max_tokens": 2**40}, "max_tokens"),
    ("recall", {"query": "a", "tags": ["a"], "tag_groups": [{"tags": ["a"]}]}, "tag_groups"),
    ("recall", {"query": "a", "tag_groups": [{"nor": []}]}, "tag_groups"),
    ("recall", {"query": "a", "query_timestamp": "soon"}, "query_timestamp"),
    ("recall", {"query": "a", "min_scores": {"final": "high"}}, "min_scores"),
    ("recall", {"query": "a", "temporal_window": {"start": "2024", "end": "x"}}, "temporal_window"),
    ("list_memories", {"limit": 0}, "limit"),
    ("list_memories", {"limit": 10**6}, "limit"),
    ("list_memories", {"offset": -1}, "offset"),
    ("list_memories", {"type": "rumour"}, "type"),
    ("get_memory", {"memory_id": "no uuid"}, "memory_id"),
    ("get_memory", {"memory_id": "00000000-0000-0000-0000-000000000000"}, "no memory"),
    ("update_memory", {"memory_id": "00000000-0000-0000-0000-000000000000"}, "nothing to change"),
    ("update_memory", {"memory_id": "x", "fact_type": "opinion"}, "fact_type"),
    ("invalidate_memory", {}, "memory_id"),
    ("get_document", {"document_id": "not there"}, "not there"),
    ("delete_document", {"document_id": ""}, "document_id"),
    ("list_operations", {"status": "odd"}, "status"),
    ("list_operations", {"limit": 500}, "limit"),
    ("get_operation", {"operation_id": "x"}, "operation_id"),
    ("cancel_operation", {"operation_id": "00000000-0000-0000-0000-000000000000"}, "operation"),
    ("update_bank", {}, "nothing to change"),
    ("update_bank", {"config_updates": {"no_such_setting": 1}}, "no_such_setting"),
    ("update_bank", {"name": ""}, "name"),
    ("clear_memories", {"type": "rumour"}, "type"),
]


@pytest.mark.parametrize(("name", "arguments", "about"), WRONG)
async def test_wrong_arguments(
    open_address: Address, name: str, arguments: Any, about: str
) -> None:
    async with open_address.client(SAMPLE) as client:
        assert about in refused(await client.call_tool(name, arguments))


async def test_what_clients_get_wrong_is_forgiven(open_address: Address) -> None:
    """Lists and objects as their JSON, arguments of their own, nulls for what is not given."""
    async with open_address.client(SAMPLE) as client:
        found = done(
            await client.call_tool(
                "recall",
                {
                    "query": "the flood",
                    "explanation": "because I was asked",
                    "types": '["world", "experience", "observation"]',
                    "tag_groups": None,
                    "min_scores": '{"final": 0}',
                    "max_tokens": "500",
                },
            )
        )
        assert found["results"]
        one = await client.call_tool("recall", {"query": "the flood", "types": "world"})
        assert done(one)["results"]


async def test_what_is_told_of_the_tools(open_address: Address) -> None:
    async with open_address.client("/mcp") as client, open_address.client(SAMPLE) as one:
        everywhere = {tool.name: tool for tool in (await client.list_tools()).tools}
        here = {tool.name: tool for tool in (await one.list_tools()).tools}
    assert set(everywhere) - set(here) == {"list_banks", "create_bank", "get_bank_stats"}
    assert not {"reflect", "list_mental_models", "create_directive"} & set(everywhere)
    for name, tool in everywhere.items():
        assert tool.description
        assert len(tool.description) < 300
        assert tool.input_schema["type"] == "object"
        assert "anyOf" not in json.dumps(tool.input_schema)
        assert ("bank_id" in tool.input_schema["properties"]) == (name != "list_banks")
        assert tool.annotations is not None
        assert tool.annotations.open_world_hint is False
        reads = name == "recall" or name.startswith(("list_", "get_"))
        assert tool.annotations.read_only_hint is reads
        ends = name.startswith(("delete_", "clear_"))
        assert tool.annotations.destructive_hint is ends or name in (
            "invalidate_memory",
            "cancel_operation",
        )
    assert all("bank_id" not in tool.input_schema["properties"] for tool in here.values())
    assert here["recall"].input_schema["properties"]["budget"]["default"] == "high"
    assert here["recall"].input_schema["required"] == ["query"]


async def test_what_needs_a_model_says_so(open_address: Address) -> None:
    async with open_address.client(SAMPLE) as client, httpx.AsyncClient() as http:
        sentence = refused(await client.call_tool("reflect", {"query": "who is Ada?"}))
        url = f"{open_address.url}{B}/{sample.BANK}/reflect"
        answer = await http.post(url, json={"query": "who is Ada?"})
    assert answer.status_code == 400
    assert sentence == answer.json()["detail"]
