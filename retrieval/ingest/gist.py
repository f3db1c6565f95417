"""What a text is about and whether it asks, read off its first and last characters. Pure."""

from __future__ import annotations

from collections.abc import Sequence

ASKS = 1
"""Bit of the flags column: the text ends with a question mark."""

_BEFORE = " \t\r\n\"'“”‘’«»([*#_-"
_AFTER = " \t\r\n\"'“”‘’«»)]*_"
_ARTICLES = ("the ", "a ", "an ")


def subject(text: str, names: Sequence[tuple[int, str]]) -> int:
    """The number of the longest of `names` (number, name) that the text begins with; -1 for none.

    "Ann: see you there" and "The Oslo office is open" begin with Ann and Oslo.
    """
    if not names:
        return -1
    head = text[:600].lstrip(_BEFORE).lower()
    starts = [head, *(head.removeprefix(a) for a in _ARTICLES if head.startswith(a))]
    best, length = -1, 0
    for number, name in names:
        wanted = name.lower()
        if len(wanted) > length and any(_begins(start, wanted) for start in starts):
            best, length = number, len(wanted)
    return best


def _begins(text: str, name: str) -> bool:
    return text.startswith(name) and not text[len(name) : len(name) + 1].isalnum()


def asks(text: str) -> bool:
    return text.rstrip(_AFTER).endswith(("?", "？", "؟"))
