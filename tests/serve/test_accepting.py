"""How many connections a pass of the loop takes."""

import socket
from collections.abc import Iterator

import pytest
import uvicorn

from serve.cluster import accepting

pytestmark = pytest.mark.unit


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[socket.socket] | None]]:
    """What servers start with; their sockets are closed at the end."""
    seen: list[list[socket.socket] | None] = []

    async def startup(self: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        seen.append(sockets)

    monkeypatch.setattr(uvicorn.Server, "startup", startup)
    accepting.accept_several()
    accepting.accept_several()  # once is enough
    yield seen
    for each in (one for sockets in seen for one in sockets or ()):
        each.close()


async def test_a_server_listens_several_times_at_one_place(
    started: list[list[socket.socket] | None],
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config("none:none"))
    await server.startup(sockets=[listener])
    await server.startup()
    assert started[0] is not None
    assert len(started[0]) == accepting.AT_ONCE
    assert {each.getsockname() for each in started[0]} == {listener.getsockname()}
    assert len({each.fileno() for each in started[0]}) == accepting.AT_ONCE
    assert started[1] is None
