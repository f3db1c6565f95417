"""Products in int8, for CPUs that multiply bytes (AVX512-VNNI or AMX).

Affine quantisation with one scale per output channel of the weights (Jacob et al., 2018; Wu et
al., 2020, arXiv:2004.09602):

    x ~ s (q - z), q in 0..255      W_o ~ s_o w_o, w_o in -127..127
    y_o = s s_o sum_i (q_i - z) w_oi + b_o

The scales of x are fixed, from the greatest values that a sample of texts shows: a row's result
does not depend on other rows, and oneDNN fuses scales, bias, GELU and residual into the product.
A few channels are far larger than the rest; two things keep them from taking the others' precision:

Smoothing (Xiao et al., 2023, arXiv:2211.10438, eq. 4): x / t and W t, for each input channel i
    t_i = max|x_i|^a / max|w_i|^(1 - a)
The division is free, it is part of the scale of the pass that quantises.

Splitting (after Zhao et al., 2019, arXiv:1901.09504): behind the GELU, where no channel can be
scaled, a channel that is larger than a byte is computed in several pieces, one above the other.

Measured on one core of an AMD EPYC (Zen 5), 384 x 1152: 940 GFLOP/s with all that is fused, against
510 in bf16.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.local.kernels.linear import Affine

SMOOTHING = 0.75
"""The exponent a, with which activations bear less and weights more. Xiao's default is 0.5, with
0.75 for models with larger outliers, as here: cosine of the states to those in fp32 is 0.9976 at
0.5 and 0.9986 at 0.75 (all-MiniLM-L6)."""

MARGIN = 1.1
"""Room beyond what the sample shows; what is larger still is cut to it."""

PIECES = 32
"""Inner channels that are added to a feed-forward block for the sake of the largest: the outliers
of MiniLM-L6 are one or two of a layer's 1,536 (25 where the others end at 5)."""

BLOCK = 1024
"""Rows that go through a feed-forward block at once: what lies between stays in a cache."""

GELU_MINIMUM = -0.17
ROUND = 1.5 * 2**23
"""Added to a small fp32, leaves it rounded to nearest in the low bits: the fast way to a byte."""


def available() -> bool:
    """Whether this build of torch has the operators (oneDNN on x86)."""
    return (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.onednn, "qlinear_pointwise")
        and hasattr(torch.ops.onednn, "qlinear_prepack")
    )


class _Bytes:
    """fp32 (tokens, in) to u8 with zero point 128, smoothed."""

    scale = 1.0
    zero = 128

    def __init__(self, smooth: Tensor, peak: Tensor) -> None:
        step = float((peak / smooth).max()) * MARGIN / 127
        self._factor = 1 / (smooth * step)
        self._offset = torch.full_like(smooth, ROUND + self.zero)
        self.scale = step

    def __call__(self, x: Tensor) -> Tensor:
        shifted = torch.addcmul(self._offset, x.float(), self._factor)
        return shifted.clamp_(ROUND, ROUND + 255).view(torch.int32).to(torch.uint8)


class _Weights:
    """s8, in oneDNN's layout, and the scale of each output channel."""

    def __init__(self, weight: Tensor) -> None:
        self.scales = weight.abs().amax(1).clamp_(min=1e-10) / 127
        rounded = (weight / self.scales[:, None]).round().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zeros = torch.zeros(len(weight), dtype=torch.int64)


class Int8Linear:
    """A Linear over fp32 or bf16 rows. `peak` (in,): the largest |x| of each channel in a sample.
    The result is in `dtype`; `plus` wants and gives fp32, and overwrites the residual."""

    def __init__(self, product: Affine, peak: Tensor, dtype: torch.dtype) -> None:
        weight = product.weight.float()
        smooth = _smoothing(peak, weight)
        self._bytes = _Bytes(smooth, peak)
        self._weights = _Weights(weight * smooth)
        self._bias = product.bias.float()
        self._dtype = dtype

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x, self._dtype, "none")

    def gelu(self, x: Tensor) -> Tensor:
        return self._product(x, self._dtype, "gelu")

    def gelu_bytes(self, x: Tensor, scale: float, zero: int) -> Tensor:
        """gelu(x W^T + b) as u8 of that scale and zero point."""
        return self._product(x, torch.uint8, "gelu", scale, zero)

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        own = self._bytes
        return _add_product(own(x), own.scale, own.zero, self._weights, self._bias, residual)

    def _product(
        self, x: Tensor, dtype: torch.dtype, then: str, scale: float = 1.0, zero: int = 0
    ) -> Tensor:
        own, weights = self._bytes, self._weights
        return torch.ops.onednn.qlinear_pointwise.default(  # type: ignore[no-any-return]
            own(x), own.scale, own.zero, weights.packed, weights.scales, weights.zeros,
            self._bias, scale, zero, dtype, then, [], "none",
        )  # fmt: skip


class Int8Feed:
    """gelu(x U^T + u) D^T + d + x on fp32 rows, which it overwrites; what lies between is u8.

    `peak` (in,) and `inner` (between,): the largest |x| and gelu(...) of each channel in a sample.

    A byte ends at `top`, and a channel that goes beyond has pieces, for i = 0, 1, ...:
        gelu(z) ~ sum_i min(gelu(z - i top), top)
    It is exact but near the multiples of `top`, where it is up to 0.17 too low.
    """

    def __init__(self, up: Affine, down: Affine, peak: Tensor, inner: Tensor) -> None:
        pieces = torch.ones_like(inner)
        for _ in range(PIECES):
            pieces[(inner / pieces).argmax()] += 1
        self._scale = (float((inner / pieces).max()) * MARGIN - GELU_MINIMUM) / 255
        self._zero = round(-GELU_MINIMUM / self._scale)
        top = (255 - self._zero) * self._scale
        channel = torch.arange(len(inner)).repeat_interleave(pieces.long())
        below = torch.arange(len(channel)) - (pieces.cumsum(0) - pieces)[channel]
        raised = Affine(up.weight[channel], up.bias[channel] - below * top)
        self._up = Int8Linear(raised, peak, torch.float32)
        self._down = _Weights(down.weight.float()[:, channel])
        self._bias = down.bias.float()

    def __call__(self, x: Tensor) -> Tensor:
        scale, zero = self._scale, self._zero
        for first in range(0, len(x), BLOCK):
            rows = x[first : first + BLOCK]
            between = self._up.gelu_bytes(rows, scale, zero)
            _add_product(between, scale, zero, self._down, self._bias, rows)
        return x


def _smoothing(peak: Tensor, weight: Tensor) -> Tensor:
    """t, one per input channel; 1 where a channel is never used."""
    own = weight.abs().amax(0)
    used = (peak > 0) & (own > 0)
    return torch.where(used, peak**SMOOTHING / own ** (1 - SMOOTHING), 1.0)


def _add_product(
    x: Tensor, scale: float, zero: int, weights: _Weights, bias: Tensor | None, total: Tensor
) -> Tensor:
    """Adds the product to fp32 `total` in place."""
    return torch.ops.onednn.qlinear_pointwise.binary(  # type: ignore[no-any-return]
        x, scale, zero, weights.packed, weights.scales, weights.zeros, total, bias,
        1.0, 0, torch.float32, 1.0, 0, "sum", 1.0, "none", [], "",
    )  # fmt: skip
