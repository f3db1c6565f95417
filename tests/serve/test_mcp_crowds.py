"""The Model Context Protocol: many sessions, clients that go away, and the bridge for programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from retrieval.store import tenants
from serve.admission.controller import AdmissionController
from serve.local import sample
from tests.serve.conftest import Live
from tests.serve.mcp_server import (
    ERAS,
    SAMPLE,
    TEXT,
    Address,
    Held,
    calling,
    done,
    message,
    refused,
    serving,
    with_keys,
)

pytestmark = pytest.mark.integration


# Many at once, and going away


@pytest.mark.parametrize("era", ERAS)
async def test_eight_sessions_at_once(live: Live, open_address: Address, era: str) -> None:
    async def session(number: int) -> None:
        bank = f"mcp-crowd-{era}-{number}"
        async with open_address.client(f"/mcp/{bank}", era=era) as client:
            text = f"Session {number} keeps {number * 17} blue lanterns in the cellar."
            done(await client.call_tool("sync_retain", {"content": text}))
            answers = await asyncio.gather(
                *(client.call_tool("recall", {"query": "blue lanterns"}) for _ in range(5))
            )
            for answer in answers:
                texts = [one["text"] for one in done(answer)["results"]]
                assert texts
                assert all(f"{number * 17} blue" in text for text in texts)
            done(await client.call_tool("delete_bank", {}))

    await asyncio.gather(*(session(number) for number in range(8)))


@pytest.mark.parametrize("version", [None, "2025-11-25", "2026-07-28"])
async def test_who_goes_away_cancels_the_work(live: Live, version: str | None) -> None:
    held, controller = Held(), AdmissionController(4, 4)
    async with serving(live.services, recaller=held, recall_admission=controller) as slow:
        content = calling("recall", {"query": "the flood"})
        headers = {} if version is None else {"mcp-protocol-version": version}
        if version == "2026-07-28":
            content["params"]["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            headers |= {"mcp-method": "tools/call", "mcp-name": "recall"}
        asking = asyncio.create_task(message(slow, content, **headers))
        async with asyncio.timeout(20):
            await held.arrived.wait()
            assert controller.running == 1
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
            await held.cancelled.wait()
            while controller.running:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert slow.services.read_admission.running == 0


async def test_a_client_that_gives_up(live: Live) -> None:
    held = Held()
    async with serving(live.services, recaller=held) as slow:
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(2), slow.client(SAMPLE, era="auto") as client:
                await client.call_tool("recall", {"query": "the flood"})
        async with asyncio.timeout(20):
            await held.cancelled.wait()
        async with slow.client(SAMPLE) as client:
            assert done(await client.call_tool("list_tags", {"limit": 1}))["limit"] == 1


# Over stdin and stdout


def bridge(url: str, *arguments: str, **environment: str) -> StdioServerParameters:
    root = Path(__file__).resolve().parents[2]
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "serve.cli.main", "mcp", *arguments],
        env={**os.environ, "PYTHONPATH": str(root), "FOURFOLD_URL": url, **environment},
    )


@pytest.mark.parametrize("era", ERAS)
async def test_the_bridge(live: Live, era: str) -> None:
    key = await tenants.create_key(live.services.pool, "mcp-bridge", "test")
    async with serving(live.services, with_keys) as keyed:
        program = bridge(keyed.url, "--bank", "over/stdio", FOURFOLD_API_KEY=key)
        async with Client(program, mode=era) as client:
            assert "recall" in {tool.name for tool in (await client.list_tools()).tools}
            done(await client.call_tool("sync_retain", {"content": TEXT}))
            answers = await asyncio.gather(
                *(client.call_tool("recall", {"query": "Mira ü 水"}) for _ in range(8))
            )
            assert all(done(answer)["results"] for answer in answers)
            assert done(await client.call_tool("get_bank", {}))["bank_id"] == "over/stdio"
            refused(await client.call_tool("recall", {}))
            with pytest.raises(MCPError, match="no tool"):
                await client.call_tool("drop_database", {})


async def test_the_bridge_says_what_is_wrong(live: Live) -> None:
    async with serving(live.services, with_keys) as keyed:
        said = await over_stdio(bridge(keyed.url, "--bank", "x", FOURFOLD_API_KEY="wrong"))
        assert "not known" in said["error"]["message"]
    said = await over_stdio(bridge("http://127.0.0.1:9", "--bank", "x"))
    assert "no server answers" in said["error"]["message"]
    said = await over_stdio(bridge("http://127.0.0.1:9"), b"this is not JSON\n")
    assert said["error"]["code"] == -32700


async def over_stdio(
    program: StdioServerParameters,
    line: bytes = b'{"jsonrpc":"2.0","id":5,"method":"tools/list"}\n',
) -> dict[str, Any]:
    """What the program answers to one line, after which stdin ends."""
    child = await asyncio.create_subprocess_exec(
        program.command,
        *program.args,
        env=program.env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, _ = await child.communicate(line)
    assert child.returncode == 0
    found: dict[str, Any] = json.loads(out)
    return found


async def test_the_bridge_cancels(live: Live) -> None:
    held = Held()
    async with serving(live.services, recaller=held) as slow:
        program = bridge(slow.url, "--bank", sample.BANK)
        child = await asyncio.create_subprocess_exec(
            program.command,
            *program.args,
            env=program.env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
        assert child.stdin is not None
        async with asyncio.timeout(60):
            asked = json.dumps(calling("recall", {"query": "the flood"}))
            child.stdin.write(asked.encode() + b"\n")
            await held.arrived.wait()
            given_up = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
            content = {**given_up, "params": {"requestId": 1}}
            child.stdin.write(json.dumps(content).encode() + b"\n")
            await held.cancelled.wait()
            child.stdin.close()
            assert await child.wait() == 0
