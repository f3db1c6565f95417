"""Text to token ids: single texts, and (query, document) pairs whose query is tokenised once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from unicodedata import east_asian_width

import numpy as np
from tokenizers import Tokenizer
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as Normalizers

from models.local.kernels import packed
from models.local.kernels.pack import Tokens
from models.local.layout import TransformerOptions, options
from models.local.weights import ModelFolder
from models.types import Ints, WrongModel

CHARS_PER_TOKEN = 64
"""Text beyond so many characters per token of room is not read: it cannot fit in practice, and a
megabyte costs a third of a second to tokenise."""

DEFAULT_TOKENS = 512
"""The length of a model where nothing says it."""

MOST_LEGIBLE = 6.0

LEGIBLE_CHARS = 500
"""So much of a text tells how legible it is."""

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
    """The tokenizer that transformers makes of a folder, with the Transformer module's options.

    A folder's tokenizer.json alone is not enough: transformers replaces parts of it by what the
    tokenizer's class and configuration say. Thread-safe: it holds no state of its own between
    calls.
    """

    def __init__(self, folder: ModelFolder, document_tokens: int | None = None) -> None:
        """`document_tokens`: the most tokens of a document in a pair; None: all that fit."""
        own = options(folder)
        made = plain_bert(folder) or _by_transformers(folder)
        self._tokenizer = made.tokenizer
        if own.lower_case:
            _lower_case(self._tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._from_left = made.from_left
        self.makes_types = made.makes_types
        """Whether a model gets the types; without, it takes its own default, which is 0."""
        self.vocabulary = made.vocabulary
        self.max_length = _max_length(folder, own, made.max_length)
        self._document_tokens = document_tokens or self.max_length
        self._known = 1 << 31
        self._unknown = _unknown(self._tokenizer)
        self._single = _template(self._tokenizer)
        self._pair = _template(self._tokenizer, "a")

    def fit(self, positions: int, words: int) -> None:
        """Bounds lengths by a model's table of positions, and says to refuse what is not in its
        table of words: one such text would fail a whole batch."""
        self.max_length = min(self.max_length, positions)
        self._known = words

    def texts(self, texts: Sequence[str]) -> list[Tokens]:
        """Cut to `max_length`, at the end unless the tokenizer says otherwise."""
        none = np.empty(0, np.int32)
        room = self.max_length - self._single.size
        return [
            self._join(self._single, self._cut(ids, room), none, len(ids) > room)
            for ids in self._ids(texts)
        ]

    def legibility(self, text: str) -> float:
        """As the function, of the beginning of a text."""
        text = beginning(text, LEGIBLE_CHARS)
        return legibility(text, self._ids([text])[0], self._unknown)

    def pairs(self, query: str, documents: Sequence[str]) -> list[Tokens]:
        """Cuts documents, never the query, unless the query alone would fill the model."""
        room = self.max_length - self._pair.size
        first = self._ids([query])[0]
        if len(first) > room - 1:
            first = self._cut(first, max(1, room - MIN_DOCUMENT_TOKENS))
        left = min(room - len(first), self._document_tokens)
        return [
            self._join(self._pair, first, self._cut(ids, left), len(ids) > left)
            for ids in self._ids(documents)
        ]

    def _join(self, template: _Template, first: Ints, second: Ints, cut: bool) -> Tokens:
        joined = template.join(first, second, cut)
        return joined if self.makes_types else Tokens(joined.ids, np.zeros_like(joined.ids), cut)

    def _cut(self, ids: Ints, room: int) -> Ints:
        return ids[max(0, len(ids) - room) :] if self._from_left else ids[:room]

    def _ids(self, texts: Sequence[str]) -> list[Ints]:
        limit = self.max_length * CHARS_PER_TOKEN
        short = [beginning(text, limit, from_left=self._from_left) for text in texts]
        try:
            encoded = self._tokenizer.encode_batch_fast(short, add_special_tokens=False)
        except TypeError:
            clean = without_surrogates(short)
            encoded = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        found = [np.array(e.ids, np.int32) for e in encoded]
        if self._known < self.vocabulary:
            for ids in found:
                if ids.size and ids.max() >= self._known:
                    raise WrongModel(
                        f"the model has no word vector for token {ids.max()} of a text"
                    )
        return found


def legibility(text: str, pieces: Ints, unknown: int | None) -> float:
    """About how many letters of `text` each of its pieces spells, 0 .. MOST_LEGIBLE.

    A wide character (Chinese, Japanese, Korean) counts as three letters: it takes about three to
    say the same in an alphabet. Pieces outside the vocabulary (`unknown`) count as nothing, and
    take as much from what stands between them.
    """
    if not len(pieces):
        return 0.0
    known = 1.0 if unknown is None else float((pieces != unknown).mean())
    letters = sum(3 if east_asian_width(c) in "WF" else 1 for c in text if not c.isspace())
    return min(MOST_LEGIBLE, letters / len(pieces) * known**2)


def without_surrogates(texts: Sequence[str]) -> list[str]:
    """Lone surrogates are no text to a tokenizer; one of them must not fail a batch."""
    return [text.encode(errors="replace").decode() for text in texts]


def beginning(text: str, chars: int, *, from_left: bool = False) -> str:
    """At most `chars` characters: the first, or the last where a tokenizer cuts `from_left`."""
    return text[max(0, len(text) - chars) :] if from_left else text[:chars]


async def off_loop(chars: int, work: Callable[[], R]) -> R:
    """Runs `work` in a thread where `chars` characters would hold up the event loop."""
    return work() if chars < INLINE_CHARS else await asyncio.to_thread(work)


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """A folder's tokenizer, and what its configuration says beside it."""

    tokenizer: Tokenizer
    vocabulary: int
    max_length: int
    from_left: bool = False
    makes_types: bool = True


_BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_BERT_CONFIG = frozenset(
    {
        "cls_token", "do_basic_tokenize", "do_lower_case", "mask_token", "model_max_length",
        "name_or_path", "never_split", "pad_token", "sep_token", "special_tokens_map_file",
        "strip_accents", "tokenize_chinese_chars", "tokenizer_class", "unk_token",
    }
)  # fmt: skip


def plain_bert(folder: ModelFolder) -> LoadedTokenizer | None:
    """The tokenizer of a BERT folder whose tokenizer.json says what its configuration says, so
    that transformers, whose import takes most of a second, would change nothing; None of others.
    """
    try:
        own = json.loads((folder.path / "tokenizer_config.json").read_text("utf-8"))
        made = json.loads((folder.path / "tokenizer.json").read_text("utf-8"))
        normal, model = made["normalizer"], made["model"]
        plain = (
            own.keys() <= _BERT_CONFIG
            and not (folder.path / "added_tokens.json").exists()
            and own["tokenizer_class"] in ("BertTokenizer", "BertTokenizerFast")
            and not own.get("never_split")
            and normal["type"] == "BertNormalizer"
            and normal["clean_text"] is True
            and normal["lowercase"] is own["do_lower_case"]
            and normal["strip_accents"] is own.get("strip_accents")
            and normal["handle_chinese_chars"] is own.get("tokenize_chinese_chars", True)
            and made["pre_tokenizer"] == {"type": "BertPreTokenizer"}
            and made["post_processor"]["type"] == "TemplateProcessing"
            and model["type"] == "WordPiece"
            and model["unk_token"] == "[UNK]"
            and model["continuing_subword_prefix"] == "##"
            and [token["content"] for token in made["added_tokens"]] == [*_BERT_SPECIAL]
            and all(_is_special(token) for token in made["added_tokens"])
            and all(
                own.get(f"{token[1:-1].lower()}_token", token) == token for token in _BERT_SPECIAL
            )
        )
        if not plain:
            return None
        tokenizer = Tokenizer.from_file(str(folder.path / "tokenizer.json"))
    except Exception:  # transformers says what is wrong with it
        return None
    return LoadedTokenizer(tokenizer, tokenizer.get_vocab_size(), own.get("model_max_length") or 0)


def _is_special(token: Mapping[str, Any]) -> bool:
    plain = ("single_word", "lstrip", "rstrip", "normalized")
    return token["special"] is True and not any(token[name] for name in plain)


def _by_transformers(folder: ModelFolder) -> LoadedTokenizer:
    from transformers import AutoTokenizer

    try:
        made = AutoTokenizer.from_pretrained(str(folder.path), trust_remote_code=False)
    except Exception as error:  # its classes raise whatever their files lead to
        raise WrongModel(f"{folder.name}: its tokenizer cannot be read: {error}") from error
    if getattr(made, "backend_tokenizer", None) is None:
        raise WrongModel(f"{folder.name} has a {type(made).__name__}, and no fast tokenizer")
    return LoadedTokenizer(
        made.backend_tokenizer,
        len(made),
        made.model_max_length,
        made.truncation_side == "left",
        "token_type_ids" in made.model_input_names,
    )


def _lower_case(tokenizer: Tokenizer) -> None:
    """Before everything else, as sentence-transformers does."""
    own: Any = tokenizer.normalizer
    several = isinstance(own, Normalizers)
    steps = [] if own is None else list(own) if several else [own]
    if not any(isinstance(step, Lowercase) for step in steps):
        tokenizer.normalizer = Normalizers([Lowercase(), *steps])


def _max_length(folder: ModelFolder, own: TransformerOptions, tokenizers: int) -> int:
    """What the options say, else the tokenizer and the configuration; never more than the model
    has positions for."""
    config = folder.config
    positions = config.get("max_position_embeddings")
    limits = [own.max_tokens] if own.max_tokens else [tokenizers, positions]
    if positions and packed.supports(config):
        limits.append(int(positions) - packed.first_position(config))
    # Tokenizers without a limit say 10^30.
    known = [int(n) for n in limits if n and 0 < int(n) < 1 << 30]
    return min(known, default=DEFAULT_TOKENS)


def _unknown(tokenizer: Tokenizer) -> int | None:
    """The id of what is not in the vocabulary; None where everything can be spelt."""
    word: str | None = getattr(tokenizer.model, "unk_token", None)
    return None if word is None else tokenizer.token_to_id(word)


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
