"""Archives that cannot be right are refused with the reason, before anything is stored."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from retrieval.lifecycle.transfer.archive import (
    BANK,
    MANIFEST,
    ArchiveContents,
    BadArchive,
    Manifest,
)
from retrieval.lifecycle.transfer.packing import Packer
from retrieval.lifecycle.transfer.unpacking import Unpacker

pytestmark = pytest.mark.unit

AT = datetime(2025, 1, 1, tzinfo=UTC)


def packed(
    change: Callable[[dict[str, Any]], None] = lambda manifest: None, rows: int = 50
) -> bytes:
    """A small whole archive, whose manifest is changed before it is written."""
    packer = Packer(AT)
    packer.alone(BANK, {"name": "b"})
    packer.add({"id": i, "text": f"Memory {i}."} for i in range(rows))
    packer.part("memories")
    manifest = Manifest(
        "b",
        AT.isoformat(),
        3,
        "test",
        ArchiveContents(),
        False,
        tuple(packer.parts),
        {"memories": rows},
    ).wire()
    change(manifest)
    packer.close(MANIFEST, manifest)
    return packer.take()


def again(data: bytes, change: Callable[[zipfile.ZipFile], None]) -> bytes:
    """The archive with more members."""
    held = io.BytesIO(data)
    with zipfile.ZipFile(held, "a") as archive:
        change(archive)
    return held.getvalue()


def read(data: bytes) -> Unpacker:
    return Unpacker(io.BytesIO(data))


def refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadArchive, match=reason):
        read(data)


def test_a_whole_archive_is_read() -> None:
    unpacker = read(packed())
    manifest = unpacker.manifest
    assert manifest is not None
    (part,) = manifest.of("memories")
    unpacker.verify(part)
    assert [row["id"] for row in unpacker.lines(part)] == list(range(50))
    assert [row["id"] for row in unpacker.lines(part, 48)] == [48, 49]
    unpacker.close()


def test_what_is_no_archive() -> None:
    refused(b"", "no ZIP")
    refused(b"PK\x03\x04 and no more", "no ZIP")
    whole = packed()
    for keep in (len(whole) - 30, len(whole) // 2, 100):
        refused(whole[:keep], "no ZIP archive, or it is cut off")


@pytest.mark.parametrize(
    "name", ["../etc/passwd", "/etc/passwd", "a/../../b", "..\\b", "\\b", "C:\\b", "c:b", "a/.."]
)
def test_members_that_lead_elsewhere(name: str) -> None:
    refused(again(packed(), lambda z: z.writestr(name, "x")), "leads out of it")


def test_members_that_are_links_twice_or_encrypted() -> None:
    def link(archive: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")

    refused(again(packed(), link), "is a link")
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = again(packed(), lambda z: z.writestr(BANK, "{}"))
    refused(twice, "twice")
    data = bytearray(packed())
    directory = data.find(b"PK\x01\x02")
    flags = struct.unpack_from("<H", data, directory + 8)[0]
    struct.pack_into("<H", data, directory + 8, flags | 1)
    refused(bytes(data), "encrypted")


def test_a_bomb() -> None:
    def bomb(archive: zipfile.ZipFile) -> None:
        archive.writestr("zeros", bytes(30 << 20), zipfile.ZIP_DEFLATED)

    refused(again(packed(), bomb), "would unpack")


def test_a_bomb_that_says_it_is_small() -> None:
    data = bytearray(again(packed(), lambda z: z.writestr("zeros", bytes(4 << 20), 8)))
    directory = data.rfind(b"PK\x01\x02")
    struct.pack_into("<I", data, directory + 24, 100)
    unpacker = read(bytes(data))
    with pytest.raises(BadArchive):
        unpacker.whole("zeros", 1000)
    unpacker.close()


def test_our_own_archives_are_no_bombs() -> None:
    packer = Packer(AT)
    packer.alone(BANK, {})
    packer.add({"text": "the same " * 100} for _ in range(10_000))
    packer.part("memories")
    manifest = Manifest("b", "", 1, "", ArchiveContents(), False, tuple(packer.parts), {})
    packer.close(MANIFEST, manifest.wire())
    read(packer.take()).close()


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest.pop(name)


def put(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put("min_reader", 2), "needs a reader of version 2; this program reads version 1"),
        (put("min_reader", "x"), "not whole"),
        (put("format", "other"), "neither of format fourfold.bank"),
        (without("parts"), "not whole"),
        (put("parts", [{"name": 3}]), "not whole"),
        (put("parts", [{"name": "x", "rows": -1, "bytes": -1, "sha256": ""}]), "not whole"),
        (put("bank_id", None), "not whole"),
        (put("bank_version", -1), "not whole"),
        (put("counts", []), "not whole"),
        (put("digest", "0" * 64), "does not agree"),
        (put("vectors", {"vector_set": 1}), "not whole"),
    ],
)
def test_manifests_that_cannot_be_read(change: Any, reason: str) -> None:
    refused(packed(change), reason)


def test_later_fields_and_members_are_passed_over() -> None:
    data = again(packed(put("later", {"x": 1})), lambda z: z.writestr("later/part", "y"))
    read(data).close()


def test_a_manifest_that_is_none() -> None:
    def only(text: str) -> bytes:
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w") as archive:
            archive.writestr(MANIFEST, text)
        return held.getvalue()

    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("x", "y")
    refused(held.getvalue(), "no manifest.json")
    refused(only("{"), "not JSON")
    refused(only("[]"), "neither of format")
    refused(only('{"schema_version": 2, "source_bank_id": "b"}'), "schema_version 2")
    refused(only('{"schema_version": 1}'), "does not name its bank")
    read(only('{"schema_version": 1, "source_bank_id": "b"}')).close()


def test_parts_that_are_missing_or_of_another_size() -> None:
    def missing(manifest: dict[str, Any]) -> None:
        manifest["parts"][1]["name"] = "memories-00007.ndjson"

    refused(packed(missing), "lacks the part 'memories-00007.ndjson'")

    def larger(manifest: dict[str, Any]) -> None:
        manifest["parts"][1]["bytes"] += 1

    refused(packed(larger), "the manifest says")

    def other(manifest: dict[str, Any]) -> None:
        manifest["parts"][1] = {**manifest["parts"][1], "name": BANK, "bytes": 12}

    with pytest.raises(BadArchive):
        read(packed(other))


def test_a_part_that_was_damaged(tmp_path: Path) -> None:
    packer = Packer(AT)
    data = bytearray(packed(rows=5))
    # Stored text, so that only the checksum of the ZIP tells.
    del packer
    at = data.find(b"memories-00000.ndjson") + 60
    data[at] ^= 0xFF
    unpacker = read(bytes(data))
    assert unpacker.manifest is not None
    (part,) = unpacker.manifest.of("memories")
    with pytest.raises(BadArchive, match=r"memories-00000.ndjson"):
        unpacker.verify(part)
    unpacker.close()


def test_a_part_that_is_whole_but_not_the_one() -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed())) as old, zipfile.ZipFile(held, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if info.filename.startswith("memories"):
                content = content.replace(b"Memory 1.", b"Memory 2.")
            new.writestr(info.filename, content)
    unpacker = read(held.getvalue())
    assert unpacker.manifest is not None
    (part,) = unpacker.manifest.of("memories")
    with pytest.raises(BadArchive, match="checksum is another"):
        unpacker.verify(part)
    unpacker.close()


def test_lines_that_are_no_rows() -> None:
    packer = Packer(AT)
    packer.alone(BANK, {})
    packer.member("memories-00000.ndjson", b'{"a": 1}\n[1]\n', 2)
    manifest = Manifest("b", "", 1, "", ArchiveContents(), False, tuple(packer.parts), {})
    packer.close(MANIFEST, manifest.wire())
    unpacker = read(packer.take())
    assert unpacker.manifest is not None
    (part,) = unpacker.manifest.of("memories")
    with pytest.raises(BadArchive, match="line 2"):
        list(unpacker.lines(part))
    unpacker.close()


def test_a_line_without_end() -> None:
    packer = Packer(AT)
    packer.alone(BANK, {})
    packer.member("memories-00000.ndjson", orjson.dumps({"a": "x" * (17 << 20)}), 1, dense=True)
    manifest = Manifest("b", "", 1, "", ArchiveContents(), False, tuple(packer.parts), {})
    packer.close(MANIFEST, manifest.wire())
    unpacker = read(packer.take())
    assert unpacker.manifest is not None
    (part,) = unpacker.manifest.of("memories")
    with pytest.raises(BadArchive, match="a line of more than"):
        list(unpacker.lines(part))
    unpacker.close()
