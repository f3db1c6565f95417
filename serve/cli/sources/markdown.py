"""A folder of Markdown: a document per file, under its path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import yaml

from serve.cli.sources.records import (
    BadRecord,
    LeftOut,
    ReadOptions,
    Record,
    SourceDocument,
    given,
    id_of,
    listed,
    texts,
    time_of,
)

BYTES_MAX = 4 * 2**20
_OWN = ("tags", "date", "title", "created", "updated")


class _Loader(yaml.SafeLoader):
    """Without aliases: a few lines of them say gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias")
        return super().compose_node(parent, index)


def read(path: Path, options: ReadOptions) -> Iterator[Record]:
    root = path if path.is_dir() else path.parent
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if not file.is_file():
            continue
        name = file.relative_to(root)
        if any(part.startswith(".") for part in name.parts):
            yield LeftOut("hidden")
        elif file.suffix.lower() not in (".md", ".markdown", ".txt"):
            yield LeftOut("another kind of file")
        elif file.stat().st_size > BYTES_MAX:
            yield LeftOut("above 4 MiB")
        else:
            yield _document(file, name.as_posix())


def _document(file: Path, name: str) -> Record:
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        return LeftOut("not UTF-8")
    except OSError as error:
        return BadRecord(name, f"it cannot be read: {error.strerror}")
    if "\0" in text:
        return LeftOut("binary")
    front, body = _front(text)
    if not body.strip():
        return LeftOut("empty")
    tags = front.get("tags")
    tags = tags.replace(",", " ").split() if isinstance(tags, str) else map(id_of, listed(tags))
    said = front.get("date") or front.get("created")
    if isinstance(said, date):
        said = said.isoformat()
    written = datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat()
    return SourceDocument(
        given(
            document_id=name,
            content=body,
            timestamp=time_of(said) or written,
            context=id_of(front.get("title")),
            tags=[tag for tag in tags if tag is not None],
            metadata=texts({k: v for k, v in front.items() if k not in _OWN}),
        )
    )


def _front(text: str) -> tuple[Mapping[str, Any], str]:
    """(front matter, the rest)."""
    if not text.startswith("---\n"):
        return {}, text
    head, mark, rest = text[4:].partition("\n---\n")
    if not mark:
        return {}, text
    try:
        found = yaml.load(head, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError):  # a date such as 2024-13-45, too
        return {}, text
    return (found, rest) if isinstance(found, dict) else ({}, text)
