"""The accelerator's store, run on a CPU device: the logic is the same, the speed is not."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from retrieval.bank.columns import AliveSet
from retrieval.bank.vectors.flat import FlatVectors
from retrieval.bank.vectors.gpu import GpuBackend, GpuVectors
from retrieval.bank.vectors.slab import Slab
from retrieval.errors import Unavailable
from retrieval.types import FactType, Floats
from tests.retrieval.bank.vectors import congruence

pytest.importorskip("torch")
pytestmark = pytest.mark.unit

HALF = 1e-3
"""What rounding unit rows to half precision may cost a similarity."""


@pytest.fixture(scope="module")
def device() -> Iterator[GpuBackend]:
    backend = GpuBackend("cpu", budget_bytes=8 << 20, temp_bytes=1 << 16, host_rows=256)
    yield backend
    backend.close()


@pytest.mark.parametrize("size", [200, 1300], ids=["picked on the host", "picked on the device"])
def test_answers_equal_those_of_a_plain_product(device: GpuBackend, size: int) -> None:
    congruence.check(congruence.case(device, size, seed=3, tolerance=HALF))


def test_a_filter_or_a_large_k_never_brings_another_type_or_a_placeholder(
    device: GpuBackend,
) -> None:
    case = congruence.case(device, 5000, 16, tolerance=HALF)
    world = np.flatnonzero(case.searchable & (case.types == FactType.WORLD))
    assert len(world) > 2048
    hits = case.store.scan(case.vectors[1]).top(100_000, None, FactType.WORLD)
    assert np.array_equal(np.sort(hits.ordinals), world)


def _grown(device: GpuBackend, rows: Floats) -> GpuVectors:
    population = AliveSet.empty().extended(np.zeros(len(rows), np.uint8), np.empty(0, np.int32))
    store = device.empty().extended([rows], np.zeros(len(rows), np.bool_), population)
    assert isinstance(store, GpuVectors)
    return store


def test_extents_go_back_when_the_last_snapshot_is_gone(device: GpuBackend) -> None:
    gc.collect()
    free = device.room.free
    store = _grown(device, np.eye(16, dtype=np.float32))
    population = store.population.extended(np.zeros(1, np.uint8), np.empty(0, np.int32))
    later = store.extended([np.full((1, 16), 0.25, np.float32)], np.zeros(1, np.bool_), population)
    scan = later.scan(np.eye(16, dtype=np.float32)[0])
    del store, later
    gc.collect()
    assert device.room.free < free  # the scan still needs its rows
    assert len(scan.top(99, None, FactType.WORLD)) == 17
    del scan
    gc.collect()
    assert device.room.free == free


def test_a_bank_without_room_is_searched_by_the_cpu_with_the_same_answers() -> None:
    tight = GpuBackend("cpu", budget_bytes=(4096 * 64 * 2) * 2, host_rows=64)
    try:
        case = congruence.case(tight, 12_000, 64, tolerance=HALF, batches=4)
        assert isinstance(case.store, FlatVectors)
        assert tight.spilled == 1
        query = case.vectors[np.flatnonzero(case.searchable)[0]]
        hits = case.store.scan(query).top(10, None, FactType.WORLD)
        truth = np.where(case.searchable & (case.types == 0), case.vectors @ query, -2)
        np.testing.assert_allclose(hits.scores, np.sort(truth)[::-1][:10], atol=HALF)
    finally:
        tight.close()


def test_queries_that_wait_together_are_one_product(device: GpuBackend) -> None:
    store = _grown(device, np.eye(32, dtype=np.float32))
    other = _grown(device, -np.eye(32, dtype=np.float32))
    batches: list[int] = []
    product = device.product

    def counted(queries: Floats, rows: object) -> object:
        batches.append(len(queries))
        return product(queries, rows)  # type: ignore[arg-type]

    busy, go = threading.Event(), threading.Event()

    def occupy() -> None:
        busy.set()
        go.wait()

    with ThreadPoolExecutor(12) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "product", counted)
        holding = pool.submit(device.run, occupy)
        busy.wait()
        found = [
            pool.submit((other if i % 5 == 4 else store).dense, np.eye(32, dtype=np.float32)[i])
            for i in range(10)
        ]
        while device._inbox.qsize() < 10:
            threading.Event().wait(0.001)
        go.set()
        holding.result()
        for i, future in enumerate(found):
            expected = np.eye(32, dtype=np.float32)[i] * (-1 if i % 5 == 4 else 1)
            assert np.array_equal(future.result(), expected)
    assert sorted(batches) == [2, 8]


def test_banks_side_by_side_never_see_each_other(device: GpuBackend) -> None:
    ones = np.full((40, 24), 24**-0.5, np.float32)
    stores = [_grown(device, ones * (1 if n % 2 else -1)) for n in range(6)]

    def ask(number: int) -> bool:
        hits = stores[number].scan(ones[0]).top(99, None, FactType.WORLD)
        expected = 1.0 if number % 2 else -1.0
        return len(hits) == 40 and bool(np.allclose(hits.scores, expected, atol=HALF))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, [n % 6 for n in range(300)]))


def test_an_error_on_the_device_reaches_the_caller_and_the_thread_lives_on(
    device: GpuBackend,
) -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        device.run(fail)
    assert device.run(lambda: 5) == 5


def test_a_device_that_ignores_filters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from retrieval.bank.vectors import scan_gpu

    honest = scan_gpu._largest
    monkeypatch.setattr(
        scan_gpu,
        "_largest",
        lambda store, row, k, allowed, kind: honest(store, row, k, None, kind),
    )
    with pytest.raises(Unavailable, match="filters"):
        GpuBackend("cpu", budget_bytes=2 << 20, host_rows=0)


def test_spans_of_a_slab_are_handed_out_once_and_grow_together_again() -> None:
    slab = Slab(100)
    a, b, c = slab.take(30), slab.take(30), slab.take(40)
    assert (a, b, c) == (0, 30, 60)
    assert slab.take(1) is None
    slab.give(30, 30)
    assert slab.take(31) is None
    assert slab.take(10) == 30
    slab.give(0, 30)
    slab.give(30, 10)
    assert slab.take(60) == 0
    assert slab.free == 0
