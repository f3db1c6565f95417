"""LangGraph and LangMem: items of a store, as JSON or out of its table."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen
from tempfile import TemporaryFile
from typing import Any

import orjson

from serve.cli.sources.records import (
    BadRecord,
    LeftOut,
    Memory,
    ReadOptions,
    Record,
    files,
    given,
    id_of,
    listed,
    objects,
    text_of,
    texts,
    time_of,
)

_PLACES = ("content", "text", "memory", "content.content", "content.text")


def read(path: Path, options: ReadOptions) -> Iterator[Record]:
    if options.dsn is not None:
        with closing(_table(options.dsn)) as rows:
            for one in rows:
                yield _record(one, options)
        return
    for name, file in files(path, ".json", ".jsonl", ".jsonl.gz"):
        for one in objects(name, file, "items", "store"):
            yield _record(one, options)


def _table(dsn: str) -> Generator[Any, None, None]:
    """Rows of the table `store`, a thousand at a time. ValueError where it cannot be read."""
    from retrieval.store.database.programs import connection, program, said

    where, environment = connection(dsn)
    command = [
        program("psql"), "--no-psqlrc", "--quiet", "--tuples-only", "--no-align",
        "--set=ON_ERROR_STOP=1", "--set=FETCH_COUNT=1000", f"--dbname={where}",
        "--command=select row_to_json(s) from store s order by prefix, key",
    ]  # fmt: skip
    with (
        TemporaryFile() as words,
        Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=words, env=environment) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield orjson.loads(line)
            status = process.wait()
        finally:
            process.kill()
        if status:
            words.seek(0)
            done = CompletedProcess(command, status, b"", words.read())
            raise ValueError(f"the table `store` cannot be read: {said(done)}")


def _record(one: Any, options: ReadOptions) -> Record:
    if isinstance(one, BadRecord):
        return one
    key = id_of(one.get("key")) if isinstance(one, Mapping) else None
    if key is None:
        return BadRecord(one, "no object with a key")
    space = one.get("namespace", one.get("prefix"))
    parts = space.split(".") if isinstance(space, str) else map(id_of, listed(space))
    expires = time_of(one.get("expires_at"))
    if expires is not None and datetime.fromisoformat(expires) <= datetime.now(UTC):
        return LeftOut("expired")
    value = one.get("value")
    places = (options.text_path,) if options.text_path else _PLACES
    text, place = text_of(value), ""
    for candidate in places:
        if text is None and (found := text_of(_at(value, candidate))) is not None:
            text, place = found, candidate
    if text is None:
        return BadRecord(one, f"no text at {', '.join(places)}")
    top = place.partition(".")[0]
    rest = {k: v for k, v in value.items() if k != top} if isinstance(value, Mapping) else {}
    namespace = "/".join(part for part in parts if part)
    fields = given(
        key=f"langgraph:{namespace}/{key}",
        text=text,
        mentioned_at=time_of(one.get("created_at")),
        tags=[f"namespace:{namespace}"] if namespace else [],
        metadata=texts(rest),
    )
    return Memory(fields, {"namespace": namespace} if namespace else {})


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
