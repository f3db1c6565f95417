"""The packed forward equals the padded one of transformers, for every family it claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.local.device import cpu_computes_bf16
from models.local.kernels import attention, packed
from models.local.kernels.linear import Affine, PlainLinear, linear
from models.local.kernels.pack import Tokens, pack
from models.local.kernels.packed import PackedEncoder
from models.local.kernels.padded import PaddedModel
from models.local.weights import find
from models.types import WrongModel
from tests.models.weights import make_encoder

CPU = torch.device("cpu")
LENGTHS = [3, 17, 5, 17, 40, 1, 17, 64]


def sequences(lengths: list[int], seed: int = 0) -> list[Tokens]:
    chance = np.random.default_rng(seed)
    made = []
    for length in lengths:
        ids = chance.integers(5, 900, length).astype(np.int32)
        made.append(Tokens(ids, (np.arange(length) > length // 2).astype(np.int32)))
    return made


@pytest.mark.unit
def test_pack_lays_sequences_end_to_end_longest_first() -> None:
    batch = pack(sequences([2, 3, 1, 3]))
    assert batch.order.tolist() == [1, 3, 0, 2]
    assert batch.offsets.tolist() == [0, 3, 6, 8, 9]
    assert batch.lengths.tolist() == [3, 3, 2, 1]
    assert batch.positions.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 0]
    assert len(batch) == 4


@pytest.mark.unit
@pytest.mark.parametrize(
    ("change", "supported"),
    [
        ({}, True),
        ({"model_type": "xlm-roberta", "pad_token_id": 1}, True),
        ({"model_type": "deberta-v2"}, False),
        ({"model_type": "modernbert"}, False),
        ({"position_embedding_type": "relative_key"}, False),
        ({"hidden_act": "relu"}, False),
        ({"is_decoder": True}, False),
    ],
)
def test_only_what_is_computed_exactly_is_supported(
    change: dict[str, Any], supported: bool
) -> None:
    config = {
        "model_type": "bert",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 66,
        **change,
    }
    assert packed.supports(config) == supported
    if not supported:
        with pytest.raises(WrongModel):
            packed.EncoderShape.of(config)


@pytest.mark.integration
@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "camembert"])
def test_packed_equals_padded(family: str, tmp_path: Path) -> None:
    folder = find(str(make_encoder(tmp_path, family)))
    batch = pack(sequences(LENGTHS))
    if family != "bert":
        batch.types[:] = 0
    ours = PackedEncoder(folder.config, folder.tensors(), CPU, torch.float32)
    theirs = PaddedModel(folder, CPU, torch.float32, classifier=False)
    expected = theirs.hidden(batch)
    torch.testing.assert_close(ours(batch), expected, atol=2e-5, rtol=0)
    offsets = torch.from_numpy(batch.offsets)
    by_mask = ours(batch, attention.Padded(offsets, int(batch.lengths.max())))
    torch.testing.assert_close(by_mask, expected, atol=2e-5, rtol=0)
    firsts = PackedEncoder(folder.config, folder.tensors(), CPU, torch.float32, firsts_only=True)
    for attend in (None, attention.Padded(offsets, int(batch.lengths.max()))):
        got = firsts(batch, attend)
        torch.testing.assert_close(got, expected[batch.offsets[:-1]], atol=2e-5, rtol=0)


@pytest.mark.integration
@pytest.mark.skipif(not cpu_computes_bf16(), reason="this CPU has no bf16 arithmetic")
def test_bf16_stays_close_to_fp32() -> None:
    folder = find("packaged")
    batch = pack(sequences(LENGTHS))
    weights = folder.tensors()
    exact = PackedEncoder(folder.config, weights, CPU, torch.float32)(batch)
    rounded = PackedEncoder(folder.config, weights, CPU, torch.bfloat16)(batch)
    assert rounded.dtype == torch.bfloat16
    cosine = torch.cosine_similarity(exact, rounded.float(), dim=1)
    assert cosine.min() > 0.998
    assert cosine.mean() > 0.9998


@pytest.mark.integration
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sequence_does_not_depend_on_its_batch(dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and not cpu_computes_bf16():
        pytest.skip("this CPU has no bf16 arithmetic")
    folder = find("packaged")
    encoder = PackedEncoder(folder.config, folder.tensors(), CPU, dtype)
    some = sequences(LENGTHS)
    batch = pack(some)
    together = encoder(batch).float()
    for row, index in enumerate(batch.order):
        alone = encoder(pack([some[index]])).float()
        part = together[batch.offsets[row] : batch.offsets[row + 1]]
        atol = 1e-5 if dtype == torch.float32 else 0.06
        torch.testing.assert_close(part, alone, atol=atol, rtol=0)


@pytest.mark.integration
@pytest.mark.parametrize("firsts", [False, True])
def test_what_sequences_have_in_common_is_theirs(firsts: bool, tmp_path: Path) -> None:
    """Beginnings in common, the same text twice, and the same ids under other types."""
    folder = find(str(make_encoder(tmp_path, "bert")))
    encoder = PackedEncoder(folder.config, folder.tensors(), CPU, torch.float32, firsts_only=firsts)
    long, other = sequences([40, 30])
    some = [
        long,
        Tokens(np.concatenate([long.ids[:20], other.ids]), np.zeros(50, np.int32)),
        long,
        Tokens(long.ids, 1 - long.types),
        Tokens(long.ids[:7], long.types[:7]),
    ]
    batch = pack(some)
    together = encoder(batch)
    starts = range(len(batch) + 1) if firsts else batch.offsets
    for row, index in enumerate(batch.order):
        alone = encoder(pack([some[index]]))
        part = together[starts[row] : starts[row + 1]]
        torch.testing.assert_close(part, alone, atol=1e-5, rtol=0)


@pytest.mark.unit
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocked_products_equal_plain_ones(dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and not cpu_computes_bf16():
        pytest.skip("this CPU has no bf16 arithmetic")
    torch.manual_seed(0)
    weight, bias = torch.randn(96, 64) / 8, torch.randn(96)
    x, residual = torch.randn(7, 64).to(dtype), torch.randn(7, 96).to(dtype)
    fast = linear(Affine(weight, bias), CPU, dtype)
    plain = PlainLinear(weight, bias)
    exact = x.float()
    atol = 1e-5 if dtype == torch.float32 else 0.06
    for got, expected in (
        (fast(x), plain(exact)),
        (fast.gelu(x), plain.gelu(exact)),
        (fast.plus(x, residual), plain.plus(exact, residual.float())),
    ):
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), expected, atol=atol, rtol=0)


@pytest.mark.unit
@pytest.mark.parametrize("lengths", [[9] * 5 + [4] * 3, [40, 39, 37, 36, 20, 19, 3, 1], [7]])
def test_groups_of_similar_length_equal_a_mask(
    lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    batch = pack(sequences(lengths))
    qkv = torch.randn(len(batch.ids), 3 * 32)
    asked, states = torch.randn(len(batch), 2, 32), torch.randn(len(batch.ids), 32)
    exact = attention.Padded(torch.from_numpy(batch.offsets), lengths[0])
    # All scores at once, then those of a few heads.
    for limit in (attention.SCORES_BYTES, 3 * 4 * lengths[0] ** 2):
        monkeypatch.setattr(attention, "SCORES_BYTES", limit)
        ours = attention.Groups(batch.offsets)
        torch.testing.assert_close(ours.all(qkv, 2), exact.all(qkv, 2), atol=1e-5, rtol=0)
        got, expected = (a.firsts(asked, states) for a in (ours, exact))
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


@pytest.mark.unit
@pytest.mark.parametrize("shift", [0.0, 200.0, -300.0])
@pytest.mark.parametrize("padded", [False, True])
def test_scores_beyond_the_range_of_powers_have_their_softmax(shift: float, padded: bool) -> None:
    scores = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(0))
    scores[1] += shift
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] * 5])
    expected = scores.masked_fill(~real[:, None], -torch.inf) if padded else scores
    weights, sums = attention._powers(scores * attention.LOG2_E, real if padded else None)
    got = weights / sums
    if padded:
        got = got * real[:, None]
    torch.testing.assert_close(got, expected.softmax(-1))
