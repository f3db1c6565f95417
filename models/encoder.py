"""The local embedder: texts to unit vectors."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models import packed
from models.device import Machine
from models.engine import Engine, Loaded
from models.pack import Pack, Tokens
from models.padded import PaddedModel
from models.settings import EmbedderSettings
from models.text import TextEncoder, off_loop
from models.tokencut import cut_to_tokens
from models.types import BadOutput, Floats, Load, Observe, Priority, Unavailable, WrongModel, ignore
from models.weights import ModelFolder, canonical, find

DEFAULT_MODEL = "BAAI/bge-small-en-v1.5"

BULK_SHARE = 8
"""One bulk call queues at most an eighth of the line at a time, so that others fit beside it."""


class LocalEncoder:
    """Any sentence-transformers folder that consists of an encoder and a pooling.

    Vectors have length 1. Rows do not depend on what else is in a batch, beyond rounding. Recent
    queries are kept. Use from one event loop; `start` first.
    """

    def __init__(self, settings: EmbedderSettings, observe: Observe = ignore) -> None:
        self._settings = settings
        self._observe = observe
        self._wish = settings.model or DEFAULT_MODEL
        self._engine = Engine(
            f"embedder {self._wish}", settings.compute, batch_items=1 << 20, observe=observe
        )
        self._recent: OrderedDict[str, Floats] = OrderedDict()
        self._folder: ModelFolder | None = None
        self._text: TextEncoder | None = None
        self._prompts = ("", "")

    @property
    def model_id(self) -> str:
        """Names the weights: the hub id, or the folder as it was given."""
        return canonical(self._wish)

    @property
    def dimension(self) -> int:
        """0 before the start."""
        return int(self._folder.config["hidden_size"]) if self._folder else 0

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
            if (known := self._recent.get(text)) is not None:
                self._recent.move_to_end(text)
                out[row] = known
            else:
                missing.append(row)
        if missing:
            tokens = await self._tokenise([texts[row] for row in missing], self._prompts[0])
            out[missing] = _checked(
                await self._engine.rows(tokens, tenant=tenant, deadline=deadline)
            )
            for row in missing:
                self._remember(texts[row], out[row])
        return out

    async def embed_passages(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        """float32 (n, dimension) in the order of `texts`; never delays queries by more than one
        small batch."""
        out = np.empty((len(texts), self.dimension), np.float32)
        window = max(1, self._engine.queued_tokens_limit // BULK_SHARE)
        tokens = await self._tokenise(texts, self._prompts[1])
        start = 0
        while start < len(texts):
            stop = start + 1
            size = len(tokens[start])
            while stop < len(texts) and size + len(tokens[stop]) <= window:
                size += len(tokens[stop])
                stop += 1
            out[start:stop] = _checked(
                await self._engine.rows(
                    tokens[start:stop], tenant=tenant, priority=Priority.BULK, deadline=deadline
                )
            )
            start = stop
        return out

    async def _tokenise(self, texts: Sequence[str], prompt: str) -> list[Tokens]:
        encoder = self._text
        if encoder is None:
            raise Unavailable(self.model_id, "it is not started")
        limit = self._settings.max_input_tokens

        def work() -> list[Tokens]:
            return encoder.texts([prompt + cut_to_tokens(text, limit) for text in texts])

        start = time.perf_counter()
        tokens = await off_loop(sum(map(len, texts)), work)
        self._observe("tokenise_s", time.perf_counter() - start)
        return tokens

    def _remember(self, text: str, vector: Floats) -> None:
        if self._settings.cached_queries:
            self._recent[text] = vector.copy()
            self._recent.move_to_end(text)
            while len(self._recent) > self._settings.cached_queries:
                self._recent.popitem(last=False)

    def _load(self, machine: Machine) -> Loaded:
        folder = find(self._wish)
        pool = _pooling(folder)
        text = TextEncoder(folder)
        trust = self._settings.compute.trust_remote_code
        hidden: Callable[[Pack], Tensor]
        if packed.supports(folder.config):
            firsts = pool is _first
            hidden = packed.PackedEncoder(
                folder.config,
                folder.tensors(),
                machine.device,
                machine.dtype,
                firsts_only=firsts,
            )
            pool = _as_it_is if firsts else pool
        else:
            hidden = PaddedModel(
                folder,
                machine.device,
                machine.wide_dtype,
                classifier=False,
                trust_remote_code=trust,
            ).hidden

        @torch.inference_mode()
        def forward(batch: Pack) -> Tensor:
            return F.normalize(pool(hidden(batch).float(), batch), dim=1)

        self._prompts = _prompts(folder)
        self._text, self._folder = text, folder
        return Loaded(forward, not packed.supports(folder.config), text.max_length)


def _checked(rows: Floats) -> Floats:
    if not np.isfinite(rows).all():
        raise BadOutput("the embedder answered with vectors that are not finite")
    return rows


def _mean(hidden: Tensor, batch: Pack) -> Tensor:
    lengths = torch.from_numpy(batch.lengths.astype(np.int64)).to(hidden.device)
    return torch.segment_reduce(hidden, "mean", lengths=lengths, axis=0)


def _max(hidden: Tensor, batch: Pack) -> Tensor:
    lengths = torch.from_numpy(batch.lengths.astype(np.int64)).to(hidden.device)
    return torch.segment_reduce(hidden, "max", lengths=lengths, axis=0)


def _first(hidden: Tensor, batch: Pack) -> Tensor:
    return hidden[torch.from_numpy(batch.offsets[:-1].astype(np.int64)).to(hidden.device)]


def _last(hidden: Tensor, batch: Pack) -> Tensor:
    return hidden[torch.from_numpy(batch.offsets[1:].astype(np.int64) - 1).to(hidden.device)]


def _as_it_is(hidden: Tensor, _: Pack) -> Tensor:
    """For an encoder that computes first tokens only."""
    return hidden


Pooling = Callable[[Tensor, Pack], Tensor]
POOLINGS: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": _mean,
    "pooling_mode_cls_token": _first,
    "pooling_mode_max_tokens": _max,
    "pooling_mode_lasttoken": _last,
    "mean": _mean,
    "cls": _first,
    "max": _max,
    "lasttoken": _last,
}


def _pooling(folder: ModelFolder) -> Pooling:
    """What modules.json and the pooling module's configuration say; mean where there is neither,
    as sentence-transformers does."""
    pooling: Pooling = _mean
    for module in folder.list("modules.json"):
        kind = str(module["type"]).rsplit(".", 1)[-1]
        if kind == "Pooling":
            config = folder.json(f"{module['path']}/config.json")
            modes = [name for name, on in config.items() if on is True and name in POOLINGS]
            if isinstance(mode := config.get("pooling_mode"), str):
                modes = [mode]
            if len(modes) != 1 or modes[0] not in POOLINGS:
                raise WrongModel(f"{folder.name} pools by {modes or 'nothing known'}")
            pooling = POOLINGS[modes[0]]
        elif kind not in ("Transformer", "Normalize"):
            raise WrongModel(f"{folder.name} has a {kind} module, which is not supported")
    return pooling


def _prompts(folder: ModelFolder) -> tuple[str, str]:
    """(query, passage): the model's own, by the names that sentence-transformers uses."""
    config = folder.json("config_sentence_transformers.json")
    prompts: Mapping[str, str] = config.get("prompts") or {}
    fallback = prompts.get(config.get("default_prompt_name") or "", "")
    query = prompts.get("query") or fallback
    passage = next(
        (prompts[n] for n in ("document", "passage", "corpus") if prompts.get(n)), fallback
    )
    return query, passage
