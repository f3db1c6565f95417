"""Imports a JSONL file in batches, with a progress bar; an interrupted import resumes.

Acknowledged memories are noted in a small file beside the input. The note only saves time:
without it everything is sent again, which changes nothing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from serve.cli.client import Api
from serve.cli.filling import noted


class BadLine(ValueError):
    """A line that is not a memory; the message names the line."""


@dataclass(frozen=True, slots=True)
class Imported:
    imported: int
    skipped: int


def import_jsonl(api: Api, bank: str, file: Path, *, batch: int, again: bool) -> Imported:
    """Every memory of the file, in its order."""
    memories = list(_lines(file))
    note = noted(file.resolve(), api.url, bank, "imported")
    known = set() if again or not note.exists() else set(note.read_bytes().split())
    todo = [memory for memory in memories if _mark(memory) not in known]
    done = 0
    with _progress() as progress, note.open("ab") as notes:
        here = len(memories) - len(todo)
        bar = progress.add_task(bank, total=len(memories), completed=here, rate="")
        begin = time.monotonic()
        for part in batches(todo, batch):
            api.import_memories(bank, part)
            notes.write(b"".join(_mark(memory) + b"\n" for memory in part))
            notes.flush()
            done += len(part)
            rate = f"{done / (time.monotonic() - begin):.0f}/s"
            progress.update(bar, advance=len(part), rate=rate)
    return Imported(done, len(memories) - len(todo))


def batches(
    memories: Sequence[Mapping[str, Any]], size: int
) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Runs of about `size`, in order. A run goes on until no memory in it names a later key:
    links and sources must be known when they are imported."""
    place = {memory["key"]: i for i, memory in enumerate(memories)}
    start = 0
    while start < len(memories):
        stop = min(start + size, len(memories))
        checked = start
        while checked < stop:
            named = (place.get(key, -1) for key in _named(memories[checked]))
            stop = max(stop, *(at + 1 for at in named), stop)
            checked += 1
        yield memories[start:stop]
        start = stop


def _named(memory: Mapping[str, Any]) -> Iterator[str]:
    for link in memory.get("links") or ():
        if isinstance(link, Mapping) and isinstance(link.get("to"), str):
            yield link["to"]
    yield from (key for key in memory.get("sources") or () if isinstance(key, str))


def _lines(file: Path) -> Iterator[Mapping[str, Any]]:
    keys: dict[str, int] = {}
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                memory = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise BadLine(f"line {number} is not JSON: {error}") from None
            if not isinstance(memory, dict) or not isinstance(memory.get("key"), str):
                raise BadLine(f"line {number} is not an object with a text `key`")
            if (first := keys.setdefault(memory["key"], number)) != number:
                raise BadLine(f"line {number} repeats the key of line {first}: {memory['key']!r}")
            yield memory


def _mark(memory: Mapping[str, Any]) -> bytes:
    """Names a memory and its content: a changed line is sent again."""
    return hashlib.sha256(orjson.dumps(memory, option=orjson.OPT_SORT_KEYS)).hexdigest().encode()


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", style="dim"),
        TimeRemainingColumn(),
    )
