"""Products of bytes against exact ones, and the encoder made of them against fp32."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from models.local import samples
from models.local.device import cpu_computes_int8
from models.local.kernels import int8
from models.local.kernels.int8 import Int8Feed, Int8Linear
from models.local.kernels.linear import Affine
from models.local.kernels.pack import pack
from models.local.kernels.packed import PackedEncoder
from models.local.text import TextEncoder
from models.local.weights import find

pytestmark = pytest.mark.skipif(
    not (cpu_computes_int8() and int8.available()), reason="this CPU has no int8 arithmetic"
)
CPU = torch.device("cpu")
TEXTS = [
    "The ferry to the island leaves at half past six and takes two hours.",
    "Her grandfather had been a beekeeper in the hills above the town.",
    "Rates rose.",
    "A function that calls itself must have a case in which it does not.",
    "We met in the café behind the station; he wore a grey coat, as always in winter.",
]


def product(columns: int, rows: int, seed: int) -> Affine:
    chance = torch.Generator().manual_seed(seed)
    weight = torch.randn(columns, rows, generator=chance) / rows**0.5
    return Affine(weight, torch.randn(columns, generator=chance))


def rows(count: int, width: int) -> torch.Tensor:
    """Normal numbers, one channel of which is forty times as large."""
    made = torch.randn(count, width, generator=torch.Generator().manual_seed(9))
    made[:, 3] *= 40
    return made


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return float((got.float() - exact).norm() / exact.norm())


@pytest.mark.unit
def test_a_product_of_bytes_is_close_in_spite_of_a_large_channel() -> None:
    x, exact = rows(300, 64), product(96, 64, 0)
    exact.weight[:, 3] /= 40
    expected = F.linear(x, exact.weight, exact.bias)
    ours = Int8Linear(exact, x.abs().amax(0), torch.float32)
    assert error(ours(x), expected) < 0.015
    assert error(ours.gelu(x), F.gelu(expected)) < 0.02
    residual = torch.randn(300, 96)
    assert error(ours.plus(x, residual.clone()), expected + residual) < 0.015
    half = Int8Linear(exact, x.abs().amax(0), torch.bfloat16)(x.bfloat16())
    assert half.dtype == torch.bfloat16
    assert error(half, expected) < 0.02


@pytest.mark.unit
def test_what_is_beyond_the_samples_is_cut_and_not_wrapped() -> None:
    exact = Affine(torch.eye(16), torch.zeros(16))
    ours = Int8Linear(exact, torch.ones(16), torch.float32)
    got = ours(torch.tensor([[-1e9] * 8 + [1e9] * 8]))
    assert got.abs().min() > 1
    assert got.abs().max() < 1.2
    assert got.sign().tolist() == [[-1.0] * 8 + [1.0] * 8]


@pytest.mark.unit
def test_a_feed_forward_block_splits_its_largest_channels() -> None:
    up, down = product(128, 64, 1), product(64, 128, 2)
    up.bias[5] = 60.0
    x = torch.randn(int8.BLOCK + 9, 64, generator=torch.Generator().manual_seed(3))
    inner = F.gelu(F.linear(x, up.weight, up.bias))
    expected = F.linear(inner, down.weight, down.bias) + x
    ours = Int8Feed(up, down, x.abs().amax(0), inner.amax(0))
    together = ours(x.clone())
    assert error(together - x, expected - x) < 0.01
    alone = torch.cat([ours(x[:1].clone()), ours(x[-1:].clone())])
    torch.testing.assert_close(alone, together[[0, -1]], atol=1e-4, rtol=0)


@pytest.mark.integration
def test_the_encoder_in_int8_is_close_to_fp32() -> None:
    folder = find("packaged")
    text, weights = TextEncoder(folder), folder.tensors()
    tokens = [pair for query in TEXTS for pair in text.pairs(query, TEXTS)]
    batch = pack(tokens)
    seen = samples.pairs(text)
    exact = PackedEncoder(folder.config, weights, CPU, torch.float32)(batch)
    ours = PackedEncoder(folder.config, weights, CPU, torch.float32, samples=seen)
    together = ours(batch)
    cosine = torch.cosine_similarity(exact, together)
    assert cosine.mean() > 0.998
    assert cosine.min() > 0.95
    alone = ours(pack([tokens[batch.order[7]]]))
    part = together[batch.offsets[7] : batch.offsets[8]]
    assert torch.cosine_similarity(alone, part).min() > 0.9995
    firsts = PackedEncoder(
        folder.config, weights, CPU, torch.float32, firsts_only=True, samples=seen
    )
    expected = together[batch.offsets[:-1]]
    assert torch.cosine_similarity(firsts(batch), expected).min() > 0.999
