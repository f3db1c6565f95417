"""The Model Context Protocol through the whole server: HAProxy, Ray Serve, the bridge."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import asyncpg
import httpx
import pytest
from mcp import Client, StdioServerParameters

from tests.serve.mcp_server import ERAS, connected
from tests.serve.server import ROOT, Server

pytestmark = [pytest.mark.serve, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("server") / "data")
    try:
        yield started.start()
    finally:
        started.kill()


def done(result: Any) -> dict[str, Any]:
    assert not result.is_error, result.content
    found: dict[str, Any] = result.structured_content
    return found


@pytest.mark.parametrize("era", ERAS)
async def test_eight_sessions_at_once(server: Server, era: str) -> None:
    async def session(number: int) -> None:
        url = f"{server.url}/mcp/crowd%2F{era}{number}/"
        async with connected(url, None, era, {}) as client:
            assert "recall" in {tool.name for tool in (await client.list_tools()).tools}
            text = f"Box {number} holds {number * 13} green marbles."
            done(await client.call_tool("sync_retain", {"content": text}))
            found = done(await client.call_tool("recall", {"query": "green marbles"}))
            assert f"{number * 13} green" in found["results"][0]["text"]
            assert (await client.call_tool("recall", {})).is_error

    await asyncio.gather(*(session(number) for number in range(8)))


async def test_the_bridge(server: Server) -> None:
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "serve.cli.main", "mcp", "--url", server.url, "--bank", "bridged"],
        cwd=ROOT,
        env=dict(os.environ),
    )
    async with Client(program, mode="legacy") as client:
        done(await client.call_tool("sync_retain", {"content": "The bridge stands in Porto."}))
        found = done(await client.call_tool("recall", {"query": "where is the bridge?"}))
        assert "Porto" in found["results"][0]["text"]


async def test_clients_that_go_away(server: Server) -> None:
    """The database holds calls up, and their clients go: the work stops, and others are served."""
    dsn = json.loads((server.data / "run.json").read_text())["dsn"]
    arguments = {"query": "where is the bridge?", "bank_id": "bridged"}
    content = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "recall", "arguments": arguments},
    }
    holder = await asyncpg.connect(dsn)
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            async with holder.transaction():
                await holder.execute("lock table banks in access exclusive mode")
                for _ in range(3):
                    with pytest.raises(httpx.ReadTimeout):
                        await http.post("/mcp", json=content, timeout=0.4)
                async with asyncio.timeout(10):
                    while await inside(http):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
            answer = (await http.post("/mcp", json=content)).json()
            assert not answer["result"].get("isError"), answer
            gone = await http.get("/mcp")
            assert (gone.status_code, gone.headers["allow"]) == (405, "POST")
    finally:
        await holder.close()
    assert "Traceback" not in (server.data / "server.log").read_text()


async def inside(http: httpx.AsyncClient) -> float:
    """Requests that run inside the server, of all kinds."""
    lines = (await http.get("/metrics")).text.splitlines()
    running = [line for line in lines if line.startswith("fourfold_admission_running{")]
    assert running
    return sum(float(line.split()[-1]) for line in running)
