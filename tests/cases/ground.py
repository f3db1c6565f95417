"""The server that cases run on: the real application over a real database, without a socket.

A `Ground` is shared by all cases of a run: database, embedding model. A `Server` is the
application with what one case sets up: its reranker, embedder and settings.
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from models.catalog import build_embedder
from models.passthrough import Passthrough
from models.settings import Compute, EmbedderSettings
from retrieval.protocols import Embedder, Reranker
from retrieval.store import tenants
from retrieval.store.database.embedded import EmbeddedPostgres
from retrieval.store.database.migrate import migrate
from retrieval.store.database.pool import Pool, PoolSettings, open_pool
from serve import app, settings
from serve.composition import Stages, open_services
from serve.opening.translation import OpenedReranker
from tests.cases.scene import Reply
from tests.cases.stubs import ScoreStub, number, refusing_url, script
from tests.models.tei_server import TeiServer

RERANKER_TIMEOUT_S = 2.0
"""What the cases configure as the time a reranker may take."""


class CannotSetUp(Exception):
    """The case asks for something that this ground does not have; str() is the reason."""


@dataclass(frozen=True, slots=True)
class Ground:
    dsn: str
    embedder: Embedder


@asynccontextmanager
async def ground(dsn: str) -> AsyncIterator[Ground]:
    """A ground over a migrated database, with the packaged embedding model."""
    compute = Compute(device="cpu", threads=1)
    embedder = build_embedder(EmbedderSettings(model="packaged", compute=compute))
    await embedder.start()
    try:
        yield Ground(dsn, embedder)
    finally:
        await embedder.close()


@contextmanager
def _database() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="fourfold-") as data:
        Path(data).chmod(0o755)
        with EmbeddedPostgres(data) as postgres:
            yield postgres.dsn


@asynccontextmanager
async def own_ground() -> AsyncIterator[Ground]:
    """A ground over a database of its own, which ends with it."""
    with _database() as dsn:
        pool = await open_pool(PoolSettings(dsn))
        await migrate(pool)
        await pool.close()
        async with ground(dsn) as made:
            yield made


@dataclass(slots=True)
class Server:
    """The application under test. `stub` is the reranker's score stub, where the case has one;
    `misbehave` lets the stand-in embedder begin to do what the case asks of it."""

    client: httpx.AsyncClient
    pool: Pool
    stub: ScoreStub | None = None
    misbehave: Callable[[], None] = lambda: None
    keys: dict[str, str] = field(default_factory=dict)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        tenant: str | None = None,
        timeout_s: float = 300.0,
    ) -> Reply:
        """One request; TimeoutError when the answer takes longer than the client waits."""
        headers = {}
        if tenant is not None:
            headers["authorization"] = f"Bearer {await self._key(tenant)}"
        begin = time.perf_counter()
        async with asyncio.timeout(timeout_s):
            answer = await self.client.request(method, path, json=body, headers=headers)
        try:
            content = answer.json()
        except ValueError:
            content = None
        waited = time.perf_counter() - begin
        return Reply(answer.status_code, answer.text, content, dict(answer.headers), waited)

    async def done(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The body of a request that must succeed."""
        reply = await self.request(method, path, body, **more)
        if reply.status != 200:
            raise AssertionError(f"{method} {path}: {reply.status} {reply.text[:400]}")
        return reply.body

    async def _key(self, tenant: str) -> str:
        if tenant not in self.keys:
            self.keys[tenant] = await tenants.create_key(self.pool, tenant)
        return self.keys[tenant]


def bank_path(bank: str, *rest: str) -> str:
    return "/".join(["/v1/default/banks", quote(bank, safe=""), *rest])


@asynccontextmanager
async def server(
    base: Ground,
    setup: Mapping[str, Any] | None = None,
    memories: Sequence[Mapping[str, Any]] = (),
    *,
    several_tenants: bool = False,
) -> AsyncIterator[Server]:
    """The application with what a case sets up; CannotSetUp where that is not possible here."""
    setup = dict(setup or {})
    env = {"FOURFOLD_DATABASE_URL": base.dsn, "FOURFOLD_DB_POOL_MIN_SIZE": "1"}
    for name, value in (setup.pop("config", None) or {}).items():
        if value is not None:
            env[f"HINDSIGHT_API_{name.upper()}"] = str(value)
    if several_tenants:
        env["FOURFOLD_REQUIRE_API_KEY"] = "true"
    async with AsyncExitStack() as stack:
        reranker = _reranker(setup.pop("reranker", None), memories, env, stack)
        embedder, misbehave = _embedder(setup.pop("embedder", None), base, env, stack)
        if graph := setup.pop("graph", None):
            raise CannotSetUp(f"no stub of the graph {graph!r}")
        if setup:
            raise CannotSetUp(f"no way to set up {sorted(setup)}")
        chosen = settings.parse({}, env)
        services = await open_services(chosen, Stages(embedder=embedder, reranker=reranker), stack)
        transport = httpx.ASGITransport(app.create(chosen, services))
        client = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=None)
        await stack.enter_async_context(client)
        stub = reranker if isinstance(reranker, ScoreStub) else None
        yield Server(client, services.pool, stub, misbehave)


def _reranker(
    asked: Any, memories: Sequence[Mapping[str, Any]], env: dict[str, str], stack: AsyncExitStack
) -> Reranker | None:
    """A reranker object, or None with the settings of a real one in `env`."""
    if asked is None:
        return OpenedReranker(Passthrough("fused"))
    if asked == "real" or not isinstance(asked, dict):
        raise CannotSetUp("no cross-encoder's weights come with the installation")
    kind = asked["stub"]
    if kind == "constant":
        return ScoreStub({}, number(asked["value"]))
    if kind == "scores":
        chosen = {memories[int(m)]["text"]: number(v) for m, v in asked["by_memory"].items()}
        default = number(asked.get("default", 0.0))
        return ScoreStub(chosen, default, "probability" if asked.get("calibrated") else "unknown")
    if kind == "connection_refused":
        url = refusing_url()
    elif kind in ("hang", "tei", "http_sequence"):
        stand_in = TeiServer(
            max_client_batch_size=asked.get("max_client_batch_size", 128),
            max_input_length=asked.get("max_input_tokens", 512),
            auto_truncate="reject_longer_unless" not in asked,
        )
        if kind == "hang":
            stand_in.hanging.set()
        script(stand_in, asked.get("responses", ()))
        url = stack.enter_context(stand_in).url
    else:
        raise CannotSetUp(f"no stub of a reranker of kind {kind!r}")
    env["FOURFOLD_RERANKER_PROVIDER"] = "tei"
    env["FOURFOLD_RERANKER_TEI_URL"] = url
    env["FOURFOLD_RERANKER_TEI_HTTP_TIMEOUT_S"] = str(RERANKER_TIMEOUT_S)
    return None


def _embedder(
    asked: Any, base: Ground, env: dict[str, str], stack: AsyncExitStack
) -> tuple[Embedder | None, Callable[[], None]]:
    if asked is None:
        return base.embedder, lambda: None
    stand_in = stack.enter_context(TeiServer(kind="embedding"))
    kind = asked["stub"]
    if kind == "null_vector" and asked.get("for") == "query":
        misbehave = functools.partial(setattr, stand_in, "nulls", True)
    elif kind == "http_sequence":
        misbehave = functools.partial(script, stand_in, asked["responses"])
    else:
        raise CannotSetUp(f"no stub of an embedder like {asked}")
    env["FOURFOLD_EMBEDDINGS_PROVIDER"] = "tei"
    env["FOURFOLD_EMBEDDINGS_TEI_URL"] = stand_in.url
    return None, misbehave
