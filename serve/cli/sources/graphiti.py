"""Graphiti and Zep: edges, nodes and episodes as JSON, in one file or in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from serve.cli.sources.records import (
    BadRecord,
    LeftOut,
    Memory,
    ReadOptions,
    Record,
    SourceDocument,
    files,
    given,
    id_of,
    objects,
    text_of,
    time_of,
)

_NODES = ("nodes", "entities")
_EDGES = ("edges", "facts")
_EPISODES = ("episodes", "episodic_nodes")


def read(path: Path, options: ReadOptions) -> Iterator[Record]:
    names: dict[str, str] = {}
    for node in _members(path, _NODES):
        if not isinstance(node, Mapping):
            continue
        name, id = text_of(node.get("name")), _uuid(node)
        if name is not None and id is not None:
            names[id] = name
        summary = text_of(node.get("summary"))
        if summary is not None and not options.summaries:
            yield LeftOut("summary of an entity")
        elif summary is not None and (name is None or id is None):
            yield BadRecord(node, "a summary of nobody")
        elif summary is not None:
            yield Memory(
                given(
                    key=f"graphiti:summary:{id}",
                    text=summary,
                    type="observation",
                    mentioned_at=time_of(node.get("created_at")),
                    entities=[name],
                    tags=_group(node),
                )
            )
    for episode in _members(path, _EPISODES):
        yield _episode(episode)
    for edge in _members(path, _EDGES):
        yield _fact(edge, names)


def _members(path: Path, keys: tuple[str, ...]) -> Iterator[Any]:
    """The objects under one of the keys, or in files called so."""
    for name, file in files(path, ".json", ".jsonl"):
        own = name.partition(".")[0]
        if own in keys:
            yield from objects(name, file, *keys)
        elif not any(own in one for one in (_NODES, _EDGES, _EPISODES)):
            yield from objects(name, file, *keys, listed=False)


def _uuid(one: Any) -> str | None:
    """Python's client of Zep writes it with a mark."""
    if not isinstance(one, Mapping):
        return None
    return id_of(one.get("uuid")) or id_of(one.get("uuid_"))


def _group(one: Mapping[str, Any]) -> list[str]:
    group = id_of(one.get("group_id"))
    return [] if group is None else [f"group:{group}"]


def _episode(one: Any) -> Record:
    if not isinstance(one, Mapping) or (text := text_of(one.get("content"))) is None:
        return one if isinstance(one, BadRecord) else BadRecord(one, "an episode without content")
    if (id := _uuid(one) or text_of(one.get("name"))) is None:
        return BadRecord(one, "an episode without a uuid")
    return SourceDocument(
        given(
            document_id=f"graphiti:{id}",
            content=text,
            timestamp=time_of(one.get("reference_time") or one.get("valid_at"))
            or time_of(one.get("created_at"))
            or "unset",
            context=text_of(one.get("source_description")),
            tags=_group(one),
        )
    )


def _fact(one: Any, names: Mapping[str, str]) -> Record:
    if (id := _uuid(one)) is None:
        return one if isinstance(one, BadRecord) else BadRecord(one, "an edge without a uuid")
    if (text := text_of(one.get("fact"))) is None:
        return LeftOut("edge without a fact")
    ends = [names.get(str(one.get(f"{end}_node_uuid"))) for end in ("source", "target")]
    start, end = time_of(one.get("valid_at")), time_of(one.get("invalid_at"))
    fields = given(
        key=f"graphiti:{id}",
        text=text,
        type="world",
        occurred_start=start,
        occurred_end=end if start is None or end is None or end >= start else None,
        mentioned_at=time_of(one.get("reference_time")) or time_of(one.get("created_at")),
        entities=[name for name in dict.fromkeys(ends) if name is not None],
        tags=_group(one),
    )
    group = id_of(one.get("group_id"))
    scopes = {} if group is None else {"user": group}
    return Memory(fields, scopes, "expired" if one.get("expired_at") else None)
