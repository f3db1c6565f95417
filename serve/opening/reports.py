"""What a process says of itself at intervals: admission, memory, background work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import psutil

from models.chain import FailoverChain
from models.types import Load
from retrieval.maintenance.upkeep import Upkeep, UpkeepMetrics
from retrieval.store import backlog
from retrieval.store.database.pool import Pool
from serve import metrics
from serve.admission.controller import AdmissionController
from serve.version import program

log = logging.getLogger(__name__)

REPORT_S = 0.5
MEMORY_S = 10.0
BACKLOG_S = 15.0

_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def controllers(there: Mapping[str, AdmissionController], stack: AsyncExitStack) -> None:
    """Keeps the gauges of admission until the stack closes, whoever asks for them."""

    async def report() -> None:
        while True:
            for name, controller in there.items():
                metrics.RUNNING.labels(name).set(controller.running)
                metrics.WAITING.labels(name).set(controller.waiting)
            await asyncio.sleep(REPORT_S)

    _until_closed(asyncio.create_task(report()), stack)


def memory(stack: AsyncExitStack) -> None:
    """Keeps the memory of this process beside what it may have."""
    metrics.BUILD.labels(program()).set(1)
    own, most = psutil.Process(), memory_limit()

    async def report() -> None:
        while True:
            metrics.RESIDENT_MEMORY.set(own.memory_info().rss)
            metrics.MEMORY_LIMIT.set(most)
            await asyncio.sleep(MEMORY_S)

    _until_closed(asyncio.create_task(report()), stack)


def model(name: str, load: Callable[[], Load], stack: AsyncExitStack) -> None:
    """Keeps the length of a model's line."""

    async def report() -> None:
        while True:
            metrics.MODEL_QUEUED_TOKENS.labels(name).set(load().queued_tokens)
            await asyncio.sleep(REPORT_S)

    _until_closed(asyncio.create_task(report()), stack)


def reranker(chain: FailoverChain, stack: AsyncExitStack) -> None:
    """Keeps which members of the chain are left out."""

    async def report() -> None:
        while True:
            left_out = chain.open_circuits()
            for member in chain.members:
                metrics.RERANKER_LEFT_OUT.labels(member.name).set(member.name in left_out)
            await asyncio.sleep(REPORT_S)

    _until_closed(asyncio.create_task(report()), stack)


def background(pool: Pool, stack: AsyncExitStack) -> None:
    """Keeps the age of the oldest operation that waits."""

    async def report() -> None:
        while True:
            try:
                metrics.OLDEST_OPERATION.set(await backlog.oldest_s(pool))
            except Exception as error:  # the next look says it
                log.debug("background work could not be looked at: %s", error)
            await asyncio.sleep(BACKLOG_S)

    _until_closed(asyncio.create_task(report()), stack)


def upkeep(keeper: Upkeep, stack: AsyncExitStack) -> None:
    """Keeps what the upkeep of banks did."""

    async def report() -> None:
        before: UpkeepMetrics | None = None
        while True:
            now = keeper.metrics()
            metrics.kept_up(now, before)
            before = now
            await asyncio.sleep(BACKLOG_S)

    _until_closed(asyncio.create_task(report()), stack)


def memory_limit() -> int:
    """Bytes that this process's control group may use, or the machine has."""
    machine = int(psutil.virtual_memory().total)
    for path in _LIMITS:
        try:
            return min(machine, int(path.read_text()))
        except (OSError, ValueError):  # not there, or `max`
            continue
    return machine


def _until_closed(task: asyncio.Task[None], stack: AsyncExitStack) -> None:
    stack.callback(task.cancel)
