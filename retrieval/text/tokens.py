"""Counting cl100k tokens, without network.

Strings that name control tokens of the vocabulary (such as `<|endoftext|>`) count as the ordinary
text they are. Lone surrogates count as a question mark. Safe for any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol, cast

import numpy as np

from retrieval.types import Ints

PART = 8_000
"""Characters that are counted in one go. The tokenizer keeps the interpreter meanwhile, for up to
4 ms; 200,000 characters would be 90."""

LONGEST_TOKEN = 128
"""Characters; of spaces."""


class _Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: list[int]) -> str: ...

    def count(self, text: str) -> int: ...

    def count_till_limit(self, text: str, token_limit: int) -> int | None: ...


@cache
def _tokenizer() -> _Tokenizer:
    # The compiled tokenizer alone: importing its package builds tables of the whole vocabulary in
    # Python first, which takes half a second, warns of its own age, and refuses control tokens.
    found = PathFinder.find_spec("bpe_openai")
    folders = found.submodule_search_locations if found else None
    spec = PathFinder.find_spec("_bindings", folders) if folders else None
    if spec is None or spec.loader is None:
        raise ImportError("the package bpe-openai is not installed")
    bindings = module_from_spec(spec)
    spec.loader.exec_module(bindings)
    return cast(_Tokenizer, bindings.tokenizer_for_encoding("cl100k_base"))


def _clean(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def count(text: str) -> int:
    """How many cl100k tokens `text` has. Of thousands of letters without a break, one for each of
    the parts in which they are counted may be too much."""
    tokenizer, text = _tokenizer(), _clean(text)
    if len(text) <= PART:
        return tokenizer.count(text)
    return sum(map(tokenizer.count, _parts(text)))


def counts(texts: Sequence[str]) -> Ints:
    """`count` of each text, int32 (n,)."""
    return np.fromiter(map(count, texts), np.int32, len(texts))


def _parts(text: str) -> Iterator[str]:
    """The text in parts of PART characters at most, between which no token lies, since none goes
    on behind a letter with anything but a letter. Where there is no such place, anywhere."""
    start = 0
    while len(text) - start > PART:
        end = start + PART
        places = range(end, end - PART // 2, -1)
        end = next((i for i in places if text[i - 1].isalpha() and not text[i].isalpha()), end)
        yield text[start:end]
        start = end
    yield text[start:]


def cut(text: str, n: int) -> str:
    """The longest prefix of `text` whose first `n` tokens spell it: at most `n` tokens.

    A character that the cut would tear apart is dropped. `n <= 0` gives an empty string.
    """
    if n <= 0:
        return ""
    tokenizer = _tokenizer()
    text = _clean(text)
    reach = LONGEST_TOKEN * (n + 1)
    if len(text) > reach:  # what lies beyond cannot be among the first tokens
        text = text[:reach]
    if tokenizer.count_till_limit(text, n) is not None:
        return text
    tokens = tokenizer.encode(text)[:n]
    while tokens:
        try:
            prefix = tokenizer.decode(tokens)
        except ValueError:  # the last character is torn
            prefix = None
        if prefix is not None and text.startswith(prefix):
            return prefix
        tokens.pop()
    return ""
