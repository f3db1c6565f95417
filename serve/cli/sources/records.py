"""What readers give: memories, documents, what is left out, what cannot be read."""

from __future__ import annotations

import gzip
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Final, TypeAlias, TypeVar

import ijson
import orjson

DEPTH_MOST: Final = 200
"""What is nested deeper is left out: it is nobody's memory, and cannot be written again."""
_DEEPER: Final = {"start_map": 1, "start_array": 1, "end_map": -1, "end_array": -1}

_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    gzip.BadGzipFile,
    EOFError,
    NotImplementedError,
    RuntimeError,  # encrypted
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """`text_path`: where a text lies inside a value (`a.b`); None: the usual places. `summaries`:
    take summaries of entities, too. `dsn`: a database in the place of a file."""

    text_path: str | None = None
    summaries: bool = False
    dsn: str | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """A line of an import. `scopes`: what it may be divided into banks by. `invalid`: why it does
    not hold any more."""

    fields: Mapping[str, Any]
    scopes: Mapping[str, str] = field(default_factory=dict)
    invalid: str | None = None


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """An item of a retain."""

    fields: Mapping[str, Any]
    scopes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that is not taken, and why, in a few words that can be counted."""

    why: str


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Something that cannot be read; `raw` goes into FILE.rejected."""

    raw: Any
    why: str


Record: TypeAlias = Memory | SourceDocument | LeftOut | BadRecord


def given(**values: Any) -> dict[str, Any]:
    """The values that are there."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def text_of(value: Any) -> str | None:
    """The value where it is a text with something in it."""
    return value if isinstance(value, str) and value.strip() else None


def id_of(value: Any) -> str | None:
    """The value as a text where it can name something."""
    if isinstance(value, str) and value.strip():
        return value
    return None if isinstance(value, bool) or not isinstance(value, int | float) else str(value)


def listed(value: Any) -> Sequence[Any]:
    """The value where it is a list."""
    return value if isinstance(value, list) else ()


def time_of(value: Any) -> str | None:
    """An ISO 8601 time of a text or of Unix seconds; None where it is none: then it stays unset."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return datetime.fromtimestamp(float(value), UTC).isoformat()
        if isinstance(value, str) and value.strip():
            found = datetime.fromisoformat(value.strip())
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).isoformat()
    except (ValueError, OverflowError, OSError):
        pass
    return None


def texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Metadata with values that are stored: texts; numbers and flags as JSON writes them."""
    found = {}
    for key, value in metadata.items():
        name = str(key)
        if isinstance(value, str):
            found[name] = value
        elif isinstance(value, bool | int | float):
            found[name] = json.dumps(value)
        elif value not in (None, [], {}):
            found[name] = json.dumps(value, default=str, ensure_ascii=False)
    return found


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise ValueError(f"{name} cannot be unpacked: {error or type(error).__name__}") from None


def files(path: Path, *suffixes: str, of: str = "") -> Iterator[tuple[str, IO[bytes]]]:
    """(name, open file) of a file, of those in a ZIP archive, or of a folder, of the right kind and
    in order. Where some of several are called `of`..., the others are something else."""
    if path.is_dir():
        found = [one for one in sorted(path.rglob("*")) if one.is_file()]
        for one in _wanted([(one.name, one) for one in found], suffixes, of, path):
            with one.open("rb") as file:
                yield one.name, file
    elif zipfile.is_zipfile(path):
        with _readable(path.name), zipfile.ZipFile(path) as archive:
            names = [(name.rpartition("/")[2], name) for name in sorted(archive.namelist())]
            for name in _wanted(names, suffixes, of, path):
                with archive.open(name) as file:
                    yield name.rpartition("/")[2], file
    else:
        with path.open("rb") as file:
            yield path.name, file


T = TypeVar("T")


def _wanted(
    found: Sequence[tuple[str, T]], suffixes: tuple[str, ...], of: str, path: Path
) -> list[T]:
    kind = [(name, one) for name, one in found if name.endswith(suffixes)]
    if not kind:
        raise ValueError(f"{path.name} holds no {' or '.join(suffixes)}")
    called = [one for name, one in kind if name.startswith(of)]
    return called or [one for _, one in kind]


def objects(name: str, file: IO[bytes], *keys: str, listed: bool = True) -> Iterator[Any]:
    """The objects of a JSON file, one at a time: of its list, of what is under one of `keys`, or of
    its lines. `listed`: its outer list counts. ValueError where it is not JSON."""
    stream: Any = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
    with _readable(name):
        if name.removesuffix(".gz").endswith((".jsonl", ".ndjson")):
            for line in stream:
                if line.strip():
                    try:
                        yield orjson.loads(line)
                    except orjson.JSONDecodeError as error:
                        raw = line.decode("utf-8", "replace").rstrip("\n")
                        yield BadRecord(raw, f"no JSON: {error}")
            return
        try:
            yield from _items(stream, keys, listed)
        except (ijson.JSONError, UnicodeDecodeError) as error:
            raise ValueError(f"{name} is not the JSON that was expected: {error}") from None


def _items(stream: Any, keys: tuple[str, ...], listed: bool) -> Iterator[Any]:
    """The members of the outer list, or of lists under the keys; an object there is its own only
    member."""
    wanted = {f"{key}.item" for key in keys} | ({"item"} if listed else set())
    # Without use_float: a number beyond 64 bits would be the end of the file.
    events = ijson.parse(_shallow(ijson.basic_parse(stream)))
    for prefix, event, value in events:
        alone = prefix in keys and event == "start_map"
        if not alone and (prefix not in wanted or event in ("end_map", "end_array")):
            continue
        if event not in ("start_map", "start_array"):
            yield value
            continue
        builder = ijson.ObjectBuilder()
        builder.event(event, value)
        depth = 1
        while depth:
            _, event, value = next(events)
            depth += _DEEPER.get(event, 0)
            builder.event(event, value)
        yield builder.value


def _shallow(events: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The events with null in the place of what is nested too deep: the place of each would be
    named by all that it lies in. Numbers as Python's own."""
    depth = 0
    for event, value in events:
        step = _DEEPER.get(event, 0)
        depth += step
        if depth + (step < 0) > DEPTH_MOST:
            if step > 0 and depth == DEPTH_MOST + 1:
                yield "null", None
            continue
        yield event, float(value) if isinstance(value, Decimal) else value
