"""Request bodies: bounded in size, time and memory, decoded, and read as JSON off the event loop.

Nothing of a body is read before its length and its sender's key were looked at
(serve/http/routing.py).
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from retrieval.errors import Overloaded
from serve.admission.controller import AdmissionController
from serve.http.errors import BadEncoding, SlowBody, TooLarge, UnsupportedEncoding
from serve.http.services import largest_body

T = TypeVar("T")

SMALL_BYTES = 64 * 2**10
"""Smaller bodies are parsed where they are read, and do not count as memory."""
GRACE_S, BYTES_PER_S = 10.0, 8 * 2**10
"""A body must arrive within the first, plus one second for every so many bytes."""
READ_AT_ONCE = 3
"""Large bodies that are made into values at once: each competes for the interpreter."""
_SLICE_BYTES = 2**20
"""Decoded between two looks at what else waits: about 3 ms."""


@dataclass(slots=True)
class BodyMemory:
    """Bytes of large bodies that a process holds at once, from their first byte to their last use.

    A tenant may hold as many as are left free: alone half of them, two a third each. So there is
    always room for one more tenant, without a limit per tenant that somebody would have to set.
    """

    total: int
    what: str = "request bodies"
    held: int = 0
    _by_tenant: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def holding(self, tenant: str) -> Iterator[Hold]:
        """What is taken inside is given back at the end."""
        hold = Hold(self, tenant)
        try:
            yield hold
        finally:
            if hold.size:
                self._take(tenant, -hold.size)

    def _take(self, tenant: str, size: int) -> None:
        own = self._by_tenant.get(tenant, 0)
        if size > 0 and own + size > self.total - self.held:
            raise Overloaded(f"too many large {self.what} are here at once", 1.0)
        self.held += size
        if own + size:
            self._by_tenant[tenant] = own + size
        else:
            self._by_tenant.pop(tenant, None)


class Counted(Response):
    """A large answer, sent in pieces as its client reads them; what it takes is given back then."""

    def __init__(self, answer: Response, memory: BodyMemory, tenant: str) -> None:
        """Overloaded where the tenant has too much waiting to be read."""
        self.__dict__.update(answer.__dict__)
        self._memory, self._tenant = memory, tenant
        self._counts = min(len(self.body), memory.total // 2)  # one may be larger than a share
        memory._take(tenant, self._counts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            for start in range(0, len(self.body), SMALL_BYTES):
                piece = self.body[start : start + SMALL_BYTES]
                more = start + SMALL_BYTES < len(self.body)
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        finally:
            self._memory._take(self._tenant, -self._counts)


class Hold:
    """The bytes of one body."""

    def __init__(self, memory: BodyMemory, tenant: str) -> None:
        self._memory = memory
        self._tenant = tenant
        self.size = 0

    def reach(self, size: int) -> None:
        """Holds `size` bytes in all from now on. Overloaded where they are not there."""
        if size > max(SMALL_BYTES, self.size):
            self._memory._take(self._tenant, size - self.size)
            self.size = size


def declared(headers: Mapping[str, str]) -> int | None:
    """The length that a request says its body has; None where it says none (chunked)."""
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit():
        return int(length[:18])
    return None if "transfer-encoding" in headers else 0


@dataclass(frozen=True, slots=True)
class Bodies:
    """The bodies of a process: how large those of single routes may be, and all together."""

    small_max: int
    large_max: int
    memory: BodyMemory
    answers: BodyMemory
    """Of large answers, until they are read."""
    turns: AdmissionController = field(
        default_factory=lambda: AdmissionController(READ_AT_ONCE, 1_000, wait_max_s=60.0)
    )

    def counted(self, tenant: str, answer: Response) -> Response:
        """The answer; a large one counts as memory until it was read. Overloaded."""
        large = type(answer) is Response and len(answer.body) > SMALL_BYTES
        return Counted(answer, self.answers, tenant) if large else answer

    async def parsed(self, tenant: str, work: Callable[[bytes], T], body: bytes) -> T:
        """What `work` makes of a large body, in a thread: two bodies of a tenant at a time.
        Overloaded."""
        async with self.turns.enter(tenant):
            return await asyncio.to_thread(work, body)

    @asynccontextmanager
    async def read(self, request: Request, tenant: str, *, large: bool) -> AsyncIterator[bytes]:
        """The decoded body, whose memory is held until the block ends.

        TooLarge, SlowBody, UnsupportedEncoding, BadEncoding, Overloaded.
        """
        limit, whose = self.large_max if large else self.small_max, ""
        if tenant:
            own = await largest_body(request.app.state.services, tenant)
            if own and own < limit:
                limit, whose = own, "this tenant's "
        with self.memory.holding(tenant) as hold:
            yield await _read(request, limit, hold, whose)

    async def stream(
        self, request: Request, tenant: str, limit: int
    ) -> AsyncGenerator[bytes, None]:
        """The body in pieces, which nobody holds together: at most `limit` bytes, within its time.

        TooLarge, SlowBody; UnsupportedEncoding where it is compressed.
        """
        own, whose = await largest_body(request.app.state.services, tenant), ""
        if own and own < limit:
            limit, whose = own, "this tenant's "
        if _decoder(encoding := request.headers.get("content-encoding", "")) is not None:
            raise UnsupportedEncoding(encoding[:100])
        length = declared(request.headers)
        if length is not None and length > limit:
            raise TooLarge(limit, whose)
        async for part in parts(request, limit, whose):
            yield part


async def _read(request: Request, limit: int, hold: Hold, whose: str) -> bytes:
    length = declared(request.headers)
    if length is not None and length > limit:
        raise TooLarge(limit, whose)
    hold.reach(length or 0)
    decoder = _decoder(request.headers.get("content-encoding", ""))
    read: list[bytes] = []
    size = 0
    async for part in parts(request, limit, whose):
        pieces = [part] if decoder is None else decoder.feed(part, limit)
        for piece in pieces:
            size += len(piece)
            if size > limit:
                raise TooLarge(limit, whose)
            hold.reach(size)
            read.append(piece)
            if decoder is not None and len(piece) >= _SLICE_BYTES:
                await asyncio.sleep(0)
    if decoder is not None and size + (length or 0):
        decoder.finish()
    if len(read) == 1:
        return read[0]
    if size <= _SLICE_BYTES:
        return b"".join(read)
    return await asyncio.to_thread(b"".join, read)  # lets the interpreter go meanwhile


async def parts(request: Request, limit: int, whose: str) -> AsyncIterator[bytes]:
    """What comes over the wire, within its time and at most `limit` bytes. TooLarge, SlowBody."""
    begin, received, more = time.monotonic(), 0, True
    while more:
        left = GRACE_S + received / BYTES_PER_S - (time.monotonic() - begin)
        try:
            async with asyncio.timeout(left):
                message = await request.receive()
        except TimeoutError:
            raise SlowBody(BYTES_PER_S) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        received += len(part)
        if received > limit:
            raise TooLarge(limit, whose)
        more = message.get("more_body", False)
        if part:
            yield part


def _decoder(encoding: str) -> _Decoder | None:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name in ("gzip", "x-gzip"):
        return _Decoder(16 + zlib.MAX_WBITS)
    if name == "deflate":
        return _Decoder(0)
    raise UnsupportedEncoding(encoding[:100])


class _Decoder:
    """One compressed stream; `window` as zlib has it, 0: deflate, with or without its wrapping."""

    def __init__(self, window: int) -> None:
        self._stream = zlib.decompressobj(window) if window else None

    def feed(self, data: bytes, limit: int) -> Iterator[bytes]:
        """What `data` stands for, in slices, so that a bomb costs no more than `limit`."""
        if self._stream is None:
            wrapped = data[0] & 0x0F == 8
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
        if self._stream.eof:
            raise BadEncoding("something follows the compressed data")
        most = min(limit + 1, _SLICE_BYTES)
        while True:
            try:
                piece = self._stream.decompress(data, most)
            except zlib.error:
                raise BadEncoding("it cannot be decompressed") from None
            yield piece
            data = self._stream.unconsumed_tail
            if not data and len(piece) < most:
                break
        if self._stream.unused_data:
            raise BadEncoding("something follows the compressed data")

    def finish(self) -> None:
        """BadEncoding where the stream has not come to its end."""
        if self._stream is None or not self._stream.eof:
            raise BadEncoding("the compressed data is cut off")
