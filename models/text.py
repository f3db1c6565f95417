"""Text to token ids: single texts, and (query, document) pairs whose query is tokenised once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from tokenizers import Tokenizer

from models import packed
from models.pack import Tokens
from models.types import Ints, WrongModel
from models.weights import ModelFolder

CHARS_PER_TOKEN = 64
"""Text beyond so many characters per token of room is not read: it cannot fit in practice, and a
megabyte costs a third of a second to tokenise."""

MIN_DOCUMENT_TOKENS = 16
"""A query keeps all its tokens as long as so many of the document fit beside it."""

INLINE_CHARS = 2_000
"""Below this, tokenising (about 0.1 ms) costs less than the way to a thread and back."""


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Template:
    """The special tokens around the texts, and the type id of every part."""

    before: Ints
    between: Ints
    after: Ints
    types: Ints

    @property
    def size(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)

    def join(self, first: Ints, second: Ints, cut: bool) -> Tokens:
        parts = (self.before, first, self.between, second, self.after)
        ids = np.concatenate(parts)
        return Tokens(ids, np.repeat(self.types, [len(part) for part in parts]), cut)


class TextEncoder:
    """Wraps a fast tokenizer. Thread-safe: it holds no state of its own between calls."""

    def __init__(self, folder: ModelFolder, document_tokens: int | None = None) -> None:
        """`document_tokens`: the most tokens of a document in a pair; None: all that fit."""
        self._tokenizer = _load(folder)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.max_length = _max_length(folder)
        self._document_tokens = document_tokens or self.max_length
        self._single = _template(self._tokenizer)
        self._pair = _template(self._tokenizer, "a")

    def texts(self, texts: Sequence[str]) -> list[Tokens]:
        """Cut at the end to `max_length`."""
        none = np.empty(0, np.int32)
        room = self.max_length - self._single.size
        return [self._single.join(ids[:room], none, len(ids) > room) for ids in self._ids(texts)]

    def pairs(self, query: str, documents: Sequence[str]) -> list[Tokens]:
        """Cuts documents, never the query, unless the query alone would fill the model."""
        room = self.max_length - self._pair.size
        first = self._ids([query])[0]
        first = first[: max(1, room - MIN_DOCUMENT_TOKENS)] if len(first) > room - 1 else first
        left = min(room - len(first), self._document_tokens)
        return [self._pair.join(first, ids[:left], len(ids) > left) for ids in self._ids(documents)]

    def _ids(self, texts: Sequence[str]) -> list[Ints]:
        limit = self.max_length * CHARS_PER_TOKEN
        short = [text[:limit] for text in texts]
        try:
            encoded = self._tokenizer.encode_batch_fast(short, add_special_tokens=False)
        except TypeError:
            # Lone surrogates are no text to the tokenizer; one of them must not fail a batch.
            clean = [text.encode(errors="replace").decode() for text in short]
            encoded = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [np.array(e.ids, np.int32) for e in encoded]


async def off_loop(chars: int, work: Callable[[], R]) -> R:
    """Runs `work` in a thread where `chars` characters would hold up the event loop."""
    return work() if chars < INLINE_CHARS else await asyncio.to_thread(work)


def _load(folder: ModelFolder) -> Tokenizer:
    file = folder.path / "tokenizer.json"
    if file.is_file():
        return Tokenizer.from_file(str(file))
    from transformers import AutoTokenizer

    fast = AutoTokenizer.from_pretrained(str(folder.path), use_fast=True)
    backend = getattr(fast, "backend_tokenizer", None)
    if backend is None:
        raise WrongModel(f"{folder.name} has no tokenizer.json and no fast tokenizer")
    return backend  # type: ignore[no-any-return]


def _max_length(folder: ModelFolder) -> int:
    """The shortest of what the layout, the tokenizer and the position table say."""
    config = folder.config
    limits = [
        folder.json("sentence_bert_config.json").get("max_seq_length"),
        folder.json("tokenizer_config.json").get("model_max_length"),
    ]
    if packed.supports(config):
        limits.append(packed.Shape.of(config).positions)
    else:
        limits.append(config.get("max_position_embeddings"))
    # Tokenizers without a limit say 10^30.
    return min((int(n) for n in limits if n and 0 < int(n) < 1 << 30), default=512)


def _template(tokenizer: Tokenizer, second: str | None = None) -> _Template:
    encoded = tokenizer.encode("a", second)
    owners = encoded.sequence_ids
    ids, types = np.array(encoded.ids, np.int32), np.array(encoded.type_ids, np.int32)
    at = [index for index, owner in enumerate(owners) if owner is not None]
    if not at:
        raise WrongModel("the tokenizer makes no token of the letter a")
    firsts = [index for index in at if owners[index] == 0]
    seconds = [index for index in at if owners[index] == 1]
    start, stop = firsts[0], firsts[-1] + 1
    resume, end = (seconds[0], seconds[-1] + 1) if seconds else (len(ids), len(ids))
    kinds = [
        int(types[index]) if index < len(types) else 0
        for index in (0, start, stop, resume, len(types) - 1)
    ]
    if not seconds:
        # One text: what follows it is its end, there is no second.
        kinds = [kinds[0], kinds[1], kinds[4], 0, 0]
    return _Template(ids[:start], ids[stop:resume], ids[end:], np.array(kinds, np.int32))
