"""How deep and how wide a JSON text is, before anything is built from it.

A text of a few megabytes can be millions of empty objects, which cost a hundred times its size and
hold the interpreter while they are made. What stands inside strings does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BLOCK_BYTES = 1 << 20
_QUOTE, _OPEN, _CLOSE, _COMMA = 1, 2, 3, 4

_KINDS = np.zeros(256, np.uint8)
for _signs, _kind in ((b'"', _QUOTE), (b"[{", _OPEN), (b"]}", _CLOSE), (b",", _COMMA)):
    _KINDS[list(_signs)] = _kind


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a JSON text may be at most."""

    depth: int
    containers: int
    """Objects and lists."""
    values: int
    """Members of all of them."""


class TooMuch(ValueError):
    """A text beyond the bounds; str() says which."""


def check(text: bytes, bounds: Bounds) -> None:
    """TooMuch where `text` goes beyond the bounds. Any bytes will do: what is no JSON is measured
    as if it were. Long texts are read in blocks that let other threads run in between."""
    if len(text) <= bounds.depth or text.count(b"[") + text.count(b"{") <= bounds.depth:
        if text.count(b",") >= bounds.values:
            _check_blocks(text, bounds)
        return
    _check_blocks(text, bounds)


def _check_blocks(text: bytes, bounds: Bounds) -> None:
    quoted = depth = containers = commas = start = 0
    while start < len(text):
        end = min(len(text), start + BLOCK_BYTES)
        block = text[start:end]
        if (len(block) - len(block.rstrip(b"\\"))) % 2:  # ends amid an escape
            end += 1
            block = text[start:end]
        start = end
        if b"\\" in block:  # escapes stand in strings only, and pair up from the left
            block = block.replace(b"\\\\", b"").replace(b'\\"', b"")
        kinds = _KINDS[np.frombuffer(block, np.uint8)]
        kinds = kinds[kinds != 0]
        quotes = kinds == _QUOTE
        inside = (quoted + np.cumsum(quotes, dtype=np.int32)) & 1
        quoted = int(inside[-1]) if len(inside) else quoted
        bare = kinds[(inside == 0) & ~quotes]
        opens, closes = bare == _OPEN, bare == _CLOSE
        levels = depth + np.cumsum(opens.astype(np.int32) - closes)
        deepest, depth = int(levels.max(initial=depth)), int(levels[-1]) if len(levels) else depth
        containers += int(np.count_nonzero(opens))
        commas += int(np.count_nonzero(bare == _COMMA))
        if deepest > bounds.depth:
            raise TooMuch(f"is nested deeper than {bounds.depth} levels")
        if containers > bounds.containers:
            raise TooMuch(f"has more than {bounds.containers:,} objects and lists")
        if commas + 1 > bounds.values:
            raise TooMuch(f"has more than {bounds.values:,} values")
