"""Exact vector search on an accelerator.

One slab of half-precision numbers per device, within a byte budget; each bank's rows lie in one
extent of it, so a search of one bank cannot reach another's rows: isolation is address arithmetic,
not a filter. One thread owns the device. It takes whatever waits, makes one product of the queries
to the same bank, and runs different banks one after the other in its stream: no timer, work waits
only while other work runs. Only rows are rounded to half precision; sums are single precision.

Every call blocks its thread until the device answered: call from a worker thread.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.columns import AliveSet
from retrieval.bank.csr import Column
from retrieval.bank.vectors.flat import NO_TYPE, FlatBackend, Scan, VectorStore, checked, width_of
from retrieval.bank.vectors.scan_gpu import DeviceScan
from retrieval.bank.vectors.scan_host import HostScan
from retrieval.bank.vectors.slab import Extent, Slab
from retrieval.errors import Unavailable
from retrieval.topk import best_per_row, joined_nearest, no_nearest
from retrieval.types import Bools, FactType, Floats, Ints

if TYPE_CHECKING:
    from torch import Tensor

R = TypeVar("R")

_FIRST_ROOM = 1.125
_GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class _Product:
    """A query that waits to be multiplied with a bank's rows."""

    store: GpuVectors
    query: Floats
    to_host: bool
    future: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


class GpuBackend:
    """A device, its slab and its thread. Makes the stores of banks: `VectorBackend`.

    `budget_bytes`: the slab. `temp_bytes`: what one product may take besides. Banks of up to
    `host_rows` memories hand a query's similarities to the host in one piece, where picking the
    best costs less than another round; larger ones are sorted on the device. A bank that finds no
    room lives in host memory and is searched by the CPU.

    Raises Unavailable where the device does not pass its self-test.
    """

    def __init__(
        self,
        device: str = "cuda",
        *,
        budget_bytes: int = 8 << 30,
        temp_bytes: int = 256 << 20,
        host_rows: int = 65_536,
    ) -> None:
        import torch

        self.torch: Any = torch
        self.device = torch.device(device)
        self.temp_bytes = temp_bytes
        self.host_rows = host_rows
        self.room = Slab(budget_bytes // 2)
        self._inbox: queue.SimpleQueue[_Product | _Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._own, name="vectors-device", daemon=True)
        self._thread.start()
        self.slab: Tensor = self.run(
            lambda: torch.empty(budget_bytes // 2, dtype=torch.float16, device=self.device)
        )
        self._mixed = self.run(self._sums_halves_in_full)
        self.spilled = 0
        """Banks that found no room on the device since the start."""
        self.self_test()

    def empty(self) -> GpuVectors:
        return GpuVectors(
            self,
            None,
            0,
            0,
            AliveSet.empty(),
            Column.empty(np.bool_),
            np.empty(0, np.uint8),
            None,
        )

    def run(self, work: Callable[[], R]) -> R:
        """The result of `work` on the owning thread."""
        job = _Job(work)
        self._inbox.put(job)
        result: R = job.future.result()
        return result

    def similarities(self, store: GpuVectors, query: Floats, to_host: bool) -> Future[Any]:
        """A query's product with all rows, as float32 on the host or on the device."""
        product = _Product(store, query, to_host)
        self._inbox.put(product)
        return product.future

    def close(self) -> None:
        """Ends the thread after what waits; stores cannot be searched afterwards."""
        self._inbox.put(None)
        self._thread.join()

    def self_test(self) -> None:
        """Asks the device what a wrong build gets wrong: filters, many results, precision."""
        chance = np.random.default_rng(0)
        rows = chance.standard_normal((4096, 64), dtype=np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        population = AliveSet.empty().extended(np.zeros(4096, np.uint8), np.empty(0, np.int32))
        store = self.empty().extended([rows], np.zeros(4096, np.bool_), population)
        if not isinstance(store, GpuVectors):
            raise Unavailable("the accelerator", "its budget does not hold the self-test")
        truth = rows @ rows[7]
        allowed = np.ones(4096, np.bool_)
        allowed[7] = False  # the best answer is masked
        hits = DeviceScan(store, rows[7]).top(3000, allowed, FactType.WORLD)
        wanted = np.argsort(-np.where(allowed, truth, -2), kind="stable")[:3000]
        if len(hits) != 3000 or 7 in hits.ordinals:
            raise Unavailable("the accelerator", "it does not keep to filters or result counts")
        if len(np.intersect1d(hits.ordinals, wanted)) < 2970:
            raise Unavailable("the accelerator", "its products are not precise enough")

    # On the owning thread

    def _own(self) -> None:
        while (first := self._inbox.get()) is not None:
            waiting: list[_Product | _Job] = [first]
            while True:
                try:
                    more = self._inbox.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._inbox.put(None)
                    break
                waiting.append(more)
            self._serve(waiting)
            del first, waiting

    def _serve(self, waiting: Sequence[_Product | _Job]) -> None:
        """Jobs in order; products of one bank together, when the first of them is due."""
        products: dict[int, list[_Product]] = {}
        for item in waiting:
            if item.future.set_running_or_notify_cancel() and isinstance(item, _Product):
                products.setdefault(id(item.store), []).append(item)
        for item in waiting:
            if item.future.cancelled():
                continue
            if isinstance(item, _Job):
                try:
                    item.future.set_result(item.work())
                except BaseException as error:
                    item.future.set_exception(self._named(error))
            elif together := products.pop(id(item.store), None):
                self._multiply(together)

    def _multiply(self, products: Sequence[_Product]) -> None:
        store = products[0].store
        step = max(1, self.temp_bytes // max(1, 4 * store.size))
        for first in range(0, len(products), step):
            part = products[first : first + step]
            try:
                table = self.product(np.stack([p.query for p in part]), store.extent_rows())
                host = table.cpu().numpy() if any(p.to_host for p in part) else None
                for i, p in enumerate(part):
                    p.future.set_result(host[i] if p.to_host and host is not None else table[i])
            except BaseException as error:
                for p in part:
                    if not p.future.done():
                        p.future.set_exception(self._named(error))

    def product(self, queries: Floats, rows: Tensor) -> Tensor:
        """float32 (b, n) of queries (b, d) and half rows (n, d); on the owning thread."""
        torch = self.torch
        asked = self.upload(queries)
        if self._mixed:
            wide: Tensor = torch.mm(asked.half(), rows.T, out_dtype=torch.float32)
            return wide
        step = max(1, self.temp_bytes // (4 * max(1, rows.shape[1])))
        wide = asked.new_empty((len(asked), len(rows)))
        for first in range(0, len(rows), step):
            wide[:, first : first + step] = asked @ rows[first : first + step].float().T
        return wide

    def _sums_halves_in_full(self) -> bool:
        """Whether the device multiplies halves and sums them in single precision. Where it does
        not, rows are widened first, a bounded piece at a time."""
        half = self.torch.ones((8, 8), dtype=self.torch.float16, device=self.device)
        try:
            self.torch.mm(half, half, out_dtype=self.torch.float32)
        except (TypeError, RuntimeError, NotImplementedError):
            return False
        return True

    def upload(self, array: NDArray[Any]) -> Tensor:
        """A copy of a host array on the device; on the owning thread."""
        # Of its own: torch does not take read-only arrays.
        copy: Tensor = self.torch.tensor(array).to(self.device)
        return copy

    def _named(self, error: BaseException) -> BaseException:
        if isinstance(error, self.torch.OutOfMemoryError):
            return Unavailable("the accelerator", "it is out of memory")
        return error


@dataclass(frozen=True, slots=True)
class GpuVectors:
    """A bank's rows in a device's slab: `VectorStore`."""

    backend: GpuBackend
    extent: Extent | None
    size: int
    dimension: int
    population: AliveSet
    absent: Column[np.bool_]
    kinds: NDArray[np.uint8]
    """The type of every ordinal, NO_TYPE where it cannot be found."""
    device_kinds: Tensor | None

    @property
    def nbytes(self) -> int:
        return self.absent.values.nbytes + self.kinds.nbytes

    @property
    def device_nbytes(self) -> int:
        return 0 if self.extent is None else 2 * self.extent.capacity * self.dimension + self.size

    def extended(
        self, blocks: Sequence[Floats], absent: Bools, population: AliveSet
    ) -> VectorStore:
        dimension = width_of(blocks, self.dimension)
        gone = self.absent.extended(absent)
        kinds = np.full(population.size, NO_TYPE, np.uint8)
        for fact_type, rows in zip(FactType, population.rows, strict=True):
            kinds[rows] = fact_type
        kinds[gone.values] = NO_TYPE
        extent = self._room(len(absent), dimension) if dimension else None
        if dimension and extent is None:
            return self._on_host(blocks, gone.values, population, dimension)
        device_kinds = self.backend.run(partial(self._write, extent, blocks, kinds))
        return GpuVectors(
            self.backend,
            extent,
            population.size,
            dimension,
            population,
            gone,
            kinds,
            device_kinds,
        )

    def scan(self, query: Floats) -> Scan:
        query = checked(query, self.dimension)
        if self.size <= self.backend.host_rows:
            return HostScan(self, query, partial(self.dense, query), 0.0)
        return DeviceScan(self, query)

    def scan_many(self, queries: Floats) -> Sequence[Scan]:
        # The owning thread makes one product of those that wait at the same time.
        scans = [self.scan(query) for query in checked(queries, self.dimension)]
        for scan in scans:
            if isinstance(scan, DeviceScan):
                scan.start()
        return scans

    def nearest(
        self, vectors: Floats, types: NDArray[np.uint8], k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        if not self.dimension or not self.size or k <= 0:
            return no_nearest()
        vectors = checked(vectors, self.dimension)
        step = max(1, self.backend.temp_bytes // (12 * self.size))
        parts = []
        for first in range(0, len(vectors), step):
            block = partial(
                self._nearest, vectors[first : first + step], types[first : first + step], k, floor
            )
            parts.append(self.backend.run(block))
        return joined_nearest(parts, step)

    def rows(self, ordinals: Ints) -> Floats:
        if not self.dimension:
            return np.zeros((len(ordinals), 0), np.float32)
        return self.backend.run(lambda: self._selected(ordinals).float().cpu().numpy())

    def searchable(self, fact_type: FactType | None) -> int:
        members = self.kinds != NO_TYPE if fact_type is None else self.kinds == fact_type
        return int(np.count_nonzero(members))

    def candidates(self, fact_type: FactType) -> Ints:
        """Live ordinals of a type that have a vector, ascending."""
        return np.flatnonzero(self.kinds == fact_type).astype(np.int32)

    def dense(self, query: Floats) -> Floats:
        """Similarities of all rows."""
        found: Floats = self.backend.similarities(self, query, to_host=True).result()
        return found

    def gathered(self, query: Floats, ordinals: Ints) -> Floats:
        """Similarities of some rows, scored alone."""

        def work() -> Floats:
            found: Floats = (
                self.backend.product(query[None], self._selected(ordinals))[0].cpu().numpy()
            )
            return found

        return self.backend.run(work)

    def extent_rows(self) -> Tensor:
        """All rows on the device (size, d); on the owning thread."""
        if self.extent is None:
            return self.backend.slab[:0].view(0, max(1, self.dimension))
        return self.extent.rows(self.backend.slab, self.size)

    def _selected(self, ordinals: Ints) -> Tensor:
        chosen = self.backend.upload(ordinals.astype(np.int64))
        return self.extent_rows().index_select(0, chosen)

    def _room(self, more: int, dimension: int) -> Extent | None:
        held, total = self.extent, self.size + more
        if held is not None and held.used == self.size and held.capacity >= total:
            return held
        wanted = int(total * (_FIRST_ROOM if held is None else _GROWTH)) + 64
        room = self.backend.room
        return Extent.of(room, wanted, dimension) or Extent.of(room, total, dimension)

    def _write(
        self, extent: Extent | None, blocks: Sequence[Floats], kinds: NDArray[np.uint8]
    ) -> Tensor:
        if extent is not None:
            rows = extent.rows(self.backend.slab, len(kinds))
            if extent is not self.extent:
                rows[: self.size] = self.extent_rows() if self.extent is not None else 0
            step = max(1, self.backend.temp_bytes // (4 * max(1, extent.dimension)))
            at = self.size
            for block in blocks:
                for first in range(0, len(block), step):
                    part = self.backend.upload(block[first : first + step])
                    rows[at : at + len(part)] = part
                    at += len(part)
            extent.used = len(kinds)
        return self.backend.upload(kinds)

    def _on_host(
        self, blocks: Sequence[Floats], absent: Bools, population: AliveSet, dimension: int
    ) -> VectorStore:
        self.backend.spilled += 1
        held = np.zeros((self.size, dimension), np.float32)
        if self.extent is not None:
            held = self.rows(np.arange(self.size, dtype=np.int32))
        return FlatBackend().empty().extended([held, *blocks], absent, population)

    def _nearest(
        self, vectors: Floats, types: NDArray[np.uint8], k: int, floor: float
    ) -> tuple[Ints, Ints, Floats]:
        torch = self.backend.torch
        assert self.device_kinds is not None
        table = self.backend.product(vectors, self.extent_rows())
        same = self.device_kinds[None, :] == self.backend.upload(types)[:, None]
        values, ordinals = torch.topk(table.masked_fill_(~same, -torch.inf), min(k, self.size))
        found, ordinal = values.cpu().numpy(), ordinals.cpu().numpy()
        row, rank = np.nonzero((found >= floor) & np.isfinite(found))
        return best_per_row(row, ordinal[row, rank], found[row, rank], k)
