"""The transport of MCP: addresses, messages, keys, tenants, limits, settings."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from mcp.shared.exceptions import MCPError

from retrieval.store import limits, tenants
from serve.admission.controller import AdmissionController, AdmissionLimits
from serve.local import sample
from serve.mcp.tools import MEMORY
from tests.serve.conftest import B, Live
from tests.serve.mcp_server import (
    SAMPLE,
    TEXT,
    Address,
    calling,
    done,
    message,
    refused,
    serving,
    with_keys,
    with_mcp,
)

pytestmark = pytest.mark.integration


# Protocol and door


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", SAMPLE, f"{SAMPLE}/", "/mcp/a%2Fb"])
async def test_addresses(open_address: Address, path: str) -> None:
    async with httpx.AsyncClient() as http:
        for method in ("GET", "DELETE", "PUT"):
            answer = await http.request(method, open_address.url + path)
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    listing = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
    answer = await message(open_address, listing, path, accept="")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in answer.headers
    assert answer.json()["id"] == 7


async def test_a_bank_with_a_slash(live: Live, open_address: Address) -> None:
    async with open_address.client("/mcp/a%2Fb%20ü") as client:
        done(await client.call_tool("sync_retain", {"content": TEXT}))
        assert done(await client.call_tool("get_bank", {}))["bank_id"] == "a/b ü"


async def test_which_bank(live: Live, open_address: Address) -> None:
    for bank in ("mcp-header", "default"):
        await live.http.put(f"{B}/{bank}", json={})
    async with open_address.client(headers={"X-Bank-Id": "mcp-header"}) as client:
        assert done(await client.call_tool("get_bank", {}))["bank_id"] == "mcp-header"
        named = done(await client.call_tool("get_bank", {"bank_id": sample.BANK}))
        assert named["bank_id"] == sample.BANK
        refused(await client.call_tool("get_bank", {"bank_id": ""}))
        refused(await client.call_tool("get_bank", {"bank_id": ["a"]}))
    async with open_address.client() as client:
        assert done(await client.call_tool("get_bank", {}))["bank_id"] == "default"
    async with open_address.client(SAMPLE, headers={"X-Bank-Id": "mcp-header"}) as client:
        assert done(await client.call_tool("get_bank", {}))["bank_id"] == sample.BANK
        other = await client.call_tool("delete_bank", {"bank_id": "mcp-header"})
        assert "alone" in refused(other)
        same = await client.call_tool("get_bank", {"bank_id": sample.BANK})
        assert done(same)["bank_id"] == sample.BANK
    assert (await live.http.get(f"{B}/mcp-header/profile")).status_code == 200


async def test_unknown_tools_and_methods_are_errors_of_the_protocol(open_address: Address) -> None:
    async with open_address.client(SAMPLE) as client:
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("drop_database", {})
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("list_banks", {})
    answer = await message(open_address, {"jsonrpc": "2.0", "id": 1, "method": "no/such"})
    assert answer.json()["error"]["code"] == -32601


NESTED = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b'{"a":' * 100 + b"1" + b"}" * 101
)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
        NESTED,
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\\ud800"}',
    ],
    ids=str,
)
async def test_bad_messages(open_address: Address, body: bytes) -> None:
    answer = await message(open_address, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


async def test_a_message_that_is_no_json_by_its_type(open_address: Address) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = await message(open_address, listing, **{"content-type": "text/plain"})
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]["message"]


async def test_a_message_that_is_too_large(live: Live) -> None:
    body = b'{"a":"' + b"a" * (5 * 2**20) + b'"}'
    headers = {"content-type": "application/json"}
    answer = await live.http.post(SAMPLE, content=body, headers=headers)
    assert answer.status_code == 413
    assert "4194304" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": {"a": [1] * 1000}},
        {"query": ["the flood"] * 1000},
        {"query": None},
        {"query": 10**300},
        {"query": "the flood", "tags": ["x"] * 20_000},
        {"query": "the flood", "tags": [{"a": {}}] * 1000},
        {"query": "the flood", "min_scores": {"final": 1e308}, "max_tokens": -5},
        {"query": "the \u0000flood\u0000", "tags": ["\u0000"]},
        {"query": "'; drop table banks; --"},
        {"query": "the flood", "bank_id": {"$ne": 1}},
        {"query": "the flood", "__class__": "x", "model_config": {}, "ROUTE": 1},
        {"query": "the flood", "tag_groups": '[{"and": []}]'},
        {"query": "the flood", "types": "[" * 500},
    ],
    ids=lambda given: str(given)[:40],
)
async def test_hostile_arguments_have_a_result(open_address: Address, arguments: Any) -> None:
    answer = await message(open_address, calling("recall", arguments))
    assert answer.status_code == 200, answer.text
    found = answer.json()["result"]
    assert found["content"][0]["text"]
    if found.get("isError"):
        assert "unexpected" not in found["content"][0]["text"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"query": "the flood", "tags": ["x"] * 25_000}, "25,000 values"),
        ({"query": "the flood", "tags": [[]] * 25_000}, "25,000 objects and lists"),
        ({"query": "the flood", "x": {str(i): i for i in range(25_000)}}, "25,000 values"),
    ],
    ids=["texts", "lists", "members"],
)
async def test_a_message_that_says_too_much(
    open_address: Address, arguments: Any, what: str
) -> None:
    answer = await message(open_address, calling("recall", arguments))
    assert answer.status_code == 400
    assert what in answer.json()["error"]["message"]


@pytest.mark.parametrize("arguments", ["text", ["a"], 7])
async def test_arguments_that_are_no_object(open_address: Address, arguments: Any) -> None:
    answer = await message(open_address, calling("recall", arguments))
    assert answer.status_code in (200, 400)
    assert answer.json()["error"]["code"] == -32602


async def test_pages_of_others_are_refused(live: Live, open_address: Address) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    foreign = await message(open_address, listing, origin="https://evil.example")
    assert foreign.status_code == 403
    rebound = await message(open_address, listing, host="evil.example")
    assert rebound.status_code == 403
    key = await tenants.create_key(live.services.pool, "mcp-origin", "test")
    async with serving(live.services, with_keys) as keyed:
        own = {"authorization": f"Bearer {key}"}
        answer = await message(keyed, listing, origin="https://evil.example", **own)
        assert answer.status_code == 403
        assert (await message(keyed, listing, **own)).status_code == 200


# Tenants, keys, limits, settings


async def test_keys_and_tenants(live: Live) -> None:
    pool = live.services.pool
    ours = await tenants.create_key(pool, "mcp-ours", "test")
    theirs = await tenants.create_key(pool, "mcp-theirs", "test")
    async with serving(live.services, with_keys) as keyed:
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for headers in ({}, {"authorization": "Bearer wrong"}):
            answer = await message(keyed, listing, "/mcp/secret", **headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        with pytest.raises(BaseException) as caught:
            async with keyed.client("/mcp/secret", "wrong") as client:
                await client.list_tools()
        assert "key is not known" in str(_innermost(caught.value))
        async with keyed.client("/mcp/secret", ours) as mine:
            done(await mine.call_tool("sync_retain", {"content": TEXT, "document_id": "d"}))
            found = done(await mine.call_tool("list_memories", {}))
            memory = found["items"][0]["id"]
        async with keyed.client("/mcp/secret", theirs) as foreign:
            for name, arguments in (
                ("recall", {"query": "Mira"}),
                ("get_memory", {"memory_id": memory}),
                ("invalidate_memory", {"memory_id": memory}),
                ("get_document", {"document_id": "d"}),
                ("delete_bank", {}),
            ):
                sentence = refused(await foreign.call_tool(name, arguments))
                assert "there is no bank 'secret'" in sentence
        async with keyed.client("/mcp", theirs) as foreign:
            assert done(await foreign.call_tool("list_banks", {}))["banks"] == []
        async with keyed.client("/mcp/secret", ours) as mine:
            assert done(await mine.call_tool("get_memory", {"memory_id": memory}))["id"] == memory


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def test_a_call_counts_in_the_tenants_limits(live: Live) -> None:
    pool = live.services.pool
    key = await tenants.create_key(pool, "mcp-bounded", "test")

    async def of(tenant: str) -> AdmissionLimits:
        bounded = AdmissionLimits(per_s=0.01, burst=2)
        return bounded if tenant == "mcp-bounded" else AdmissionLimits()

    controller = AdmissionController(8, 8, limits=of)
    async with (
        serving(live.services, with_keys, recall_admission=controller) as keyed,
        keyed.client("/mcp/x", key) as client,
    ):
        for _ in range(2):
            refused(await client.call_tool("recall", {"query": "a"}))  # no such bank
        sentence = refused(await client.call_tool("recall", {"query": "a"}))
        assert "requests a second" in sentence
        assert "try again in" in sentence


async def test_a_tenants_largest_body(live: Live) -> None:
    pool = live.services.pool
    key = await tenants.create_key(pool, "mcp-small", "test")
    await limits.change(pool, "mcp-small", {"max_body_bytes": 4_000})
    async with serving(live.services, with_keys) as keyed:
        own = {"authorization": f"Bearer {key}"}
        large = calling("retain", {"content": "word " * 2_000})
        answer = await message(keyed, large, "/mcp/x", **own)
        assert answer.status_code == 413
        assert "this tenant's" in answer.json()["error"]["message"]


async def test_tools_that_are_switched_off(live: Live) -> None:
    await live.http.put(f"{B}/mcp-few", json={})
    updates = {"mcp_enabled_tools": ["recall", "get_bank", "no_such"]}
    await live.http.patch(f"{B}/mcp-few/config", json={"updates": updates})
    change = with_mcp(mcp_enabled_tools=("recall", "retain", "list_banks"))
    async with serving(live.services, change) as few, few.client("/mcp/mcp-few") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["recall"]
        assert "server" in refused(await client.call_tool("get_bank", {}))
        assert "bank" in refused(await client.call_tool("retain", {"content": "a"}))
        done(await client.call_tool("recall", {"query": "a"}))
    async with (
        serving(live.services, with_mcp(mcp_toolset="memory")) as six,
        six.client() as client,
    ):
        assert {tool.name for tool in (await client.list_tools()).tools} == MEMORY
    async with serving(live.services, with_mcp(mcp_enabled=False)) as off:
        assert (await message(off, {}, "/mcp")).status_code == 404
        async with httpx.AsyncClient() as http:
            version = (await http.get(f"{off.url}/version")).json()
        assert version["features"]["mcp"] is False


async def test_the_token_of_this_door(live: Live) -> None:
    change = with_mcp(mcp_auth_token="a-token", mcp_instructions="Remember units in SI.")
    async with serving(live.services, change) as guarded:
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await message(guarded, listing)).status_code == 401
        assert (await message(guarded, listing, authorization="Bearer no")).status_code == 401
        async with guarded.client(SAMPLE, "a-token") as client:
            told = {tool.name: tool.description for tool in (await client.list_tools()).tools}
            assert "SI" in (told["retain"] or "")
            done(await client.call_tool("recall", {"query": "the flood"}))


async def test_the_version_says_so(live: Live) -> None:
    assert (await live.http.get("/version")).json()["features"]["mcp"] is True
