"""Every request has an id and a trace; every answer names the id."""

from __future__ import annotations

import logging
import time

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve import trace

log = logging.getLogger("serve.slow")

ID_HEADER = "X-Request-Id"
_READ = {name.encode() for name in (trace.ID_HEADER, trace.PARENT_HEADER, trace.STATE_HEADER)}


class Following:
    """Puts the request's trace (`serve.trace.current`) around everything that answers it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = {n.decode(): v.decode("latin-1") for n, v in scope["headers"] if n in _READ}
        arrived = trace.arrived(given)

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[ID_HEADER] = arrived.request_id
            await send(message)

        with trace.within(arrived):
            await self._app(scope, receive, named)


class SlowLog:
    """Says what slow recalls spent their time on: at most `MOST` a second, and no word of what was
    asked or found."""

    MOST = 10

    def __init__(self, above_s: float) -> None:
        self.above_s = above_s
        self._second, self._said = 0, 0

    def recalled(
        self, seconds: float, stages: dict[str, float], degraded: tuple[str, ...], results: int
    ) -> None:
        if seconds < self.above_s:
            return
        now = int(time.monotonic())
        if now != self._second:
            self._second, self._said = now, 0
        self._said += 1
        if self._said > self.MOST:
            return
        spent = " ".join(f"{name}={s:.3f}" for name, s in stages.items())
        log.warning(
            "slow recall: %.3f s, %d results, degraded: %s; %s",
            seconds,
            results,
            ",".join(degraded) or "nothing",
            spent,
        )
