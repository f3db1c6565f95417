"""An archive of ours as bundles: its rows are put into a scratch database beside it, from which the
documents come one by one. Memory stays what one document needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import orjson

from retrieval.errors import InvalidInput
from retrieval.lifecycle.transfer import storing
from retrieval.lifecycle.transfer.archive import BadArchive
from retrieval.lifecycle.transfer.bundles import Bundle, Incoming, Kept, Stated
from retrieval.lifecycle.transfer.lines import Line
from retrieval.lifecycle.transfer.unpacking import Unpacker
from retrieval.store.attachments import Attachment
from retrieval.types import FactType

ALONE: Final = 500
"""Memories without a document in one bundle, and observations in one batch."""
_MARKS: Final = (
    "consolidated_at", "consolidated_scopes", "consolidation_failed_at", "consolidation_error",
    "updated_at",
)  # fmt: skip
_TABLES: Final = """
create table documents (place integer primary key, id text unique, line blob);
create table more (id text, text text);
create table chunks (id text, line blob);
create table attached (id text, line blob);
create table memories (place integer primary key, document text, observation int, line blob);
create table links (source blob, target blob, type text, weight real);
create index more_of on more (id);
create index chunks_of on chunks (id);
create index attached_of on attached (id);
create index memories_of on memories (observation, document, place);
create index links_from on links (source);
create index links_to on links (target);
"""


class Staged:
    """See retrieval/lifecycle/transfer/bundles.py: Source."""

    def __init__(self, unpacker: Unpacker, folder: Path) -> None:
        self._unpacker = unpacker
        self._file = folder / "staged.sqlite"
        self._base: sqlite3.Connection | None = None
        self._blobs: dict[str, Attachment] = {}

    def open(self) -> None:
        manifest = self._unpacker.manifest
        assert manifest is not None
        base = self._base = sqlite3.connect(self._file, check_same_thread=False)
        base.executescript("pragma journal_mode = off; pragma synchronous = off;" + _TABLES)
        for kind, put in (
            ("documents", self._document),
            ("chunks", self._chunk),
            ("attachments", self._attachment),
            ("memories", self._memory),
        ):
            for part in manifest.of(kind):
                self._unpacker.verify(part)
                try:
                    with closing(self._unpacker.lines(part)) as rows:
                        for line in rows:
                            put(base, line)
                except BadArchive:
                    raise
                except (KeyError, TypeError, ValueError, AttributeError, InvalidInput,
                        sqlite3.Error) as error:  # fmt: skip
                    raise BadArchive(
                        f"the part {part.name[:80]!r} holds rows that cannot be stored"
                        f" ({type(error).__name__})"
                    ) from error
        base.commit()
        for part in manifest.of("blobs"):
            self._unpacker.verify(part)
            self._blobs[part.sha256] = storing.blob(part, self._unpacker)

    @staticmethod
    def _document(base: sqlite3.Connection, line: Line) -> None:
        if "more_text" in line:
            base.execute("insert into more values (?, ?)", (line["document_id"], line["more_text"]))
        else:
            base.execute(
                "insert into documents (id, line) values (?, ?)",
                (line["document_id"], orjson.dumps(line)),
            )

    @staticmethod
    def _chunk(base: sqlite3.Connection, line: Line) -> None:
        base.execute("insert into chunks values (?, ?)", (line["document_id"], orjson.dumps(line)))

    @staticmethod
    def _attachment(base: sqlite3.Connection, line: Line) -> None:
        base.execute(
            "insert into attached values (?, ?)", (line["document_id"], orjson.dumps(line))
        )

    @staticmethod
    def _memory(base: sqlite3.Connection, line: Line) -> None:
        observation = FactType.of(line["fact_type"]) is FactType.OBSERVATION
        base.execute(
            "insert into memories (document, observation, line) values (?, ?, ?)",
            (line.get("document_id"), int(observation), orjson.dumps(line)),
        )
        base.executemany(
            "insert into links values (?, ?, ?, ?)",
            [
                (UUID(line["id"]).bytes, UUID(each["to"]).bytes, each["type"], each["weight"])
                for each in line.get("links") or ()
            ],
        )

    def close(self) -> None:
        if self._base is not None:
            self._base.close()
            self._base = None

    def _rows(self, sql: str, *parameters: Any) -> list[Any]:
        assert self._base is not None
        return self._base.execute(sql, parameters).fetchall()

    @property
    def total(self) -> int:
        return int(self._rows("select count(*) from documents")[0][0])

    def bundles(self, skip: int) -> Iterator[Bundle]:
        places = self._rows("select place from documents order by place")
        for (place,) in places[skip:]:
            ((id, line),) = self._rows("select id, line from documents where place = ?", place)
            columns = orjson.loads(line)
            more = self._rows("select text from more where id = ? order by rowid", id)
            if more:
                first = columns.get("original_text") or ""
                columns["original_text"] = first + "".join(row[0] for row in more)
            chunks = [
                orjson.loads(row[0])
                for row in self._rows("select line from chunks where id = ? order by rowid", id)
            ]
            rows = self._rows(
                "select line from memories where observation = 0 and document = ? order by place",
                id,
            )
            yield self._bundle(id, columns, chunks, rows)
        done = max(0, skip - len(places))
        while True:
            rows = self._rows(
                "select line from memories where observation = 0 and document is null"
                " order by place limit ? offset ?",
                ALONE,
                done * ALONE,
            )
            if not rows:
                return
            yield self._bundle(None, {}, [], rows)
            done += 1

    def _bundle(
        self, id: str | None, columns: Line, chunks: Sequence[Line], rows: Sequence[Any]
    ) -> Bundle:
        memories = [incoming(orjson.loads(row[0])) for row in rows]
        attached = [
            self._attached(orjson.loads(row[0]))
            for row in self._rows("select line from attached where id = ? order by rowid", id)
        ]
        links = self._links([m.fact.id for m in memories])
        return Bundle(id, columns, chunks, memories, links, attached)

    def _attached(self, line: Line) -> Attachment:
        held = self._blobs.get(line["hash"])
        if held is None:
            raise BadArchive("a document refers to an attachment that the archive does not have")
        return storing.attachment(line, held)

    def _links(self, ids: Sequence[UUID]) -> list[Stated]:
        found: dict[tuple[Any, ...], Stated] = {}
        for id in ids:
            for row in self._rows(
                "select source, target, type, weight from links where source = ?1 or target = ?1",
                id.bytes,
            ):
                found[row[:3]] = Stated(UUID(bytes=row[0]), UUID(bytes=row[1]), row[2], row[3])
        return list(found.values())

    def observations(self, skip: int) -> Iterator[Sequence[Incoming]]:
        while True:
            rows = self._rows(
                "select line from memories where observation = 1 order by place limit ? offset ?",
                ALONE,
                skip * ALONE,
            )
            if not rows:
                return
            yield [incoming(orjson.loads(row[0])) for row in rows]
            skip += 1

    def kept(self) -> Kept:
        manifest = self._unpacker.manifest
        assert manifest is not None
        if not manifest.documents_only:
            return Kept()
        found = []
        for kind in ("mental-models", "knowledge"):
            lines: list[Line] = []
            for part in manifest.of(kind):
                self._unpacker.verify(part)
                lines += self._unpacker.lines(part)
            found.append(lines)
        return Kept(found[0], found[1])


def incoming(line: Line) -> Incoming:
    """A memory's line, to be written as any other memory is."""
    return Incoming(
        storing.fact_of(line),
        line.get("chunk_index"),
        {name: line.get(name) for name in _MARKS if line.get(name) is not None},
        line.get("invalidated"),
        line.get("history") or (),
    )
