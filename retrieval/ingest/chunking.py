"""Cutting long content into chunks. Pure; a chunk cut again stays as it is.

Conversations (a JSON array of objects, or lines of JSON objects) are packed in whole turns.
Other text is cut at the most telling separator that makes the pieces fit: blank line, line,
sentence, clause, word, character.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import orjson

_SEPARATORS = (
    "\n\n", "\n", ". ", "! ", "? ", "。", "！", "？", "；", "; ", "，", ", ", " ",
)  # fmt: skip


def chunk(text: str, size: int, structured_size: int | None = None) -> list[str]:
    """The chunks of `text` in order, none blank, each of at most `size` characters.

    A single turn or line may have up to `structured_size` (default `size`) and stays whole.
    """
    if len(text) <= size:
        return [text] if text.strip() else []
    turn_size = max(structured_size or size, 1)
    if (turns := _turns(text)) is not None:
        return _pack(turns, size, turn_size, lambda group: "[" + ",".join(group) + "]", 2)
    if len(text) <= turn_size and _is_object(text):
        return [text]
    if (lines := _lines(text)) is not None:
        return _pack(lines, size, turn_size, "\n".join, 0)
    return [piece for piece in split(text, size) if piece.strip()]


def split(text: str, size: int) -> list[str]:
    """Pieces of at most `size` characters, cut behind separators, white space at cuts dropped."""
    return _split(text.strip(), size, 0)


def _split(text: str, size: int, level: int) -> list[str]:
    if len(text) <= size:
        return [text] if text else []
    for at in range(level, len(_SEPARATORS)):
        separator = _SEPARATORS[at]
        if separator in text:
            break
    else:
        return [text[i : i + size] for i in range(0, len(text), size)]
    pieces = text.split(separator)
    # The mark stays with the sentence that it ends.
    pieces = [piece + separator for piece in pieces[:-1]] + pieces[-1:]
    packed: list[str] = []
    current = ""
    for piece in pieces:
        if len((current + piece).strip()) <= size:
            current += piece
            continue
        if current.strip():
            packed.append(current.strip())
        current = ""
        if len(piece.strip()) <= size:
            current = piece.lstrip()
        else:
            packed += _split(piece.strip(), size, at + 1)
    if current.strip():
        packed.append(current.strip())
    return packed


def _turns(text: str) -> list[str] | None:
    """The elements of a JSON array of objects, written compactly; None if it is none."""
    stripped = text.strip()
    if not stripped.startswith("["):
        return None
    try:
        values = orjson.loads(stripped)
    except orjson.JSONDecodeError:
        return None
    if not values or not all(isinstance(value, dict) for value in values):
        return None
    return [orjson.dumps(value).decode() for value in values]


def _is_object(text: str) -> bool:
    if not text.lstrip().startswith("{"):
        return False
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _lines(text: str) -> list[str] | None:
    """Lines that are JSON objects, at least two and nothing else; None otherwise."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return None
    try:
        if not all(isinstance(orjson.loads(line), dict) for line in lines):
            return None
    except orjson.JSONDecodeError:
        return None
    return lines


def _pack(
    units: Sequence[str],
    size: int,
    unit_size: int,
    write: Callable[[Sequence[str]], str],
    brackets: int,
) -> list[str]:
    """Whole units packed to `size`; one that exceeds `unit_size` is cut as text."""
    chunks: list[str] = []
    group: list[str] = []
    length = brackets

    def flush() -> None:
        nonlocal group, length
        if group:
            chunks.append(write(group))
        group, length = [], brackets

    for unit in units:
        if len(unit) + brackets > max(unit_size, size):
            flush()
            chunks.extend(split(unit, size))
        elif group and length + len(unit) + 1 > size:
            flush()
            group, length = [unit], brackets + len(unit)
        else:
            length += len(unit) + (1 if group else 0)
            group.append(unit)
    flush()
    return chunks
