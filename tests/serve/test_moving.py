"""Banks moved from the command line: against a server, and against its database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from serve.cli.main import app
from tests.serve.conftest import B, Live
from tests.serve.test_client import on_a_port
from tests.serve.test_mental_models import ask

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def address(live: Live) -> AsyncIterator[str]:
    async with on_a_port(live.api) as found:
        yield found


async def run(*command: str, **env: str) -> Result:
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, ["bank", *command], env=env))


async def told(*command: str) -> Any:
    done = await run(*command, "--json")
    assert done.exit_code == 0, done.output
    return orjson.loads(done.stdout.splitlines()[-1])


async def test_out_and_in_again(live: Live, address: str, tmp_path: Path) -> None:
    await live.import_memories("moves", {"key": "k", "text": "The kiln is hot.", "tags": ["a"]})
    file = tmp_path / "moves.zip"
    made = await told("export", "moves", str(file), "--url", address, "--vectors")
    assert made["byte_size"] == file.stat().st_size
    assert (await told("verify", str(file)))["counts"]["memories"] == 1
    done = await told("import", str(file), "--bank", "moved", "--url", address)
    assert (done["facts_imported"], done["bank_id"]) == (1, "moved")
    assert (await told("clone", "moved", "copied", "--url", address))["facts_imported"] == 1
    for bank in ("moved", "copied"):
        (found,) = (await live.recall(bank, "kiln"))["results"]
        assert (found["text"], found["tags"]) == ("The kiln is hot.", ["a"])
    merged = await told("import", str(file), "--bank", "moved", "--merge", "--url", address)
    assert merged["facts_imported"] == 0  # it is there

    taken = await run("import", str(file), "--bank", "moved", "--url", address)
    assert (taken.exit_code, "moved" in taken.output) == (1, True)
    assert "already" in taken.output
    missing = await run("export", "nobody", str(tmp_path / "x.zip"), "--url", address)
    assert (missing.exit_code, "nobody" in missing.output) == (1, True)
    await asyncio.to_thread(file.write_bytes, file.read_bytes()[:-50])
    broken = await run("import", str(file), "--url", address)
    assert (broken.exit_code, "cut off" in broken.output) == (1, True)
    assert not await asyncio.to_thread(lambda: list(tmp_path.glob("*.part*")))


async def test_another_id(live: Live, dsn: str) -> None:
    await live.import_memories("before", {"key": "k", "text": "The kiln is cold."})
    done = await run("rename", "before", "after", FOURFOLD_DATABASE_URL=dsn)
    assert done.exit_code == 0, done.output
    url = f"{B}/before/memories/recall"
    async with asyncio.timeout(60):  # what names mean is remembered for some seconds
        while True:
            answer = await live.http.post(url, json={"query": "kiln"})
            if answer.status_code != 404:
                break
            await asyncio.sleep(0.1)
    for found in (answer.json(), await live.recall("after", "kiln")):
        assert [one["text"] for one in found["results"]] == ["The kiln is cold."]
    listed = await ask(live, "GET", "after/aliases")
    assert listed["aliases"] == [{"alias": "before", "primary": False}]
    again = await run("rename", "after", "before", FOURFOLD_DATABASE_URL=dsn)  # and back
    assert again.exit_code == 0, again.output
    (held,) = await live.services.pool.fetch(
        "select alias from bank_aliases join banks using (bank) where bank_id = 'before'"
    )
    assert held["alias"] == "after"
    unknown = await run("rename", "nobody", "x", FOURFOLD_DATABASE_URL=dsn)
    assert (unknown.exit_code, "nobody" in unknown.output) == (1, True)
