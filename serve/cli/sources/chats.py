"""Conversations as ChatGPT and Claude export them: a document each, a line per turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from serve.cli.sources.records import (
    Bad,
    Document,
    LeftOut,
    Options,
    Record,
    files,
    given,
    objects,
    text_of,
    time_of,
)


def chatgpt(path: Path, options: Options) -> Iterator[Record]:
    """The branch that is shown: from current_node up. System, tools and hidden turns are left
    out."""
    for name, file in files(path, ".json", names="conversations" if path.suffix == ".zip" else ""):
        for one in objects(name, file):
            mapping = one.get("mapping") if isinstance(one, Mapping) else None
            if not isinstance(mapping, Mapping):
                yield Bad(one, "no conversation with a mapping")
                continue
            branch, rest = _branch(mapping, one.get("current_node"))
            yield from [LeftOut("another branch")] * rest
            lines = []
            for turn in branch:
                line, left = _turn(turn)
                yield from left
                if line is not None:
                    lines.append(line)
            id = one.get("conversation_id") or one.get("id") or one.get("create_time")
            yield _document("chatgpt", id, one.get("title"), one.get("create_time"), lines)


def _branch(mapping: Mapping[str, Any], last: Any) -> tuple[list[Mapping[str, Any]], int]:
    """(messages, oldest first; how many lie on other branches)."""
    messages: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    node = last if last in mapping else next(reversed(list(mapping)), None)
    while isinstance(node, str) and node in mapping and node not in seen:
        seen.add(node)
        message = mapping[node].get("message")
        if isinstance(message, Mapping):
            messages.append(message)
        node = mapping[node].get("parent")
    others = sum(
        1 for id, one in mapping.items() if id not in seen and isinstance(one.get("message"), dict)
    )
    return messages[::-1], others


def _turn(message: Mapping[str, Any]) -> tuple[str | None, list[LeftOut]]:
    author = message.get("author")
    role = author.get("role") if isinstance(author, Mapping) else None
    if role not in ("user", "assistant") or message.get("weight") == 0:
        return None, [LeftOut("system, tool or hidden turn")]
    content = message.get("content")
    parts = content.get("parts") if isinstance(content, Mapping) else None
    said = [part for part in parts or () if isinstance(part, str) and part.strip()]
    left = [LeftOut("image or file")] * sum(not isinstance(part, str) for part in parts or ())
    return (f"{role}: {' '.join(said)}" if said else None), left


def claude(path: Path, options: Options) -> Iterator[Record]:
    for name, file in files(
        path, ".json", ".jsonl", names="conversations" if path.suffix == ".zip" else ""
    ):
        for one in objects(name, file):
            turns = one.get("chat_messages") if isinstance(one, Mapping) else None
            if not isinstance(turns, list):
                yield one if isinstance(one, Bad) else Bad(one, "no conversation with messages")
                continue
            lines = []
            for turn in turns:
                said = _said(turn)
                if said:
                    lines.append(f"{turn.get('sender') or 'unknown'}: {said}")
                for attached in (*(turn.get("attachments") or ()), *(turn.get("files") or ())):
                    text = text_of(attached.get("extracted_content"))
                    if text is None:
                        yield LeftOut("attachment without text")
                    else:
                        lines.append(f"{attached.get('file_name') or 'attachment'}: {text}")
            yield _document(
                "claude", one.get("uuid"), one.get("name"), one.get("created_at"), lines
            )


def _said(turn: Mapping[str, Any]) -> str:
    text = text_of(turn.get("text"))
    parts = turn.get("content")
    if text is None and isinstance(parts, list):
        said = [text_of(part.get("text")) for part in parts if isinstance(part, Mapping)]
        text = " ".join(one for one in said if one) or None
    return text or ""


def _document(kind: str, id: Any, title: Any, time: Any, lines: Sequence[str]) -> Record:
    if not lines:
        return LeftOut("conversation without turns")
    if not id:
        return Bad(title, "a conversation without an id")
    return Document(
        given(
            document_id=f"{kind}:{id}",
            content="\n".join(lines),
            timestamp=time_of(time) or "unset",
            context=text_of(title),
        )
    )
