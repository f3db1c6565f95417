"""Vectors of recent questions, each for the tenant that asked.

A tenant that was answered from another's entry would learn by the time it took what the other
asked.
"""

from __future__ import annotations

from collections import OrderedDict

from models.types import Floats

BYTES = 16 << 20
"""What all entries may hold together."""

LONGEST_CHARS = 8_192
"""Longer questions are not asked twice."""

ENTRY_BYTES = 400
"""Of an entry beside its text and vector."""


class RecentVectors:
    """The last `most` used, within `most_bytes`. Use from one thread."""

    def __init__(self, most: int, most_bytes: int = BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._vectors: OrderedDict[tuple[str, str], Floats] = OrderedDict()
        self.bytes = 0

    def get(self, tenant: str, text: str) -> Floats | None:
        """Read only."""
        key = (tenant, text)
        found = self._vectors.get(key)
        if found is not None:
            self._vectors.move_to_end(key)
        return found

    def put(self, tenant: str, text: str, vector: Floats) -> None:
        """Keeps a copy."""
        if not self._most or len(text) > LONGEST_CHARS:
            return
        key = (tenant, text)
        self._forget(key)
        self._vectors[key] = vector.copy()
        self.bytes += _size(key, vector)
        while len(self._vectors) > self._most or self.bytes > self._most_bytes:
            self._forget(next(iter(self._vectors)))

    def _forget(self, key: tuple[str, str]) -> None:
        old = self._vectors.pop(key, None)
        if old is not None:
            self.bytes -= _size(key, old)


def _size(key: tuple[str, str], vector: Floats) -> int:
    tenant, text = key
    # A character takes up to four bytes.
    return 4 * (len(tenant) + len(text)) + vector.nbytes + ENTRY_BYTES
