"""Settings, devices, threads and files: what is refused, and with which sentence."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.local import device, weights
from models.local.device import DeviceThread, allowed_cpus, cpu_computes_bf16, resolve
from models.local.engine import Engine, LoadedModel
from models.local.kernels import int8
from models.local.kernels.pack import Pack, Tokens
from models.settings import Compute, EmbedderSettings, ModelSettingsError, RerankerSettings
from models.types import Unavailable, WrongModel

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("kind", "wrong", "words"),
    [
        (EmbedderSettings, {"provider": "nobody"}, "choose one of local, tei"),
        (EmbedderSettings, {"provider": "tei"}, "needs a url"),
        (EmbedderSettings, {"provider": "tei", "url": "localhost:80"}, "http"),
        (EmbedderSettings, {"batch_size": 0}, "batch_size is 0"),
        (EmbedderSettings, {"max_input_tokens": -1}, "max_input_tokens"),
        (EmbedderSettings, {"timeout_s": 0}, "timeout_s"),
        (EmbedderSettings, {"compute": Compute(precision="int8")}, "for rerankers"),
        (RerankerSettings, {"provider": "nobody"}, "choose one of local, tei"),
        (RerankerSettings, {"provider": "vllm"}, "needs a url"),
        (RerankerSettings, {"max_concurrent": 0}, "max_concurrent is 0"),
        (RerankerSettings, {"timeout_s": -1.0}, "timeout_s"),
        (Compute, {"precision": "int4"}, "precision is 'int4'"),
        (Compute, {"threads": -1}, "threads is -1"),
        (Compute, {"init_timeout_s": 0}, "init_timeout_s"),
    ],
)
def test_wrong_settings_are_named(kind: Any, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelSettingsError, match=words):
        kind(**wrong)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000"}, [1]),
        ({"cpu.max": "400000 100000"}, [4]),
        ({"cpu.max": "50000 100000"}, [1]),
        ({"cpu.max": "max 100000"}, []),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, [3]),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, []),
        ({}, []),
    ],
)
def test_the_control_group_limits_threads(
    files: dict[str, str], expected: list[int], tmp_path: Path
) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert device.cgroup_cpus(tmp_path) == expected


def test_a_model_has_the_threads_that_the_control_group_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(device, "cgroup_cpus", list)
    assert allowed_cpus() == 4
    monkeypatch.setattr(device, "cgroup_cpus", lambda: [3])
    assert allowed_cpus() == 3


def test_precision_and_bounds_follow_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = resolve(Compute(device="cpu"))
    assert cpu.dtype == (torch.bfloat16 if cpu_computes_bf16() else torch.float32)
    assert resolve(Compute(device="cpu", precision="fp32")).dtype == torch.float32
    assert cpu.bulk_batch_tokens < cpu.batch_tokens < cpu.queued_tokens
    monkeypatch.setattr(device, "cpu_computes_bf16", lambda: False)
    assert resolve(Compute(device="cpu", precision="bf16")).dtype == torch.float32
    with pytest.raises(ModelSettingsError, match="not known"):
        resolve(Compute(device="abacus"))
    if not torch.cuda.is_available():
        assert resolve(Compute()).on_cpu
        with pytest.raises(ModelSettingsError, match="no usable CUDA"):
            resolve(Compute(device="cuda"))


def test_int8_is_for_cpus_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wish = Compute(device="cpu", precision="int8")
    monkeypatch.setattr(device, "cpu_computes_int8", lambda: False)
    assert resolve(wish).dtype == resolve(Compute(device="cpu")).dtype
    monkeypatch.setattr(device, "cpu_computes_int8", lambda: True)
    monkeypatch.setattr(int8, "available", lambda: True)
    assert resolve(wish).dtype == torch.int8
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("auto", "cuda"):
        with pytest.raises(ModelSettingsError, match="which is for CPUs: on cuda choose fp16"):
            resolve(Compute(device=name, precision="int8"))


async def test_the_owner_is_one_thread_and_says_when_it_is_gone() -> None:
    owner = DeviceThread("test")
    with pytest.raises(Unavailable):
        owner.check()
    with pytest.raises(Unavailable):
        await owner.do(int)
    await owner.start(1)
    owner.check()
    assert await asyncio.gather(*(owner.do(pow, 2, n) for n in range(3))) == [1, 2, 4]
    slow = asyncio.create_task(owner.do(time.sleep, 0.05))
    dropped = asyncio.create_task(owner.do(pytest.fail, "was cancelled before its turn"))
    await asyncio.sleep(0.01)
    dropped.cancel()
    with pytest.raises(ZeroDivisionError):
        await owner.do(divmod, 1, 0)
    await slow
    owner.close()
    owner.close()
    with pytest.raises(Unavailable):
        owner.check()


async def test_a_model_that_takes_too_long_to_load() -> None:
    engine = Engine("slow", Compute(init_timeout_s=0.05), batch_items=None)

    late = threading.Event()

    def load(_: device.Machine) -> LoadedModel:
        assert late.wait(60)
        raise AssertionError("nobody waits for this")

    with pytest.raises(Unavailable, match=r"within 0\.05 s"):
        await engine.start(load)
    with pytest.raises(Unavailable):
        await engine.check_health()
    late.set()


@pytest.mark.parametrize("padded", [False, True])
async def test_batches_run_side_by_side_on_a_cpu(padded: bool) -> None:
    engine = Engine("two", Compute(device="cpu", threads=2), batch_items=4)
    meeting = threading.Barrier(2)
    threads: list[int] = []

    def forward(batch: Pack) -> torch.Tensor:
        if batch.ids[0] == 7:  # not the warm-up
            threads.append(torch.get_num_threads())
            with contextlib.suppress(threading.BrokenBarrierError):
                meeting.wait(0.2)
        return torch.from_numpy(batch.ids[batch.offsets[:-1]]).float()[:, None]

    await engine.start(lambda _: LoadedModel(forward, padded, 64))
    sevens = np.full(64, 7, np.int32)
    rows = await engine.rows([Tokens(sevens, sevens)] * 8, tenant="", deadline=None)
    assert rows.tolist() == [[7.0]] * 8
    assert meeting.broken == padded
    assert threads == ([2, 2] if padded else [1, 1])
    await engine.close()


def test_a_hub_that_cannot_be_reached_is_told_within_seconds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(weights, "HUB_CONNECT_S", 0.2)
    with socket.socket() as silent:
        # A port that accepts nothing: the connection is left unanswered or refused.
        silent.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        start = time.monotonic()
        with pytest.raises(Unavailable, match="cannot be reached"):
            weights.find("someone/some-model")
        assert time.monotonic() - start < 5
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(Unavailable, match="the hub is off"):
        weights.find("someone/some-model")


def test_folders_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(WrongModel, match=r"no config\.json"):
        weights.find(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(WrongModel, match="not valid JSON"):
        weights.find(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    folder = weights.find(str(tmp_path))
    with pytest.raises(WrongModel, match=r"no model\.safetensors"):
        folder.tensors()
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    assert folder.tensors()["a"].tolist() == [1, 1]
    assert weights.read_list(tmp_path / "modules.json") == []
    assert weights.read_object(tmp_path / "modules.json") == {}


@pytest.mark.parametrize("name", weights.PACKAGED_NAMES)
def test_the_packaged_model_has_one_name(name: str) -> None:
    folder = weights.find(name)
    assert folder.name == "sentence-transformers/all-MiniLM-L6-v2"
    assert folder.config["model_type"] == "bert"


FAULTS = """
import resource, sys, threading, torch
from models.local.device import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    for _ in range(8):
        before = faults()
        for _ in range(4):
            blocks = [torch.ones(6 << 20, dtype=torch.uint8) for _ in range(3)]
            del blocks
        found.append(faults() - before)
found = []
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(sum(found[1:]))
"""


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="about glibc's malloc")
def test_freed_memory_is_kept_for_the_next_forward() -> None:
    faults = {
        mode: int(
            subprocess.run(
                [sys.executable, "-c", FAULTS, mode], capture_output=True, check=True, text=True
            ).stdout
        )
        for mode in ("kept", "returned")
    }
    assert faults["kept"] < faults["returned"] / 2


def test_a_forward_waits_less_for_the_interpreter() -> None:
    before = sys.getswitchinterval()
    try:
        for given in (0.005, 0.0001):
            sys.setswitchinterval(given)
            device.hand_over_often()
            assert sys.getswitchinterval() == pytest.approx(min(given, device.SWITCH_S), abs=2e-6)
    finally:
        sys.setswitchinterval(before)
