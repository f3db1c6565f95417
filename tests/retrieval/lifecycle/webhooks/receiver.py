"""A receiver of webhooks on loopback: notes what it is sent, answers what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Receiver:
    """`answers`: what it says next, the last one again and again; None: nothing at all."""

    port: int = 0
    answers: list[bytes | None] = field(default_factory=lambda: [answer(200)])
    got: list[Received] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    held: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ")
            pairs = (line.partition(": ") for line in head[1:] if line)
            headers = {name.lower(): value for name, _, value in pairs}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.got.append(Received(method, path, headers, body))
            await self.held.wait()
            said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if said is None:
                await reader.read()  # until the other side gives up
            else:
                writer.write(said)
                await writer.drain()
        finally:
            self.at_once -= 1
            writer.close()


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    found = Receiver()
    found.held.set()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        found.held.set()
        server.close()
        await server.wait_closed()
