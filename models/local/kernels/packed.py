"""The padding-free forward of BERT-family encoders, as a plain fused loop.

BERT, RoBERTa, XLM-RoBERTa and CamemBERT: absolute positions, post-layer-norm, GELU (Devlin et
al., 2019; Liu et al., 2019). Three products become one for query, key and value; the attention
scale is folded into the query weights; position and token-type tables become one. Where only the
first token of each sequence is asked for (a classifier, or CLS pooling), the last layer computes
nothing for the others, not even keys and values: a sixth of the work of a six-layer model, with
the same result.

In int8 (models/local/kernels/int8.py) the products are of bytes; states, norms and residuals are in
fp32, attention in bf16 where the CPU has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models.local.device import cpu_computes_bf16
from models.local.kernels import attention
from models.local.kernels.int8 import Int8Feed, Int8Linear
from models.local.kernels.linear import Affine, Linear, linear
from models.local.kernels.pack import Pack
from models.types import Ints, WrongModel

FAMILIES = {"bert": "bert", "roberta": "roberta", "xlm-roberta": "roberta", "camembert": "roberta"}
"""model_type of a configuration -> the prefix of its weights' names."""


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """The numbers of an encoder. `first_position` is the row of the position table that the
    first token uses: 0 for BERT, padding id + 1 for the RoBERTa family."""

    layers: int
    heads: int
    hidden: int
    epsilon: float
    first_position: int
    positions: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> EncoderShape:
        """Raises WrongModel where `supports(config)` is false."""
        if not supports(config):
            raise WrongModel(f"no packed forward for model type {config.get('model_type')!r}")
        first = first_position(config)
        return cls(
            layers=int(config["num_hidden_layers"]),
            heads=int(config["num_attention_heads"]),
            hidden=int(config["hidden_size"]),
            epsilon=float(config.get("layer_norm_eps", 1e-12)),
            first_position=first,
            positions=int(config["max_position_embeddings"]) - first,
        )


def first_position(config: Mapping[str, Any]) -> int:
    """The row of the table of positions that the first token uses."""
    roberta = FAMILIES.get(config["model_type"]) == "roberta"
    return int(config.get("pad_token_id", 1)) + 1 if roberta else 0


def supports(config: Mapping[str, Any]) -> bool:
    """Whether a model configuration describes an encoder that this module computes exactly."""
    return (
        config.get("model_type") in FAMILIES
        and config.get("position_embedding_type", "absolute") == "absolute"
        and config.get("hidden_act", "gelu") == "gelu"
        and config.get("pad_token_id", 1) is not None
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


class _Feed(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """The feed-forward block, its input added; the input may be overwritten."""
        ...


@dataclass(frozen=True, slots=True)
class _PlainFeed:
    up: Linear
    down: Linear

    def __call__(self, x: Tensor) -> Tensor:
        return self.down.plus(self.up.gelu(x), x)


@dataclass(frozen=True, slots=True)
class _Weights:
    """One layer's products as the checkpoint has them, the attention scale in the query's."""

    query: Affine
    key: Affine
    value: Affine
    out: Affine
    up: Affine
    down: Affine

    @property
    def qkv(self) -> Affine:
        """One product whose results stand side by side."""
        three = (self.query, self.key, self.value)
        return Affine(torch.cat([p.weight for p in three]), torch.cat([p.bias for p in three]))


@dataclass(frozen=True, slots=True)
class _Firsts:
    """Attention of the first tokens to states instead of keys and values, head by head:

    q . (K h + k) = (q K) . h + q . k           q . k is the same for all h: softmax drops it
    sum p (V h + v) = V (sum p h) + v           the p sum to 1
    """

    query: Linear
    keys: Tensor
    """(heads, width, hidden)"""
    values: Tensor
    """(heads, hidden, width)"""
    bias: Tensor

    def __call__(self, firsts: Tensor, states: Tensor, attend: attention.Attention) -> Tensor:
        """firsts (n, hidden), states (tokens, hidden) -> (n, heads x width)."""
        q = self.query(firsts).view(len(firsts), *self.keys.shape[:2])
        asked = torch.bmm(q.transpose(0, 1), self.keys).transpose(0, 1)
        weighed = attend.firsts(asked, states)
        found = torch.bmm(weighed.transpose(0, 1), self.values)
        return found.transpose(0, 1).flatten(1) + self.bias


@dataclass(frozen=True, slots=True)
class _Layer:
    """`qkv` is one product, except in the last layer of a first-token encoder."""

    qkv: Linear | _Firsts
    out: Linear
    norm1: _Norm
    feed: _Feed
    norm2: _Norm


class PackedEncoder:
    """Hidden states of packed sequences, of all tokens or (`firsts_only`) of the first of each.

    Several threads may call it at once: a forward changes nothing.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        device: torch.device,
        dtype: torch.dtype,
        *,
        firsts_only: bool = False,
        samples: Pack | None = None,
    ) -> None:
        """`samples`: texts that show the usual values; with them, on a CPU and with dtype fp32 for
        the states, products are in int8."""
        self.shape = EncoderShape.of(config)
        self.device = device
        self.dtype = dtype
        tensors = _without_prefix(weights, FAMILIES[config["model_type"]])
        self._words = _own(tensors, "embeddings.word_embeddings.weight").to(device, dtype)
        positions = _own(tensors, "embeddings.position_embeddings.weight").float()
        types = _own(tensors, "embeddings.token_type_embeddings.weight").float()
        _require_fit(config, self._words, positions, types)
        # Row type x positions + position; kept in fp32, it is small.
        self._places = (types[:, None, :] + positions[None, :, :]).flatten(0, 1).to(device)
        self._positions = len(positions)
        self._types = len(types)
        self._norm = self._layer_norm(tensors, "embeddings.LayerNorm", torch.float32)
        width = self.shape.hidden // self.shape.heads
        self._flash = attention.has_variable_length(device, dtype, width)
        last = self.shape.layers - 1
        splits = [firsts_only and index == last for index in range(last + 1)]
        if samples is None:
            self._layers = [
                self._layer(tensors, index, split) for index, split in enumerate(splits)
            ]
        else:
            self._layers = self._int8_layers(tensors, samples, splits)

    @property
    def words(self) -> int:
        """The rows of the table of words."""
        return len(self._words)

    @torch.inference_mode()
    def __call__(self, batch: Pack, attend: attention.Attention | None = None) -> Tensor:
        """(tokens, hidden), or (n, hidden) with `firsts_only`, in the encoder's dtype, on its
        device, in the order of the pack. `attend` overrides the choice of attention."""
        attend = attend or self._attention(batch)
        heads = self.shape.heads
        h, spread = self._distinct(batch)
        for layer in self._layers:
            if isinstance(layer.qkv, _Firsts):
                h = spread(h)
                states = h.to(layer.qkv.bias.dtype)
                at = torch.from_numpy(batch.offsets[:-1]).to(self.device)
                h = h[at]
                context = layer.qkv(states[at], states, attend)
            else:
                context = attend.all(spread(layer.qkv(h)), heads)
                h = spread(h)
            spread = _as_it_is
            h = layer.norm1(layer.out.plus(context, h))
            h = layer.norm2(layer.feed(h))
        return h

    def _distinct(self, batch: Pack) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """States before the first layer, and what makes one row per token of theirs.

        On a CPU equal tokens at equal places are computed once up to the first attention: pairs
        have their query in common, and dated documents how they begin.
        """
        rows = self._rows(batch)
        if self.device.type != "cpu" or len(batch) == 1:
            return self._embedded(batch.ids, rows), _as_it_is
        both = batch.ids.astype(np.int64) * len(self._places) + rows
        _, first, inverse = np.unique(both, return_index=True, return_inverse=True)
        where = torch.from_numpy(inverse)
        h = self._embedded(batch.ids[first], rows[first])
        return h, lambda distinct: distinct.index_select(0, where)

    def _rows(self, batch: Pack) -> Ints:
        """Of the table of places."""
        kinds = np.minimum(batch.types, self._types - 1) * self._positions
        return (kinds + batch.positions + self.shape.first_position).astype(np.int32)

    def _embedded(self, ids: Ints, rows: Ints) -> Tensor:
        words = torch.from_numpy(ids).to(self.device, non_blocking=True)
        places = torch.from_numpy(rows).to(self.device, non_blocking=True)
        h = F.embedding(words, self._words).float() + F.embedding(places, self._places)
        return self._norm(h).to(self.dtype)

    def _attention(self, batch: Pack) -> attention.Attention:
        if self.device.type == "cpu":
            return attention.Groups(batch.offsets)
        offsets = torch.from_numpy(batch.offsets).to(self.device, non_blocking=True)
        longest = int(batch.lengths.max())
        if self._flash:
            return attention.VariableLength(offsets, longest)
        return attention.Padded(offsets, longest)

    def _layer(self, tensors: Mapping[str, Tensor], index: int, split: bool) -> _Layer:
        weights = self._weights(tensors, index)
        norm1, norm2 = self._norms(tensors, index)
        return _Layer(
            qkv=self._firsts(weights, self.dtype) if split else self._linear(weights.qkv),
            out=self._linear(weights.out),
            norm1=norm1,
            feed=_PlainFeed(self._linear(weights.up), self._linear(weights.down)),
            norm2=norm2,
        )

    @torch.inference_mode()
    def _int8_layers(
        self, tensors: Mapping[str, Tensor], samples: Pack, splits: Sequence[bool]
    ) -> list[_Layer]:
        """Runs the samples through each layer in fp32, then makes its int8 products."""
        wide = torch.bfloat16 if cpu_computes_bf16() else torch.float32
        h, attend = self._embedded(samples.ids, self._rows(samples)), self._attention(samples)
        layers = []
        for index, split in enumerate(splits):
            weights = self._weights(tensors, index)
            norm1, norm2 = self._norms(tensors, index)
            context = attend.all(self._linear(weights.qkv)(h), self.shape.heads)
            middle = norm1(self._linear(weights.out).plus(context, h))
            inner = self._linear(weights.up).gelu(middle)
            layers.append(
                _Layer(
                    qkv=self._firsts(weights, wide)
                    if split
                    else Int8Linear(weights.qkv, _peak(h), wide),
                    out=Int8Linear(weights.out, _peak(context), torch.float32),
                    norm1=norm1,
                    feed=Int8Feed(weights.up, weights.down, _peak(middle), _peak(inner)),
                    norm2=norm2,
                )
            )
            h = norm2(self._linear(weights.down).plus(inner, middle))
        return layers

    def _weights(self, tensors: Mapping[str, Tensor], index: int) -> _Weights:
        at = f"encoder.layer.{index}."
        own = f"{at}attention.self."
        scale = attention.LOG2_E / math.sqrt(self.shape.hidden // self.shape.heads)
        query = _affine(tensors, f"{own}query")
        return _Weights(
            query=Affine(query.weight * scale, query.bias * scale),
            key=_affine(tensors, f"{own}key"),
            value=_affine(tensors, f"{own}value"),
            out=_affine(tensors, f"{at}attention.output.dense"),
            up=_affine(tensors, f"{at}intermediate.dense"),
            down=_affine(tensors, f"{at}output.dense"),
        )

    def _norms(self, tensors: Mapping[str, Tensor], index: int) -> tuple[_Norm, _Norm]:
        at = f"encoder.layer.{index}."
        first = self._layer_norm(tensors, f"{at}attention.output.LayerNorm", self.dtype)
        return first, self._layer_norm(tensors, f"{at}output.LayerNorm", self.dtype)

    def _firsts(self, weights: _Weights, dtype: torch.dtype) -> _Firsts:
        by_head = (self.shape.heads, -1, self.shape.hidden)
        keys, values = (
            p.weight.view(by_head).to(self.device, dtype) for p in (weights.key, weights.value)
        )
        return _Firsts(
            query=linear(weights.query, self.device, dtype),
            keys=keys,
            values=values.transpose(1, 2).contiguous(),
            bias=weights.value.bias.to(self.device, dtype),
        )

    def _linear(self, product: Affine) -> Linear:
        return linear(product, self.device, self.dtype)

    def _layer_norm(self, tensors: Mapping[str, Tensor], name: str, dtype: torch.dtype) -> _Norm:
        # Checkpoints converted from TensorFlow say gamma and beta.
        weight = tensors.get(f"{name}.weight", tensors.get(f"{name}.gamma"))
        bias = tensors.get(f"{name}.bias", tensors.get(f"{name}.beta"))
        if weight is None or bias is None:
            raise WrongModel(f"the weights lack {name}")
        # Copied: one that is used as it is would keep the whole file of weights in memory.
        weight, bias = (each.to(self.device, dtype, copy=True) for each in (weight, bias))
        return _Norm(weight, bias, self.shape.epsilon)


def _without_prefix(weights: Mapping[str, Tensor], prefix: str) -> Mapping[str, Tensor]:
    start = f"{prefix}."
    if not any(name.startswith(start) for name in weights):
        return weights
    return {name.removeprefix(start): t for name, t in weights.items() if name.startswith(start)}


def _require_fit(
    config: Mapping[str, Any], words: Tensor, positions: Tensor, types: Tensor
) -> None:
    """A wrong width would not fail, but give other numbers."""
    tables = {"vocab_size": words, "max_position_embeddings": positions, "type_vocab_size": types}
    for name, table in tables.items():
        shape = (config.get(name, len(table)), config["hidden_size"])
        if tuple(table.shape) != shape:
            raise WrongModel(
                f"the weights do not fit the configuration: {name} has a table of "
                f"{tuple(table.shape)}, not {shape}"
            )


def _affine(tensors: Mapping[str, Tensor], name: str) -> Affine:
    return Affine(_own(tensors, f"{name}.weight").float(), _own(tensors, f"{name}.bias").float())


def _own(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in tensors:
        raise WrongModel(f"the weights lack {name}")
    return tensors[name]


def _as_it_is(rows: Tensor) -> Tensor:
    return rows


def _peak(rows: Tensor) -> Tensor:
    return rows.abs().amax(0)
