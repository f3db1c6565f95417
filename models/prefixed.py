"""What embedders over HTTP share: prefixes, the cut of long texts, the dimension of answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from models.settings import EmbedderSettings
from models.tokencut import cut_to_tokens
from models.types import Floats


class PrefixedEmbedder(ABC):
    """An Embedder whose server takes plain texts. Vectors have length 1."""

    def __init__(self, settings: EmbedderSettings) -> None:
        self._settings = settings
        self._dimension = 0

    @property
    def dimension(self) -> int:
        """0 before the start."""
        return self._dimension

    async def embed_queries(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        return await self._prefixed(texts, self._settings.query_prefix, deadline)

    async def embed_passages(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        return await self._prefixed(texts, self._settings.passage_prefix, deadline)

    async def _prefixed(self, texts: Sequence[str], prefix: str, deadline: float | None) -> Floats:
        limit = self._settings.max_input_tokens
        cut = [prefix + cut_to_tokens(text, limit) for text in texts]
        return await self._embed(cut, deadline)

    async def _learn_dimension(self, close: Callable[[], Awaitable[None]]) -> None:
        """Asks for one vector, unless that was done before; closes where there is none."""
        if self._dimension:
            return
        try:
            probe = await self._embed(["dimension"], None)
        except BaseException:
            await close()
            raise
        self._dimension = probe.shape[1]

    @abstractmethod
    async def _embed(self, texts: Sequence[str], deadline: float | None) -> Floats:
        """Vectors (n, d) of the texts as they are."""
