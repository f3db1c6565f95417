"""What is looked at before a request is routed: its headers, the host it is for, who sent it there.

Without keys, whoever reaches the server may do everything, and a web page reaches it through the
browser of somebody on its network. Two things tell such a request: it is for a name that was made
to point here (DNS rebinding), or it comes from a page of another origin. Where keys are required a
page would have to know one, and neither is looked at.

Requests begin in turns, key after key: hundreds that arrive together would otherwise all take their
first steps in one pass of the event loop. Who has stood here too long is turned away before
anything is read: a crowd that is never served would only grow.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retrieval.errors import Overloaded
from retrieval.pacing import Pace
from serve import metrics
from serve.http.errors import ForeignOrigin, HeadersTooLarge, Misdirected, refusal

HEADERS_MAX, HEADER_BYTES_MAX = 100, 64 * 2**10
ALIVE = "/health/live"
"""Asked of a process by those who would replace it: never in a line."""
ARRIVED = "fourfold.arrived"
"""Key of a request's scope: when it came, on the monotonic clock."""
STAY_MAX_S = 5.0
"""As long as a request waits in a line of admission."""
_REFUSED = metrics.refusals("arrival")
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class RequestGuard:
    """Refuses what should not be here, and answers HEAD wherever GET is answered.

    `hosts`: names beside addresses and localhost; `.example.org` is the name and all below it, `*`
    every name. `origins`: pages that may change things. None for either: it is not looked at.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str] | None,
        origins: Collection[str] | None,
    ) -> None:
        self._app = app
        self._hosts = None if hosts is None or "*" in hosts else frozenset(map(str.lower, hosts))
        self._origins = None if origins is None or "*" in origins else frozenset(origins)
        self._pace = Pace()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        came = scope[ARRIVED] = time.monotonic()
        try:
            if not scope["path"].endswith(ALIVE):
                await self._pace.turn(_key(scope))
                _not_for_too_long(time.monotonic() - came)
            self._look(scope)
        except (HeadersTooLarge, Misdirected, ForeignOrigin, Overloaded) as error:
            await refusal(error)(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        await self._app(scope, receive, send)

    def _look(self, scope: Scope) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        if len(headers) > HEADERS_MAX or size > HEADER_BYTES_MAX:
            raise HeadersTooLarge(
                f"a request may have {HEADERS_MAX} header fields of {HEADER_BYTES_MAX} bytes in all"
            )
        if self._hosts is None and self._origins is None:
            return
        given = {name: value.decode("latin-1") for name, value in headers if name in _LOOKED_AT}
        host = given.get(b"host")
        if self._hosts is not None and host is not None and not _ours(host, self._hosts):
            raise Misdirected(
                f"this server does not answer as {host[:100]!r}: use its address or localhost, name"
                " the host in ALLOWED_HOSTS, or require keys"
            )
        if self._origins is not None and scope["method"] not in _READS:
            self._look_at_origin(given, host)

    def _look_at_origin(self, given: dict[bytes, str], host: str | None) -> None:
        assert self._origins is not None
        origin = given.get(b"origin")
        if origin is None:
            foreign = given.get(b"sec-fetch-site") == "cross-site"
        else:
            foreign = origin not in self._origins and (
                host is None or _place(origin) != host.strip().lower()
            )
        if foreign:
            raise ForeignOrigin(
                f"a page of {(origin or 'another site')[:100]!r} may not use this server: name its"
                " origin in CORS_ORIGINS"
            )


def arrived(scope: Scope) -> float:
    """When a request came, on the monotonic clock; now, where no Guard saw it."""
    came: float | None = scope.get(ARRIVED)
    return time.monotonic() if came is None else came


def _not_for_too_long(stayed_s: float) -> None:
    if stayed_s > STAY_MAX_S:
        _REFUSED("late")
        raise Overloaded("too many requests came at once", STAY_MAX_S)


def _key(scope: Scope) -> str:
    """Whose line a request stands in before anybody has looked at its key."""
    return next(
        (value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"),
        "",
    )


_LOOKED_AT = frozenset({b"host", b"origin", b"sec-fetch-site"})


def _ours(host: str, names: Collection[str]) -> bool:
    """Is `host`, with or without a port, an address, localhost, or one of the names?"""
    name = _hostname(host)
    if name is None:
        return False
    if name == "localhost" or name.endswith(".localhost") or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        above = name.split(".")
        return any("." + ".".join(above[start:]) in names for start in range(len(above)))
    return True


def _hostname(host: str) -> str | None:
    """The name of a Host header, in lower case, without brackets and a last dot; None if it is
    none."""
    try:
        parts = urlsplit(f"//{host.strip()}")
        if parts.port is not None and not parts.port:
            return None
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return (parts.hostname or "").removesuffix(".") or None


def _place(origin: str) -> str:
    """Host and port of an origin, as a Host header writes them."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _without_body(send: Send) -> Send:
    """Sends the head of an answer, and nothing of its body."""

    async def forward(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return forward
