"""The local cross-encoder: reads (query, document) pairs with a one-label sequence classifier."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.local import samples
from models.local.device import Machine, hand_over_often
from models.local.engine import Engine, LoadedModel
from models.local.kernels import packed
from models.local.kernels.linear import Affine, linear
from models.local.kernels.pack import Pack, pack
from models.local.kernels.padded import PaddedModel
from models.local.layout import of_classifier
from models.local.text import TextEncoder, off_loop
from models.local.weights import ModelFolder, find
from models.settings import RerankerSettings
from models.types import Load, Observe, RerankRequest, Scores, Unavailable, WrongModel, ignore

DEFAULT_MODEL = "cross-encoder/ms-marco-MiniLM-L-6-v2"

Head = Callable[[Tensor], Tensor]
"""First-token states (n, hidden) to logits (n, 1)."""


class LocalCrossEncoder:
    """Scores are the model's logits (scale "logit"), or probabilities where the model's
    configuration declares a sigmoid as its activation. They do not depend on what else is in a
    batch, beyond rounding. Documents are cut to the model's length, queries are not.
    """

    name = "local"
    reads_text = True

    def __init__(self, settings: RerankerSettings, observe: Observe = ignore) -> None:
        self._settings = settings
        self._observe = observe
        self.model_id = settings.model or DEFAULT_MODEL
        self._engine = Engine(
            f"reranker {self.model_id}",
            settings.compute,
            batch_items=settings.batch_size,
            observe=observe,
        )
        self._text: TextEncoder | None = None
        self._scale = "logit"

    @property
    def runs_on(self) -> str:
        """The precision, which "auto" chooses by what the machine can, and the device."""
        return self._engine.runs_on

    async def start(self) -> None:
        """Raises WrongModel where the model has no head with one label."""
        await self._engine.start(self._load)

    async def check_health(self) -> None:
        await self._engine.check_health()

    async def close(self) -> None:
        await self._engine.close()

    def load(self) -> Load:
        return self._engine.load()

    async def rerank(self, request: RerankRequest) -> Scores:
        """One score per document. Raises Overloaded, DeadlineExceeded, Unavailable, BadOutput."""
        encoder = self._text
        if encoder is None:
            raise Unavailable(self.model_id, "it is not started")
        query, documents = request.query, request.documents
        if not documents:
            return Scores(np.empty(0, np.float32), self._scale, self.name)
        start = time.perf_counter()
        tokens = await off_loop(
            len(query) + sum(map(len, documents)), lambda: encoder.pairs(query, documents)
        )
        self._observe("tokenise_s", time.perf_counter() - start)
        rows = await self._engine.rows(tokens, tenant=request.tenant, deadline=request.deadline)
        truncated = sum(t.cut for t in tokens)
        return Scores(rows[:, 0], self._scale, self.name, truncated=truncated)

    def _load(self, machine: Machine) -> LoadedModel:
        if machine.on_cpu:
            hand_over_often()
        folder = find(self.model_id, self._settings.revision)
        config = folder.resolved()
        _require_one_label(folder, config)
        told = of_classifier(folder)
        sigmoid = _activation(folder, told) == "Sigmoid"
        text = TextEncoder(folder, self._settings.max_tokens_per_doc)
        fast = packed.supports(config)
        make = _packed_classifier if fast else _padded_classifier
        logits = make(folder, config, machine, text)

        @torch.inference_mode()
        def forward(batch: Pack) -> Tensor:
            out = logits(batch).float()
            return torch.sigmoid(out) if sigmoid else out

        self._scale = "probability" if sigmoid else "logit"
        self._text = text
        return LoadedModel(forward, not fast, text.max_length)


def _require_one_label(folder: ModelFolder, config: Mapping[str, Any]) -> None:
    names = folder.config.get("architectures") or []
    if not any(str(name).endswith("ForSequenceClassification") for name in names):
        raise WrongModel(
            f"{folder.name} is {', '.join(names) or 'a bare encoder'}: a reranker needs a sequence "
            "classifier with one label"
        )
    # A configuration that does not say has two labels, the default of transformers.
    labels = len(config["id2label"])
    if labels != 1:
        raise WrongModel(f"{folder.name} has {labels} labels: a reranker needs exactly one")


def _activation(folder: ModelFolder, told: Mapping[str, Any]) -> str:
    """ "Sigmoid" where the folder declares that scores are probabilities, "Identity" where they are
    logits or nothing is said; WrongModel for others, whose scores have no known scale."""
    config = folder.config
    own = config.get("sentence_transformers") or {}
    declared = str(
        told.get("activation_fn")
        or own.get("activation_fn")
        or config.get("sbert_ce_default_activation_function")
        or ""
    )
    # What is not torch's own, sentence-transformers does not run either.
    name = declared.rsplit(".", 1)[-1] if declared.startswith("torch.") else "Identity"
    if name not in ("Sigmoid", "Identity"):
        raise WrongModel(
            f"{folder.name} ends in {declared}: a reranker ends in Sigmoid or in Identity"
        )
    return name


def _padded_classifier(
    folder: ModelFolder, config: Mapping[str, Any], machine: Machine, text: TextEncoder
) -> Callable[[Pack], Tensor]:
    """(n, 1) logits in the pack's order."""
    if machine.dtype == torch.int8:
        kind = config.get("model_type")
        raise WrongModel(f"{folder.name} is of type {kind!r}, which has no int8: choose bf16")
    model = PaddedModel(
        folder, machine.device, machine.wide_dtype, classifier=True, types=text.makes_types
    )
    text.fit(model.positions, model.words)
    _require_independence(folder, model, text, exact=machine.wide_dtype == torch.float32)
    return model.logits


def _require_independence(
    folder: ModelFolder, model: PaddedModel, text: TextEncoder, *, exact: bool
) -> None:
    """Some models mix padding into their scores (convolutions, Fourier transforms)."""
    pairs = text.pairs(samples.QUERIES[0], samples.DOCUMENTS[:4])
    batch = pack(pairs)
    together = model.logits(batch).float().flatten()
    alone = torch.cat([model.logits(pack([pairs[i]])).float().flatten() for i in batch.order])
    limit = (1e-3 if exact else 0.1) * (1 + alone.abs())
    if not bool(((together - alone).abs() <= limit).all()):
        raise WrongModel(f"{folder.name}: its scores depend on what else is in a batch")


def _packed_classifier(
    folder: ModelFolder, config: Mapping[str, Any], machine: Machine, text: TextEncoder
) -> Callable[[Pack], Tensor]:
    """(n, 1) logits in the pack's order."""
    in_bytes = machine.dtype == torch.int8
    tensors = folder.tensors()
    head = _head(config, tensors, machine)
    encoder = packed.PackedEncoder(
        config,
        tensors,
        machine.device,
        torch.float32 if in_bytes else machine.dtype,
        firsts_only=True,
        samples=samples.pairs(text) if in_bytes else None,
    )
    text.fit(encoder.shape.positions, encoder.words)
    return lambda batch: head(encoder(batch).float())


def _head(config: Mapping[str, Any], tensors: Mapping[str, Tensor], machine: Machine) -> Head:
    """BERT's pooler and classifier, or RoBERTa's classification head; in fp32, it is small."""
    bert = packed.FAMILIES[config["model_type"]] == "bert"
    names = (
        ("bert.pooler.dense", "classifier") if bert else ("classifier.dense", "classifier.out_proj")
    )
    missing = [n for name in names if (n := f"{name}.weight") not in tensors]
    if missing:
        raise WrongModel(f"the weights lack the classification head: {', '.join(missing)}")
    dense, out = (
        linear(Affine(tensors[f"{n}.weight"], tensors[f"{n}.bias"]), machine.device, torch.float32)
        for n in names
    )
    return lambda first: out(torch.tanh(dense(first)))
