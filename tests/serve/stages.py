"""A stage behind a handle, without Ray: the replica's own methods, and as many replicas as told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import SimpleNamespace
from typing import Any, cast

from models.types import Load
from serve.cluster.deployments import EmbedderReplica, RerankerReplica
from serve.cluster.remote import Handle
from serve.cluster.signals import ModelSignals


class Response:
    """What a call over a handle gives: to be awaited, to be cancelled."""

    def __init__(self, work: Awaitable[Any]) -> None:
        self._task = asyncio.ensure_future(work)
        self.cancelled = False

    def __await__(self) -> Generator[Any, None, Any]:
        return self._task.__await__()

    def cancel(self) -> None:
        self.cancelled = True
        self._task.cancel()


class StageHandle:
    """`model` may be exchanged, as by a roll; with no replicas calls wait, as Serve's do.
    `delayed`: seconds before each answer."""

    def __init__(self, kind: type[Any], model: Any, replicas: int | None = 1) -> None:
        self._kind = kind
        self.model = model
        self.replicas = replicas
        self.delay_s = 0.0
        self.calls: list[str] = []
        self.sessions: list[str] = []

    def running_replicas_populated(self) -> bool:
        return self.replicas is not None

    def options(self, session_id: str) -> StageHandle:
        self.sessions.append(session_id)
        return self

    @property
    def _router(self) -> Any:
        known = SimpleNamespace(curr_replicas=dict.fromkeys(range(self.replicas or 0)))
        return SimpleNamespace(_asyncio_router=SimpleNamespace(request_router=known))

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Awaitable[Any]] = getattr(self._kind, name)

        async def answer(*args: Any) -> Any:
            self.calls.append(name)
            while not self.replicas:  # noqa: ASYNC110 - a plain number tests set
                await asyncio.sleep(0.01)
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            replica = SimpleNamespace(model=self.model, _signals=ModelSignals(Load))
            return await method(replica, *args)

        return SimpleNamespace(remote=lambda *args: Response(answer(*args)))


def handle(stage: StageHandle) -> Handle:
    return cast(Handle, stage)


def embedder(model: Any, replicas: int | None = 1) -> StageHandle:
    return StageHandle(EmbedderReplica, model, replicas)


def reranker(model: Any, replicas: int | None = 1) -> StageHandle:
    return StageHandle(RerankerReplica, model, replicas)
