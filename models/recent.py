"""Vectors of recent questions, each for the tenant that asked.

A tenant that was answered from another's entry would learn by the time it took what the other
asked. The questions themselves are not kept: a digest with a key of this process stands for each.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from hashlib import blake2b

from models.types import Floats

BYTES = 16 << 20
"""What all entries may hold together."""

LONGEST_CHARS = 8_192
"""Longer questions are not asked twice."""

ENTRY_BYTES = 400
"""Of an entry beside its vector."""


class RecentVectors:
    """The last `most` used, within `most_bytes`. Use from one thread."""

    def __init__(self, most: int, most_bytes: int = BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._vectors: OrderedDict[bytes, Floats] = OrderedDict()
        self._secret = os.urandom(32)
        self.bytes = 0

    def get(self, tenant: str, text: str) -> Floats | None:
        """Read only."""
        key = self._key(tenant, text)
        found = self._vectors.get(key)
        if found is not None:
            self._vectors.move_to_end(key)
        return found

    def put(self, tenant: str, text: str, vector: Floats) -> None:
        """Keeps a copy."""
        if not self._most or len(text) > LONGEST_CHARS:
            return
        key = self._key(tenant, text)
        self._forget(key)
        self._vectors[key] = vector.copy()
        self.bytes += vector.nbytes + ENTRY_BYTES
        while len(self._vectors) > self._most or self.bytes > self._most_bytes:
            self._forget(next(iter(self._vectors)))

    def _forget(self, key: bytes) -> None:
        old = self._vectors.pop(key, None)
        if old is not None:
            self.bytes -= old.nbytes + ENTRY_BYTES

    def _key(self, tenant: str, text: str) -> bytes:
        said = f"{len(tenant)} {tenant}{text}".encode("utf-8", "surrogatepass")
        return blake2b(said, digest_size=16, key=self._secret).digest()
