"""What a memory is about, and whether it asks: two facts about a text that ranking reads."""

from __future__ import annotations

import re
from collections.abc import Sequence

from retrieval.text.folding import key

ASKS = 1
"""Bit of the flags column: the text ends with a question mark."""

_LEADING = re.compile(r"^[\s\"'“‘«(\[]*(?:(?:the|a|an)\s+)?", re.IGNORECASE)
_QUESTION_MARKS = ("?", "？", "؟", "⁇")
_UNSEEN = 16  # characters that a name may have in the text beyond those that it is given with
_CLOSING = " \t\r\n\"'”’»)]"


def subject(text: str, context: str | None, entities: Sequence[tuple[int, str]]) -> int:
    """The number of the entity that a memory is about; -1 where that cannot be told.

    Of its own entities (number, name): the longest whose name, as a reader sees it, the text starts
    with, behind an article or a quote; else the one that the context names; else the only one.
    """
    if not entities:
        return -1
    keys = [(key(name), number) for number, name in entities]
    longest = max(len(name) for _, name in entities)
    begin = _LEADING.match(text).end()  # type: ignore[union-attr]
    head = key(text[begin : begin + 2 * longest + _UNSEEN])
    starting = [
        (len(name), number)
        for name, number in keys
        if name and head.startswith(name) and not head[len(name) :][:1].isalnum()
    ]
    if starting:
        return max(starting)[1]
    if context is not None and len(context) <= 2 * longest + _UNSEEN:
        label = key(context)
        for name, number in keys:
            if name == label:
                return number
    return entities[0][0] if len(entities) == 1 else -1


def flags(text: str) -> int:
    """The flags column's value of a text."""
    return ASKS if text.rstrip(_CLOSING).endswith(_QUESTION_MARKS) else 0
