"""Attention over packed sequences: each token attends to its own sequence, nothing is padded.

Three implementations that differ only in rounding, each bound to one batch's layout:

all(qkv, heads):       qkv (tokens, 3 x heads x width) -> (tokens, heads x width)
firsts(q, kv, heads):  only the first token of each sequence asks: q (n, heads x width),
                       kv (tokens, 2 x heads x width) -> (n, heads x width)

The queries are already scaled.
"""

from __future__ import annotations

import importlib.util
import itertools
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models.types import Ints

SCORES_BYTES = 1 << 20
"""Scores held at once on a CPU: about the L2 cache of one core, where softmax finds them."""


class Attention(Protocol):
    def all(self, qkv: Tensor, heads: int) -> Tensor: ...

    def firsts(self, q: Tensor, kv: Tensor, heads: int) -> Tensor: ...


class Runs:
    """For CPUs: sequences of one length are neighbours (longest first), so a run of them is a
    plain batched product without a mask. Softmax is in fp32: its bf16 kernel is slower (1.4
    against 0.6 ms for 32 x 12 x 41 x 41) and less exact."""

    def __init__(self, offsets: Ints) -> None:
        lengths = np.diff(offsets)
        edges = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]
        self._runs = [
            (first, int(offsets[first]), last - first, int(lengths[first]))
            for first, last in itertools.pairwise(edges)
        ]

    def all(self, qkv: Tensor, heads: int) -> Tensor:
        width = qkv.shape[1] // (3 * heads)
        out = torch.empty(qkv.shape[0], heads * width, dtype=qkv.dtype)
        for _, start, count, length in self._runs:
            step = max(1, SCORES_BYTES // (heads * length * length * 4))
            for first in range(0, count, step):
                n = min(step, count - first)
                a = start + first * length
                rows = qkv[a : a + n * length].view(n, length, 3, heads, width)
                q, k, v = rows.permute(2, 0, 3, 1, 4).reshape(3, n * heads, length, width)
                context = _attend(q, k, v).view(n, heads, length, width)
                part = out[a : a + n * length].view(n, length, heads, width)
                part.copy_(context.transpose(1, 2))
        return out

    def firsts(self, q: Tensor, kv: Tensor, heads: int) -> Tensor:
        width = q.shape[1] // heads
        out = torch.empty_like(q)
        for first, start, count, length in self._runs:
            rows = kv[start : start + count * length].view(count, length, 2, heads, width)
            k, v = rows.permute(2, 0, 3, 1, 4).reshape(2, count * heads, length, width)
            one = q[first : first + count].view(count * heads, 1, width)
            out[first : first + count] = _attend(one, k, v).view(count, heads * width)
        return out


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.bmm(q, k.transpose(1, 2)).float().softmax(-1).to(q.dtype)
    return torch.bmm(weights, v)


def has_variable_length(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Flash attention needs half precision, an Ampere GPU or newer, and heads of 8 to 256 in
    steps of 8; the operator came with torch 2.10."""
    if device.type != "cuda" or dtype == torch.float32 or width % 8 or width > 256:
        return False
    available = importlib.util.find_spec("torch.nn.attention.varlen") is not None
    return available and torch.cuda.get_device_capability(device) >= (8, 0)


class VariableLength:
    """For CUDA in half precision: flash attention over cumulative lengths."""

    def __init__(self, offsets: Tensor, longest: int) -> None:
        from torch.nn.attention.varlen import varlen_attn

        self._attend = varlen_attn
        self._offsets = offsets
        self._longest = longest
        self._each = torch.arange(len(offsets), dtype=torch.int32, device=offsets.device)

    def all(self, qkv: Tensor, heads: int) -> Tensor:
        q, k, v = qkv.view(qkv.shape[0], 3, heads, -1).unbind(1)
        at, longest = self._offsets, self._longest
        out = self._attend(q, k, v, at, at, longest, longest, scale=1.0)
        assert isinstance(out, Tensor)
        return out.reshape(qkv.shape[0], -1)

    def firsts(self, q: Tensor, kv: Tensor, heads: int) -> Tensor:
        k, v = kv.view(kv.shape[0], 2, heads, -1).unbind(1)
        one = q.view(q.shape[0], heads, -1)
        out = self._attend(one, k, v, self._each, self._offsets, 1, self._longest, scale=1.0)
        assert isinstance(out, Tensor)
        return out.reshape(q.shape[0], -1)


class Padded:
    """For any device, and the reference: padded inside the attention only, with a mask."""

    def __init__(self, offsets: Tensor, longest: int) -> None:
        lengths = offsets.diff().long()
        real = torch.arange(longest, device=offsets.device) < lengths[:, None]
        self._shape = (len(lengths), longest)
        self._slots = real.flatten().nonzero().squeeze(1)
        self._mask = real[:, None, None, :]

    def all(self, qkv: Tensor, heads: int) -> Tensor:
        q, k, v = self._wide(qkv, 3, heads)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask, scale=1.0)
        return out.transpose(1, 2).flatten(2).flatten(0, 1)[self._slots]

    def firsts(self, q: Tensor, kv: Tensor, heads: int) -> Tensor:
        k, v = self._wide(kv, 2, heads)
        one = q.view(q.shape[0], heads, 1, -1)
        out = F.scaled_dot_product_attention(one, k, v, attn_mask=self._mask, scale=1.0)
        return out.reshape(q.shape[0], -1)

    def _wide(self, rows: Tensor, parts: int, heads: int) -> Tensor:
        """(parts, n, heads, longest, width)."""
        wide = rows.new_zeros(self._shape[0] * self._shape[1], rows.shape[1])
        wide[self._slots] = rows
        return wide.view(*self._shape, parts, heads, -1).permute(2, 0, 3, 1, 4)
