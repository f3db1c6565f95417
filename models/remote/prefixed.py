"""What embedders over HTTP share: prefixes, the cut of long texts, the dimension of answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from models.local.text import off_loop
from models.settings import EmbedderSettings
from models.tokencut import cut_to_tokens
from models.types import BadOutput, Floats

LONGEST_CHARS = 1 << 19
"""Of one text: 64 characters for each of 8,192 tokens, more than such servers read."""


class PrefixedEmbedder(ABC):
    """An Embedder whose server takes plain texts. Vectors have length 1."""

    def __init__(self, settings: EmbedderSettings) -> None:
        self._settings = settings
        self._dimension = 0

    @property
    def dimension(self) -> int:
        """0 before the start."""
        return self._dimension

    def legibility(self, text: str) -> float | None:
        """Servers do not say how they read."""
        return None

    async def embed_queries(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        return await self._prefixed(texts, deadline, passages=False)

    async def embed_passages(
        self, texts: Sequence[str], *, tenant: str = "", deadline: float | None = None
    ) -> Floats:
        return await self._prefixed(texts, deadline, passages=True)

    async def _prefixed(
        self, texts: Sequence[str], deadline: float | None, *, passages: bool
    ) -> Floats:
        own = self._settings
        prefix = own.passage_prefix if passages else own.query_prefix
        most = own.max_input_tokens

        def work() -> list[str]:
            return [prefix + cut_to_tokens(text[:LONGEST_CHARS], most) for text in texts]

        cut = await off_loop(sum(map(len, texts)) if most else 0, work)
        rows = await self._embed(cut, deadline, passages=passages)
        if self._dimension and rows.shape[1] != self._dimension:
            sizes = f"{rows.shape[1]} numbers where it had {self._dimension}"
            raise BadOutput(f"{self.model_id}: its vectors have {sizes}")
        return rows

    @property
    @abstractmethod
    def model_id(self) -> str: ...

    async def _learn_dimension(self, close: Callable[[], Awaitable[None]]) -> None:
        """Asks for one vector, unless that was done before; closes where there is none."""
        if self._dimension:
            return
        try:
            probe = await self._embed(["dimension"], None, passages=True)
        except BaseException:
            await close()
            raise
        self._dimension = probe.shape[1]

    @abstractmethod
    async def _embed(
        self, texts: Sequence[str], deadline: float | None, *, passages: bool
    ) -> Floats:
        """Vectors (n, d) of the texts as they are."""
