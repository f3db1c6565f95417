"""Resident banks as the settings want them: how vectors lie, how much is held, what is loaded
ahead. What is opened is closed by the exit stack that it is given.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import torch

from retrieval.bank.cache import ResidencyMetrics, ResidencySettings, SnapshotCache
from retrieval.bank.residency import Residency
from retrieval.bank.shards.scatter import ScatterGather
from retrieval.bank.shards.shard import LocalShards, Ranges
from retrieval.bank.vectors.flat import FlatBackend, VectorBackend
from retrieval.bank.vectors.gpu import GpuBackend
from retrieval.bank.vectors.ivf import IvfBackend
from retrieval.bank.vectors.partitioned import PartitionedBackend
from retrieval.errors import FourfoldError
from retrieval.lifecycle.erasure.replicas import Sweeper
from retrieval.store import banks
from retrieval.store.database.pool import Pool
from retrieval.store.tenants import DEFAULT_TENANT
from serve import metrics
from serve.opening.database import open_database
from serve.opening.hot import HotSettings, open_hot
from serve.settings import Settings

log = logging.getLogger(__name__)

ARRAY_THREADS = 2
"""Threads for array work over large banks; its kernels let go of the interpreter."""

REPORT_PERIOD_S = 1.0


def _vector_backend(
    settings: Settings, host: VectorBackend, stack: AsyncExitStack
) -> VectorBackend:
    """The accelerator where vectors are to be scanned there, else `host`."""
    wanted = settings.banks.vector_backend
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return host
    device = GpuBackend(budget_bytes=settings.banks.gpu_bank_memory_bytes)
    stack.callback(device.close)
    return device


def _bank_vectors(settings: Settings, stack: AsyncExitStack, *, divided: bool) -> VectorBackend:
    """`divided`: a large bank's vectors lie in ranges inside one store."""
    banks = settings.banks
    host: VectorBackend = FlatBackend()
    if banks.bank_ivf_rows:
        host = IvfBackend(banks.bank_ivf_rows, banks.bank_ivf_recall)
    whole = _vector_backend(settings, host, stack)
    if not divided or not banks.bank_shard_rows:
        return whole
    ranges = PartitionedBackend(whole, banks.bank_shard_rows, ARRAY_THREADS)
    stack.callback(ranges.close)
    return ranges


async def open_residency(
    settings: Settings, pool: Pool, ranges: Ranges | None, stack: AsyncExitStack
) -> Residency:
    """Resident banks; `ranges` hold vectors and postings of large ones; None: all are whole."""
    sizes = _sizes(settings, _bank_vectors(settings, stack, divided=ranges is None))
    split = None if ranges is None else ScatterGather(ranges, settings.banks.bank_shard_rows)
    residency = Residency(pool, sizes, split=split)
    _attend(residency, stack)
    _sweep(pool, residency, stack)
    return residency


def budgeted(cache: SnapshotCache[Any], hot: HotSettings, most: int = sys.maxsize) -> None:
    """From now on `cache` may take what the settings say, `most` bytes at the most."""
    started = cache.budget_bytes
    hot.tell(lambda: cache.resize(min(most, hot.value("bank_memory_bytes", started))))


async def open_ranges(settings: Settings, stack: AsyncExitStack) -> LocalShards:
    """Ranges of split banks, with their own database connections."""
    pool = await open_database(settings, stack)
    host = FlatBackend(surveyed_rows=sys.maxsize)  # all of a range is asked for, always
    ranges = LocalShards(
        pool,
        _sizes(settings, _vector_backend(settings, host, stack)),
        settings.banks.bank_shard_rows,
        threads=ARRAY_THREADS,
    )
    budgeted(ranges, await open_hot(pool, stack))
    _attend(ranges, stack)
    _sweep(pool, ranges, stack)
    return ranges


def _sizes(settings: Settings, vectors: VectorBackend) -> ResidencySettings:
    return ResidencySettings(
        budget_bytes=settings.banks.bank_memory_bytes,
        device_budget_bytes=settings.banks.gpu_bank_memory_bytes,
        vectors=vectors,
    )


def _attend(cache: SnapshotCache[Any], stack: AsyncExitStack) -> None:
    """Closes what is resident at the end, and reports on it until then."""
    stack.push_async_callback(cache.close)
    reporting = asyncio.create_task(_report(cache))
    stack.callback(reporting.cancel)


def _sweep(pool: Pool, cache: SnapshotCache[Any], stack: AsyncExitStack) -> None:
    """Lets go of what is outdated, and tells erasures so."""
    sweeper = Sweeper(pool, [cache])
    sweeper.start()
    stack.push_async_callback(sweeper.close)


async def _report(cache: SnapshotCache[Any]) -> None:
    """Keeps the metrics of what is resident."""
    before: ResidencyMetrics | None = None
    while True:
        now = cache.metrics()
        metrics.resident(now, before)
        metrics.BANK_BUDGET.set(cache.budget_bytes)
        before = now
        await asyncio.sleep(REPORT_PERIOD_S)


async def warm(pool: Pool, residency: Residency, names: Sequence[str]) -> int:
    """Loads these banks (`bank` or `tenant/bank`) as long as there is room; how many are resident.

    One that does not exist is passed over.
    """
    heads = []
    for name in names:
        tenant, slash, bank_id = name.partition("/")
        if not slash:
            tenant, bank_id = DEFAULT_TENANT, name
        try:
            heads.append(await banks.head(pool, tenant, bank_id))
        except FourfoldError as error:
            log.warning("bank %s is not loaded ahead: %s", name, error)
    return await residency.warm(heads)
