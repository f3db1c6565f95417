"""Fills banks from another system's export, in order, with progress; an interrupted run resumes.

What was acknowledged is noted beside the input by a hash of what was sent: a second run sends only
what changed. Keys and document ids come from the source, so sending twice changes nothing either.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from serve.cli.client import Api, ApiError
from serve.cli.sources import Reader
from serve.cli.sources.records import (
    BadRecord,
    LeftOut,
    Memory,
    ReadOptions,
    Record,
    SourceDocument,
)

SHOWN = 10
"""Mappings that a dry run shows."""


@dataclass(slots=True)
class Filled:
    """What became of the records."""

    memories: int = 0
    documents: int = 0
    unchanged: int = 0
    rejected: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Filling:
    """One run. `per`: divide by this scope of the records; what has none goes to `bank`. `again`:
    send also what was sent before."""

    api: Api
    bank: str
    source: Path
    reader: Reader
    options: ReadOptions
    batch: int = 200
    per: str | None = None
    again: bool = False

    def run(self) -> Filled:
        """Sends everything. ApiError where the server refuses a whole request for good."""
        done = Filled()
        source = self.source.resolve()
        note = noted(source, self.api.url, self.bank, "filled")
        if self.again:
            note.unlink(missing_ok=True)
        known = set(note.read_bytes().split()) if note.exists() else set[bytes]()
        rejected = source.with_name(f"{source.name}.rejected")
        rejected.unlink(missing_ok=True)
        with _progress() as progress, note.open("ab") as notes:
            task = progress.add_task(self.bank, total=None, sent=0)
            for bank, kind, group in self._groups(done, known, rejected):
                marks = self._send(bank, kind, group, done, rejected)
                notes.write(b"".join(mark + b"\n" for mark in marks))
                notes.flush()
                progress.update(task, sent=done.memories + done.documents)
        return done

    def preview(self) -> tuple[Filled, list[Memory | SourceDocument]]:
        """Counts of everything, and the first records as they would be sent."""
        done, shown = Filled(), list[Memory | SourceDocument]()
        for record in self.reader(self.source, self.options):
            if isinstance(record, Memory | SourceDocument):
                done.memories += isinstance(record, Memory)
                done.documents += isinstance(record, SourceDocument)
                if len(shown) < SHOWN:
                    shown.append(record)
            elif isinstance(record, BadRecord):
                done.rejected += 1
            else:
                done.left_out[record.why] += 1
        return done, shown

    def _groups(
        self, done: Filled, known: set[bytes], rejected: Path
    ) -> Iterator[tuple[str, type[Record], Sequence[Memory | SourceDocument]]]:
        """Runs of records of one kind for one bank that were not sent before."""

        def wanted() -> Iterator[Memory | SourceDocument]:
            for record in self.reader(self.source, self.options):
                if isinstance(record, LeftOut):
                    done.left_out[record.why] += 1
                elif isinstance(record, BadRecord):
                    _reject(rejected, record.raw, record.why)
                    done.rejected += 1
                elif (why := _unsendable(record)) is not None:
                    _reject(rejected, dict(record.fields), why)
                    done.rejected += 1
                elif self._mark(record) in known:
                    done.unchanged += 1
                else:
                    yield record

        groups = itertools.groupby(wanted(), lambda one: (self._bank(one), type(one)))
        for (bank, kind), run in groups:
            size = self.batch if kind is Memory else 1
            while part := list(itertools.islice(run, size)):
                yield bank, kind, part

    def _bank(self, record: Memory | SourceDocument) -> str:
        return record.scopes.get(self.per or "", self.bank)

    def _send(
        self,
        bank: str,
        kind: type[Record],
        group: Sequence[Memory | SourceDocument],
        done: Filled,
        rejected: Path,
    ) -> list[bytes]:
        """Sends a run; halves one that is refused, down to what is wrong. Marks of what is in."""
        try:
            if kind is Memory:
                self._memories(bank, group)
                done.memories += len(group)
            else:
                self.api.retain(bank, [dict(one.fields) for one in group])
                done.documents += len(group)
        except ApiError as error:
            if not str(error).startswith(("400", "413", "422")):
                raise
            if len(group) == 1:
                _reject(rejected, dict(group[0].fields), str(error))
                done.rejected += 1
                return []
            half = len(group) // 2
            parts = group[:half], group[half:]
            return [mark for part in parts for mark in self._send(bank, kind, part, done, rejected)]
        return [self._mark(one) for one in group]

    def _memories(self, bank: str, group: Sequence[Memory | SourceDocument]) -> None:
        ids = self.api.import_memories(bank, [one.fields for one in group])["ids"]
        for one in group:
            if isinstance(one, Memory) and one.invalid is not None:
                change = {"state": "invalidated", "reason": one.invalid}
                self.api.patch_memory(bank, ids[one.fields["key"]], change)

    def _mark(self, record: Memory | SourceDocument) -> bytes:
        """Names a record, its content and where it goes."""
        invalid = record.invalid if isinstance(record, Memory) else None
        content = [self._bank(record), dict(record.fields), invalid]
        packed = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(packed).hexdigest().encode()


def noted(source: Path, url: str, bank: str, kind: str) -> Path:
    """The file beside the source that says what this server has of it in this bank."""
    place = hashlib.sha256(f"{url.rstrip('/')}\n{bank}".encode()).hexdigest()[:12]
    return source.with_name(f".{source.name}.{place}.{kind}")


def _unsendable(record: Memory | SourceDocument) -> str | None:
    """Why no server can be sent it."""
    try:
        orjson.dumps(dict(record.fields))
    except TypeError as error:
        return f"it cannot be sent: {error}"
    return None


def _reject(file: Path, raw: Any, why: str) -> None:
    # Not orjson: what is rejected may be what it does not write.
    line = json.dumps({"why": why, "record": raw}, default=str)
    with file.open("a") as lines:
        lines.write(f"{line}\n")


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[sent]} sent"),
        TimeElapsedColumn(),
    )
