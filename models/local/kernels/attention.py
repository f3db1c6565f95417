"""Attention over packed sequences: each token attends to its own sequence, nothing is padded.

Three implementations that differ only in rounding, each bound to one batch's layout:

all(qkv, heads):         qkv (tokens, 3 x heads x width) -> (tokens, heads x width)
firsts(asked, states):   only the first token of each sequence asks, and the states are keys and
                         values of every head: asked (n, heads, hidden), states (tokens, hidden)
                         -> (n, heads, hidden), the states as each head weighs them

The queries are already scaled, and softmax is of powers of two: the scale has a factor log2(e).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from models.types import Ints

LOG2_E = math.log2(math.e)
LN_2 = math.log(2)

SCORES_BYTES = 2 << 20
"""Scores held at once on a CPU; with half of it, more calls cost 5 % of the attention."""

SUMS = (2.0**-60, 2.0**100)
"""Between these, a sum of powers has lost nothing that fp32 would show."""

PADDING = 0.1
"""The most padding that a group may have, per token: a tenth costs less than the calls it saves."""


class Attention(Protocol):
    def all(self, qkv: Tensor, heads: int) -> Tensor: ...

    def firsts(self, asked: Tensor, states: Tensor) -> Tensor: ...


class Groups:
    """For CPUs: neighbours of similar length (longest first) are computed together, padded to the
    longest of them: a batch of 32 texts of all lengths is some eight products instead of 25."""

    def __init__(self, offsets: Ints) -> None:
        self._groups = list(_groups(offsets))

    def all(self, qkv: Tensor, heads: int) -> Tensor:
        width = qkv.shape[1] // (3 * heads)
        out = torch.empty(qkv.shape[0], heads * width, dtype=qkv.dtype)
        for group in self._groups:
            rows = group.wide(qkv).view(group.count, group.longest, 3, heads, width)
            q, k, v = rows.permute(2, 0, 3, 1, 4).reshape(3, -1, group.longest, width)
            context = _attend(q, k, v, group.real)
            tokens = context.view(group.count, heads, group.longest, width).transpose(1, 2)
            part = out[group.start : group.stop]
            if group.slots is None:
                part.view(tokens.shape).copy_(tokens)
            else:
                torch.index_select(tokens.reshape(-1, heads * width), 0, group.slots, out=part)
        return out

    def firsts(self, asked: Tensor, states: Tensor) -> Tensor:
        out = torch.empty_like(asked)
        first = 0
        for group in self._groups:
            last = first + group.count
            wide = group.wide(states).view(group.count, group.longest, -1)
            out[first:last] = _attend(asked[first:last], wide, wide, group.real)
            first = last
        return out


@dataclass(frozen=True, slots=True)
class _Group:
    """`count` sequences in the rows start..stop. Where they are not of one length: `rows`, the row
    of every slot of the padded rectangle; `slots`, the slot of every row; `real` (count, longest),
    whether a slot has a row; `padding`, the slots without."""

    start: int
    stop: int
    count: int
    longest: int
    rows: Tensor | None = None
    slots: Tensor | None = None
    real: Tensor | None = None
    padding: Tensor | None = None

    def wide(self, rows: Tensor) -> Tensor:
        """The rectangle, 0 where it is padded."""
        if self.rows is None or self.padding is None:
            return rows[self.start : self.stop]
        return rows.index_select(0, self.rows).index_fill_(0, self.padding, 0)


def _groups(offsets: Ints) -> Iterator[_Group]:
    lengths = np.diff(offsets)
    ends = offsets.tolist()
    first = 0
    while first < len(lengths):
        longest = int(lengths[first])
        last = first + 1
        while last < len(lengths):
            slots, tokens = longest * (last + 1 - first), ends[last + 1] - ends[first]
            if slots > (1 + PADDING) * tokens:
                break
            last += 1
        start, stop, count = ends[first], ends[last], last - first
        if stop - start == count * longest:
            yield _Group(start, stop, count, longest)
        else:
            real = np.arange(longest) < lengths[first:last, None]
            rows = np.zeros(real.size, np.int64)
            slots_of = np.flatnonzero(real)
            rows[slots_of] = np.arange(start, stop)
            tables = (rows, slots_of, real, np.flatnonzero(~real))
            yield _Group(start, stop, count, longest, *map(torch.from_numpy, tables))
        first = last


def _attend(q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
    """q (n x heads, queries, width), k and v (n x heads, longest, width), 0 where `real`
    (n, longest) is not: such values add nothing, and only sums have to leave their weights out."""
    count = len(q)
    if real is not None:
        real = real.repeat_interleave(count // len(real), 0)
    step = max(1, SCORES_BYTES // (q.element_size() * q.shape[1] * k.shape[1]))
    out = torch.empty_like(q)
    for at in range(0, count, step):
        part = slice(at, at + step)
        scores = torch.bmm(q[part], k[part].transpose(1, 2))
        weights, sums = _powers(scores, None if real is None else real[part])
        torch.mul(torch.bmm(weights, v[part]), sums.reciprocal_(), out=out[part])
    return out


def _powers(scores: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """2^x, and its sums over the last dimension where `real` (n, longest) holds: softmax is the
    one by the other. In the dtype of the scores: fp32 in between takes longer.

    The greatest score is not subtracted first, unless a sum shows that it must be: scores of
    trained models are far from the 127 where exponents end."""
    weights = scores.exp2()
    sums = _sums(weights, real)
    low, high = sums.aminmax()
    if low > SUMS[0] and high < SUMS[1]:
        return weights, sums
    if real is not None:
        scores = scores.masked_fill(~real[:, None, :], -math.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp2_()
    return weights, weights.sum(-1, keepdim=True)


def _sums(weights: Tensor, real: Tensor | None) -> Tensor:
    if real is None:
        return weights.sum(-1, keepdim=True)
    return torch.bmm(weights, real[:, :, None].to(weights.dtype))


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

    def all(self, qkv: Tensor, heads: int) -> Tensor:
        q, k, v = qkv.view(qkv.shape[0], 3, heads, -1).unbind(1)
        at, longest = self._offsets, self._longest
        out = self._attend(q, k, v, at, at, longest, longest, scale=LN_2)
        assert isinstance(out, Tensor)
        return out.reshape(qkv.shape[0], -1)

    def firsts(self, asked: Tensor, states: Tensor) -> Tensor:
        # Flash attention has no heads as wide as a state, and for so few queries no need of it.
        return Padded(self._offsets, self._longest).firsts(asked, states)


class Padded:
    """For any device, and the reference: padded inside the attention only, with a mask."""

    def __init__(self, offsets: Tensor, longest: int) -> None:
        lengths = offsets.diff().long()
        real = torch.arange(longest, device=offsets.device) < lengths[:, None]
        self._shape = (len(lengths), longest)
        self._slots = real.flatten().nonzero().squeeze(1)
        self._mask = real[:, None, None, :]

    def all(self, qkv: Tensor, heads: int) -> Tensor:
        q, k, v = self._wide(qkv).view(*self._shape, 3, heads, -1).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask, scale=LN_2)
        return out.transpose(1, 2).flatten(2).flatten(0, 1)[self._slots]

    def firsts(self, asked: Tensor, states: Tensor) -> Tensor:
        wide = self._wide(states)
        mask = self._mask.squeeze(1)
        return F.scaled_dot_product_attention(asked, wide, wide, attn_mask=mask, scale=LN_2)

    def _wide(self, rows: Tensor) -> Tensor:
        """(n, longest, columns)."""
        wide = rows.new_zeros(self._shape[0] * self._shape[1], rows.shape[1])
        wide[self._slots] = rows
        return wide.view(*self._shape, -1)
