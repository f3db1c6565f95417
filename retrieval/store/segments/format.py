"""Packed segments: how arrays lie in Postgres.

A segment is a bytea with a small JSON header and the raw little-endian arrays behind it, each
aligned to 64 bytes. Reading is zero-copy: the arrays are read-only views of the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

_MAGIC = b"4FS1"
_ALIGN = 64


def pack(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The arrays as one byte string. Names and dtypes are kept, order is free."""
    header: dict[str, tuple[str, list[int], int]] = {}
    offset = 0
    for name, array in arrays.items():
        header[name] = (array.dtype.str, list(array.shape), offset)
        offset += -(-array.nbytes // _ALIGN) * _ALIGN
    head = orjson.dumps(header)
    start = -(-(8 + len(head)) // _ALIGN) * _ALIGN
    out = bytearray(start + offset)
    out[:8] = _MAGIC + struct.pack("<I", len(head))
    out[8 : 8 + len(head)] = head
    for name, array in arrays.items():
        at = start + header[name][2]
        out[at : at + array.nbytes] = np.ascontiguousarray(array).tobytes()
    return bytes(out)


def unpack(payload: bytes | memoryview) -> dict[str, NDArray[Any]]:
    """The arrays of `pack`, as read-only views of `payload`. ValueError if it is no segment."""
    if bytes(payload[:4]) != _MAGIC:
        raise ValueError("not a segment: bad magic")
    (length,) = struct.unpack("<I", payload[4:8])
    header = orjson.loads(bytes(payload[8 : 8 + length]))
    start = -(-(8 + length) // _ALIGN) * _ALIGN
    arrays: dict[str, NDArray[Any]] = {}
    for name, (dtype, shape, offset) in header.items():
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(payload, np.dtype(dtype), count, start + offset).reshape(shape)
    return arrays
