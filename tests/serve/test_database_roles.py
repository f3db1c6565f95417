"""A server whose role in the database may change no table, after the owner's `fourfold migrate`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import asyncpg
import httpx
import pytest
from typer.testing import CliRunner, Result

from retrieval.errors import Unavailable
from serve import app as application
from serve import composition
from serve.cli import doctor
from serve.cli.main import app
from serve.composition import Stages
from serve.opening import database
from serve.settings import Settings
from tests.retrieval.store.roles import as_role
from tests.serve.conftest import B, settings_for

pytestmark = pytest.mark.integration


class Ground:
    """A schema and roles of its own on the tests' server."""

    def __init__(self, dsn: str, data: Path) -> None:
        self.dsn, self._data = dsn, data
        ends = uuid4().hex[:8]
        self.schema, self.app, self.keys = f"s_{ends}", f"app_{ends}", f"keys_{ends}"

    def run(self, role: str, *words: str) -> Result:
        env = {
            "FOURFOLD_DATABASE_URL": as_role(self.dsn, role),
            "FOURFOLD_DATABASE_SCHEMA": self.schema,
            "FOURFOLD_DATABASE_APP_ROLE": self.app,
            "FOURFOLD_DATABASE_KEYS_ROLE": self.keys,
        }
        return CliRunner().invoke(app, [*words, "--data", str(self._data)], env=env)

    @property
    def settings(self) -> Settings:
        own = {
            "database_url": as_role(self.dsn, self.app),
            "database_schema": self.schema,
            "database_app_role": self.app,
            "run_migrations_on_startup": False,
        }
        return settings_for(self.dsn, database=own)

    def say(self, statement: str) -> None:
        async def say() -> None:
            connection = await asyncpg.connect(self.dsn)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(say())


@pytest.fixture
def ground(dsn: str, tmp_path: Path) -> Iterator[Ground]:
    made = Ground(dsn, tmp_path)
    made.say(f"create role {made.app} login; create role {made.keys} login")
    yield made
    made.say(
        f"drop schema if exists {made.schema} cascade;"
        f" drop owned by {made.app}, {made.keys}; drop role {made.app}, {made.keys}"
    )


def findings(ground: Ground, tmp_path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for state, _, said in doctor._database(ground.settings, tmp_path):
        found.setdefault(state, []).append(said)
    return found


def test_the_owner_s_command_opens_the_database_to_them(ground: Ground, tmp_path: Path) -> None:
    assert "finds no tables: run `fourfold migrate`" in str(findings(ground, tmp_path)["wrong"])
    done = ground.run("fourfold", "migrate")
    assert done.exit_code == 0, done.output
    assert "wrong" not in findings(ground, tmp_path)
    assert ground.run("fourfold", "migrate").exit_code == 0
    assert ground.run(ground.keys, "keys", "create", "--tenant", "t").exit_code == 0
    refused = ground.run(ground.app, "keys", "create", "--tenant", "t")
    assert refused.exit_code == 1
    assert "DATABASE_KEYS_ROLE" in refused.output
    assert ground.run(ground.app, "keys", "list").exit_code == 0
    assert ground.run(ground.app, "migrate").exit_code == 1


def test_a_role_that_is_not_there_is_said(ground: Ground) -> None:
    ground.app = f"{ground.app}_absent"
    done = ground.run("fourfold", "migrate")
    ground.app = ground.app.removesuffix("_absent")
    assert done.exit_code == 1
    assert "create role" in done.output


async def test_a_server_serves_with_it(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    async def migrated() -> None:
        done = await asyncio.to_thread(ground.run, "fourfold", "migrate")
        assert done.exit_code == 0, done.output

    await migrated()
    closed = f"revoke select on {ground.schema}.schema_migrations from {ground.app}"
    await asyncio.to_thread(ground.say, closed)
    monkeypatch.setattr(database, "START_WAIT_S", 0.1)
    async with AsyncExitStack() as stack:
        with pytest.raises(Unavailable, match="permission"):  # waited for, as a migration is
            await database.open_database(ground.settings, stack)
    await migrated()
    monkeypatch.setattr(database, "START_WAIT_S", 30.0)
    async with AsyncExitStack() as stack:
        services = await composition.open_services(ground.settings, Stages(), stack)
        transport = httpx.ASGITransport(application.create(ground.settings, services))
        http = await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)
        )
        memories = [{"key": f"k{n}", "text": f"Lantern {n} burns."} for n in range(3)]
        answers = [
            await http.post(f"{B}/b/memories/import", json={"memories": memories}),
            await http.post(
                f"{B}/b/memories", json={"items": [{"content": "Ada sails.", "document_id": "d"}]}
            ),
            await http.get(f"{B}/b/memories/list"),
            await http.get(f"{B}/b/stats"),
            await http.get(f"{B}/b/operations"),
            await http.patch(f"{B}/b/config", json={"updates": {"retain_chunk_size": 900}}),
            await http.get("/health"),
        ]
        assert [answer.status_code for answer in answers] == [200] * len(answers), [
            answer.text[:200] for answer in answers if answer.status_code != 200
        ]
        found = await http.post(f"{B}/b/memories/recall", json={"query": "lantern 1"})
        assert found.json()["results"][0]["text"] == "Lantern 1 burns."
        assert not found.json().get("degraded")
        assert (await http.delete(f"{B}/b/documents/d")).status_code == 200
        assert (await http.delete(f"{B}/b")).status_code == 200
