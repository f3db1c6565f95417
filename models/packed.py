"""The padding-free forward of BERT-family encoders, as a plain fused loop.

BERT, RoBERTa, XLM-RoBERTa and CamemBERT: absolute positions, post-layer-norm, GELU (Devlin et
al., 2019; Liu et al., 2019). Three products become one for query, key and value; the attention
scale is folded into the query weights; position and token-type tables become one. Where only the
first token of each sequence is asked for (a classifier, or CLS pooling), the last layer computes
keys and values for all tokens and everything else for the first ones: a seventh of the work of a
six-layer model, with the same result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models import attention
from models.linear import Linear, linear
from models.pack import Pack
from models.types import WrongModel

FAMILIES = {"bert": "bert", "roberta": "roberta", "xlm-roberta": "roberta", "camembert": "roberta"}
"""model_type of a configuration -> the prefix of its weights' names."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of an encoder. `first_position` is the row of the position table that the
    first token uses: 0 for BERT, padding id + 1 for the RoBERTa family."""

    layers: int
    heads: int
    hidden: int
    epsilon: float
    first_position: int
    positions: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        """Raises WrongModel where `supports(config)` is false."""
        if not supports(config):
            raise WrongModel(f"no packed forward for model type {config.get('model_type')!r}")
        roberta = FAMILIES[config["model_type"]] == "roberta"
        first = int(config.get("pad_token_id", 1)) + 1 if roberta else 0
        return cls(
            layers=int(config["num_hidden_layers"]),
            heads=int(config["num_attention_heads"]),
            hidden=int(config["hidden_size"]),
            epsilon=float(config.get("layer_norm_eps", 1e-12)),
            first_position=first,
            positions=int(config["max_position_embeddings"]) - first,
        )


def supports(config: Mapping[str, Any]) -> bool:
    """Whether a model configuration describes an encoder that this module computes exactly."""
    return (
        config.get("model_type") in FAMILIES
        and config.get("position_embedding_type", "absolute") == "absolute"
        and config.get("hidden_act", "gelu") == "gelu"
        and not config.get("is_decoder", False)
        and not config.get("add_cross_attention", False)
    )


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: Tensor
    bias: Tensor
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


@dataclass(frozen=True, slots=True)
class _Layer:
    """`qkv` is one product; the last layer of a first-token encoder keeps (q, kv) instead."""

    qkv: Linear | tuple[Linear, Linear]
    out: Linear
    norm1: _Norm
    up: Linear
    down: Linear
    norm2: _Norm


class PackedEncoder:
    """Hidden states of packed sequences, of all tokens or (`firsts_only`) of the first of each.

    Not thread-safe: one thread owns it.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        device: torch.device,
        dtype: torch.dtype,
        *,
        firsts_only: bool = False,
    ) -> None:
        self.shape = Shape.of(config)
        self.device = device
        self.dtype = dtype
        tensors = _without_prefix(weights, FAMILIES[config["model_type"]])
        self._words = tensors["embeddings.word_embeddings.weight"].to(device, dtype)
        positions = tensors["embeddings.position_embeddings.weight"].float()
        types = tensors["embeddings.token_type_embeddings.weight"].float()
        # Row type x positions + position; kept in fp32, it is small.
        self._places = (types[:, None, :] + positions[None, :, :]).flatten(0, 1).to(device)
        self._rows = len(positions)
        self._types = len(types)
        self._norm = self._layer_norm(tensors, "embeddings.LayerNorm", torch.float32)
        width = self.shape.hidden // self.shape.heads
        self._flash = attention.has_variable_length(device, dtype, width)
        last = self.shape.layers - 1
        self._layers = [
            self._layer(tensors, i, split=firsts_only and i == last) for i in range(last + 1)
        ]

    @torch.inference_mode()
    def __call__(self, batch: Pack, attend: attention.Attention | None = None) -> Tensor:
        """(tokens, hidden), or (n, hidden) with `firsts_only`, in the encoder's dtype, on its
        device, in the order of the pack. `attend` overrides the choice of attention."""
        ids = torch.from_numpy(batch.ids).to(self.device, non_blocking=True)
        kinds = np.minimum(batch.types, self._types - 1) * self._rows
        rows = kinds + batch.positions + self.shape.first_position
        places = torch.from_numpy(rows.astype(np.int32)).to(self.device, non_blocking=True)
        attend = attend or self._attention(batch)
        h = F.embedding(ids, self._words).float() + F.embedding(places, self._places)
        h = self._norm(h).to(self.dtype)
        heads = self.shape.heads
        for layer in self._layers:
            if isinstance(layer.qkv, tuple):
                query, keys = layer.qkv
                kv = keys(h)
                h = h[torch.from_numpy(batch.offsets[:-1]).to(self.device)]
                context = attend.firsts(query(h), kv, heads)
            else:
                context = attend.all(layer.qkv(h), heads)
            h = layer.norm1(layer.out.plus(context, h))
            h = layer.norm2(layer.down.plus(layer.up.gelu(h), h))
        return h

    def _attention(self, batch: Pack) -> attention.Attention:
        if self.device.type == "cpu":
            return attention.Groups(batch.offsets)
        offsets = torch.from_numpy(batch.offsets).to(self.device, non_blocking=True)
        longest = int(batch.lengths.max())
        if self._flash:
            return attention.VariableLength(offsets, longest)
        return attention.Padded(offsets, longest)

    def _layer(self, tensors: Mapping[str, Tensor], index: int, *, split: bool) -> _Layer:
        at = f"encoder.layer.{index}."
        own = f"{at}attention.self."
        scale = 1 / math.sqrt(self.shape.hidden // self.shape.heads)
        weight = [tensors[f"{own}{part}.weight"].float() for part in ("query", "key", "value")]
        bias = [tensors[f"{own}{part}.bias"].float() for part in ("query", "key", "value")]
        weight[0], bias[0] = weight[0] * scale, bias[0] * scale
        groups = ([0], [1, 2]) if split else ([0, 1, 2],)
        products = tuple(
            linear(
                torch.cat([weight[part] for part in group]),
                torch.cat([bias[part] for part in group]),
                self.device,
                self.dtype,
            )
            for group in groups
        )
        return _Layer(
            qkv=(products[0], products[1]) if split else products[0],
            out=self._linear(tensors, f"{at}attention.output.dense"),
            norm1=self._layer_norm(tensors, f"{at}attention.output.LayerNorm", self.dtype),
            up=self._linear(tensors, f"{at}intermediate.dense"),
            down=self._linear(tensors, f"{at}output.dense"),
            norm2=self._layer_norm(tensors, f"{at}output.LayerNorm", self.dtype),
        )

    def _linear(self, tensors: Mapping[str, Tensor], name: str) -> Linear:
        return linear(tensors[f"{name}.weight"], tensors[f"{name}.bias"], self.device, self.dtype)

    def _layer_norm(self, tensors: Mapping[str, Tensor], name: str, dtype: torch.dtype) -> _Norm:
        # Checkpoints converted from TensorFlow say gamma and beta.
        weight = tensors.get(f"{name}.weight", tensors.get(f"{name}.gamma"))
        bias = tensors.get(f"{name}.bias", tensors.get(f"{name}.beta"))
        if weight is None or bias is None:
            raise WrongModel(f"the weights lack {name}")
        return _Norm(weight.to(self.device, dtype), bias.to(self.device, dtype), self.shape.epsilon)


def _without_prefix(weights: Mapping[str, Tensor], prefix: str) -> Mapping[str, Tensor]:
    start = f"{prefix}."
    if not any(name.startswith(start) for name in weights):
        return weights
    return {name.removeprefix(start): t for name, t in weights.items() if name.startswith(start)}
