"""The accelerator's vector store on the accelerator."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from retrieval.bank.columns import AliveSet
from retrieval.bank.vectors.gpu import GpuBackend, GpuVectors
from retrieval.bank.vectors.scan_gpu import DeviceScan
from retrieval.types import FactType
from tests.retrieval.bank.vectors import congruence

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> Iterator[GpuBackend]:
    backend = GpuBackend("cuda", budget_bytes=2 << 30, host_rows=256)
    yield backend
    backend.close()


@pytest.mark.parametrize("size", [200, 1300, 40_000])
def test_answers_equal_those_of_a_plain_product(device: GpuBackend, size: int) -> None:
    congruence.check(congruence.case(device, size, 384, tolerance=1e-3))


def test_a_scan_runs_at_the_speed_of_memory(device: GpuBackend) -> None:
    """1M x 384 halves, 1 and 32 queries, as a share of what copying reaches on this device."""
    rows = np.random.default_rng(0).standard_normal((1_000_000, 384), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    population = AliveSet.empty().extended(np.zeros(len(rows), np.uint8), np.empty(0, np.int32))
    store = device.empty().extended([rows], np.zeros(len(rows), np.bool_), population)
    assert isinstance(store, GpuVectors)

    def seconds(work: object, times: int = 20) -> float:
        taken = []
        for _ in range(times):
            torch.cuda.synchronize()
            start = time.perf_counter()
            work()  # type: ignore[operator]
            torch.cuda.synchronize()
            taken.append(time.perf_counter() - start)
        return float(np.median(taken))

    half = store.extent_rows()
    target = torch.empty_like(half)
    ceiling = 2 * half.nbytes / seconds(lambda: target.copy_(half))
    for batch in (1, 32):
        queries = np.ascontiguousarray(rows[:batch])
        reached = half.nbytes / seconds(lambda: device.product(queries, half))  # noqa: B023
        print(f"batch {batch}: {reached / 1e12:.2f} TB/s, {reached / ceiling:.0%} of copying")
        assert reached > 0.2 * ceiling
    whole = seconds(lambda: DeviceScan(store, rows[0]).top(300, None, FactType.WORLD))
    print(f"scan and best 300 of 1M: {whole * 1e3:.2f} ms")
