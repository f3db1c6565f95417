"""Rerankers that read nothing: the caller keeps its own order."""

from __future__ import annotations

from models.types import Load, RerankRequest, Scores


class Passthrough:
    """Answers at once, without scores. `name` is "rrf" where it was asked for, and "fused" where it
    stands at the end of a chain for the day when nothing else answers."""

    reads_text = False

    def __init__(self, name: str = "rrf") -> None:
        self.name = name
        self.model_id = name

    async def start(self) -> None:
        pass

    async def check_health(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def load(self) -> Load:
        return Load()

    async def rerank(self, request: RerankRequest) -> Scores:
        return Scores(None, "unknown", self.name)
