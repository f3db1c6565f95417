"""News of a bank's operations: one look a second for all who listen in a process."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from retrieval.errors import FourfoldError, RateLimited

PERIOD_S = 1.0
BEAT_S = 15.0
LIFE_S = 600.0
PER_TENANT = 4
_LINE = 200

Look = Callable[[], Awaitable[list[dict[str, Any]]]]
"""The newest operations, as lists show them."""


@dataclass(slots=True)
class _Watched:
    """A bank that somebody listens to. `known`: each operation as it was seen last."""

    listeners: set[asyncio.Queue[dict[str, Any]]] = field(default_factory=set)
    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


class OperationFeed:
    """Event streams. Each ends after LIFE_S; a tenant has PER_TENANT at most."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._banks: dict[tuple[str, str], _Watched] = {}
        self._open: Counter[str] = Counter()

    async def follow(
        self, tenant: str, bank_id: str, look: Look, after: str | None
    ) -> AsyncGenerator[bytes]:
        """Events of a bank's operations: what changed since the time `after` first, then what
        changes. RateLimited, and what the first look raises, before anything is yielded."""
        if self._open[tenant] >= PER_TENANT:
            raise RateLimited(f"this tenant has {PER_TENANT} event streams open already")
        self._open[tenant] += 1
        try:
            newest = await look()
            yield b"retry: 2000\n\n"
            for one in reversed(newest):
                if after is not None and str(one["updated_at"]) > after:
                    yield _event(one)
            async with contextlib.aclosing(self._news(tenant, bank_id, look, newest)) as news:
                async for chunk in news:
                    yield chunk
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]

    async def _news(
        self, tenant: str, bank_id: str, look: Look, newest: list[dict[str, Any]]
    ) -> AsyncGenerator[bytes]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_LINE)
        watched = self._banks.setdefault((tenant, bank_id), _Watched())
        watched.listeners.add(queue)
        if watched.task is None:
            watched.known = {one["id"]: one for one in newest}
            watched.task = asyncio.create_task(self._watch(watched, look))
        end = asyncio.get_running_loop().time() + LIFE_S
        try:
            while (left := end - asyncio.get_running_loop().time()) > 0:
                try:
                    async with asyncio.timeout(min(BEAT_S, left)):
                        yield _event(await queue.get())
                except TimeoutError:
                    yield b": beat\n\n"
        finally:
            watched.listeners.discard(queue)
            if not watched.listeners:
                watched.task.cancel()
                self._banks.pop((tenant, bank_id), None)

    async def _watch(self, watched: _Watched, look: Look) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            try:
                newest = await look()
            except (FourfoldError, OSError):
                continue  # the database is away, or the bank is gone: listeners see no news
            for one in reversed(newest):
                if watched.known.get(one["id"]) != one:
                    for queue in watched.listeners:
                        if not queue.full():
                            queue.put_nowait(one)
            watched.known = {one["id"]: one for one in newest}


def _event(one: dict[str, Any]) -> bytes:
    return b"event: operation\nid: %s\ndata: %s\n\n" % (
        str(one["updated_at"]).encode(),
        orjson.dumps(one),
    )
