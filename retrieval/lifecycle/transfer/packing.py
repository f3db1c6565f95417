"""Archives on their way out: a ZIP as a stream, part by part. Nothing here waits for a database."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import IO, Any

import orjson

from retrieval.lifecycle.transfer.archive import EXPANSION_MOST, PART_BYTES, ArchivePart

_DENSE = EXPANSION_MOST / 3
"""What fast compression takes to less than this share is stored as it is: nothing that we write is
to look like a bomb."""


def _json(line: Any) -> bytes:
    return orjson.dumps(line, str, orjson.OPT_SORT_KEYS)  # the driver's UUIDs are its own


class _Outlet(io.RawIOBase):
    """What the ZIP writes to: bytes that wait until they are taken. It cannot seek."""

    def __init__(self) -> None:
        self._held = bytearray()
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._held += data
        self.digest.update(data)
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._held)
        self._held.clear()
        return taken


class Packer:
    """Packs an archive. Its calls are heavy: they belong into a thread, one at a time.

    `take` gives what has been packed so far. Lines are gathered into parts of PART_BYTES.
    """

    def __init__(self, at: datetime) -> None:
        self._outlet = _Outlet()
        self._zip = zipfile.ZipFile(self._outlet, "w")
        self._at = at.timetuple()[:6] if at.year >= 1980 else (1980, 1, 1, 0, 0, 0)
        self._numbers: dict[str, int] = {}
        self._lines = bytearray()
        self._rows = 0
        self.parts: list[ArchivePart] = []

    def take(self) -> bytes:
        return self._outlet.take()

    @property
    def sha256(self) -> bytes:
        """Of the whole file, once it is closed."""
        return self._outlet.digest.digest()

    def add(self, lines: Iterable[Any]) -> None:
        """Lines of the part that is open."""
        for line in lines:
            self._lines += _json(line)
            self._lines += b"\n"
            self._rows += 1

    @property
    def full(self) -> bool:
        return len(self._lines) >= PART_BYTES

    def alone(self, name: str, line: Any) -> ArchivePart:
        """A member of one line."""
        return self.member(name, _json(line), 1)

    def part(self, kind: str) -> ArchivePart | None:
        """Closes the part that is open, if anything is in it."""
        if not self._rows:
            return None
        made = self.member(self._name(kind, "ndjson"), bytes(self._lines), self._rows)
        self._lines.clear()
        self._rows = 0
        return made

    def array(self, kind: str, data: bytes, rows: int, **details: Any) -> ArchivePart:
        """A part of numbers, which hardly get smaller."""
        return self.member(self._name(kind, "bin"), data, rows, details, dense=True)

    def _name(self, kind: str, ending: str) -> str:
        number = self._numbers[kind] = self._numbers.get(kind, -1) + 1
        return f"{kind}-{number:05d}.{ending}"

    def member(
        self,
        name: str,
        data: bytes,
        rows: int,
        details: Mapping[str, Any] | None = None,
        *,
        dense: bool = False,
    ) -> ArchivePart:
        """A part of this name."""
        info = zipfile.ZipInfo(name, self._at)
        info.external_attr = 0o600 << 16
        stored = dense or len(zlib.compress(data, 1)) * _DENSE < len(data)
        info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
        with self._zip.open(info, "w", force_zip64=True) as out:
            out.write(data)
        made = ArchivePart(name, rows, len(data), hashlib.sha256(data).hexdigest(), details or {})
        self.parts.append(made)
        return made

    @contextmanager
    def blob(self, name: str) -> Iterator[Callable[[bytes], None]]:
        """A part of bytes as they are, that come piece by piece."""
        info = zipfile.ZipInfo(name, self._at)
        info.external_attr = 0o600 << 16
        digest, size = hashlib.sha256(), 0
        with self._zip.open(info, "w", force_zip64=True) as out:

            def write(data: bytes) -> None:
                nonlocal size
                out.write(data)
                digest.update(data)
                size += len(data)

            yield write
        self.parts.append(ArchivePart(name, 1, size, digest.hexdigest()))

    @contextmanager
    def stream(self, name: str) -> Iterator[IO[bytes]]:
        """A member whose size nobody knows yet, and that no manifest lists."""
        info = zipfile.ZipInfo(name, self._at)
        info.external_attr = 0o600 << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        with self._zip.open(info, "w", force_zip64=True) as out:
            yield out

    def close(self, manifest_name: str, manifest: Mapping[str, Any]) -> None:
        """Writes the manifest and the directory."""
        data = orjson.dumps(manifest, option=orjson.OPT_INDENT_2)
        info = zipfile.ZipInfo(manifest_name, self._at)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = 0o600 << 16
        with self._zip.open(info, "w", force_zip64=True) as out:
            out.write(data)
        self._zip.close()

    def abandon(self) -> None:
        """Ends an archive that came to nothing."""
        with suppress(Exception):
            self._zip.close()
