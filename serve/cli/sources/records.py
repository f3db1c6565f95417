"""What readers give: memories, documents, what is left out, what cannot be read."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeAlias

import ijson
import orjson


@dataclass(frozen=True, slots=True)
class Options:
    """`text_path`: where a text lies inside a value (`a.b`); None: the usual places. `summaries`:
    take summaries of entities, too."""

    text_path: str | None = None
    summaries: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """A line of an import. `scopes`: what it may be divided into banks by. `invalid`: why it does
    not hold any more."""

    fields: Mapping[str, Any]
    scopes: Mapping[str, str] = field(default_factory=dict)
    invalid: str | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """An item of a retain."""

    fields: Mapping[str, Any]
    scopes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that is not taken, and why, in a few words that can be counted."""

    why: str


@dataclass(frozen=True, slots=True)
class Bad:
    """Something that cannot be read; `raw` goes into FILE.rejected."""

    raw: Any
    why: str


Record: TypeAlias = Memory | Document | LeftOut | Bad


def given(**values: Any) -> dict[str, Any]:
    """The values that are there."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def text_of(value: Any) -> str | None:
    """The value where it is a text with something in it."""
    return value if isinstance(value, str) and value.strip() else None


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
    for name, value in metadata.items():
        if isinstance(value, str):
            found[name] = value
        elif isinstance(value, bool | int | float):
            found[name] = json.dumps(value)
        elif value not in (None, [], {}):
            found[name] = json.dumps(value, default=str, ensure_ascii=False)
    return found


def files(path: Path, *suffixes: str, names: str = "") -> Iterator[tuple[str, IO[bytes]]]:
    """(name, open file) of a file, of those in a ZIP archive, or of a folder; of the right kind and
    with `names` in their name, in order."""
    if path.is_dir():
        for one in sorted(path.rglob("*")):
            if one.is_file() and one.name.endswith(suffixes) and names in one.name:
                with one.open("rb") as file:
                    yield one.name, file
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                last = name.rpartition("/")[2]
                if last.endswith(suffixes) and names in last:
                    with archive.open(name) as file:
                        yield last, file
    else:
        with path.open("rb") as file:
            yield path.name, file


def objects(name: str, file: IO[bytes], *keys: str, listed: bool = True) -> Iterator[Any]:
    """The objects of a JSON file, one at a time: of its list, of a list under one of `keys`, or of
    its lines. `listed`: its outer list counts. ValueError where it is not JSON."""
    stream: Any = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
    if name.removesuffix(".gz").endswith((".jsonl", ".ndjson")):
        for line in stream:
            if line.strip():
                try:
                    yield orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    yield Bad(line.decode("utf-8", "replace").rstrip("\n"), f"no JSON: {error}")
        return
    try:
        yield from _items(stream, keys, listed)
    except ijson.JSONError as error:
        raise ValueError(f"{name} is not the JSON that was expected: {error}") from None


def _items(stream: Any, keys: tuple[str, ...], listed: bool) -> Iterator[Any]:
    """The members of the outer list, or of lists under the keys."""
    wanted = {f"{key}.item" for key in keys} | ({"item"} if listed else set())
    events = ijson.parse(stream, use_float=True)
    for prefix, event, value in events:
        if prefix not in wanted or event in ("end_map", "end_array"):
            continue
        if event not in ("start_map", "start_array"):
            yield value
            continue
        builder = ijson.ObjectBuilder()
        builder.event(event, value)
        depth = 1
        while depth:
            _, event, value = next(events)
            depth += {"start_map": 1, "start_array": 1, "end_map": -1, "end_array": -1}.get(
                event, 0
            )
            builder.event(event, value)
        yield builder.value
