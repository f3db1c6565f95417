"""Archives on their way in: looked through before anything is believed. Blocking: for threads.

Nothing is ever written under a member's name; names that lead elsewhere are refused all the same,
since an archive that has them was made to harm somebody.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zipfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Any

import orjson

from retrieval.lifecycle.transfer.archive import (
    EXPANSION_MOST,
    LINE_BYTES,
    MANIFEST,
    MANIFEST_BYTES,
    MEMBERS_MOST,
    PEER_SCHEMA,
    SMALL_BYTES,
    UNPACKED_MOST,
    ArchivePart,
    BadArchive,
    Manifest,
    parsed,
)

_BLOCK = 1 << 18
_DRIVE = re.compile(r"^[A-Za-z]:")
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    struct.error,
    NotImplementedError,
    RuntimeError,  # encrypted
    UnicodeDecodeError,
    OverflowError,
    ValueError,
)


class Unpacker:
    """An archive in a local file, opened and checked.

    `manifest` is ours, `peer` the peer's: one of the two is None. BadArchive says what is wrong.
    """

    def __init__(self, file: Path | IO[bytes]) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except _BROKEN as error:
            raise BadArchive(
                f"the file is no ZIP archive, or it is cut off ({_said(error)})"
            ) from None
        try:
            self._members = self._directory()
            content = self._manifest()
            self.manifest: Manifest | None = None
            self.peer: dict[str, Any] | None = None
            if isinstance(content, dict) and "format" not in content:
                self.peer = _peer(content)
            else:
                self.manifest = parsed(content)
                self._agrees(self.manifest)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._zip.close()

    @property
    def bank_id(self) -> str:
        """The bank that it was made of."""
        if self.manifest is not None:
            return self.manifest.bank_id
        assert self.peer is not None
        return str(self.peer["source_bank_id"])

    @property
    def names(self) -> list[str]:
        return sorted(self._members)

    # Before anything is believed

    def _directory(self) -> dict[str, zipfile.ZipInfo]:
        infos = self._zip.infolist()
        if len(infos) > MEMBERS_MOST:
            raise BadArchive(
                f"the archive has {len(infos)} members, at most {MEMBERS_MOST} are read"
            )
        found: dict[str, zipfile.ZipInfo] = {}
        packed = unpacked = 0
        for info in infos:
            name = info.filename
            parts = name.replace("\\", "/").split("/")
            if name.startswith(("/", "\\")) or _DRIVE.match(name) or ".." in parts or "\0" in name:
                raise BadArchive(f"a member of the archive leads out of it: {name[:80]!r}")
            if info.orig_filename != name:
                raise BadArchive(f"a member of the archive has two names: {name[:80]!r}")
            if name in found:
                raise BadArchive(f"a member is in the archive twice: {name[:80]!r}")
            if (info.external_attr >> 16) & 0o170000 == 0o120000:
                raise BadArchive(f"a member of the archive is a link: {name[:80]!r}")
            if info.flag_bits & 1:
                raise BadArchive(f"a member of the archive is encrypted: {name[:80]!r}")
            found[name] = info
            packed += info.compress_size
            unpacked += info.file_size
        if unpacked > UNPACKED_MOST or unpacked > max(SMALL_BYTES, EXPANSION_MOST * packed):
            raise BadArchive(
                f"the archive would unpack from {packed} to {unpacked} bytes: at most"
                f" {EXPANSION_MOST} times as many as packed are read, and {UNPACKED_MOST} in all"
            )
        if MANIFEST not in found:
            raise BadArchive(f"the archive has no {MANIFEST}")
        return found

    def _manifest(self) -> Any:
        try:
            return orjson.loads(self.whole(MANIFEST, MANIFEST_BYTES))
        except orjson.JSONDecodeError:
            raise BadArchive("the archive's manifest is not JSON") from None

    def _agrees(self, manifest: Manifest) -> None:
        for part in manifest.parts:
            info = self._members.get(part.name)
            if info is None:
                raise BadArchive(f"the archive lacks the part {part.name[:80]!r}")
            if info.file_size != part.bytes:
                raise BadArchive(
                    f"the part {part.name[:80]!r} has {info.file_size} bytes, the manifest says"
                    f" {part.bytes}"
                )

    # Reading

    def whole(self, name: str, most: int) -> bytes:
        """A small member at once."""
        info = self._members.get(name)
        if info is None:
            raise BadArchive(f"the archive has no {name[:80]!r}")
        if info.file_size > most:
            raise BadArchive(f"{name[:80]!r} is larger than {most} bytes")
        return b"".join(self._blocks(name))

    def has(self, name: str) -> bool:
        return name in self._members

    def verify(self, part: ArchivePart) -> None:
        """BadArchive unless the part is what the manifest says."""
        found = hashlib.sha256()
        for block in self._blocks(part.name):
            found.update(block)
        if found.hexdigest() != part.sha256:
            raise BadArchive(f"the part {part.name[:80]!r} is damaged: its checksum is another")

    def lines(self, part: ArchivePart, skip: int = 0) -> Generator[dict[str, Any], None, None]:
        """The rows of a part, behind the first `skip`; closed by who leaves off before the end."""
        for number, line in enumerate(self._lines(part.name), 1):
            if number <= skip:
                continue
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                row = None
            if not isinstance(row, dict):
                raise BadArchive(f"line {number} of {part.name[:80]!r} is not a JSON object")
            yield row

    def array(self, part: ArchivePart, begin: int, size: int) -> bytes:
        """Bytes [begin, begin + size) of a part of numbers."""
        try:
            with self._zip.open(self._members[part.name]) as member:
                member.seek(begin)
                data = member.read(size)
        except _BROKEN as error:
            raise BadArchive(f"{part.name[:80]!r} cannot be unpacked ({_said(error)})") from None
        if len(data) != size:
            raise BadArchive(f"{part.name[:80]!r} is cut off")
        return data

    def _blocks(self, name: str) -> Iterator[bytes]:
        info = self._members[name]
        size = 0
        try:
            with self._zip.open(info) as member:
                while block := member.read(_BLOCK):
                    size += len(block)
                    if size > info.file_size:
                        raise BadArchive(f"{name[:80]!r} unpacks to more than it says")
                    yield block
        except BadArchive:
            raise
        except _BROKEN as error:
            raise BadArchive(f"{name[:80]!r} cannot be unpacked ({_said(error)})") from None
        if size != info.file_size:
            raise BadArchive(f"{name[:80]!r} is cut off")

    def _lines(self, name: str) -> Iterator[bytes]:
        rest = b""
        for block in self._blocks(name):
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > LINE_BYTES or any(len(line) > LINE_BYTES for line in lines):
                raise BadArchive(f"{name[:80]!r} has a line of more than {LINE_BYTES} bytes")
            yield from lines
        if rest:
            yield rest


def _peer(content: dict[str, Any]) -> dict[str, Any]:
    version = content.get("schema_version")
    if version != PEER_SCHEMA or isinstance(version, bool):
        raise BadArchive(
            f"the archive has schema_version {str(version)[:40]}; this program reads its own format"
            f" of version 1, and schema_version {PEER_SCHEMA}"
        )
    if not isinstance(content.get("source_bank_id"), str):
        raise BadArchive("the archive's manifest does not name its bank")
    return content


def _said(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:120]
