"""Cuts texts by cl100k_base tokens, the unit in which callers state limits."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

LONGEST_TOKEN_CHARS = 128
"""The longest token are so many spaces: what is behind cannot be within the limit."""


@cache
def _cl100k() -> Any:
    with warnings.catch_warnings():
        # Its import reads its data through a deprecated function.
        warnings.simplefilter("ignore", DeprecationWarning)
        from bpe_openai import get_encoding

    return get_encoding("cl100k_base")


def cut_to_tokens(text: str, limit: int | None) -> str:
    """The longest beginning of `text` with at most `limit` tokens; None leaves it whole."""
    # A token has at least one byte, so text this short cannot be over the limit.
    if limit is None or 4 * len(text) <= limit:
        return text
    short = text[: limit * LONGEST_TOKEN_CHARS]
    tokens = _cl100k().encode_ordinary(short)
    if len(tokens) <= limit:
        return short
    return bytes(_cl100k().decode_bytes(tokens[:limit])).decode(errors="ignore")
