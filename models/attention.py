"""Attention over packed sequences: each token attends to its own sequence, nothing is padded.

All take qkv (tokens, 3 x heads x width), the queries already scaled, and answer (tokens,
heads x width). They differ only in rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models.types import Ints

Attention: TypeAlias = Callable[[Tensor, int], Tensor]
"""(qkv, heads) -> context, bound to one batch's layout."""

SCORES_BYTES = 1 << 20
"""Scores held at once on a CPU: about the L2 cache of one core, where softmax finds them."""


def by_runs(offsets: Ints, dtype: torch.dtype) -> Attention:
    """For CPUs: sequences of one length are neighbours (longest first), so a run of them is a
    plain batched product without mask or copy of the rest. Softmax is in fp32: its bf16 kernel
    is slower (1.4 against 0.6 ms for 32 x 12 x 41 x 41) and less exact."""
    lengths = np.diff(offsets)
    edges = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]
    runs = [(int(offsets[a]), b - a, int(lengths[a])) for a, b in itertools.pairwise(edges)]

    def attend(qkv: Tensor, heads: int) -> Tensor:
        width = qkv.shape[1] // (3 * heads)
        out = torch.empty(qkv.shape[0], heads * width, dtype=dtype)
        for start, count, length in runs:
            step = max(1, SCORES_BYTES // (heads * length * length * 4))
            for first in range(0, count, step):
                n = min(step, count - first)
                a = start + first * length
                rows = qkv[a : a + n * length].view(n, length, 3, heads, width)
                q, k, v = rows.permute(2, 0, 3, 1, 4).reshape(3, n * heads, length, width)
                weights = torch.bmm(q, k.transpose(1, 2)).float().softmax(-1).to(dtype)
                context = torch.bmm(weights, v).view(n, heads, length, width)
                out[a : a + n * length].view(n, length, heads, width).copy_(context.transpose(1, 2))
        return out

    return attend


def variable_length(offsets: Tensor, longest: int) -> Attention:
    """For CUDA: flash attention over cumulative lengths."""
    from torch.nn.attention.varlen import varlen_attn

    def attend(qkv: Tensor, heads: int) -> Tensor:
        q, k, v = qkv.view(qkv.shape[0], 3, heads, -1).unbind(1)
        out = varlen_attn(q, k, v, offsets, offsets, longest, longest, scale=1.0)
        assert isinstance(out, Tensor)
        return out.reshape(qkv.shape[0], -1)

    return attend


def padded(offsets: Tensor, longest: int) -> Attention:
    """For any device, and the reference: padded inside the attention only, with a mask."""
    lengths = offsets.diff().long()
    count = len(lengths)
    real = torch.arange(longest, device=offsets.device) < lengths[:, None]
    slots = real.flatten().nonzero().squeeze(1)
    mask = real[:, None, None, :]

    def attend(qkv: Tensor, heads: int) -> Tensor:
        wide = qkv.new_zeros(count * longest, qkv.shape[1])
        wide[slots] = qkv
        q, k, v = wide.view(count, longest, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
        return out.transpose(1, 2).reshape(count * longest, -1)[slots]

    return attend
