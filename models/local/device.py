"""Where a local model computes: device, precision, threads, and the one thread that owns it."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch

from models.local.kernels import int8
from models.settings import Compute, ModelSettingsError
from models.types import DeviceLost, Unavailable

R = TypeVar("R")
log = logging.getLogger(__name__)


QUEUED_TOKENS = 1 << 20
"""What may wait for a model: some 80 recalls of 300 pairs. Deadlines bound the wait; a line bounded
to a few seconds of a CPU's work would refuse the fifth of one tenant's recalls at once."""


LARGEST_COUNTED = 31 << 20
"""glibc's limit for blocks that move its thresholds is 32 MiB."""

SWITCH_S = 0.0002


def cpu_computes_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware (AVX512-BF16 or AMX)."""
    return _cpu_has("avx512_bf16", "amx_bf16")


def cpu_computes_int8() -> bool:
    """Whether this CPU sums products of bytes in 32 bits (AVX512-VNNI or AMX). Without, they are
    summed in 16 bits, which overflow."""
    return _cpu_has("avx512_vnni", "amx_int8")


def _cpu_has(*flags: str) -> bool:
    """One of the flags, on a CPU where torch uses AVX512."""
    capability = getattr(torch.backends.cpu, "get_cpu_capability", lambda: "")()
    if "AVX512" not in capability:
        return False
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return any(flag in info for flag in flags)


def keep_freed_memory() -> None:
    """From now on the C library keeps what a forward on a CPU frees for the next one.

    glibc gives freed memory back beyond twice the largest block that was ever mapped and freed, so
    one block as large as counts is enough. Before, a sixth of a forward in bf16 was getting its
    memory page by page.
    """
    torch.empty(LARGEST_COUNTED, dtype=torch.uint8)


def hand_over_often() -> None:
    """From now on a thread of this process that needs the interpreter for its next operation has it
    after 0.2 ms, not after Python's 5.

    While others ran Python, forwards stood still for 4 to 6 % of their time. For a process that
    runs long ones: array work of eight recalls at a time takes a tenth more CPU time for it.
    """
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))


def allowed_cpus() -> int:
    """CPUs that affinity and control group leave to this process, at least 1.

    OMP_NUM_THREADS says nothing here: it is set to 1 for the sake of array work.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min([count or 1, *cgroup_cpus()]))


def cgroup_cpus(root: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """The quota in whole CPUs, of control groups v2 or v1; empty where there is none."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return []
    if quota == "max" or int(quota) <= 0:
        return []
    return [max(1, int(quota) // int(period))]


@dataclass(frozen=True, slots=True)
class Machine:
    """The resolved half of `Compute`: what is there, and the batch bounds that suit it.

    `dtype` is for the BERT family, which alone computes in int8; `wide_dtype` for models whose
    activations may leave the range of fp16 (DeBERTa is known for it), where the precision was not
    asked for.
    """

    device: torch.device
    dtype: torch.dtype
    wide_dtype: torch.dtype
    threads: int
    batch_tokens: int
    bulk_batch_tokens: int
    queued_tokens: int

    @property
    def on_cpu(self) -> bool:
        return self.device.type == "cpu"


def resolve(compute: Compute) -> Machine:
    """Picks device and precision; ModelSettingsError where the wished-for device is not there
    or does not have the precision."""
    device = _device(compute)
    dtype = _dtype(compute.precision, device)
    on_cpu = device.type == "cpu"
    batch = compute.batch_tokens or (2_048 if on_cpu else 16_384)
    bulk = compute.bulk_batch_tokens or (512 if on_cpu else 16_384)
    return Machine(
        device=device,
        dtype=dtype,
        wide_dtype=_wide(compute.precision, dtype),
        threads=compute.threads or allowed_cpus(),
        batch_tokens=batch,
        bulk_batch_tokens=min(bulk, batch),
        queued_tokens=compute.queued_tokens or QUEUED_TOKENS,
    )


def _device(compute: Compute) -> torch.device:
    wish = compute.device
    if wish == "auto":
        if torch.cuda.is_available():
            wish = "cuda"
        elif compute.allow_mps and torch.backends.mps.is_available():
            wish = "mps"
        else:
            wish = "cpu"
    try:
        device = torch.device(wish)
    except RuntimeError as error:
        raise ModelSettingsError(f"device {wish!r} is not known: use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelSettingsError(f"device is {wish!r}, and this machine has no usable CUDA device")
    return device


def _dtype(precision: str, device: torch.device) -> torch.dtype:
    if precision == "fp32":
        return torch.float32
    if precision == "int8":
        if device.type != "cpu":
            raise ModelSettingsError(
                f"precision is 'int8', which is for CPUs: on {device} choose fp16, or set the "
                "device to cpu"
            )
        if cpu_computes_int8() and int8.available():
            return torch.int8
    if device.type == "cpu":
        # No CPU computes fp16 fast; bf16 without hardware is slower than fp32.
        if precision != "auto" and not cpu_computes_bf16():
            log.warning("this CPU has no %s arithmetic: the model runs in fp32", precision)
        elif precision == "int8":
            log.warning("this CPU has no int8 arithmetic: the model runs in bf16")
        return torch.bfloat16 if cpu_computes_bf16() else torch.float32
    # fp16 costs what bf16 costs and rounds eight times finer.
    return torch.bfloat16 if precision == "bf16" else torch.float16


def _wide(precision: str, dtype: torch.dtype) -> torch.dtype:
    if precision != "auto" or dtype != torch.float16:
        return dtype
    supported = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if supported else torch.float32


class DeviceThread:
    """The one thread that touches a device; on a CPU, as many as there are CPUs. Work is begun in
    the order in which it is handed in.

    Daemon threads: a driver that hangs does not keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] | None = None
        self._count = 0
        self._lost = ""

    async def start(self, threads: int, count: int = 1) -> None:
        """`threads` is how many torch may use for one operation; `count`, how many pieces of work
        run at once."""
        self._jobs, self._count = queue.SimpleQueue(), count
        for _ in range(count):
            work = threading.Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True)
            work.start()
        await self.do(torch.set_num_threads, threads)

    async def do(self, work: Callable[..., R], *args: object) -> R:
        """Runs `work(*args)` on an owner thread; dropped if cancelled before its turn. Raises what
        it raises; a fault of the device itself becomes DeviceLost and stays."""
        if self._jobs is None:
            raise Unavailable(self._name, "it is not started")
        answer: Future[R] = Future()
        self._jobs.put((answer, functools.partial(work, *args)))
        try:
            return await asyncio.wrap_future(answer)
        except torch.OutOfMemoryError as error:
            reason = f"the device is out of memory: {error}".splitlines()[0]
            raise Unavailable(self._name, reason) from error
        except torch.AcceleratorError as error:
            self._lost = f"{type(error).__name__}: {error}".splitlines()[0]
            raise DeviceLost(self._name, self._lost) from error

    def check(self) -> None:
        """Raises Unavailable before the start and after the close, DeviceLost after a fault."""
        if self._lost:
            raise DeviceLost(self._name, self._lost)
        if self._jobs is None:
            raise Unavailable(self._name, "it is not started")

    def close(self) -> None:
        """The threads end after what was handed in; nobody waits for them."""
        if self._jobs is not None:
            for _ in range(self._count):
                self._jobs.put(None)
            self._jobs = None


_Job: TypeAlias = "tuple[Future[Any], Callable[[], Any]]"


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while job := jobs.get():
        answer, work = job
        if not answer.set_running_or_notify_cancel():
            continue
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)
        # Idle threads hold no model and no batch alive.
        del job, answer, work
