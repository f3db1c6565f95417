"""Mem0: an OpenMemory archive, or what `get_all` gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

_SUFFIXES = (".json", ".jsonl", ".jsonl.gz")
_TAGS = (
    ("user", ("user_id",)), ("agent", ("agent_id",)), ("run", ("run_id",)),
    ("app", ("app_id", "app_name", "app")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Names:
    """What an OpenMemory archive calls the ids in its memories."""

    user: Mapping[str, str] = field(default_factory=dict)
    app: Mapping[str, str] = field(default_factory=dict)
    category: Mapping[str, str] = field(default_factory=dict)


def read(path: Path, options: ReadOptions) -> Iterator[Record]:
    names = _Names(
        _named(path, "user", "user_id"), _named(path, "apps"), _named(path, "categories")
    )
    seen: set[str] = set()
    for name, file in files(path, *_SUFFIXES, of="memories"):
        for one in objects(name, file, "results", "memories"):
            id = id_of(one.get("id")) if isinstance(one, Mapping) else None
            if id is None or id not in seen:  # an archive holds them in two forms
                yield _record(one, names)
            if id is not None:
                seen.add(id)


def _named(path: Path, key: str, by: str = "name") -> dict[str, str]:
    found = {}
    for name, file in files(path, *_SUFFIXES, of="memories"):
        if name != "memories.json":
            continue
        for one in objects(name, file, key, listed=False):
            if not isinstance(one, Mapping):
                continue
            id, called = id_of(one.get("id")), text_of(one.get(by))
            if id is not None and called is not None:
                found[id] = called
    return found


def _record(one: Any, names: _Names) -> Record:
    if isinstance(one, BadRecord):
        return one
    id = id_of(one.get("id")) if isinstance(one, Mapping) else None
    if id is None:
        return BadRecord(one, "no object with an id")
    text = text_of(one.get("memory")) or text_of(one.get("content")) or text_of(one.get("text"))
    state = str(one.get("state") or "active").lower()
    if state == "deleted" or one.get("deleted_at"):
        return LeftOut("deleted")
    if text is None:
        return BadRecord(one, "no text in memory, content or text")
    scopes = {}
    for kind, fields_of in _TAGS:
        for value in (id_of(one.get(name)) for name in fields_of):
            if value is not None:
                called = {"user": names.user, "app": names.app}.get(kind, {})
                scopes[kind] = called.get(value, value)
    categories = [
        text_of(each.get("name") if isinstance(each, Mapping) else each)
        for each in listed(one.get("categories"))
    ]
    categories += [names.category.get(str(each)) for each in listed(one.get("category_ids"))]
    tags = [f"{kind}:{value}" for kind, value in scopes.items()]
    tags += [f"category:{name}" for name in categories if name is not None]
    metadata = one.get("metadata") or one.get("metadata_") or {}
    fields = given(
        key=f"mem0:{id}",
        text=text,
        mentioned_at=time_of(one.get("created_at")),
        tags=list(dict.fromkeys(tags)),
        metadata=texts(metadata) if isinstance(metadata, Mapping) else None,
    )
    return Memory(fields, scopes, state if state in ("paused", "archived") else None)
