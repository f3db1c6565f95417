"""Conversations as ChatGPT and Claude export them: a document each, a line per turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from serve.cli.sources.records import (
    BadRecord,
    LeftOut,
    ReadOptions,
    Record,
    SourceDocument,
    files,
    given,
    id_of,
    listed,
    objects,
    text_of,
    time_of,
)


def chatgpt(path: Path, options: ReadOptions) -> Iterator[Record]:
    """The branch that is shown: from current_node up. System, tools and hidden turns are left
    out."""
    for name, file in files(path, ".json", of="conversations"):
        for one in objects(name, file):
            mapping = one.get("mapping") if isinstance(one, Mapping) else None
            if not isinstance(mapping, Mapping):
                yield (
                    one
                    if isinstance(one, BadRecord)
                    else BadRecord(one, "no conversation with a mapping")
                )
                continue
            branch, rest = _branch(mapping, one.get("current_node"))
            yield from [LeftOut("another branch")] * rest
            lines = []
            for turn in branch:
                line, left = _turn(turn)
                yield from left
                if line is not None:
                    lines.append(line)
            ids = (id_of(one.get(name)) for name in ("conversation_id", "id", "create_time"))
            id = next((id for id in ids if id is not None), None)
            yield _document("chatgpt", id, one.get("title"), one.get("create_time"), lines)


def _branch(mapping: Mapping[str, Any], last: Any) -> tuple[list[Mapping[str, Any]], int]:
    """(messages, oldest first; how many lie on other branches)."""
    nodes = {id: node for id, node in mapping.items() if isinstance(node, Mapping)}
    messages: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    node = last if isinstance(last, str) and last in nodes else next(reversed(list(nodes)), None)
    while isinstance(node, str) and node in nodes and node not in seen:
        seen.add(node)
        message = nodes[node].get("message")
        if isinstance(message, Mapping):
            messages.append(message)
        node = nodes[node].get("parent")
    others = sum(
        1 for id, one in nodes.items() if id not in seen and isinstance(one.get("message"), Mapping)
    )
    return messages[::-1], others


def _turn(message: Mapping[str, Any]) -> tuple[str | None, list[LeftOut]]:
    author, more = message.get("author"), message.get("metadata")
    role = author.get("role") if isinstance(author, Mapping) else None
    hidden = isinstance(more, Mapping) and more.get("is_visually_hidden_from_conversation") is True
    if role not in ("user", "assistant") or message.get("weight") == 0 or hidden:
        return None, [LeftOut("system, tool or hidden turn")]
    if message.get("recipient") not in (None, "all"):
        return None, [LeftOut("call of a tool")]
    content = message.get("content")
    parts = listed(content.get("parts")) if isinstance(content, Mapping) else ()
    # What was spoken is a part of its own, beside the recording.
    texts = [text_of(part.get("text") if isinstance(part, Mapping) else part) for part in parts]
    said = [text for text in texts if text is not None]
    left = [LeftOut("image or file")] * sum(
        isinstance(part, Mapping) and text is None for part, text in zip(parts, texts, strict=True)
    )
    return (f"{role}: {' '.join(said)}" if said else None), left


def claude(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Every turn, with the texts that were attached to it."""
    for source, file in files(path, ".json", ".jsonl", of="conversations"):
        for one in objects(source, file):
            turns = one.get("chat_messages") if isinstance(one, Mapping) else None
            if not isinstance(turns, list):
                yield (
                    one
                    if isinstance(one, BadRecord)
                    else BadRecord(one, "no conversation with messages")
                )
                continue
            lines = []
            for turn in turns:
                if not isinstance(turn, Mapping):
                    yield LeftOut("turn that is none")
                    continue
                said = _said(turn)
                if said:
                    lines.append(f"{text_of(turn.get('sender')) or 'unknown'}: {said}")
                for attached in (*listed(turn.get("attachments")), *listed(turn.get("files"))):
                    text: str | None = None
                    name: str | None = None
                    if isinstance(attached, Mapping):
                        text = text_of(attached.get("extracted_content"))
                        name = text_of(attached.get("file_name"))
                    if text is None:
                        yield LeftOut("attachment without text")
                    else:
                        lines.append(f"{name or 'attachment'}: {text}")
            yield _document(
                "claude", id_of(one.get("uuid")), one.get("name"), one.get("created_at"), lines
            )


def _said(turn: Mapping[str, Any]) -> str:
    """Its blocks of text, where it has some: `text` says of the others that they are missing."""
    blocks = [
        text_of(part.get("text"))
        for part in listed(turn.get("content"))
        if isinstance(part, Mapping) and part.get("type", "text") == "text"
    ]
    said = " ".join(one for one in blocks if one)
    return said or text_of(turn.get("text")) or ""


def _document(kind: str, id: str | None, title: Any, time: Any, lines: Sequence[str]) -> Record:
    if not lines:
        return LeftOut("conversation without turns")
    if id is None:
        return BadRecord(title, "a conversation without an id")
    return SourceDocument(
        given(
            document_id=f"{kind}:{id}",
            content="\n".join(lines),
            timestamp=time_of(time) or "unset",
            context=text_of(title),
        )
    )
