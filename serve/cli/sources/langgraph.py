"""LangGraph and LangMem: items of a store, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from serve.cli.sources.records import (
    Bad,
    LeftOut,
    Memory,
    Options,
    Record,
    files,
    given,
    objects,
    text_of,
    texts,
    time_of,
)

_PLACES = ("content", "text", "memory", "content.content", "content.text")


def read(path: Path, options: Options) -> Iterator[Record]:
    for name, file in files(path, ".json", ".jsonl", ".jsonl.gz"):
        for one in objects(name, file, "items", "store"):
            yield _record(one, options)


def _record(one: Any, options: Options) -> Record:
    if isinstance(one, Bad):
        return one
    if not isinstance(one, Mapping) or not one.get("key"):
        return Bad(one, "no object with a key")
    space = one.get("namespace", one.get("prefix"))
    parts = space.split(".") if isinstance(space, str) else [str(part) for part in space or ()]
    expires = time_of(one.get("expires_at"))
    if expires is not None and datetime.fromisoformat(expires) <= datetime.now(UTC):
        return LeftOut("expired")
    value = one.get("value")
    places = (options.text_path,) if options.text_path else _PLACES
    text, place = value if isinstance(value, str) else None, ""
    for candidate in places:
        if text is None and (found := text_of(_at(value, candidate))) is not None:
            text, place = found, candidate
    if text is None:
        return Bad(one, f"no text at {', '.join(places)}")
    top = place.partition(".")[0]
    rest = {k: v for k, v in value.items() if k != top} if isinstance(value, Mapping) else {}
    namespace = "/".join(parts)
    fields = given(
        key=f"langgraph:{namespace}/{one['key']}",
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
