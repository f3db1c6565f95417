"""Mem0: an OpenMemory archive, or what `get_all` gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

_SUFFIXES = (".json", ".jsonl", ".jsonl.gz")
_TAGS = (
    ("user", ("user_id",)), ("agent", ("agent_id",)), ("run", ("run_id",)),
    ("app", ("app_id", "app_name", "app")),
)  # fmt: skip


def read(path: Path, options: Options) -> Iterator[Record]:
    seen: set[str] = set()
    for name, file in files(path, *_SUFFIXES, names="memories" if path.suffix == ".zip" else ""):
        for one in objects(name, file, "results", "memories"):
            record = _record(one)
            key = record.fields["key"] if isinstance(record, Memory) else None
            if key is None or key not in seen:  # an archive holds them in two forms
                yield record
            if key is not None:
                seen.add(key)


def _record(one: Any) -> Record:
    if isinstance(one, Bad):
        return one
    if not isinstance(one, Mapping) or not one.get("id"):
        return Bad(one, "no object with an id")
    text = text_of(one.get("memory")) or text_of(one.get("content")) or text_of(one.get("text"))
    state = str(one.get("state") or "active").lower()
    if state == "deleted" or one.get("deleted_at"):
        return LeftOut("deleted")
    if text is None:
        return Bad(one, "no text in memory, content or text")
    scopes = {
        kind: str(one[name])
        for kind, names in _TAGS
        for name in names
        if isinstance(one.get(name), str | int)
    }
    categories = [
        c.get("name") if isinstance(c, Mapping) else c for c in one.get("categories") or ()
    ]
    tags = [f"{kind}:{value}" for kind, value in scopes.items()]
    tags += [f"category:{name}" for name in categories if isinstance(name, str)]
    metadata = one.get("metadata") or one.get("metadata_") or {}
    fields = given(
        key=f"mem0:{one['id']}",
        text=text,
        mentioned_at=time_of(one.get("created_at")),
        tags=list(dict.fromkeys(tags)),
        metadata=texts(metadata) if isinstance(metadata, Mapping) else None,
    )
    return Memory(fields, scopes, state if state in ("paused", "archived") else None)
