"""What a local encoder and a local cross-encoder share: start, batches, one owner thread, health.

Tokenising happens before queueing, so the batcher knows every length, and overlaps with the
forward that the owner thread runs. On a CPU several batches run side by side, on a thread each:
two threads in one batch wait for each other after every operation (of two cores, they used 1.4).
Measurements reported to `observe`:

tokenise_s (per call) · queue_s (per call) · batch_s, batch_items, batch_tokens, padding_share
(per batch; the share of computed tokens that were padding) · forward_s (per batch, on the device)
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.batching.batcher import Batcher
from models.batching.lanes import LaneLimits
from models.local.device import DeviceThread, Machine, keep_freed_memory, resolve
from models.local.kernels.pack import Pack, Tokens, pack
from models.settings import Compute
from models.types import (
    DeviceLost,
    Floats,
    Load,
    ModelError,
    Observe,
    Priority,
    Unavailable,
    WrongModel,
    ignore,
)

log = logging.getLogger(__name__)

CPU_BATCH_ITEMS = 32

ALONE_TOKENS = 128
"""On a CPU, up to so many tokens are computed by one thread: a question of 25 takes a quarter more
CPU time on two, which wait for each other after every operation."""

PRECISIONS = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int8: "int8",
}
"""Names of precisions, as settings have them."""

AMID_QUERIES_S = 1.0
"""So long after a query, bulk work leaves one of the CPU's threads idle: the next query, and all
else that its answer needs, finds a core free."""

STALLED_S = 60.0
"""A batch that runs longer than this means that the device or its driver hangs."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model on its device. `forward` maps a pack to one row per sequence, in the pack's order;
    on a CPU several threads call it at once, unless it is `padded`.

    `padded`: it computes padding too, which the batcher then counts. `longest`: the most tokens of
    one sequence.
    """

    forward: Callable[[Pack], Tensor]
    padded: bool
    longest: int


class Engine:
    """Runs tokenised texts through a model. Everything public runs on one event loop."""

    def __init__(
        self, name: str, compute: Compute, *, batch_items: int | None, observe: Observe = ignore
    ) -> None:
        self._name = name
        self._compute = compute
        self._batch_items = batch_items
        self._observe = observe
        self._owner = DeviceThread(name)
        self._batcher: Batcher[Tokens, Floats] | None = None
        self._machine: Machine | None = None
        self._loaded: LoadedModel | None = None
        self._columns = 0
        self._queried = -AMID_QUERIES_S
        self._starting: asyncio.Lock | None = None

    async def start(self, load: Callable[[Machine], LoadedModel]) -> None:
        """Loads on the owner thread and warms up. Calling it again does nothing.

        Raises the ModelError or OSError that `load` raises, WrongModel for whatever else goes
        wrong, Unavailable after `init_timeout_s`.
        """
        self._starting = self._starting or asyncio.Lock()
        async with self._starting:
            if self._batcher is not None:
                return
            machine = resolve(self._compute)
            if machine.on_cpu:
                keep_freed_memory()
            await self._owner.start(machine.threads, machine.threads if machine.on_cpu else 1)
            try:
                async with asyncio.timeout(self._compute.init_timeout_s):
                    loaded = await self._owner.do(load, machine)
                    self._columns = await self._owner.do(_warm_up, loaded, machine)
            except TimeoutError as error:
                self._owner.close()
                limit = f"it was not loaded within {self._compute.init_timeout_s:g} s"
                raise Unavailable(self._name, limit) from error
            except (ModelError, OSError, asyncio.CancelledError):
                self._owner.close()
                raise
            except Exception as error:  # weights and configuration that do not fit each other
                self._owner.close()
                reason = f"{type(error).__name__}: {error}"
                raise WrongModel(f"{self._name} cannot be loaded: {reason}") from error
            self._machine, self._loaded = machine, loaded
            self._batcher = Batcher(
                self._run,
                self._limits(machine, loaded),
                name=self._name,
                observe=self._observe,
                run_bulk=self._run_bulk,
            )
            log.info("%s runs on %s in %s", self._name, machine.device, machine.dtype)

    async def rows(
        self,
        tokens: Sequence[Tokens],
        *,
        tenant: str,
        priority: Priority = Priority.QUERY,
        deadline: float | None,
    ) -> Floats:
        """float32 (n, columns), in the order of `tokens`. Raises as `Batcher.submit`."""
        if self._batcher is None:
            raise Unavailable(self._name, "it is not started")
        lengths = [len(t) for t in tokens]
        if priority is Priority.QUERY:
            self._queried = time.monotonic()
        rows = await self._batcher.submit(
            tokens, lengths, tenant=tenant, priority=priority, deadline=deadline
        )
        return np.stack(rows)

    @property
    def columns(self) -> int:
        """Of a row; 0 before the start."""
        return self._columns

    @property
    def runs_on(self) -> str:
        """The precision and the device, such as "bf16 on cpu"; empty before the start."""
        if self._machine is None or self._loaded is None:
            return ""
        dtype = self._machine.wide_dtype if self._loaded.padded else self._machine.dtype
        return f"{PRECISIONS.get(dtype, dtype)} on {self._machine.device}"

    @property
    def queued_tokens_limit(self) -> int:
        return self._machine.queued_tokens if self._machine else 0

    def load(self) -> Load:
        return self._batcher.load() if self._batcher else Load()

    async def check_health(self) -> None:
        """Raises Unavailable before the start and after the close, DeviceLost where the device
        failed or a batch hangs."""
        self._owner.check()
        if self._batcher is None:
            raise Unavailable(self._name, "it is still loading")
        age = self._batcher.load().running_s
        if age > STALLED_S:
            raise DeviceLost(self._name, f"a batch has been running for {age:.0f} s")

    async def close(self) -> None:
        """Refuses new work, finishes what was accepted, frees the device. May be called twice."""
        if self._batcher is not None:
            await self._batcher.close()
        self._batcher = self._loaded = None
        self._owner.close()

    def _limits(self, machine: Machine, loaded: LoadedModel) -> LaneLimits:
        # On a CPU one batch more than there are threads: threads that waited for the event loop
        # stood still for 2 %, and a newcomer still waits less than one batch's time. The models of
        # transformers do not promise to bear a second thread.
        ahead = 1 if not machine.on_cpu else 0 if loaded.padded else machine.threads
        return LaneLimits(
            batch_tokens=machine.batch_tokens,
            bulk_batch_tokens=machine.bulk_batch_tokens,
            # On a GPU the tokens decide: 32 short pairs would leave it idle.
            batch_items=(self._batch_items or CPU_BATCH_ITEMS) if machine.on_cpu else 1 << 20,
            queued_tokens=machine.queued_tokens,
            padded=loaded.padded,
            ahead=ahead,
            # Not for writes: a query finds a thread free, or the only one after a small batch.
            reserved=min(2, ahead) if machine.on_cpu else 0,
        )

    async def _run_bulk(self, tokens: Sequence[Tokens]) -> list[Floats]:
        amid = time.monotonic() - self._queried < AMID_QUERIES_S
        return await self._run(tokens, idle=1 if amid else 0)

    async def _run(self, tokens: Sequence[Tokens], idle: int = 0) -> list[Floats]:
        """`idle`: threads of a CPU that are left to others."""
        machine, loaded = self._machine, self._loaded
        assert machine is not None
        assert loaded is not None
        if machine.on_cpu:
            few = sum(map(len, tokens)) <= ALONE_TOKENS
            most = max(1, machine.threads - idle)
            threads = 1 if few else max(1, most // self.load().running_batches)
            batch, rows, seconds = await self._owner.do(_pack_and_forward, loaded, tokens, threads)
        else:
            batch = await asyncio.to_thread(pack, tokens)
            rows, seconds = await self._owner.do(_forward, loaded, batch)
        self._observe("forward_s", seconds)
        if loaded.padded:
            computed = len(batch) * int(batch.lengths.max())
            self._observe("padding_share", 1 - len(batch.ids) / computed)
        else:
            self._observe("padding_share", 0.0)
        answers: list[Floats] = [rows[0]] * len(tokens)
        for row, index in zip(rows, batch.order, strict=True):
            answers[index] = row
        return answers


def _pack_and_forward(
    loaded: LoadedModel, tokens: Sequence[Tokens], threads: int
) -> tuple[Pack, Floats, float]:
    torch.set_num_threads(threads)
    batch = pack(tokens)
    return batch, *_forward(loaded, batch)


def _forward(loaded: LoadedModel, batch: Pack) -> tuple[Floats, float]:
    start = time.perf_counter()
    rows = loaded.forward(batch).float().cpu().numpy()
    return rows, time.perf_counter() - start


def _warm_up(loaded: LoadedModel, machine: Machine) -> int:
    """One run at each kind of shape that occurs: alone, a mixed batch, the longest texts. Returns
    the columns of a row."""
    columns = 0
    longest = min(loaded.longest, machine.batch_tokens)
    shapes = [[12], [12, 30, 30, 60], [longest] * max(1, machine.batch_tokens // longest)]
    if not machine.on_cpu:
        for share in (16, 8, 4, 2, 1):
            length = min(64, longest)
            shapes.append([length] * max(1, machine.batch_tokens // share // length))
    for lengths in shapes:
        ones = [np.ones(min(length, longest), np.int32) for length in lengths]
        with torch.inference_mode():
            rows, _ = _forward(loaded, pack([Tokens(ids, np.zeros_like(ids)) for ids in ones]))
        columns = rows.shape[1]
    return columns
