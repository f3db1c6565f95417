"""Parts of packed segments, read where they lie: a slice costs the same whatever the segment's
size."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from retrieval.store.database.pool import Connection

_HEAD = 4096
"""Bytes that hold the header of every segment that is written."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the arrays of one stored segment lie; `arrays`: name -> (dtype, shape, offset)."""

    bank: int
    kind: str
    first: int
    count: int
    arrays: Mapping[str, tuple[np.dtype[Any], tuple[int, ...], int]]

    @property
    def end(self) -> int:
        return self.first + self.count

    async def rows(self, connection: Connection, name: str, begin: int, end: int) -> NDArray[Any]:
        """Rows [begin, end) of one array, read-only."""
        dtype, shape, offset = self.arrays[name]
        width = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        data: bytes = await connection.fetchval(
            "select substr(payload, $4, $5) from segments"
            " where bank = $1 and kind = $2 and first_ordinal = $3",
            self.bank, self.kind, self.first, 1 + offset + begin * width, (end - begin) * width,
        )  # fmt: skip
        return np.frombuffer(data, dtype).reshape(end - begin, *shape[1:])


async def places(connection: Connection, bank: int, kind: str) -> list[Place]:
    """The segments of one kind, ascending."""
    rows = await connection.fetch(
        "select first_ordinal, count, substr(payload, 1, $3) as head from segments"
        " where bank = $1 and kind = $2 order by first_ordinal",
        bank,
        kind,
        _HEAD,
    )
    return [
        Place(bank, kind, row["first_ordinal"], row["count"], _arrays(row["head"])) for row in rows
    ]


def _arrays(head: bytes) -> dict[str, tuple[np.dtype[Any], tuple[int, ...], int]]:
    (length,) = struct.unpack("<I", head[4:8])
    start = -(-(8 + length) // 64) * 64
    return {
        name: (np.dtype(dtype), tuple(shape), start + offset)
        for name, (dtype, shape, offset) in orjson.loads(head[8 : 8 + length]).items()
    }
