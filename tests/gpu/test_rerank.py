"""The packed forward on CUDA, and a rehearsal of the measuring script on the CPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from models.local.encoder import LocalEncoder
from models.local.kernels import attention
from models.local.kernels.pack import Tokens, pack
from models.local.kernels.packed import PackedEncoder
from models.local.weights import find
from models.settings import Compute, EmbedderSettings
from tests.gpu import rerank
from tests.models.weights import make_encoder

HERE = Path(__file__).parent
NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
LENGTHS = [3, 17, 5, 17, 40, 1, 17, 64, 64]


@pytest.mark.gpu
@NEEDS_CUDA
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("firsts", [False, True])
@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_packed_on_cuda_equals_fp32_on_the_cpu(
    family: str, firsts: bool, dtype: torch.dtype, tmp_path: Path
) -> None:
    folder = find(str(make_encoder(tmp_path, family)))
    chance = np.random.default_rng(0)
    zeros = [np.zeros(n, np.int32) for n in LENGTHS]
    tokens = [Tokens(chance.integers(5, 900, len(z)).astype(np.int32), z) for z in zeros]
    batch = pack(tokens)
    weights = folder.tensors()
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    exact = PackedEncoder(folder.config, weights, cpu, torch.float32, firsts_only=firsts)(batch)
    encoder = PackedEncoder(folder.config, weights, cuda, dtype, firsts_only=firsts)
    offsets = torch.from_numpy(batch.offsets).to(cuda)
    atol = {torch.float16: 0.02, torch.bfloat16: 0.15, torch.float32: 1e-3}[dtype]
    for attend in (None, attention.Padded(offsets, max(LENGTHS))):
        got = encoder(batch, attend).float().cpu()
        torch.testing.assert_close(got, exact, atol=atol, rtol=0)


@pytest.mark.gpu
@NEEDS_CUDA
async def test_the_embedder_on_cuda_equals_the_cpu(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path, "bert", vocab_size=30522)
    texts = ["a red lamp", "the long way to the bridge in winter", "door"] * 20
    rows = []
    for compute in (Compute(device="cpu", precision="fp32"), Compute(device="cuda")):
        encoder = LocalEncoder(EmbedderSettings(model=str(folder), compute=compute))
        await encoder.start()
        rows.append(await encoder.embed_passages(texts))
        await encoder.check_health()
        await encoder.close()
    assert (rows[0] * rows[1]).sum(1).min() > 0.999


@pytest.mark.integration
def test_the_script_measures_and_judges_on_any_device() -> None:
    found = rerank.run(["tiny"], "cpu", pairs=12, rounds=1, limit_s=60)
    assert found["agreement"]["tiny"]["held"]
    assert found["agreement"]["tiny"]["spread"] > 1e-3
    assert found["missing"] == []
    assert set(found["rows"]) == {"tiny short", "tiny long"}
    for row in found["rows"].values():
        assert row["packed vs padded"] < 1e-4
        assert all(np.isfinite(value) and value > 0 for value in row.values())


@pytest.mark.unit
def test_after_the_limit_nothing_new_begins() -> None:
    clock = rerank.Clock("cpu", limit_s=-1)
    assert np.isnan(clock.median_ms("it", lambda: None, 1))
    assert clock.missing == ["it"]


@pytest.mark.unit
def test_run_sh_parses() -> None:
    checked = subprocess.run(["bash", "-n", str(HERE / "run.sh")], capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr
