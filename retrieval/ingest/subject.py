"""What a memory is about, and whether it asks: two facts about a text that ranking reads."""

from __future__ import annotations

import re
from collections.abc import Sequence

ASKS = 1
"""Bit of the flags column: the text ends with a question mark."""

_LEADING = re.compile(r"^[\s\"'“‘«(\[]*(?:(?:the|a|an)\s+)?", re.IGNORECASE)
_QUESTION_MARKS = ("?", "？", "؟", "⁇")
_CLOSING = " \t\r\n\"'”’»)]"


def subject(text: str, context: str | None, entities: Sequence[tuple[int, str]]) -> int:
    """The number of the entity that a memory is about; -1 where that cannot be told.

    Of its own entities (number, name): the longest whose name the text starts with, whatever its
    case and behind an article or a quote; else the one that the context names; else the only one.
    """
    head = text[_LEADING.match(text).end() :].casefold()  # type: ignore[union-attr]
    starting = [
        (len(name), number)
        for number, name in entities
        if name and head.startswith(name.casefold()) and not head[len(name) :][:1].isalnum()
    ]
    if starting:
        return max(starting)[1]
    if context is not None:
        label = context.strip().casefold()
        for number, name in entities:
            if name.casefold() == label:
                return number
    return entities[0][0] if len(entities) == 1 else -1


def flags(text: str) -> int:
    """The flags column's value of a text."""
    return ASKS if text.rstrip(_CLOSING).endswith(_QUESTION_MARKS) else 0
