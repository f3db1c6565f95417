"""The local embedder: texts to unit vectors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models.local.device import Machine
from models.local.engine import Engine, LoadedModel
from models.local.kernels import packed
from models.local.kernels.pack import Pack, Tokens
from models.local.layout import read
from models.local.sentence import SentenceModel
from models.local.text import INLINE_CHARS, TextEncoder, off_loop
from models.local.weights import canonical, find
from models.recent import RecentVectors
from models.settings import EmbedderSettings
from models.tokencut import cut_to_tokens
from models.types import BadOutput, Floats, Load, Observe, Priority, Unavailable, ignore

log = logging.getLogger(__name__)

DEFAULT_MODEL = "BAAI/bge-small-en-v1.5"

BULK_CHARS = 1 << 18
"""Characters of passages that are tokenised at once, about 0.1 s: other work gets its turn between,
and only so many tokens are held."""

BULK_SHARE = 8
"""One bulk call queues at most an eighth of the line at a time, so that others fit beside it."""


class LocalEncoder:
    """Any sentence-transformers folder of an encoder, poolings and the modules of
    `layout.MODULES`; others are refused at the start.

    Vectors have length 1. Rows do not depend on what else is in a batch, beyond rounding. Recent
    queries are kept, each for its tenant alone. Use from one event loop; `start` first.
    """

    def __init__(self, settings: EmbedderSettings, observe: Observe = ignore) -> None:
        self._settings = settings
        self._observe = observe
        self._wish = settings.model or DEFAULT_MODEL
        self._engine = Engine(
            f"embedder {self._wish}", settings.compute, batch_items=1 << 20, observe=observe
        )
        self._recent = RecentVectors(settings.cached_queries)
        self._tokens: Callable[[Sequence[str], str], list[Tokens]] | None = None
        self._legible: Callable[[str], float] | None = None
        self._inline = True
        self._prompts = ("", "")

    @property
    def model_id(self) -> str:
        """Names the weights: the hub id, or the folder as it was given."""
        return canonical(self._wish)

    @property
    def dimension(self) -> int:
        """0 before the start."""
        return self._engine.columns

    def legibility(self, text: str) -> float | None:
        """See models.local.text.legibility; None where another library tokenises."""
        return None if self._legible is None else self._legible(text)

    async def start(self) -> None:
        await self._engine.start(self._load)

    async def check_health(self) -> None:
        await self._engine.check_health()

    async def close(self) -> None:
        await self._engine.close()

    def load(self) -> Load:
        return self._engine.load()

    async def embed_queries(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        """float32 (n, dimension) in the order of `texts`; goes before embed_passages."""
        out = np.empty((len(texts), self.dimension), np.float32)
        missing = []
        for row, text in enumerate(texts):
            if (known := self._recent.get(tenant, text)) is not None:
                out[row] = known
            else:
                missing.append(row)
        if missing:
            tokens = await self._tokenise([texts[row] for row in missing], self._prompts[0])
            out[missing] = _checked(
                await self._engine.rows(tokens, tenant=tenant, deadline=deadline)
            )
            for row in missing:
                self._recent.put(tenant, texts[row], out[row])
        return out

    async def embed_passages(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        """float32 (n, dimension) in the order of `texts`; never delays queries by more than one
        small batch."""
        out = np.empty((len(texts), self.dimension), np.float32)
        window = max(1, self._engine.queued_tokens_limit // BULK_SHARE)
        for part in _parts([len(text) for text in texts], BULK_CHARS):
            tokens = await self._tokenise(texts[part], self._prompts[1])
            for some in _parts([len(t) for t in tokens], window):
                rows = await self._engine.rows(
                    tokens[some], tenant=tenant, priority=Priority.BULK, deadline=deadline
                )
                start = part.start + some.start
                out[start : start + len(rows)] = _checked(rows)
        return out

    async def _tokenise(self, texts: Sequence[str], prompt: str) -> list[Tokens]:
        made = self._tokens
        if made is None:
            raise Unavailable(self.model_id, "it is not started")
        limit = self._settings.max_input_tokens

        def work() -> list[Tokens]:
            return made([cut_to_tokens(text, limit) for text in texts], prompt)

        start = time.perf_counter()
        # Where calls wait for one another, none may do so on the event loop.
        chars = sum(map(len, texts)) if self._inline else INLINE_CHARS
        tokens = await off_loop(chars, work)
        self._observe("tokenise_s", time.perf_counter() - start)
        return tokens

    def _load(self, machine: Machine) -> LoadedModel:
        folder = find(self._wish, self._settings.revision)
        layout = read(folder)
        self._prompts = (layout.query_prompt, layout.passage_prompt)
        if layout.similarity not in ("cosine", None):
            log.warning(
                "%s was made for %s, its vectors are compared by cosine here",
                folder.name,
                layout.similarity,
            )
        if not layout.packed or not packed.supports(config := folder.of_encoder()):
            model = SentenceModel(folder, layout, machine.device, machine.wide_dtype)
            self._tokens, self._inline = model.tokens, False
            return LoadedModel(model.vectors, True, model.max_length)
        text = TextEncoder(folder)
        pools = [POOLINGS[name] for name in layout.poolings]
        firsts = layout.poolings == ("cls",)
        encoder = packed.PackedEncoder(
            config, folder.tensors(), machine.device, machine.dtype, firsts_only=firsts
        )
        text.fit(encoder.shape.positions, encoder.words)

        @torch.inference_mode()
        def forward(batch: Pack) -> Tensor:
            hidden = encoder(batch).float()
            rows = hidden if firsts else torch.cat([pool(hidden, batch) for pool in pools], 1)
            return F.normalize(rows[:, : layout.truncate_dim], dim=1)

        self._legible = text.legibility
        self._tokens = lambda texts, prompt: text.texts([prompt + t for t in texts])
        return LoadedModel(forward, False, text.max_length)


def _parts(sizes: Sequence[int], most: int) -> Iterator[slice]:
    """Runs of neighbours of at most `most` together, of one at least."""
    start, total = 0, 0
    for index, size in enumerate(sizes):
        if index > start and total + size > most:
            yield slice(start, index)
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def _checked(rows: Floats) -> Floats:
    if not np.isfinite(rows).all():
        raise BadOutput("the embedder answered with vectors that are not finite")
    return rows


def _lengths(hidden: Tensor, batch: Pack) -> Tensor:
    return torch.from_numpy(batch.lengths.astype(np.int64)).to(hidden.device)


def _mean(hidden: Tensor, batch: Pack) -> Tensor:
    return torch.segment_reduce(hidden, "mean", lengths=_lengths(hidden, batch), axis=0)


def _mean_sqrt_len(hidden: Tensor, batch: Pack) -> Tensor:
    lengths = _lengths(hidden, batch)
    sums = torch.segment_reduce(hidden, "sum", lengths=lengths, axis=0)
    return sums / lengths.sqrt()[:, None]


def _weighted_mean(hidden: Tensor, batch: Pack) -> Tensor:
    """A token's weight is its place, from 1."""
    lengths = _lengths(hidden, batch)
    weights = torch.from_numpy(batch.positions).to(hidden.device)[:, None] + 1.0
    sums = torch.segment_reduce(hidden * weights, "sum", lengths=lengths, axis=0)
    return sums / torch.segment_reduce(weights, "sum", lengths=lengths, axis=0)


def _max(hidden: Tensor, batch: Pack) -> Tensor:
    return torch.segment_reduce(hidden, "max", lengths=_lengths(hidden, batch), axis=0)


def _first(hidden: Tensor, batch: Pack) -> Tensor:
    return hidden[torch.from_numpy(batch.offsets[:-1].astype(np.int64)).to(hidden.device)]


def _last(hidden: Tensor, batch: Pack) -> Tensor:
    return hidden[torch.from_numpy(batch.offsets[1:].astype(np.int64) - 1).to(hidden.device)]


POOLINGS: Mapping[str, Callable[[Tensor, Pack], Tensor]] = {
    "cls": _first,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt_len,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}
"""States of all tokens (tokens, hidden), fp32, to one row per text (n, hidden)."""
