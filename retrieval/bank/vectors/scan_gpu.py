"""A scan whose similarities stay on the device."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from retrieval.bank.vectors.flat import NO_TYPE
from retrieval.topk import best
from retrieval.types import Bools, FactType, Floats, Hits, Ints, no_hits

if TYPE_CHECKING:
    from torch import Tensor

R = TypeVar("R")

_GATHER_SHARE = 0.1
"""Below this share of a bank's rows the survivors of a filter are gathered and scored alone."""


class Device(Protocol):
    """The thread that owns a device; `work` of `run` is done on it."""

    @property
    def torch(self) -> Any: ...

    def run(self, work: Callable[[], R]) -> R: ...

    def upload(self, array: NDArray[Any]) -> Tensor: ...

    def similarities(self, store: Any, query: Floats, to_host: bool) -> Future[Any]: ...


class DeviceRows(Protocol):
    """A bank's rows on a device, as a scan reads them."""

    @property
    def backend(self) -> Device: ...

    @property
    def size(self) -> int: ...

    @property
    def dimension(self) -> int: ...

    @property
    def kinds(self) -> NDArray[np.uint8]: ...

    @property
    def device_kinds(self) -> Tensor | None: ...

    def gathered(self, query: Floats, ordinals: Ints) -> Floats: ...


class DeviceScan:
    """A scan whose similarities stay on the device: `Scan` for large banks."""

    __slots__ = ("_query", "_row", "_store")

    def __init__(self, store: DeviceRows, query: Floats) -> None:
        self._store = store
        self._query = query
        self._row: Future[Tensor] | None = None

    def start(self) -> Future[Tensor]:
        """The similarities to be; asked for now, so that queries come together."""
        if self._row is None:
            self._row = self._store.backend.similarities(self._store, self._query, to_host=False)
        return self._row

    def top(self, k: int, allowed: Bools | None, fact_type: FactType) -> Hits:
        store = self._store
        members = store.kinds == fact_type
        if allowed is not None:
            members &= allowed
        count = int(np.count_nonzero(members))
        if not count or k <= 0:
            return no_hits()
        if self._row is None and count < _GATHER_SHARE * store.size:
            few = np.flatnonzero(members).astype(np.int32)
            return best(store.gathered(self._query, few), few, k)
        row = self.start().result()
        values, ordinals = store.backend.run(
            partial(_largest, store, row, min(k, count), allowed, fact_type)
        )
        order = np.argsort(ordinals)
        return best(values[order], ordinals[order].astype(np.int32), k)

    def at(self, ordinals: Ints) -> Floats:
        if not len(ordinals) or not self._store.dimension:
            return np.zeros(len(ordinals), np.float32)
        row, backend = self.start().result(), self._store.backend

        def work() -> Floats:
            found: Floats = row[backend.upload(ordinals.astype(np.int64))].cpu().numpy()
            return found

        return np.clip(backend.run(work), -1.0, 1.0)

    def moments(self, fact_type: FactType | None) -> tuple[float, float]:
        store = self._store
        kinds = store.device_kinds
        if kinds is None or not store.dimension or not np.any(store.kinds != NO_TYPE):
            return 0.0, 0.0
        row = self.start().result()

        def work() -> tuple[int, float, float]:
            members = row[kinds != NO_TYPE if fact_type is None else kinds == int(fact_type)]
            if not len(members):
                return 0, 0.0, 0.0
            wide = members.double()
            return len(members), float(wide.mean()), float(wide.std(correction=0))

        _, mean, deviation = store.backend.run(work)
        return mean, deviation


def _largest(
    store: DeviceRows, row: Tensor, k: int, allowed: Bools | None, fact_type: FactType
) -> tuple[Floats, Ints]:
    """The k largest and all that tie with the last of them; on the owning thread."""
    torch = store.backend.torch
    assert store.device_kinds is not None
    members = store.device_kinds == int(fact_type)
    if allowed is not None:
        members &= store.backend.upload(allowed)
    values = row.masked_fill(~members, -torch.inf)
    top = torch.topk(values, k)
    tied = values >= top.values[-1]
    if int(tied.sum()) > k:
        ordinals = tied.nonzero().flatten()
        return values[ordinals].cpu().numpy(), ordinals.cpu().numpy()
    return top.values.cpu().numpy(), top.indices.cpu().numpy()
