"""An embedder that costs nothing: words hashed into a small unit vector."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from retrieval.types import Floats

DIMENSION = 32


class HashEmbedder:
    model_id = "hash"
    dimension = DIMENSION

    async def embed_queries(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        return _vectors(texts)

    async def embed_passages(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        return _vectors(texts)


def _vectors(texts: Sequence[str]) -> Floats:
    vectors = np.zeros((len(texts), DIMENSION), np.float32)
    for row, text in enumerate(texts):
        for word in text.lower().split():
            digest = crc32(word.encode())
            vectors[row, digest % DIMENSION] += 1.0 if digest & 0x8000 else -1.0
        if not vectors[row].any():
            vectors[row, 0] = 1.0
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors
