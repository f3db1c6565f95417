"""The process that converts one file, given as its standard input, and answers on standard output:
one line of JSON, `{"error": …}` or `{}`, and behind the latter the text in UTF-8.

It has limits of memory and processor time, writes no file, reaches no network, knows none of the
server's secrets (its environment is empty), and opens no file but those of Python and its
libraries.
"""

from __future__ import annotations

import ctypes
import json
import mimetypes
import os
import re
import resource
import sys
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Any, Final

from retrieval.ingest.background import behind_others
from retrieval.ingest.files import text

LIMIT_S: Final = 120
MEMORY_BYTES: Final = 2 << 30
CHARACTERS: Final = 50_000_000
ENTRIES: Final = 10_000
UNPACKED_BYTES: Final = 512 << 20

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_DENIED: Final = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork",
                  "os.spawn", "urllib.", "http.", "ftplib.", "smtplib.", "ctypes.dlopen", "pty.",
                  "os.remove", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir",
                  "os.truncate", "os.chmod", "os.kill", "shutil.")  # fmt: skip
_DTD: Final = re.compile(rb"<!\s*(?:DOCTYPE|ENTITY)", re.IGNORECASE)
_XML: Final = (".xml", ".rels", ".vml", ".xhtml", ".html")
_ENCODING: Final = re.compile(rb"""<\?xml[^>]*\bencoding\s*=\s*["']([^"']*)""")


class Unconvertible(Exception):
    """The file cannot be converted; says why, behind the file's name."""


def main(kind: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    _limited()
    try:
        found = _converted(kind, sys.stdin.buffer)
        if len(found) > CHARACTERS:
            raise Unconvertible(f"has more than {CHARACTERS:,} characters of text")
        content = found.encode("utf-8", "replace")
    except Unconvertible as error:
        answers.write(json.dumps({"error": str(error)}).encode() + b"\n")
    except MemoryError:
        answers.write(b'{"error": "needs more than 2 GB of memory to be read"}\n')
    except BaseException as error:
        said = f"is damaged, or no {kind} that can be read ({type(error).__name__})"
        answers.write(json.dumps({"error": said}).encode() + b"\n")
    else:
        answers.write(b"{}\n")
        answers.write(content)
    answers.flush()
    os._exit(0)  # libraries may have threads, and nothing is left to do


def _limited() -> None:
    behind_others()
    for which, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, LIMIT_S),
    ):
        resource.setrlimit(which, (most, most))
    # A network namespace of its own, where the system lets us have one; the hook sees to the rest.
    ctypes.CDLL(None).unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def _confined() -> None:
    """From here on Python itself refuses what a converter has no need of."""
    roots = {path for path in (*sys.path, sys.prefix, sys.base_prefix) if os.path.isdir(path)}
    places = tuple(os.path.realpath(path) + os.sep for path in roots)

    def look(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, flags = args[0], args[2]
            if isinstance(path, int):
                return
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes or not os.path.realpath(os.fsdecode(path)).startswith(places):
                raise PermissionError("a converter opens no files")
        elif event.startswith(_DENIED):
            raise PermissionError(f"a converter must not use {event}")

    sys.addaudithook(look)


def _converted(kind: str, file: IO[bytes]) -> str:
    if kind in ("text", "html"):
        _confined()
        try:
            found = text.decoded(file.read())
        except text.NoText as error:
            raise Unconvertible(f"cannot be read: {error}") from None
        return text.page(found) if kind == "html" else found
    convert = _converter(kind)
    mimetypes.init()
    _confined()
    if kind != "pdf":
        _look_inside(file)
        file.seek(0)
    return convert(file)


def _converter(kind: str) -> Callable[[IO[bytes]], str]:
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from markitdown import StreamInfo, converters

    # Whatever they import late is imported now, while files may be opened.
    if kind == "xlsx":
        import openpyxl
        import pandas.io.excel

        _ = openpyxl, pandas
    made = getattr(converters, f"{kind.capitalize()}Converter")()

    def convert(file: IO[bytes]) -> str:
        found: str = made.convert(file, StreamInfo(extension=f".{kind}")).markdown
        return found

    return convert


def _look_inside(file: IO[bytes]) -> None:
    """Refuses archives that are more than they say, and documents with definitions of their own."""
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile:
        raise Unconvertible(
            "is damaged: it is cut off, or not the archive that it says it is"
        ) from None
    entries = archive.infolist()
    if len(entries) > ENTRIES:
        raise Unconvertible(f"has more than {ENTRIES:,} parts")
    if len({entry.filename for entry in entries}) < len(entries):
        raise Unconvertible("is damaged: it has the same part twice")
    left = UNPACKED_BYTES
    for entry in entries:
        if entry.flag_bits & 1:
            raise Unconvertible("is protected by a password")
        xml = entry.filename.lower().endswith(_XML)
        kept: list[bytes] = []
        try:
            with archive.open(entry) as part:
                while piece := part.read(1 << 20):
                    left -= len(piece)
                    if left < 0:
                        raise Unconvertible(f"unpacks to more than {UNPACKED_BYTES >> 20} MiB")
                    if xml:
                        kept.append(piece)
        except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, ValueError, zlib.error):
            raise Unconvertible("is damaged: a part of it cannot be unpacked") from None
        if xml:
            _look_at(b"".join(kept))


def _look_at(part: bytes) -> None:
    plain = part.replace(b"\0", b"")  # UTF-16, if it is that
    start = plain.lstrip(b"\xef\xbb\xbf\xfe\xff \t\r\n")
    declared = _ENCODING.match(start[:200])
    known = declared is None or declared[1].lower() in (b"utf-8", b"utf-16", b"us-ascii", b"ascii")
    if (start and not start.startswith(b"<")) or not known:
        raise Unconvertible("has a part in an encoding that such files do not have")
    if _DTD.search(plain):
        raise Unconvertible("holds a document type definition, which such files must not have")
