"""How fast a replica takes new connections.

uvloop takes one connection of a listening socket in each pass of the loop. Where clients hang up
before they are answered, HAProxy needs a new connection for every request, and whoever comes next
waited for hundreds of passes, up to half a second, behind connections that were dead already.
"""

from __future__ import annotations

import functools
import socket

import uvicorn

AT_ONCE = 8
"""Connections in one pass: copies of the listening socket. Each that finds nothing costs 1 us."""


def accept_several() -> None:
    """From now on servers of this process take so many connections in a pass."""
    start = uvicorn.Server.startup
    if hasattr(start, "__wrapped__"):
        return

    @functools.wraps(start)
    async def startup(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        copies = [each.dup() for each in sockets or () for _ in range(AT_ONCE - 1)]
        await start(server, sockets=[*sockets, *copies] if sockets else sockets)

    setattr(uvicorn.Server, "startup", startup)  # noqa: B010
